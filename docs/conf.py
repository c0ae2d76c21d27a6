"""Settings of the documentation build (`make docs`)."""

from importlib.metadata import version as installed_version

project = "Turngate"
author = "The Turngate authors"
release = version = installed_version("turngate")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Turngate {release}"

# Headings can be linked to, and notes can be written with colons.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Only what `__all__` lists is public. The order of the source is the order to read it in.
autodoc_default_options = {"members": True, "ignore-module-all": False}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

"""ARCHITECTURE.md speaks of the tree as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
TEXT = PAGE.read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "turngate"
FOLDERS = ("src/", "docs/", "tests/", "changes/", "benchmarks/")

# Whatever looks like a file or a folder: `gateway.py`, `docs/decisions/`, `src/turngate/cli/`.
PATHS = sorted(
    {
        path
        for path in re.findall(r"`([\w./-]+)`", TEXT)
        if path.startswith(FOLDERS) or path.endswith((".py", ".md", ".txt", ".toml"))
    }
)
TOP_MODULES = sorted(
    path.relative_to(PACKAGE).as_posix() + ("/" if path.is_dir() else "")
    for path in PACKAGE.iterdir()
    if (path.suffix == ".py" and not path.name.startswith("__"))
    or (path.is_dir() and (path / "__init__.py").exists())
)
MODULES_OF_PACKAGES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for package in ("gateway", "context", "providers", "stores", "files", "tools", "checks")
    for path in (PACKAGE / package).glob("*.py")
    if not path.name.startswith("__")
)


@pytest.mark.parametrize("path", PATHS)
def test_architecture_names_only_what_exists(path: str) -> None:
    """Each path on the page is there, from the root, in the package, or in a package of it."""
    if path.startswith(FOLDERS):
        assert (ROOT / path).exists()
    else:
        assert [p for root in (ROOT, PACKAGE) for p in root.glob(path)] or list(
            PACKAGE.glob(f"*/{path}")
        )


@pytest.mark.parametrize("module", TOP_MODULES)
def test_architecture_names_each_module(module: str) -> None:
    """The code map has a line for each module and each package."""
    assert re.search(rf"`(src/turngate/)?{re.escape(module)}`", TEXT)


@pytest.mark.parametrize("path", MODULES_OF_PACKAGES)
def test_architecture_names_each_module_of_a_package(path: str) -> None:
    """The packages of the ring are mapped to the file, since a change starts there most often."""
    assert f"`{Path(path).name}`" in TEXT or f"`src/turngate/{path}`" in TEXT


def test_architecture_stays_short() -> None:
    """The page is read in one go: under 200 lines."""
    assert len(TEXT.splitlines()) < 200


def test_architecture_draws_the_layers_in_their_order() -> None:
    """The picture's lines from top to bottom are the layers of the import contract."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = pyproject["tool"]["importlinter"]["contracts"][0]
    picture = re.findall(r"```\n(.*?)```", TEXT, re.DOTALL)[0].splitlines()
    drawn = []
    for layer in contract["layers"]:
        for name in re.findall(r"(?<!\()\b\w+\b(?!\))", layer):
            lines = [i for i, line in enumerate(picture) if re.search(rf"\b{name}\b", line)]
            assert lines, f"{name} is not drawn"
            drawn.append(lines[0])
    assert drawn == sorted(drawn)

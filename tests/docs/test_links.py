"""Links between the pages lead somewhere, and the commands in them are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, fences, page_id

LINKS = [
    pytest.param(page, target, id=f"{page_id(page)}-{target}")
    for page in PAGES
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    if "://" not in target
]
TARGETS = re.findall(
    r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_link_leads_to_a_file(page: Path, target: str) -> None:
    """A link within the repository names a file that is there."""
    assert (page.parent / target).exists()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_make_target_in_a_page_exists(page: Path) -> None:
    """``make …`` in a page is a target of the Makefile."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    assert set(named) <= set(TARGETS)


def test_readme_gives_the_command_for_the_tests() -> None:
    """The first block under the heading that CI looks for is the command, and nothing else."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n## Run the tests\n") == 1
    section = text.partition("\n## Run the tests\n")[2]
    assert section.lstrip().startswith("```sh\nmake test\n```\n")
    assert "make test\n" in [source for _, source in fences(ROOT / "README.md", "sh")]


def test_demo_of_the_readme_is_the_real_one() -> None:
    """The transcript asks what the demo asks, so it was not made up, nor made by an older one."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- demo transcript -->")[2]
    asked = re.findall(r"^you +(.*)$", text, re.MULTILINE)
    source = (ROOT / "src" / "turngate" / "cli" / "demo.py").read_text(encoding="utf-8")
    assert asked
    assert [prompt for prompt in asked if prompt not in source] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_command_in_a_page_exists(page: Path) -> None:
    """``turngate …`` in a page is a command of the program."""
    typer = pytest.importorskip("typer")
    from turngate.cli.commands import app

    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:`|^|/)turngate ([a-z]+)(?: ([a-z]+))?", text, re.MULTILINE)
    commands = typer.main.get_command(app).commands
    for name, following in named:
        assert name in commands
        if hasattr(commands[name], "commands") and following:
            assert following in commands[name].commands

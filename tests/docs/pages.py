"""The pages, and what the tests of the pages read in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGES", "ROOT", "fences", "page_id", "table_rows"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        *(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
    ]
)

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_id(page: Path) -> str:
    """The name of a test about `page`."""
    return page.relative_to(ROOT).as_posix()


def fences(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks of `language` on `page`, each with the line of its first line."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start(2)) + 1, match[2]


def table_rows(page: Path, heading: str) -> Iterator[list[str]]:
    """The cells of each row of the first table under `heading`, without its head."""
    section = page.read_text(encoding="utf-8").partition(f"{heading}\n")[2]
    table = re.search(r"^\|.*?(?=\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    if table is None:
        return
    for line in table[0].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]

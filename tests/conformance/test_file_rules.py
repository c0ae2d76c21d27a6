"""The numbered rules of docs/reference/files.md and the tests that quote them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/conformance", "tests/integration/files")


def _documented() -> list[str]:
    text = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
    return re.findall(r"^- \*\*\[(F\d+)\]\*\* ", text, re.MULTILINE)


def _quoted() -> set[str]:
    """The rules at the beginning of the docstrings of tests."""
    found: set[str] = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                quote = re.match(r"(\[F\d+\] )+", ast.get_docstring(node) or "")
                if node.name.startswith("test_") and quote is not None:
                    found.update(re.findall(r"F\d+", quote[0]))
    return found


def test_the_rules_of_files_are_numbered_without_gaps() -> None:
    """The rules stand in the order of their numbers, each once."""
    documented = _documented()
    assert documented == [f"F{number}" for number in range(1, len(documented) + 1)]


def test_each_rule_of_files_is_quoted_and_each_quote_is_a_rule() -> None:
    """No rule is without a test, and no test quotes a rule that is not written."""
    assert sorted(_quoted()) == sorted(_documented())

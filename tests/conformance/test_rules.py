"""The numbered rules of docs/reference/store.md and the tests that quote them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/conformance", "tests/integration/stores", "tests/unit/stores")
CASES = sorted((ROOT / "tests/data/cases").glob("t-*.json"))


def _documented() -> list[str]:
    text = (ROOT / "docs/reference/store.md").read_text(encoding="utf-8")
    return re.findall(r"^- \*\*\[(S\d+)\]\*\* ", text, re.MULTILINE)


def _sources() -> list[str]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]
    return [path.read_text(encoding="utf-8") for path in paths]


def _quoted() -> set[str]:
    """The rules at the beginning of the docstrings of tests."""
    found: set[str] = set()
    for source in _sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                quote = re.match(r"(\[S\d+\] )+", ast.get_docstring(node) or "")
                if node.name.startswith("test_") and quote is not None:
                    found.update(re.findall(r"S\d+", quote[0]))
    return found


def test_the_rules_are_numbered_without_gaps() -> None:
    """The rules stand in the order of their numbers, each once."""
    documented = _documented()
    assert documented == [f"S{number}" for number in range(1, len(documented) + 1)]


def test_each_rule_is_quoted_and_each_quote_is_a_rule() -> None:
    """No rule is without a test, and no test quotes a rule that is not written."""
    assert sorted(_quoted()) == sorted(_documented())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_each_store_case_is_named_by_a_test(case: Path) -> None:
    """Each case of the field that concerns stores has a test that names it."""
    tests = (ROOT / "tests").rglob("*.py")
    assert any(re.search(rf"\b{case.stem}\b", path.read_text(encoding="utf-8")) for path in tests)

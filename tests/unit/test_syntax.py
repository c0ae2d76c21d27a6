"""Rules of the source that no linter here knows, held over its syntax trees.

1. A `match` ends in ``case _``. If one of its cases names a class of a closed union (an alias such
   as ``Part = TextPart | FilePart`` anywhere in the source), that last case is
   ``assert_never(<subject>)``; otherwise it does something: it is not a bare ``pass``.
2. Only `identity` reads the clock: elsewhere there is no ``x.now()`` but ``identity.now()``.
3. Imports are absolute.
4. Nothing inside imports a name from the root package; submodules are not names of it.
5. Only `turn_builder`, and the root that re-exports all, use part and message classes together.
6. The pure modules name nothing of `time`, `random`, `secrets` or `uuid`.

Each rule is a function from a source to its faults, and is seen to find one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import turngate.turns
from turngate import messages, turns

ROOT = Path(turngate.turns.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}

PARTS = {"TextPart", "FilePart", "ReasoningPart", "ToolCallPart", "ToolResultPart"}
MESSAGES = {"SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage"}
CONVERTERS = {"turn_builder.py", "__init__.py"}

PURE = {
    "errors.py",
    "values.py",
    "messages.py",
    "turns.py",
    "results.py",
    "completion.py",
    "transcript.py",
    "history.py",
    "turn_builder.py",
    "records.py",
    "settings.py",
    "protocols.py",
    "providers/sse.py",
    "providers/wire.py",
    "stores/rows.py",
}
IMPURE_NAMES = {"time", "random", "secrets", "uuid", "time_ns", "monotonic", "uuid4", "uuid7"}

Rule = Callable[[str, str], list[str]]
Node = TypeVar("Node", bound=ast.AST)


# ── rules ────────────────────────────────────────────────────────────────────────────────────


def union_members(source: str) -> set[str]:
    """The class names in unions that `source` gives a name to at module level."""
    return {
        member.id
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.BinOp)
        and isinstance(statement.value.op, ast.BitOr)
        for member in ast.walk(statement.value)
        if isinstance(member, ast.Name) and member.id[:1].isupper()
    }


CLOSED = set[str]().union(*map(union_members, SOURCES.values()))


def open_matches(_: str, source: str) -> list[str]:
    """Rule 1."""
    return [
        f"line {match.lineno}: {fault}"
        for match in _nodes(source, ast.Match)
        if (fault := _match_fault(match)) is not None
    ]


def _match_fault(match: ast.Match) -> str | None:
    last = match.cases[-1]
    if not _is_wildcard(last):
        return "does not end in `case _`"
    body = "; ".join(ast.unparse(statement) for statement in last.body)
    if any(_class_names(case.pattern) & CLOSED for case in match.cases):
        wanted = f"assert_never({ast.unparse(match.subject)})"
        return None if body == wanted else f"`case _` is not {wanted}"
    return "`case _` does nothing" if body == "pass" else None


def _is_wildcard(case: ast.match_case) -> bool:
    pattern = case.pattern
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None and case.guard is None


def _class_names(pattern: ast.pattern) -> set[str]:
    match pattern:
        case ast.MatchClass(cls=kind):
            return {ast.unparse(kind).rpartition(".")[2]}
        case ast.MatchOr(patterns=patterns):
            return set[str]().union(*map(_class_names, patterns))
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _class_names(inner)
        case _:
            return set()


def clock_reads(name: str, source: str) -> list[str]:
    """Rule 2."""
    return [
        f"line {call.lineno}: {ast.unparse(call)}"
        for call in _nodes(source, ast.Call)
        if name != "identity.py"
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in {"now", "utcnow", "today"}
        and ast.unparse(call.func.value) != "identity"
    ]


def relative_imports(_: str, source: str) -> list[str]:
    """Rule 3."""
    found = [each for each in _nodes(source, ast.ImportFrom) if each.level]
    return [f"line {each.lineno}: {ast.unparse(each)}" for each in found]


def root_imports(_: str, source: str) -> list[str]:
    """Rule 4."""
    return [
        f"line {each.lineno}: {alias.name} from the root"
        for each in _nodes(source, ast.ImportFrom)
        if each.module == "turngate"
        for alias in each.names
        if f"{alias.name}.py" not in SOURCES and f"{alias.name}/__init__.py" not in SOURCES
    ] + [
        f"line {each.lineno}: the root itself"
        for each in _nodes(source, ast.Import)
        if "turngate" in [alias.name for alias in each.names]
    ]


def mixed_shapes(name: str, source: str) -> list[str]:
    """Rule 5."""
    used = _names(source)
    if name in CONVERTERS or not (used & PARTS and used & MESSAGES):
        return []
    return [f"uses {sorted(used & PARTS)} and {sorted(used & MESSAGES)}"]


def impure_names(name: str, source: str) -> list[str]:
    """Rule 6."""
    return sorted(_names(source) & IMPURE_NAMES) if name in PURE else []


def _nodes(source: str, kind: type[Node]) -> Iterator[Node]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, kind))


def _names(source: str) -> set[str]:
    """Each name that `source` imports, reads or looks up; fields that it declares are not among."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(part for alias in node.names for part in alias.name.split("."))
            found.update((getattr(node, "module", None) or "").split("."))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


RULES: list[Rule] = [
    open_matches,
    clock_reads,
    relative_imports,
    root_imports,
    mixed_shapes,
    impure_names,
]


# ── tests ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", RULES)
def test_source_keeps_the_rule(rule: Rule) -> None:
    """No file of the package breaks it."""
    faults = {name: found for name, text in SOURCES.items() if (found := rule(name, text))}
    assert faults == {}


UNION_MATCH = "match part:\n case TextPart():\n  pass\n "


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (open_matches, "x.py", "match x:\n case 1:\n  pass"),
        (open_matches, "x.py", "match x:\n case 1:\n  pass\n case _:\n  pass"),
        (open_matches, "x.py", "match x:\n case 1:\n  y()\n case _ if y:\n  y()"),
        (open_matches, "x.py", UNION_MATCH + "case _:\n  y()"),
        (open_matches, "x.py", UNION_MATCH + "case FilePart():\n  y()"),
        (open_matches, "x.py", UNION_MATCH + "case _:\n  assert_never(other)"),
        (open_matches, "x.py", "match p:\n case 1 | FilePart():\n  pass\n case _:\n  y()"),
        (open_matches, "x.py", "match p:\n case turns.FilePart() as f:\n  pass\n case _:\n  y()"),
        (clock_reads, "x.py", "datetime.now(UTC)"),
        (clock_reads, "x.py", "datetime.datetime.now()"),
        (clock_reads, "x.py", "date.today()"),
        (relative_imports, "x.py", "from . import turns"),
        (relative_imports, "x.py", "from .turns import Turn"),
        (root_imports, "x.py", "from turngate import Turn"),
        (root_imports, "x.py", "from turngate import turns, Turn"),
        (root_imports, "x.py", "import turngate"),
        (mixed_shapes, "x.py", "from turngate.turns import TextPart\nUserMessage(())"),
        (mixed_shapes, "gateway/x.py", "messages.ToolMessage, turns.ToolResultPart"),
        (impure_names, "turns.py", "import time"),
        (impure_names, "turns.py", "from uuid import uuid4"),
        (impure_names, "records.py", "import random as r"),
        (impure_names, "history.py", "def f():\n import os.random"),
    ],
)
def test_rule_finds_a_fault(rule: Rule, name: str, source: str) -> None:
    """A small source that breaks the rule is found."""
    assert rule(name, source)


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (open_matches, "x.py", "match x:\n case 1:\n  pass\n case _:\n  y()"),
        (open_matches, "x.py", UNION_MATCH + "case _:\n  assert_never(part)"),
        (open_matches, "x.py", "match a, b:\n case 1, 2:\n  pass\n case _:\n  y()"),
        (clock_reads, "x.py", "identity.now()\nself._now()"),
        (clock_reads, "identity.py", "datetime.now(UTC)"),
        (relative_imports, "x.py", "from turngate.turns import Turn"),
        (root_imports, "x.py", "from turngate import identity, turns"),
        (root_imports, "x.py", "from turngate.turns import Turn\nimport turngate.turns"),
        (mixed_shapes, "turn_builder.py", "TextPart, UserMessage"),
        (mixed_shapes, "x.py", "Turn, Message, TextPart"),
        (impure_names, "gateway/live.py", "import time"),
        (impure_names, "records.py", "from datetime import datetime"),
    ],
)
def test_rule_lets_the_right_form_pass(rule: Rule, name: str, source: str) -> None:
    """What the rule allows is no fault."""
    assert rule(name, source) == []


def test_rules_know_the_classes_that_they_are_about() -> None:
    """The names above are those of the two unions, and the unions are found in the source."""
    assert {kind.__name__ for kind in turns.Part.__args__} == PARTS
    assert {kind.__name__ for kind in messages.Message.__args__} == MESSAGES
    assert CLOSED >= PARTS | MESSAGES


def test_the_core_is_among_the_sources() -> None:
    """The rules see the package, and the pure modules in it."""
    assert SOURCES.keys() >= {name for name in PURE if "/" not in name}

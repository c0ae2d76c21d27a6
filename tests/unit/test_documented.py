"""What a user meets is in the reference: error codes, reasons, settings, commands."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from turngate import CallOptions, RunLimits, Settings, Target, errors
from turngate.protocols import ReviewRule
from turngate.providers import ProviderConfig
from turngate.records import ReviewState

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "turngate"
CODES = get_args(errors.ProviderCode)


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def error_classes() -> list[type[errors.TurngateError]]:
    values = [getattr(errors, name) for name in errors.__all__]
    return [v for v in values if inspect.isclass(v) and issubclass(v, errors.TurngateError)]


# ── errors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_error_is_in_the_reference(error: type[errors.TurngateError]) -> None:
    """Each class is named, in a row with its code."""
    if error is errors.ProviderError:
        assert "`ProviderError`" in page("errors.md")
    else:
        assert f"| `{error.code}` | `{error.__name__}` |" in page("errors.md")


@pytest.mark.parametrize("code", CODES)
def test_provider_code_is_in_the_reference(code: str) -> None:
    """Each kind of provider failure has its row."""
    assert re.search(rf"^\| `{code}` \|", page("errors.md"), re.MULTILINE)


def test_codes_are_different() -> None:
    """A code names one class."""
    codes = [vars(error)["code"] for error in error_classes() if "code" in vars(error)]
    codes += CODES
    assert len(codes) == len(set(codes))


def reasons_in(path: Path) -> Iterator[str]:
    """The literal reasons that a module gives.

    They stand in ``reason="…"``, behind a code in a table, in an assignment to what is called a
    reason, and in a call of a function of the module that takes a `reason`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    places = {
        function.name: [argument.arg for argument in function.args.args].index("reason")
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and any(argument.arg == "reason" for argument in function.args.args)
    }
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="reason", value=value):
                yield from filter(None, map(literal, ast.walk(value)))
            case ast.Call(func=ast.Name(id=name), args=[*arguments]) if name in places:
                yield from filter(None, map(literal, arguments[places[name] :][:1]))
            case ast.Call(args=[code, reason, *_]) | ast.Tuple(elts=[code, reason, *_]):
                if literal(code) in CODES:
                    yield from filter(None, [literal(reason)])
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = zip(targets, values, strict=False)
                yield from filter(
                    None, [literal(value) for target, value in pairs if names(target)]
                )
            case ast.Assign(targets=[target], value=value) if names(target):
                yield from filter(None, [literal(value)])


def names(target: ast.expr) -> bool:
    """Whether `target` is called a reason."""
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith("reason")
        case _:
            return False


def literal(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def source_reasons() -> list[str]:
    folders = [SOURCE / "gateway", SOURCE / "providers"]
    return sorted(
        {r for folder in folders for path in folder.glob("*.py") for r in reasons_in(path)}
    )


@pytest.mark.parametrize("reason", source_reasons())
def test_reason_is_in_the_reference(reason: str) -> None:
    """A program can look up each reason that it may meet."""
    assert f"`{reason}`" in page("errors.md")


# ── settings ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", Settings.__struct_fields__)
def test_setting_is_in_the_reference(field: str) -> None:
    """Each setting has a row with its default."""
    default = getattr(Settings(), field)
    assert f"| `{field}` | `{default!r}` |" in page("settings.md")


@pytest.mark.parametrize("field", fields(ProviderConfig), ids=lambda field: field.name)
def test_setting_of_an_endpoint_is_in_the_reference(field: FieldInfo) -> None:
    """Each field of the configuration has a row with its default."""
    default = "" if field.default is NODEFAULT else f"`{field.default!r}` "
    assert f"| `{field.name}` | {default}|" in page("settings.md")


@pytest.mark.parametrize("field", fields(RunLimits), ids=lambda field: field.name)
def test_limit_of_a_run_is_in_the_reference(field: FieldInfo) -> None:
    """Each limit has a row with its default."""
    assert f"| `{field.name}` | `{field.default!r}` |" in page("settings.md")


@pytest.mark.parametrize("field", fields(ReviewRule), ids=lambda field: field.name)
def test_field_of_a_review_rule_is_in_the_reference(field: FieldInfo) -> None:
    """Each field has a row with its default."""
    default = "" if field.default is NODEFAULT else f"`{field.default!r}` "
    assert f"| `{field.name}` | {default}|" in page("settings.md")


@pytest.mark.parametrize("state", get_args(ReviewState))
def test_state_of_a_review_is_in_the_reference(state: str) -> None:
    """Each state stands in the table of states."""
    assert f"`{state}`" in page("errors.md").partition("## States of a review")[2]


@pytest.mark.parametrize("field", CallOptions.__struct_fields__)
def test_call_option_is_in_the_reference(field: str) -> None:
    """Each option of a call has a row."""
    assert re.search(rf"^\| `{field}` \|", page("settings.md"), re.MULTILINE)


@pytest.mark.parametrize("field", Target.__struct_fields__)
def test_demand_of_a_target_is_in_the_reference(field: str) -> None:
    """Each demand is named beside the rule that meets it."""
    assert re.search(rf"^\|.*`{field}`.*\[H\d+\]", page("history.md"), re.MULTILINE)


# ── rules ────────────────────────────────────────────────────────────────────────────────────


def numbered_pages() -> Iterator[tuple[str, str]]:
    for name in ("history.md", "store.md"):
        if (REFERENCE / name).exists():
            yield from ((name, rule) for rule in re.findall(r"\*\*\[([A-Z]\d+)\]", page(name)))


@pytest.mark.parametrize(("name", "rule"), list(numbered_pages()))
def test_numbered_rule_is_quoted_by_a_test(name: str, rule: str) -> None:
    """A rule without a test is a wish."""
    quoting = (p for p in (ROOT / "tests").rglob("*.py") if p != Path(__file__))
    assert any(f"[{rule}]" in path.read_text(encoding="utf-8") for path in quoting)


# ── the command line ─────────────────────────────────────────────────────────────────────────


def commands() -> Iterator[tuple[str, Any]]:
    """Each command with its name, and the options before a command under the name itself."""
    typer = pytest.importorskip("typer")
    from turngate.cli.commands import app

    def within(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        parts = getattr(command, "commands", {})
        if path == "turngate" or not parts:
            yield path, command
        for name, part in parts.items():
            yield from within(f"{path} {name}", part)

    yield from within("turngate", typer.main.get_command(app))


# Typer's own, the same in every program that uses it; the help lists them.
COMPLETION = ("--install-completion", "--show-completion")


def options() -> list[tuple[str, str]]:
    return [
        (name, option)
        for name, command in commands()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option not in COMPLETION
    ]


def section(name: str) -> str:
    """What the page of the command line says under the heading of a command."""
    return page("cli.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_command_is_in_the_reference(name: str) -> None:
    """Each command has a row in the table of commands, and a section of its own."""
    assert f"`{name}" in page("cli.md")
    assert section(name) or name == "turngate"


@pytest.mark.parametrize(("name", "option"), options())
def test_option_is_in_the_reference(name: str, option: str) -> None:
    """Each option has a row in the section of its command."""
    if name == "turngate":
        assert f"`turngate {option}`" in page("cli.md")
    else:
        assert re.search(rf"^\| `{option}[ `]", section(name), re.MULTILINE)

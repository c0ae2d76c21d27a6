"""The public face: names, signatures, and what importing them brings along.

``UPDATE_EXPECT=1`` writes `tests/data/public_api.txt` anew. A name that programs rely on changes
only with a decision record.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import Parameter
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

import turngate as turngate_root

EXPECTED = Path(__file__).parents[1] / "data" / "public_api.txt"
MODULES = [
    "turngate",
    "turngate.gateway",
    "turngate.providers",
    "turngate.tools",
    "turngate.checks",
    "turngate.protocols",
    "turngate.errors",
    "turngate.testing",
]

# What programs outside the tree rely on. Keyword arguments may be added, never renamed.
PROMISED = """
    Turn(*, id, role, parts, created_at, model=None, usage=None, status="complete", ended=None, \
retry_of=None)
    TextPart(text)
    FilePart(file)
    ReasoningPart(text, provider_data=None)
    ToolCallPart(*, id, name, arguments, provider_data=None)
    ToolResultPart(*, call_id, content, name=None, is_error=False)
    FileRef(*, id, name, media_type, size_bytes, sha256)
    Usage(*, input_tokens, output_tokens, cached_tokens=0, reasoning_tokens=0)
    ProviderData(provider, json)
    SystemMessage(text)
    UserMessage(parts)
    AssistantMessage(*, text="", tool_calls=(), reasoning=None, provider_data=None)
    ToolMessage(*, call_id, content, name=None, is_error=False)
    ToolCall(*, id, name, arguments, provider_data=None)
    InlineFile(*, name, media_type, data)
    ModelResult(*, text, tool_calls, model, finish_reason, usage, reasoning=None, refused=False, \
provider_data=None)
    Target(*, provider=None, call_id_pattern=None, call_id_chars_max=None, \
strict_alternation=False, user_first=False, replay_reasoning=None, system_role="system")
    TurnBuilder()
    TurnBuilder.build_user_turn(self, *, prompt, files=())
    TurnBuilder.build_assistant_turns(self, *, result, run_messages=None, status="complete")
    TurnBuilder.to_messages(self, turns, *, reasoning=False)
    RecentWindow.select(self, turns)
    to_transcript(turns, *, chars_max=20_000)
    without_final_answer(messages)
    paired_history(messages, *, target=None)
    providers.StreamEnd(finish_reason=None, *, usage=None, model=None, request_id=None, \
provider_data=())
    providers.ReasoningDelta(text)
    providers.FunctionCallDelta(*, index, id=None, name=None, arguments=None)
    providers.ProviderConfig(*, base_url, api_key=None, model=None, retries=2)
    providers.CompatibleModelProvider(config)
    providers.ModelRunner(provider)
    providers.ModelRunner.invoke(self, input)
    providers.chat_completion_messages(messages, *, target=None)
    checks.Allow(text=None)
    checks.Replace(text)
    checks.Block(rule)
    checks.Review(reason)
    protocols.ThreadStore.commit(self, scope, change)
    protocols.LLMClient.complete(self, request)
    open_gateway(path_or_url, *, base_url=None, model=None, api_key=None, provider=None, \
tools=(), checks=(), reviews=(), instructions=None, window=None, resume=True, settings=None)
    Thread.ask(self, prompt, *, tools=(), instructions=None, options=None)
    Thread.stream_ask(self, prompt, *, tools=(), instructions=None, options=None)
    Thread.turns(self, *, before=None, limit=50)
    Answered.expect(self)
"""
# The first argument is always given by its place, so its name is free.
FREE_NAMES = {"path_or_url"}


# ── names and signatures ─────────────────────────────────────────────────────────────────────


def shown_annotation(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    # Versions of Python differ in how they write these.
    if get_origin(annotation) is Annotated:
        return shown_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(shown_annotation(part) for part in get_args(annotation))
    if annotation is type(None):
        return "None"
    # Some versions of Python name the module in which they keep a class.
    return inspect.formatannotation(annotation).replace("pathlib._local.", "pathlib.")


def shown_signature(callable_: Callable[..., Any]) -> str:
    signature = inspect.signature(callable_)
    return str(
        signature.replace(
            parameters=[
                p.replace(annotation=Shown(p.annotation)) if p.annotation is not p.empty else p
                for p in signature.parameters.values()
            ],
            return_annotation=(
                signature.return_annotation
                if signature.return_annotation is signature.empty
                else Shown(signature.return_annotation)
            ),
        )
    )


class Shown:
    """An annotation whose text is the same whether it is kept as text or as an object."""

    def __init__(self, annotation: object) -> None:
        self._text = shown_annotation(annotation)

    def __repr__(self) -> str:
        return self._text


def lines_of(module: ModuleType) -> Iterator[str]:
    yield f"{module.__name__}"
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from (f"    {line}" for line in class_lines(name, value))
        elif inspect.isfunction(value):
            yield f"    {function_word(value)} {name}{shown_signature(value)}"
        elif isinstance(value, (str, int, float, bool)):
            yield f"    {name} = {value!r}"
        elif type(value) is object:
            yield f"    {name}"
        else:
            yield f"    {name} = {shown_annotation(value)}"


def function_word(function: Callable[..., Any]) -> str:
    return "async def" if inspect.iscoroutinefunction(function) else "def"


def class_lines(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if not getattr(cls, "_is_protocol", False):
        yield f"    {shown_signature(cls)}"
    for member, value in sorted(vars(cls).items()):
        if member.startswith("_") or member in getattr(cls, "__struct_fields__", ()):
            continue
        if isinstance(value, property):
            yield f"    {member}: property"
        elif isinstance(value, (classmethod, staticmethod)):
            word = type(value).__name__
            function = value.__func__
            yield f"    {word} {function_word(function)} {member}{shown_signature(function)}"
        elif inspect.isfunction(value):
            yield f"    {function_word(value)} {member}{shown_signature(value)}"
        elif isinstance(value, str):
            yield f"    {member} = {value!r}"


def test_public_api_is_what_is_written_down() -> None:
    """No public name comes, goes or changes unseen."""
    found = "\n".join(
        line for module in MODULES for line in [*lines_of(importlib.import_module(module)), ""]
    )
    if os.environ.get("UPDATE_EXPECT"):
        EXPECTED.write_text(found, encoding="utf-8")
    assert found.splitlines() == EXPECTED.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("module", MODULES)
def test_all_is_sorted_and_each_name_is_there(module: str) -> None:
    """`__all__` lists each name once, and each can be imported."""
    loaded = importlib.import_module(module)
    assert len(loaded.__all__) == len(set(loaded.__all__))
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


def test_names_of_the_root_come_from_where_a_type_checker_sees_them() -> None:
    """What is imported late is what the imports for type checking say, and `dir` lists it."""
    tree = ast.parse(Path(str(turngate_root.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.name: f"{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith("turngate.")
        for alias in node.names
    }
    assert set(seen) == set(turngate_root.__all__) <= set(dir(turngate_root))
    for name, module in seen.items():
        assert getattr(turngate_root, name) is getattr(importlib.import_module(module), name)


def test_a_name_that_the_root_lacks_is_an_attribute_error() -> None:
    """A misspelt name is told as by any module."""
    with pytest.raises(AttributeError, match="module 'turngate' has no attribute 'Turns'"):
        importlib.import_module("turngate").Turns  # noqa: B018


# ── promises ─────────────────────────────────────────────────────────────────────────────────


def promised_parameters(promise: str) -> list[Parameter]:
    tree = ast.parse(f"def f({promise.partition('(')[2]}: pass")
    namespace: dict[str, Any] = {}
    exec(compile(tree, "<promise>", "exec"), namespace)
    return list(inspect.signature(namespace["f"]).parameters.values())


@pytest.mark.parametrize(
    "promise", [line.strip() for line in PROMISED.strip().splitlines()], ids=lambda p: p[:40]
)
def test_promised_signature_still_holds(promise: str) -> None:
    """Each promised argument has its name, its kind and its default; others are optional."""
    value: Any = importlib.import_module("turngate")
    for name in promise.partition("(")[0].split("."):
        value = getattr(value, name)
    found = dict(inspect.signature(value).parameters)
    for place, promised in enumerate(promised_parameters(promise)):
        if promised.name in FREE_NAMES:
            given = found.pop(list(found)[place])
            assert given.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
            continue
        given = found.pop(promised.name)
        assert given.kind is promised.kind, promised.name
        assert given.default == promised.default, promised.name
    assert [p.name for p in found.values() if p.default is p.empty] == []


def public_structs() -> Iterator[type[msgspec.Struct]]:
    seen = set()
    for module in [*MODULES, "turngate.records", "turngate.values"]:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if inspect.isclass(value) and issubclass(value, msgspec.Struct) and value not in seen:
                seen.add(value)
                yield value


@pytest.mark.parametrize("struct", list(public_structs()), ids=lambda struct: struct.__name__)
def test_larger_records_take_keywords_alone(struct: type[msgspec.Struct]) -> None:
    """A record of three or more fields can get a new field without breaking anyone."""
    parameters = list(inspect.signature(struct).parameters.values())
    if len(parameters) < 3:
        return
    by_place = [p.name for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    assert by_place == (["finish_reason"] if struct.__name__ == "StreamEnd" else [])


@pytest.mark.parametrize("struct", list(public_structs()), ids=lambda struct: struct.__name__)
def test_records_are_frozen(struct: type[msgspec.Struct]) -> None:
    """A value that was handed out never changes."""
    assert struct.__struct_config__.frozen


# ── what an import brings ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("module", MODULES)
def test_import_loads_no_client_and_no_terminal(module: str) -> None:
    """A program that brings its own provider pays for no HTTP client and no command line."""
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split())
    assert "turngate" in loaded
    assert module != "turngate" or "msgspec" not in loaded  # a name is loaded when it is asked for
    assert loaded.isdisjoint({"aiohttp", "typer", "rich", "click", "xllamacpp", "pytest"})

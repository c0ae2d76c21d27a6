"""`@tool`: a typed Python function as a tool, with schema, validation and limits."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, overload

import msgspec

from turngate.errors import InvalidValue, ToolError
from turngate.records import Effect, ToolContext
from turngate.tools.threads import ToolThreads
from turngate.values import ToolSpec

__all__ = ["FunctionTool", "tool"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_THREADS = ToolThreads()


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "unsafe",
    timeout_s: float = 60.0,
    output_chars_max: int = 100_000,
    threads: ToolThreads | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    **options: Any,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool from a typed function, async or not: ``@tool`` or ``@tool(effect="safe")``.

    The schema comes from the annotations, the descriptions from the docstring (its first
    paragraph, and the lines ``name: text`` below ``Args:``). A parameter annotated `ToolContext`
    is filled in and not shown to the model. `effect` says what may be done after a crash:
    ``safe`` (run again), ``keyed`` (run again with the same `ToolContext.key`) or ``unsafe``.
    Errors: `InvalidValue` for a function that has no schema.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return lambda function: FunctionTool(function, **options)


class FunctionTool:
    """A function that a model may call. It can still be called as the function it was.

    Units: `timeout_s` is the limit of one call in seconds, `output_chars_max` the longest result
    in characters; a longer one is cut with a mark.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        effect: Effect = "unsafe",
        timeout_s: float = 60.0,
        output_chars_max: int = 100_000,
        threads: ToolThreads | None = None,
    ) -> None:
        tool_name = name if name is not None else getattr(function, "__name__", "")
        if _NAME.fullmatch(tool_name) is None:
            raise InvalidValue(f"a tool's name is 1 to 64 letters, digits, _ and -: {tool_name!r}")
        if effect not in typing.get_args(Effect):
            raise InvalidValue(f"a tool's effect is one of {', '.join(typing.get_args(Effect))}")
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = threads if threads is not None else _THREADS
        description, argument_texts = _described(inspect.getdoc(function) or "")
        arguments, self._context_name = _arguments_type(function, tool_name, argument_texts)
        self._decoder = msgspec.json.Decoder(arguments, strict=False)
        self.effect: Effect = effect
        self.timeout_s = timeout_s
        self.output_chars_max = output_chars_max
        self.spec = ToolSpec(name=tool_name, description=description, parameters=_schema(arguments))
        self.schema_hash = schema_hash(self.spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    async def run(self, arguments: str, context: ToolContext) -> str:
        """The result of one call as text: a string as it is, everything else as JSON.

        Errors: `ToolError` for arguments that do not fit and for a result that is no JSON; what
        the function raises.
        """
        try:
            values = self._decoder.decode(arguments if arguments.strip() else "{}")
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise ToolError(f"the arguments do not fit: {error}") from None
        keywords = {field: getattr(values, field) for field in values.__struct_fields__}
        if self._context_name is not None:
            keywords[self._context_name] = context
        if self._is_async:
            value = await self._function(**keywords)
        else:
            value = await self._threads.run(lambda: self._function(**keywords))
        return _result_text(value)


def schema_hash(spec: ToolSpec) -> str:
    """A hash of name and parameters: a run goes on only with the tool that it began with."""
    text = json.dumps([spec.name, spec.parameters], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _arguments_type(
    function: Callable[..., Any], name: str, texts: Mapping[str, str]
) -> tuple[type[msgspec.Struct], str | None]:
    """A struct of the function's parameters, and the name of the one that takes the context."""
    hints = typing.get_type_hints(function, include_extras=True)
    required: list[tuple[str, Any]] = []
    optional: list[tuple[str, Any, Any]] = []
    context_name: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidValue(f"tool {name!r}: {parameter.name!r} can't be passed by name")
        if hint is None:
            raise InvalidValue(f"tool {name!r}: parameter {parameter.name!r} has no annotation")
        if parameter.name in texts:
            hint = Annotated[hint, msgspec.Meta(description=texts[parameter.name])]
        if parameter.default is parameter.empty:
            required.append((parameter.name, hint))
        else:
            optional.append((parameter.name, hint, parameter.default))
    try:
        arguments = msgspec.defstruct(
            "Arguments", [*required, *optional], kw_only=True, forbid_unknown_fields=True
        )
        msgspec.json.Decoder(arguments)
    except TypeError as error:
        raise InvalidValue(f"tool {name!r}: {error}") from error
    return arguments, context_name


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of `arguments`, an object on its top level."""
    (_,), definitions = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    schema: dict[str, Any] = definitions.pop("Arguments")
    schema.pop("title", None)
    if definitions:
        schema["$defs"] = definitions
    return schema


_ARGUMENT = re.compile(r"\s+(\w+)(?:\s*\([^)]*\))?\s*:\s*(.*)")


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """The first paragraph of `docstring`, and the texts of the lines below ``Args:``."""
    head, _, tail = docstring.partition("\n\n")
    description = " ".join(head.split())
    texts: dict[str, str] = {}
    inside, current = False, None
    for line in tail.splitlines():
        if line.strip() in ("Args:", "Arguments:"):
            inside, current = True, None
        elif line and not line[0].isspace():
            inside = False
        elif inside and (match := _ARGUMENT.fullmatch(line)):
            current = match[1]
            texts[current] = match[2].strip()
        elif inside and current and line.strip():
            texts[current] += " " + line.strip()
    return description, texts


def _result_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(f"the result is no JSON: {type(error).__name__}") from error

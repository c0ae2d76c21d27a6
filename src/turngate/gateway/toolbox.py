"""Running one tool call: whatever a tool does, its call gets exactly one result.

Bad arguments, unknown names, exceptions, hangs and oversized results become results that the model
can act on. Nothing that a tool raises ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from turngate.errors import InvalidValue, ToolError
from turngate.messages import ToolCall, ToolMessage
from turngate.protocols import Tool
from turngate.records import ToolContext
from turngate.values import FileRef, storable_text

__all__ = ["OUTCOME_UNKNOWN", "error_result", "run_tool", "tools_by_name"]

OUTCOME_UNKNOWN = (
    "The run was interrupted while this tool was running."
    " Its outcome is unknown, and it was not run again."
)


def tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """`tools` by name. Errors: `InvalidValue` where two share one."""
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.spec.name in named:
            raise InvalidValue(f"two tools are named {tool.spec.name!r}")
        named[tool.spec.name] = tool
    return named


def error_result(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content=text, is_error=True)


async def run_tool(
    tools: Mapping[str, Tool],
    call: ToolCall,
    context: ToolContext,
    *,
    keep: Callable[[str], Awaitable[FileRef]] | None = None,
) -> ToolMessage:
    """The result of `call`, within the tool's limits; `keep` stores one that is longer as a file.

    A call past its time limit is cancelled and left: what it still does is not waited for.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return error_result(call, f"There is no tool {call.name!r}. Known tools: {known}.")
    task = asyncio.create_task(_guarded(tool, call, context))
    try:
        done, _ = await asyncio.wait({task}, timeout=tool.timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        return error_result(
            call, f"The tool did not end within {tool.timeout_s:g} seconds. Its outcome is unknown."
        )
    result = task.result()
    if isinstance(result.content, str) and len(result.content) > tool.output_chars_max:
        cut = await _cut(result.content, tool.output_chars_max, keep)
        return msgspec.structs.replace(result, content=cut)
    return result


async def _guarded(tool: Tool, call: ToolCall, context: ToolContext) -> ToolMessage:
    """The tool's own end as a result; an exit or a cancellation that it raises ends it alone."""
    try:
        text: object = await tool.run(call.arguments, context)
    except asyncio.CancelledError:
        return error_result(call, "Error: the tool was cancelled.")
    except BaseException as error:
        return error_result(call, f"Error: {_told(error)}")
    if not isinstance(text, str):
        return error_result(call, "Error: the tool gave no text.")
    return ToolMessage(call_id=call.id, name=call.name, content=storable_text(text))


async def _cut(text: str, chars_max: int, keep: Callable[[str], Awaitable[FileRef]] | None) -> str:
    """The first `chars_max` characters, and a line that says what is missing and where it is."""
    kept = ""
    if keep is not None:
        with contextlib.suppress(Exception):  # what can't be kept is cut all the same
            kept = f"; the whole result is file {(await keep(text)).id}"
    return f"{text[:chars_max]}\n[{len(text) - chars_max} more characters were cut{kept}]"


def _told(error: BaseException) -> str:
    """What a model is told of `error`: a tool's own words, else the error's name with its text."""
    try:
        text = str(error)
    except Exception:  # whatever an exception's own text does
        text = ""
    told = text if isinstance(error, ToolError) else f"{type(error).__name__}: {text[:500]}"
    return storable_text(told)

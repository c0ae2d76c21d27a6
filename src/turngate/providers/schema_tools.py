"""Tools for servers that know none: a JSON schema makes each reply an answer or one call.

    the request's tools ─► instructions and a schema; earlier calls and results as text ─► server
    {"answer": "…"}                      ─► the text, as it comes
    {"tool": "…", "arguments": {…}}      ─► one FunctionCallDelta, once the object is whole

What is needed of the server is ``response_format`` with a JSON schema. A request without tools
goes out without a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, cast

import msgspec

from turngate import identity
from turngate.completion import ChatRequest, FunctionCallDelta, ModelPart, OutputSchema, StreamEnd
from turngate.errors import ProviderError
from turngate.history import paired_history
from turngate.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from turngate.protocols import ChatProvider
from turngate.providers.finish import CUT_REASONS
from turngate.results import FinishReason
from turngate.values import Target, ToolSpec

__all__ = ["SchemaToolsProvider"]

_FORM = (
    'Reply with one JSON object: {"tool": NAME, "arguments": {...}} to call a tool,'
    ' or {"answer": TEXT} to answer.'
)


class SchemaToolsProvider:
    """A `ChatProvider` that gives tools to `provider`, whose server holds its replies to a schema.

    A reply has one call at most. `CallOptions.tool_choice` is kept: ``none``, ``required`` and the
    name of one tool narrow the schema.
    Errors: those of `provider`; `ProviderError` of code ``protocol`` for a reply that is neither
    an answer nor a call of a known tool.
    """

    def __init__(self, provider: ChatProvider) -> None:
        self._provider = provider
        target = getattr(provider, "target", None)
        self.target = target if isinstance(target, Target) else Target()

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        tools, must_call = _callable_tools(request)
        reply = _Reply(tools, streams=request.output is None)
        plain = _plain_request(request, tools, must_call=must_call, target=self.target)
        # A provider's stream is an async generator by convention; the seam asks for less.
        stream = cast("Any", self._provider.stream(plain))
        async with aclosing(stream):
            async for item in stream:
                if not tools or not isinstance(item, str | StreamEnd):
                    yield item
                elif isinstance(item, str):
                    if text := reply.add(item):
                        yield text
                else:
                    for part in reply.parts_at(item):
                        yield part


def _callable_tools(request: ChatRequest) -> tuple[tuple[ToolSpec, ...], bool]:
    """The tools that the reply may call, and whether it must call one."""
    match request.options.tool_choice:
        case "none":
            return (), False
        case "required":
            return request.tools, bool(request.tools)
        case {"function": {"name": name}}:
            return tuple(tool for tool in request.tools if tool.name == name), True
        case _:
            return request.tools, False


# ── the way out ──────────────────────────────────────────────────────────────────────────────


def _plain_request(
    request: ChatRequest, tools: Sequence[ToolSpec], *, must_call: bool, target: Target
) -> ChatRequest:
    """`request` as a server without tools takes it."""
    messages = _plain_messages(request.messages, in_form=bool(tools))
    if tools:
        messages = _instructed(messages, tools)
    options = msgspec.structs.replace(request.options, tool_choice=None, parallel_tool_calls=None)
    return msgspec.structs.replace(
        request,
        messages=tuple(paired_history(messages, target=target)),
        tools=(),
        options=options,
        output=_reply_schema(tools, request.output, must_call) if tools else request.output,
    )


def _plain_messages(messages: Iterable[Message], *, in_form: bool) -> list[Message]:
    """`messages` without calls and results; `in_form` shows every reply as the schema wants it."""
    plain: list[Message] = []
    for _, group in groupby(messages, key=lambda message: isinstance(message, ToolMessage)):
        results: list[str] = []
        for message in group:
            if isinstance(message, ToolMessage):
                # The content is text unless a file came with it, which is left out.
                parts = (message.content,) if isinstance(message.content, str) else message.content
                text = "\n".join(part for part in parts if isinstance(part, str))
                results.append(_json({"result": text}))
            elif isinstance(message, AssistantMessage):
                plain.append(_plain_reply(message, in_form=in_form))
            else:
                plain.append(message)
        if results:
            plain.append(UserMessage(("\n".join(results),)))
    return plain


def _plain_reply(message: AssistantMessage, *, in_form: bool) -> AssistantMessage:
    replies = [
        _json({"tool": call.name, "arguments": _arguments(call.arguments)})
        for call in message.tool_calls
    ]
    if message.text:
        form = in_form and not message.tool_calls
        replies.insert(0, _json({"answer": message.text}) if form else message.text)
    return msgspec.structs.replace(message, text="\n".join(replies), tool_calls=())


def _arguments(text: str) -> Any:
    """The arguments of an earlier call; what is no JSON stands as the text that it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _instructed(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """`messages` with what the model must know of its tools, behind the instructions."""
    lines = ["You can call a tool, and its result is told to you. The tools:"]
    for tool in tools:
        parameters = _json(tool.parameters.get("properties", {}))
        lines.append(f"{tool.name}: {tool.description} Parameters: {parameters}")
    text = "\n".join(lines) + "\n\n" + _FORM
    first, *rest = messages
    if isinstance(first, SystemMessage):
        return [SystemMessage(f"{first.text}\n\n{text}"), *rest]
    return [SystemMessage(text), *messages]


def _reply_schema(
    tools: Sequence[ToolSpec], output: OutputSchema | None, must_call: bool
) -> OutputSchema:
    """The schema of a reply: one object for each tool, and one for the answer."""
    definitions: dict[str, Any] = {}
    kinds = [
        _object(
            tool={"const": tool.name},
            arguments=_hoisted(
                {"type": "object", "properties": {}, **tool.parameters}, tool.name, definitions
            ),
        )
        for tool in tools
    ]
    if not must_call:
        answer = {"type": "string"}
        if output is not None:
            answer = _hoisted(output.schema, "answer", definitions)
        kinds.append(_object(answer=answer))
    schema: dict[str, Any] = {"anyOf": kinds}
    if definitions:
        schema["$defs"] = definitions
    return OutputSchema(name="reply", schema=schema, strict=True)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoisted(schema: Mapping[str, Any], owner: str, definitions: dict[str, Any]) -> Any:
    """`schema` to stand within another one: its definitions go to `definitions`, renamed."""

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(entry) for entry in value]
        if not isinstance(value, Mapping):
            return value
        return {
            name: f"#/$defs/{owner}_{entry.removeprefix('#/$defs/')}"
            if name == "$ref" and isinstance(entry, str)
            else moved(entry)
            for name, entry in value.items()
        }

    for name, definition in schema.get("$defs", {}).items():
        definitions[f"{owner}_{name}"] = moved(definition)
    return moved({name: entry for name, entry in schema.items() if name != "$defs"})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ── the way back ─────────────────────────────────────────────────────────────────────────────

_ANSWER_BEGINS = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
# Whole characters of a JSON string; the halves of an escaped pair are taken together.
_CHARACTERS = re.compile(
    r'(?:[^"\\]|\\[^u]'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*"
)


class _Reply:
    """One reply of the server as it comes: ``add* parts_at``. It is read in linear time."""

    def __init__(self, tools: Sequence[ToolSpec], *, streams: bool) -> None:
        self._names = {tool.name for tool in tools}
        self._pieces: list[str] = []
        self._unread = ""
        self._streams = streams  # whether an answer is given as it comes
        self._in_answer = False
        self._given = 0

    def add(self, piece: str) -> str:
        """The part of an answer that has become whole with `piece`."""
        self._pieces.append(piece)
        if not self._streams:
            return ""
        self._unread += piece
        if not self._in_answer:
            begin = _ANSWER_BEGINS.match(self._unread)
            if begin is None:
                self._streams = len(self._unread) < 100  # a call, or white space without end
                return ""
            self._in_answer = True
            self._unread = self._unread[begin.end() :]
        whole = _CHARACTERS.match(self._unread)
        assert whole is not None  # it may be empty
        self._unread = self._unread[whole.end() :]
        self._streams = not self._unread.startswith('"')
        text: str = json.loads(f'"{whole[0]}"', strict=False)
        self._given += len(text)
        return text

    def parts_at(self, end: StreamEnd) -> list[ModelPart | StreamEnd]:
        """What is still to give once the reply has ended. Errors: `ProviderError`."""
        if end.refused:
            return ["".join(self._pieces)[self._given :], end]
        try:
            reply = json.loads("".join(self._pieces), strict=False)
        except (ValueError, RecursionError):
            if end.finish_reason in CUT_REASONS:  # half a call is none; half an answer was given
                return [end]
            reply = None
        match reply:
            case {"answer": str(answer)} if len(reply) == 1:
                rest = answer[self._given :]
                return [*([rest] if rest else []), _ended(end, "stop")]
            case {"answer": dict(value)} if len(reply) == 1:
                return [_json(value), _ended(end, "stop")]
            case {"tool": str(name), "arguments": dict(arguments)} if name in self._names:
                call = FunctionCallDelta(
                    index=0, id=identity.new_id("call"), name=name, arguments=_json(arguments)
                )
                return [call, _ended(end, "tool_calls")]
            case _:
                raise ProviderError(
                    "the reply is neither an answer nor a call of a known tool",
                    code="protocol",
                    reason="not_the_schema",
                    request_id=end.request_id,
                    hint="The server has to hold its replies to a JSON schema.",
                )


def _ended(end: StreamEnd, finish: FinishReason) -> StreamEnd:
    return msgspec.structs.replace(end, finish_reason=finish)

"""What a Chat Completions server is sent: its messages and the request body. Pure.

Each wire object is made of declared fields alone, so that nothing else of a message can reach the
wire. The one exception is declared too: a `ProviderData` whose provider is the target's holds a
JSON object, and its members are laid beside the declared ones, never over them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import msgspec

from turngate.completion import ChatRequest
from turngate.errors import InvalidValue
from turngate.media import AUDIO_FORMATS
from turngate.messages import (
    AssistantMessage,
    Content,
    InlineFile,
    Message,
    ToolCall,
    checked_parts,
    exact_messages,
)
from turngate.providers.text import well_formed_tree
from turngate.values import ProviderData, Target, ToolSpec

__all__ = ["chat_completion_messages", "checked_extra_body", "request_body"]

WireMessage = dict[str, Any]

_SEE_FILE = "See the attached file."


def chat_completion_messages(
    messages: Iterable[Message], *, target: Target | None = None
) -> list[WireMessage]:
    """The Chat Completions messages for `messages`: one each, same order, declared fields only.

    `target` names the system role, the field in which reasoning goes back (None: it does not), and
    the provider whose data goes back to it.
    Errors: `InvalidMessage` (also a TypeError) for what is no message, a dict for one.
    """
    demands = target if target is not None else Target()
    return [_wire_message(message, demands) for message in exact_messages(messages)]


def _wire_message(message: Message, target: Target) -> WireMessage:
    match message.role:  # comparing roles is several times cheaper than matching classes
        case "user":
            parts = checked_parts(message)
            plain = len(parts) == 1 and type(parts[0]) is str
            return {"role": "user", "content": parts[0] if plain else _wire_content(parts, target)}
        case "assistant":
            if message.tool_calls or message.reasoning or message.provider_data is not None:
                return _wire_answer(message, target)
            return {"role": "assistant", "content": message.text}
        case "tool":
            content = message.content
            if not isinstance(content, str):
                content = "\n\n".join(_result_text(part) for part in content if part != "")
            return {"role": "tool", "tool_call_id": message.call_id, "content": content}
        case "system":
            return {"role": target.system_role, "content": message.text}
        case _:
            assert_never(message)


def _wire_content(parts: Content, target: Target) -> str | list[dict[str, Any]]:
    """One text where there are no files: some servers take nothing else."""
    if any(isinstance(part, InlineFile) for part in parts):
        wire = [_wire_part(part) for part in parts if part != ""]
        if target.text_with_files and not any(part["type"] == "text" for part in wire):
            wire.insert(0, _wire_part(_SEE_FILE))
        return wire
    return "\n\n".join(part for part in parts if isinstance(part, str) and part)


def _wire_part(part: str | InlineFile) -> dict[str, Any]:
    match part:
        case str():
            return {"type": "text", "text": part}
        case InlineFile(name=name, media_type=media_type, data=data):
            kind = media_type.partition(";")[0].strip().lower()
            encoded = b64encode(data).decode("ascii")
            if kind in AUDIO_FORMATS:
                audio = {"data": encoded, "format": AUDIO_FORMATS[kind]}
                return {"type": "input_audio", "input_audio": audio}
            url = f"data:{media_type};base64,{encoded}"
            if kind.startswith("image/"):
                return {"type": "image_url", "image_url": {"url": url}}
            return {"type": "file", "file": {"filename": name, "file_data": url}}
        case _:
            assert_never(part)


def _result_text(part: str | InlineFile) -> str:
    """A part of a result; a file is named in a line, since no server takes one here."""
    match part:
        case str():
            return part
        case InlineFile(name=name, media_type=media_type, data=data):
            return f"[file {name}, {media_type}, {len(data)} bytes]"
        case _:
            assert_never(part)


def _wire_answer(message: AssistantMessage, target: Target) -> WireMessage:
    calls = message.tool_calls
    wire: WireMessage = {"role": "assistant", "content": message.text}
    if calls:  # the API wants null, not an empty text, beside calls
        wire["content"] = message.text or None
        wire["tool_calls"] = [_wire_call(call, target) for call in calls]
    if target.replay_reasoning is not None and message.reasoning:
        wire[target.replay_reasoning] = message.reasoning
    if message.provider_data is not None:
        wire = _with_provider_data(wire, message.provider_data, target)
    return wire


def _wire_call(call: ToolCall, target: Target) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    wire: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if call.provider_data is not None:
        wire = _with_provider_data(wire, call.provider_data, target)
    return wire


def _with_provider_data(wire: dict[str, Any], data: ProviderData, target: Target) -> dict[str, Any]:
    """`wire` with the members of `data`, if they are the target's own; declared ones stay."""
    if data.provider != target.provider:
        return wire
    try:
        members = json.loads(data.json)
    except (ValueError, RecursionError):
        return wire
    return {**members, **wire} if isinstance(members, dict) else wire


# ── the request ──────────────────────────────────────────────────────────────────────────────


def request_body(
    request: ChatRequest,
    *,
    model: str,
    target: Target,
    extra_body: Mapping[str, Any] | None = None,
    include_usage: bool = True,
) -> bytes:
    """The JSON body that asks for a stream. The request's `extra_body` goes over the provider's
    `extra_body`, and both over every other member.

    Errors: `InvalidMessage`; `InvalidValue` for what is not JSON, and for ``n`` above 1.
    """
    options = request.options
    body: dict[str, Any] = {
        "model": model,
        "messages": chat_completion_messages(request.messages, target=target),
        "stream": True,
    }
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    for name in ("temperature", "top_p", "max_tokens", "stop", "seed"):
        value = getattr(options, name)
        if value is not None:
            body[name] = value
    if request.tools:  # a choice among no tools is refused by many servers
        body["tools"] = [
            {"type": "function", "function": _wire_function(tool)} for tool in request.tools
        ]
        for name in ("tool_choice", "parallel_tool_calls"):
            value = getattr(options, name)
            if value is not None:
                body[name] = value
    if request.output is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": msgspec.structs.asdict(request.output),
        }
    body.update(extra_body or {})
    body.update(checked_extra_body(options.extra_body) or {})
    return _encoded(body)


def checked_extra_body(extra_body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`extra_body`, once it does not ask for several answers (else `InvalidValue`)."""
    if extra_body is not None and not isinstance(extra_body, Mapping):
        raise InvalidValue("extra_body is a mapping of members to values, or None")
    if extra_body is not None and extra_body.get("n") not in (None, 1):
        raise InvalidValue("extra_body asks for n other than 1: an exchange has one answer")
    return extra_body


def _wire_function(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return function


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError:  # half a character somewhere in it
            return msgspec.json.encode(well_formed_tree(body))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"the request holds a value that JSON has no form for ({type(error).__name__})"
        ) from None

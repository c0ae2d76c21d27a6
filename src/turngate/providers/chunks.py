"""What a Chat Completions server sends: one chunk, typed, whatever small liberties it takes.

One tolerant typed decode serves nearly every chunk. What it refuses is read untyped and mended
member by member: JSON that only a lenient reader takes, a number for a string, one object for a
list. What no reader takes is a ``protocol`` error. A whole (not streamed) completion has the same
shape, with `message` in place of `delta`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct

from turngate.errors import ProviderError

__all__ = [
    "Choice",
    "Chunk",
    "Delta",
    "Function",
    "HeadChunk",
    "TokenDetails",
    "ToolDelta",
    "WireUsage",
    "decoded_chunk",
    "decoded_head",
    "decoded_untyped",
    "mended_chunk",
]

# Members stand in the order in which servers send them: decoding is a little faster so.


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None


class Delta(Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[ToolDelta] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    function_call: Function | None = None
    extra_content: Any = None


class TokenDetails(Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class WireUsage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class Choice(Struct, gc=False):
    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: WireUsage | None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: WireUsage | None = None
    error: Any = None


class HeadChunk(Chunk, gc=False):
    """A chunk with the members that are read once per answer."""

    id: str | None = None
    model: str | None = None


# Not strict: an index "0" or 0.0 and a count "12" or 12.0 are taken as well.
decoded_chunk = msgspec.json.Decoder(Chunk, strict=False).decode
decoded_head = msgspec.json.Decoder(HeadChunk, strict=False).decode


def mended_chunk(payload: bytes) -> HeadChunk:
    """The chunk of a payload that the typed decoders refuse, as far as it is understood.

    Errors: `ProviderError` ``protocol`` for what is no JSON object.
    """
    raw = decoded_untyped(payload)
    if isinstance(raw, list) and len(raw) == 1:  # some servers wrap an error so
        raw = raw[0]
    if not isinstance(raw, dict):
        raise ProviderError(
            f"the model server sent a JSON {_kind(raw)} of {len(payload)} bytes where a chunk"
            " was expected",
            code="protocol",
            reason="not_a_chunk",
        )
    choices = [_choice(item) for item in _objects(raw.get("choices"))]
    return HeadChunk(
        choices=choices if choices else None,
        usage=_usage(raw.get("usage")),
        error=raw.get("error"),
        id=_text(raw.get("id")),
        model=_text(raw.get("model")),
    )


def decoded_untyped(payload: bytes) -> Any:
    """The JSON value of `payload`, read as leniently as is safe.

    Lone surrogates stay in the strings; bytes that are no UTF-8 become U+FFFD.
    Errors: `ProviderError` ``protocol`` with the reason ``not_json`` or ``too_deep``.
    """
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise _too_deep(payload) from None
    try:
        return json.loads(payload.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise _too_deep(payload) from None
    except ValueError:
        raise ProviderError(
            f"the model server sent {len(payload)} bytes that are not JSON",
            code="protocol",
            reason="not_json",
        ) from None


def _too_deep(payload: bytes) -> ProviderError:
    return ProviderError(
        f"the model server sent {len(payload)} bytes of JSON that is nested too deeply",
        code="protocol",
        reason="too_deep",
    )


# ── mending, member by member ────────────────────────────────────────────────────────────────


def _choice(raw: dict[str, Any]) -> Choice:
    return Choice(
        index=_count(raw.get("index")),
        delta=_delta(raw.get("delta")),
        message=_delta(raw.get("message")),
        finish_reason=_text(raw.get("finish_reason")),
        usage=_usage(raw.get("usage")),
    )


def _delta(raw: Any) -> Delta | None:
    if not isinstance(raw, dict):
        return None
    content = raw.get("content")
    if isinstance(content, dict):
        content = [content]
    details = raw.get("reasoning_details")
    tools = [_tool(item) for item in _objects(raw.get("tool_calls"))]
    return Delta(
        content=content if isinstance(content, list) else _text(content),
        tool_calls=tools if tools else None,
        reasoning_content=_text(raw.get("reasoning_content")),
        reasoning=_text(raw.get("reasoning")),
        reasoning_details=details if isinstance(details, list) else None,
        refusal=_text(raw.get("refusal")),
        function_call=_function(raw.get("function_call")),
        extra_content=raw.get("extra_content"),
    )


def _tool(raw: dict[str, Any]) -> ToolDelta:
    return ToolDelta(
        index=_count(raw.get("index")),
        id=_text(raw.get("id")),
        function=_function(raw.get("function")),
        extra_content=raw.get("extra_content"),
    )


def _function(raw: Any) -> Function | None:
    if not isinstance(raw, dict):
        return None
    arguments = raw.get("arguments")
    if isinstance(arguments, list):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    elif not isinstance(arguments, dict):
        arguments = _text(arguments)
    return Function(name=_text(raw.get("name")), arguments=arguments)


def _usage(raw: Any) -> WireUsage | None:
    if not isinstance(raw, dict):
        return None
    return WireUsage(
        prompt_tokens=_count(raw.get("prompt_tokens")),
        completion_tokens=_count(raw.get("completion_tokens")),
        total_tokens=_count(raw.get("total_tokens")),
        prompt_tokens_details=_details(raw.get("prompt_tokens_details")),
        completion_tokens_details=_details(raw.get("completion_tokens_details")),
        prompt_cache_hit_tokens=_count(raw.get("prompt_cache_hit_tokens")),
    )


def _details(raw: Any) -> TokenDetails | None:
    if not isinstance(raw, dict):
        return None
    return TokenDetails(
        cached_tokens=_count(raw.get("cached_tokens")),
        reasoning_tokens=_count(raw.get("reasoning_tokens")),
    )


def _objects(raw: Any) -> list[dict[str, Any]]:
    """The objects of a list, or the one object that stands in place of it."""
    if isinstance(raw, dict):
        return [raw]
    return [item for item in raw if isinstance(item, dict)] if isinstance(raw, list) else []


def _text(raw: Any) -> str | None:
    """A string; a number in place of one is taken as its JSON text."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return json.dumps(raw)
    return None


def _count(raw: Any) -> int | None:
    if isinstance(raw, bool):
        return None
    try:
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        return None


def _kind(raw: Any) -> str:
    match raw:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "number"

"""What a Chat Completions server sends: one chunk, typed, whatever small liberties it takes.

One tolerant typed decode serves nearly every chunk. What it refuses is read untyped and mended
member by member: JSON that only a lenient reader takes, a number for a string, one object for a
list. What no reader takes is a ``protocol`` error. A whole (not streamed) completion has the same
shape, with `message` in place of `delta`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

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
    "too_deep",
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
            f"the model server sent {len(payload)} bytes of JSON that are no chunk",
            code="protocol",
            reason="not_a_chunk",
        )
    return _mended(HeadChunk, raw)


def decoded_untyped(payload: bytes) -> Any:
    """The JSON value of `payload`, read as leniently as is safe.

    Lone surrogates stay in the strings; bytes that are no UTF-8 become U+FFFD.
    Errors: `ProviderError` ``protocol`` with the reason ``not_json`` or ``too_deep``.
    """
    try:
        try:
            return msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return json.loads(payload.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise ProviderError(
            f"the model server sent {len(payload)} bytes that are not JSON",
            code="protocol",
            reason="not_json",
        ) from None


def too_deep() -> ProviderError:
    """The error of JSON whose nesting goes beyond what Python can follow."""
    return ProviderError(
        "the model server sent JSON that is nested too deeply", code="protocol", reason="too_deep"
    )


# ── mending, member by member ────────────────────────────────────────────────────────────────

S = TypeVar("S", bound=Struct)

_members = cache(fields)


def _mended(kind: type[S], raw: dict[str, Any]) -> S:
    """The struct of an object; a member that can't be mended is left out."""
    return kind(**{m.name: _value(m.type, raw[m.name]) for m in _members(kind) if m.name in raw})


def _value(kind: Any, raw: Any) -> Any:
    """`raw` as a value of a member's type; None if it can't be one."""
    if kind in _MENDING:
        return _MENDING[kind](raw)
    inner = get_args(kind)[0]  # a struct, or a list of structs
    if get_origin(inner) is not list:
        return _mended(inner, raw) if isinstance(raw, dict) else None
    items = raw if isinstance(raw, list) else [raw]  # one object in place of a list
    return [_mended(get_args(inner)[0], item) for item in items if isinstance(item, dict)] or None


def _list(raw: Any) -> list[Any] | None:
    return [raw] if isinstance(raw, dict) else raw if isinstance(raw, list) else None


def _arguments(raw: Any) -> str | dict[str, Any] | None:
    if isinstance(raw, list):
        return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
    return raw if isinstance(raw, dict) else _text(raw)


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


_MENDING: Mapping[Any, Callable[[Any], Any]] = {
    Any: lambda raw: raw,
    int | None: _count,
    str | None: _text,
    list[Any] | None: _list,
    str | list[Any] | None: lambda raw: _list(raw) or _text(raw),
    str | dict[str, Any] | None: _arguments,
}

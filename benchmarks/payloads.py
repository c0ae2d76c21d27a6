"""Event streams and turns of a usual size, made with the standard library alone: peers import
this too."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "ANSWER",
    "ARGUMENTS",
    "DONE",
    "QUESTION",
    "RESULT",
    "TOOL",
    "blocks",
    "call_id",
    "text_events",
    "tool_events",
]

# The four turns of an exchange: question, call of a tool, its result, answer.
QUESTION = "What is the weather in the towns along the river? " * 4
TOOL = "forecast"
ARGUMENTS = '{"town": "Neckartal", "days": 3, "units": "metric", "hourly": false}'
RESULT = '{"days": [{"high": 21.5, "low": 12.1, "sky": "clear"}]}, ' * 4
ANSWER = "It will be clear, with a light wind from the west. " * 6

DONE = b"data: [DONE]\n\n"
CALL_DELTAS = 200  # of one call, the first of which has its name


def call_id(exchange: int) -> str:
    """The id of the tool call of an exchange."""
    return f"call_{exchange:024x}"


def text_events(count: int) -> list[bytes]:
    """`count` events of about 320 bytes, each with a word or two, and the last ones of a stream."""
    words = [f" word{place % 97} and" for place in range(count)]
    return [*(_event({"content": word}) for word in words), _event({}, "stop"), DONE]


def tool_events(count: int) -> list[bytes]:
    """`count` deltas of about 365 bytes: calls of 200 deltas, whose arguments are JSON objects."""
    events = []
    for place in range(count):
        call, piece = divmod(place, CALL_DELTAS)
        function: dict[str, str] = {"arguments": f'", "key{piece}": "value {piece}'}
        delta: dict[str, Any] = {"index": call, "function": function}
        if piece == 0:
            delta |= {"id": f"call_{call:022d}", "type": "function"}
            function |= {"name": "look_up", "arguments": '{"key": "value'}
        elif piece == CALL_DELTAS - 1 or place == count - 1:
            function["arguments"] = '"}'
        events.append(_event({"tool_calls": [delta]}))
    return [*events, _event({}, "tool_calls"), DONE]


def blocks(events: list[bytes], size_bytes: int | None) -> list[bytes]:
    """The stream in reads of `size_bytes`, wherever they cut; None: an event a read."""
    if size_bytes is None:
        return events
    body = b"".join(events)
    return [body[start : start + size_bytes] for start in range(0, len(body), size_bytes)]


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-BxQ2m4n8TtRz0y7LkPq5sVw3eHc1d",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "a-model-of-usual-name-2026-04-14",
        "service_tier": "default",
        "system_fingerprint": "fp_3f1a9c07d2",
        "choices": [choice],
        "obfuscation": "kT4pZ9xQv2Lm7Rw",
    }
    return b"data: %s\n\n" % json.dumps(chunk, separators=(",", ":")).encode()

"""CPU time of a stored turn on its way to the wire: row → turn → message → repair → wire dict.

The window has 40 turns: user, tool call, tool result, answer, over and over. The floor decodes the
same rows into structs of just the members that the wire needs, and builds the wire dicts from them
without a message in between, a repair or a check.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.table import Row
from turngate.history import paired_history
from turngate.providers import chat_completion_messages
from turngate.stores.rows import turns_from_bodies
from turngate.turn_builder import TurnBuilder
from turngate.turns import Part, Role, TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import Usage

__all__ = ["run", "window"]

WINDOW_TURNS = 40
REPEATS = 50
PASSES = 5  # a round

Bodies = list[tuple[str]]

_builder = TurnBuilder()
_AT = datetime(2026, 1, 1, 12, 30, 15, 123_456, tzinfo=UTC)


def window() -> Bodies:
    """The rows of one window, as the store reads them."""
    bodies: Bodies = []
    for place in range(WINDOW_TURNS):
        exchange, kind = divmod(place, 4)
        role, part = _content(kind, f"call_{exchange:024x}")
        is_model = role == "assistant"
        turn = Turn(
            id=f"turn_{place:032x}",
            role=role,
            parts=(part,),
            created_at=_AT,
            model="a-model-of-usual-name-2026-04-14" if is_model else None,
            usage=Usage(input_tokens=900 + place, output_tokens=80) if kind == 3 else None,
        )
        bodies.append((msgspec.json.encode(turn).decode(),))
    return bodies


def _content(kind: int, call_id: str) -> tuple[Role, Part]:
    match kind:
        case 0:
            return "user", TextPart("What is the weather in the towns along the river? " * 4)
        case 1:
            arguments = '{"town": "Neckartal", "days": 3, "units": "metric", "hourly": false}'
            return "assistant", ToolCallPart(id=call_id, name="forecast", arguments=arguments)
        case 2:
            content = '{"days": [{"high": 21.5, "low": 12.1, "sky": "clear"}]}, ' * 4
            return "tool", ToolResultPart(call_id=call_id, content=content, name="forecast")
        case _:
            return "assistant", TextPart("It will be clear, with a light wind from the west. " * 6)


def ours(bodies: Bodies) -> list[dict[str, Any]]:
    """Rows to wire dicts, as an ask does it."""
    messages = _builder.to_messages(turns_from_bodies(bodies))
    return chat_completion_messages(paired_history(messages))


# ── the floor ────────────────────────────────────────────────────────────────────────────────


class _Part(Struct, gc=False):
    type: str
    text: str = ""
    id: str = ""
    name: str | None = None
    arguments: str = ""
    call_id: str = ""
    content: str = ""


class _Turn(Struct, gc=False):
    role: str
    parts: list[_Part]


_decode = msgspec.json.Decoder(_Turn).decode


def floor_structs(bodies: Bodies) -> list[_Turn]:
    return [_decode(body) for (body,) in bodies]


def floor(bodies: Bodies) -> list[dict[str, Any]]:
    """The same rows to the same wire dicts."""
    wire: list[dict[str, Any]] = []
    for turn in floor_structs(bodies):
        text: str | None = None
        calls: list[dict[str, Any]] = []
        for part in turn.parts:
            if part.type == "text":
                text = part.text
            elif part.type == "tool_call":
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": part.id, "type": "function", "function": function})
            elif part.type == "tool_result":
                wire.append({"role": "tool", "tool_call_id": part.call_id, "content": part.content})
        if calls:
            wire.append({"role": "assistant", "content": text, "tool_calls": calls})
        elif text is not None:
            wire.append({"role": turn.role, "content": text})
    return wire


# ── rounds ───────────────────────────────────────────────────────────────────────────────────


def _cpu_us(step: Callable[[], object]) -> float:
    """CPU time of a turn."""
    gc.collect()
    begun = time.process_time()
    for _ in range(REPEATS):
        step()
    return 1e6 * (time.process_time() - begun) / (REPEATS * WINDOW_TURNS)


def run(rounds: int) -> list[Row]:
    bodies = window()
    assert ours(bodies) == floor(bodies)
    turns = turns_from_bodies(bodies)
    messages = _builder.to_messages(turns)
    history = paired_history(messages)
    steps: dict[str, Callable[[], object]] = {
        "floor": lambda: floor(bodies),
        "ours": lambda: ours(bodies),
        "floor, decode": lambda: floor_structs(bodies),
        "decode": lambda: turns_from_bodies(bodies),
        "to_messages": lambda: _builder.to_messages(turns),
        "repair": lambda: paired_history(messages),
        "to wire": lambda: chat_completion_messages(history),
    }
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds * PASSES):
        for name, step in steps.items():
            best[name] = min(best[name], _cpu_us(step))
    parts = {name: best[name] for name in ("to_messages", "repair", "to wire")}
    return [
        Row(
            name="rows to wire dicts",
            unit="us a turn",
            ours=best["ours"],
            floor=best["floor"],
            aim=2.5,
            parts=parts,
        ),
        Row(
            name="rows to turns",
            unit="us a turn",
            ours=best["decode"],
            floor=best["floor, decode"],
        ),
    ]

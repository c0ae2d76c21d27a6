"""CPU time of a stored turn on its way to the wire: row → turn → message → repair → request body.

The window has 40 turns: user, tool call, tool result, answer, over and over. The floor decodes the
same rows into structs of just the members that the wire needs, and builds the wire dicts from them
without a message in between, a repair or a check. Each peer begins with rows of its own form, and
ends with the same messages. Two ways that ours does not go stand beside it: decoding only the
members that a window needs, and turns that are kept by id from the call before.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from benchmarks.payloads import ANSWER, ARGUMENTS, QUESTION, RESULT, TOOL, call_id
from benchmarks.peer import Peer
from benchmarks.table import Row
from turngate.context import RequestAssembler
from turngate.history import paired_history
from turngate.protocols import ContextInput
from turngate.providers import chat_completion_messages
from turngate.providers.wire import request_body
from turngate.stores.rows import turns_from_bodies
from turngate.turn_builder import TurnBuilder
from turngate.turns import Part, Role, TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import Target, Usage

__all__ = ["run", "window"]

WINDOW_TURNS = 40
REPEATS = 50
PASSES = 5  # a round
MODEL = "a-model-of-usual-name-2026-04-14"
PEERS = {
    "openai-agents": (".venv-bench-agents", "benchmarks.peers.agents_convert"),
    "Pydantic AI": (".venv-bench-pydantic", "benchmarks.peers.pydantic_convert"),
}
LEADS = {"openai-agents": 3.0, "Pydantic AI": 8.0}

Bodies = list[tuple[str]]

_builder = TurnBuilder()
_assembler = RequestAssembler()
_target = Target()
_AT = datetime(2026, 1, 1, 12, 30, 15, 123_456, tzinfo=UTC)


def window() -> Bodies:
    """The rows of one window, as the store reads them."""
    bodies: Bodies = []
    for place in range(WINDOW_TURNS):
        exchange, kind = divmod(place, 4)
        role, part = _content(kind, call_id(exchange))
        is_model = role == "assistant"
        turn = Turn(
            id=f"turn_{place:032x}",
            role=role,
            parts=(part,),
            created_at=_AT,
            model=MODEL if is_model else None,
            usage=Usage(input_tokens=900 + place, output_tokens=80) if kind == 3 else None,
        )
        bodies.append((msgspec.json.encode(turn).decode(),))
    return bodies


def _content(kind: int, call: str) -> tuple[Role, Part]:
    match kind:
        case 0:
            return "user", TextPart(QUESTION)
        case 1:
            return "assistant", ToolCallPart(id=call, name=TOOL, arguments=ARGUMENTS)
        case 2:
            return "tool", ToolResultPart(call_id=call, content=RESULT, name=TOOL)
        case _:
            return "assistant", TextPart(ANSWER)


def ours(bodies: Bodies) -> list[dict[str, Any]]:
    """Rows to wire dicts, as an ask does it."""
    messages = _builder.to_messages(turns_from_bodies(bodies))
    return chat_completion_messages(paired_history(messages))


def our_body(turns: Iterable[Turn]) -> bytes:
    """Turns to the body of a request, as an ask does it."""
    context = ContextInput(messages=tuple(_builder.to_messages(turns)))
    return request_body(_assembler.assemble(context), model=MODEL, target=_target)


# ── ways that ours does not go ───────────────────────────────────────────────────────────────


class _WindowTurn(Struct, frozen=True, gc=False):
    """Of a turn what a window needs; the rest of its row is skipped."""

    id: str
    role: Role
    parts: tuple[Part, ...]
    status: str = "complete"
    retry_of: str | None = None


_window_turn = msgspec.json.Decoder(_WindowTurn).decode


def needed_alone(bodies: Bodies) -> bytes:
    return our_body(cast("list[Turn]", [_window_turn(body) for (body,) in bodies]))


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


def floor_body(bodies: Bodies) -> bytes:
    """The same rows to the same body."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode({"model": MODEL, "messages": floor(bodies), **options})


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
    turns = turns_from_bodies(bodies)
    assert ours(bodies) == floor(bodies)
    assert our_body(turns) == floor_body(bodies) == needed_alone(bodies)
    messages = _builder.to_messages(turns)
    history = paired_history(messages)
    kept = {turn.id: turn for turn in turns}
    steps: dict[str, Callable[[], object]] = {
        "floor": lambda: floor(bodies),
        "ours": lambda: ours(bodies),
        "floor, body": lambda: floor_body(bodies),
        "body": lambda: our_body(turns_from_bodies(bodies)),
        "needed members alone": lambda: needed_alone(bodies),
        "turns kept by id": lambda: our_body([kept[turn_id] for turn_id in kept]),
        "floor, decode": lambda: floor_structs(bodies),
        "decode": lambda: turns_from_bodies(bodies),
        "to_messages": lambda: _builder.to_messages(turns),
        "repair": lambda: paired_history(messages),
        "to wire": lambda: chat_completion_messages(history),
    }
    best = dict.fromkeys(steps, float("inf"))
    others: dict[str, float] = {}
    peers = {name: Peer(*where) for name, where in PEERS.items()}
    with ExitStack() as stack:
        for peer in peers.values():
            stack.enter_context(peer)
        for _ in range(rounds * PASSES):
            for name, step in steps.items():
                best[name] = min(best[name], _cpu_us(step))
            for name, peer in peers.items():
                if found := peer.ask(turns=WINDOW_TURNS, repeats=REPEATS):
                    others[name] = min(found["body"], others.get(name, found["body"]))
    return [
        Row(
            name="rows to the request body",
            unit="us a turn",
            ours=best["body"],
            floor=best["floor, body"],
            aim=2.1,
            parts={name: best[name] for name in ("needed members alone", "turns kept by id")},
            others=others,
            leads=LEADS,
        ),
        Row(
            name="rows to wire dicts",
            unit="us a turn",
            ours=best["ours"],
            floor=best["floor"],
            aim=2.5,
            parts={name: best[name] for name in ("to_messages", "repair", "to wire")},
        ),
        Row(
            name="rows to turns",
            unit="us a turn",
            ours=best["decode"],
            floor=best["floor, decode"],
        ),
    ]

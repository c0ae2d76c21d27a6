"""A small world whose every right answer is known: a model, its tools, and a log outside the file.

A prompt says what the model is to do: ``say TOKEN`` and ``tell TOKEN`` are answered at once (the
first is for asks, the second for runs; ``cut`` is an answer that ends too early), ``tools TOKEN
a,b|c`` calls the tools a and b, then c (``slowly`` is the same with pauses), and ``own TOKEN n``
makes n calls that only the caller can answer; then each of them is answered. Tokens are used once,
so that all that is stored, sent or done can be found and counted. A tool call's id is its slot,
``TOKEN.round.place``; its result names it. What a token's mark calls for is in `judges`. Each
attempt has a usage of its own, which is logged as it is reported.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.harness.failpoints import Hit
from tests.harness.judges import HELD_TOOLS, mark_of, said_for
from turngate import ToolContext
from turngate.completion import ChatRequest, FunctionCallDelta, ModelPart, StreamEnd
from turngate.gateway.live import LiveCall
from turngate.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from turngate.results import FinishReason
from turngate.tools import tool
from turngate.values import ToolSpec, Usage

__all__ = [
    "GO_ON",
    "OWN",
    "TENANT",
    "TOOLS",
    "Log",
    "World",
    "flush_often",
    "pairing_faults",
    "result_of",
]

TENANT = "acme"
OWN = ToolSpec(
    name="own",
    description="Only the caller has it.",
    parameters={"type": "object", "properties": {"slot": {"type": "string"}}},
)
GO_ON = "Go on."
"""The instructions of a call without a prompt, so that its attempts can be told apart."""


def result_of(slot: str) -> str:
    """What a tool gives for a slot."""
    return f"{slot} done"


class Log:
    """Lines that outlive a killed process: each is one write to the end of a file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **what: Any) -> None:
        os.write(self._descriptor, json.dumps(what).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """All whole lines; a last one that was cut says nothing."""
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


class World:
    """The model of one process, and what its tools do; `hit` is told of their points."""

    present: ClassVar[World]
    """The last one that was made: its are the effects of `TOOLS`."""

    def __init__(self, log: Log, effects: Log, hit: Hit) -> None:
        self._log = log
        self._effects = effects
        self._hit = hit
        self._attempts = 0
        World.present = self

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        """The answer that the request calls for; a history that does not pair is a fault."""
        for fault in pairing_faults(request.messages):
            self._log.note(fault=f"I3 sent: {fault}")
        prompt, rounds_done = _asked(request.messages)
        kind, token, *rest = prompt.split()
        attempt = f"{token}+" if _goes_on(request.messages) else token
        self._log.note(sent=attempt)
        self._hit("model.before_send")
        await asyncio.sleep(0)
        offered = frozenset(tool.name for tool in request.tools)
        rounds = _rounds(kind, rest, offered)
        if rounds_done < len(rounds):
            yield "Let me see. " if mark_of(token) != "-bar" else f"Let me see. {token[::-1]} "
            self._hit("model.mid_stream")
            await asyncio.sleep(_pause_s(kind))
            for index, name in enumerate(rounds[rounds_done]):
                slot = f"{token}.{rounds_done}.{index}"
                arguments = json.dumps({"slot": slot})
                yield FunctionCallDelta(index=index, id=slot, name=name, arguments=arguments)
            yield self._end("tool_calls", attempt)
            return
        yield "re: "
        self._hit("model.mid_stream")
        await asyncio.sleep(_pause_s(kind))
        yield said_for(token, os.urandom(4).hex()).removeprefix("re: ")
        yield self._end("length" if kind == "cut" else "stop", attempt)

    def _end(self, reason: FinishReason, attempt: str) -> StreamEnd:
        """The end of an attempt, whose usage is like no other's of this process."""
        self._attempts += 1
        usage = Usage(input_tokens=100 + self._attempts, output_tokens=2)
        self._log.note(reported=attempt, input=usage.input_tokens, output=usage.output_tokens)
        return StreamEnd(reason, usage=usage, model="m1")

    def effect(self, effect: str, slot: str, context: ToolContext, *, tool: str = "") -> str:
        point = "review.tool" if tool in HELD_TOOLS else "tool"
        self._hit(f"{point}.after_start")
        self._effects.note(effect=effect, slot=slot, key=context.key, tool=tool or effect)
        self._hit(f"{point}.after_effect")
        return result_of(slot)


# Made once, since their schemas take milliseconds; the effect is that of the present world.


@tool(effect="safe")
async def safe(slot: str, context: ToolContext) -> str:
    await asyncio.sleep(0)
    return World.present.effect("safe", slot, context)


@tool(effect="keyed")
def keyed(slot: str, context: ToolContext) -> str:
    return World.present.effect("keyed", slot, context)


@tool(effect="unsafe")
async def unsafe(slot: str, context: ToolContext) -> str:
    done = World.present.effect("unsafe", slot, context)
    await asyncio.sleep(0.001)
    return done


@tool(effect="unsafe")
async def pay(slot: str, context: ToolContext) -> str:
    done = World.present.effect("unsafe", slot, context, tool="pay")
    await asyncio.sleep(0)
    return done


@tool(effect="keyed")
async def book(slot: str, context: ToolContext) -> str:
    done = World.present.effect("keyed", slot, context, tool="book")
    await asyncio.sleep(0)
    return done


@tool(effect="safe")
async def look(slot: str, context: ToolContext) -> str:
    return World.present.effect("safe", slot, context, tool="look")


TOOLS = (safe, keyed, unsafe, pay, book, look)


def _asked(messages: Sequence[Message]) -> tuple[str, int]:
    """The last prompt, and how many rounds of calls there were since.

    Those of a call beside this one, which waits for a review, come before the prompt.
    """
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            rounds += 1
        if isinstance(message, UserMessage):
            return str(message.parts[0]), rounds
    raise AssertionError("a request without a prompt")


def _goes_on(messages: Sequence[Message]) -> bool:
    return messages[0] == SystemMessage(GO_ON)


def _pause_s(kind: str) -> float:
    return 0.003 if kind == "slowly" else 0.0


def _rounds(kind: str, rest: Sequence[str], offered: frozenset[str]) -> list[list[str]]:
    """The tools that a prompt calls for, round by round; none where they are not all `offered`.

    An ask may go on from the prompt of another's run that was cut.
    """
    rounds: list[list[str]] = []
    if kind in ("tools", "slowly"):
        rounds = [names.split(",") for names in rest[0].split("|")]
    elif kind == "own":
        rounds = [["own"] * int(rest[0])]
    return rounds if all(offered.issuperset(names) for names in rounds) else []


def flush_often() -> None:
    """Have events stored at once: at the real pace, few children would live to see it."""
    pending = LiveCall.pending_events

    async def soon(self: LiveCall, *, within_s: float, **limits: Any) -> None:
        await pending(self, within_s=within_s / 50, **limits)

    setattr(LiveCall, "pending_events", soon)  # noqa: B010  # mypy knows it for a method


def pairing_faults(messages: Iterable[Message]) -> list[str]:
    """What keeps a sent history from pairing: each call has one result, right after its turn.

    Written anew on purpose, and not with the rules that the program itself goes by.
    """
    faults: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id in waiting:
                waiting.remove(message.call_id)
            else:
                faults.append(f"the result of {message.call_id} answers no call before it")
            continue
        faults += [f"call {call_id} has no result" for call_id in waiting]
        waiting = []
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
    return faults + [f"call {call_id} has no result" for call_id in waiting]

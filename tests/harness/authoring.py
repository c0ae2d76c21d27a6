"""Changes as the gateway makes them, of every kind, in a seeded mix; a few are refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec

from tests.harness.world import TENANT
from turngate.gateway.journal import guard_of
from turngate.records import CallRecord, Change, EventBatch, Guard, LedgerRow, Scope, Step
from turngate.stores.rows import ChangeRows, change_rows
from turngate.turns import TextPart, Turn

__all__ = ["Author"]

_START = datetime(2026, 11, 30, tzinfo=UTC)
_LONGEST = 3000  # characters: some changes fill a page, and most do not


class Author:
    """Writes changes for a few threads, each of which fits what was written before it."""

    def __init__(self, chance: random.Random, *, threads: int = 3) -> None:
        self._chance = chance
        self._threads = threads
        self._number = 0
        self._active: dict[str, CallRecord] = {}
        self._steps: dict[str, int] = {}

    def next(self) -> ChangeRows:
        thread = f"t{self._chance.randrange(self._threads)}"
        call = self._active.get(thread)
        way = self._chance.random()
        if way < 0.05:
            change = self._refused(thread, call)
        elif way < 0.15:
            change = Change(thread=thread, at=self._now(), turns=(self._turn(),))
        elif call is None:
            change = self._begin(thread)
        elif way < 0.45:
            change = self._journal(call)
        elif way < 0.55:
            change = self._claim(call)
        else:
            change = self._settle(call)
        return change_rows(Scope(TENANT), change)

    def _begin(self, thread: str) -> Change:
        call = CallRecord(
            id=self._id("run"),
            thread=thread,
            kind="run",
            state="active",
            owner="boot-0",
            position=0,
            created_at=self._now(),
            user_turn=self._turn(),
            key=self._id("key"),
        )
        self._active[thread] = call
        self._steps[call.id] = 0
        return Change(thread=thread, at=self._now(), begin=call)

    def _journal(self, call: CallRecord) -> Change:
        number = self._steps[call.id]
        self._steps[call.id] += 1
        return Change(
            thread=call.thread,
            at=self._now(),
            guard=guard_of(call),
            steps=(Step(number=number, kind="model", turn=self._turn()),),
            events=(EventBatch(number, f'["{self._text()}"]'),),
            ledger=(self._row(call),),
        )

    def _claim(self, call: CallRecord) -> Change:
        claimed = msgspec.structs.replace(
            call, epoch=call.epoch + 1, recoveries=call.epoch + 1, owner=f"boot-{call.epoch + 1}"
        )
        self._active[call.thread] = claimed
        return Change(thread=call.thread, at=self._now(), guard=guard_of(call), update=claimed)

    def _settle(self, call: CallRecord) -> Change:
        del self._active[call.thread]
        turns = tuple(self._turn() for _ in range(self._chance.randrange(1, 4)))
        ended = msgspec.structs.replace(
            call, state="answered", ended_at=self._now(), text=self._text(), added=len(turns)
        )
        return Change(
            thread=call.thread,
            at=self._now(),
            guard=guard_of(call),
            update=ended,
            turns=turns,
            ledger=(self._row(call),),
        )

    def _refused(self, thread: str, call: CallRecord | None) -> Change:
        if call is None:
            return Change(thread=thread, at=self._now(), expected=999, turns=(self._turn(),))
        stale = Guard(call=call.id, owner=call.owner, epoch=call.epoch + 7)
        return Change(thread=thread, at=self._now(), guard=stale, turns=(self._turn(),))

    def _turn(self) -> Turn:
        return Turn(
            id=self._id("turn"),
            role="user",
            parts=(TextPart(self._text()),),
            created_at=self._now(),
        )

    def _row(self, call: CallRecord) -> LedgerRow:
        return LedgerRow(
            id=self._id("use"),
            call=call.id,
            model="m1",
            usage=None,
            outcome="tool_calls",
            created_at=self._now(),
        )

    def _text(self) -> str:
        length = int(_LONGEST * self._chance.random() ** 4)
        return f"{self._number} " + "x" * length

    def _id(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}-{self._number}"

    def _now(self) -> datetime:
        return _START + timedelta(seconds=self._number)

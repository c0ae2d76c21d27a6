"""A run's journal: each step is in the store before the run goes on from it.

    model ─► tool_start (all calls of the step) ─► tool_result (each as it ends) ─► model …

`tool_start` commits before any effect, so that after a crash a call that may have had one is known
from a call that surely had none. Steps hold turns; settle appends those very turns. Every write
carries the owner and its epoch: a stale owner's changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from turngate import identity
from turngate.errors import StoreError
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.judging import Judged
from turngate.gateway.live import LiveCall
from turngate.records import (
    CallRecord,
    Change,
    EventBatch,
    Guard,
    LedgerRow,
    Receipt,
    Scope,
    Step,
)
from turngate.results import ModelResult
from turngate.turns import ToolCallPart, Turn
from turngate.values import Usage

__all__ = ["Journal", "begun_tools", "guard_of", "ledger_row", "tool_key"]


def tool_key(call: str, rounds: int, place: int) -> str:
    """The key of a tool call: that at `place` in the last of `rounds` model steps."""
    return f"{call}-{rounds}-{place}"


def begun_tools(
    call: str, steps: Sequence[Step]
) -> Iterator[tuple[str, ToolCallPart | None, set[str]]]:
    """Of each tool call that was begun: its key, the call (None: its turn was deleted), and the
    ids of the turns that have it and its result."""
    rounds, made = 0, None
    begun: dict[str, tuple[ToolCallPart | None, set[str]]] = {}
    for step in steps:
        if step.kind == "model":
            rounds, made = rounds + 1, step.turn
        elif step.place is not None and made is not None:
            calls = _calls_of(made)
            call_made = calls[step.place] if step.place < len(calls) else None
            key = tool_key(call, rounds, step.place)
            _, turns = begun.setdefault(key, (call_made, {made.id}))
            turns |= {step.turn.id} if step.turn is not None else set()
    return ((key, made, turns) for key, (made, turns) in begun.items())


class Journal:
    """The steps of one run, as this process knows them: what it knows is in the store."""

    def __init__(
        self,
        deps: GatewayDeps,
        scope: Scope,
        call: CallRecord,
        live: LiveCall,
        steps: Sequence[Step] = (),
    ) -> None:
        self._deps = deps
        self._scope = scope
        self._live = live
        self.call = call
        self.steps = list(steps)
        self.owed: list[LedgerRow] = []  # of refused attempts: the next commit has them too
        self.receipt: Receipt | None = None  # of the model call under way
        # Not their count: a step whose commit failed left its number unused.
        self._next = self.steps[-1].number + 1 if self.steps else 0

    # ── what the steps say ───────────────────────────────────────────────────────────────────

    @property
    def turns(self) -> list[Turn]:
        """The turns of the steps, each step's results in the order of its calls."""
        return self.turns_with({})

    def turns_with(self, missing: Mapping[int, Turn], *, since: int | None = None) -> list[Turn]:
        """`turns`, with results for open calls of the last model step: `missing` by their place.

        `since` leaves out the turns of steps below that number.
        """
        turns: list[Turn] = []
        rounds = self._rounds()
        for batch in rounds:
            new = [step for step in batch if since is None or step.number >= since]
            results = {step.place or 0: step.turn for step in new if step.kind == "tool_result"}
            if batch is rounds[-1]:
                results.update(missing)
            placed = (turn for _, turn in sorted(results.items(), key=lambda item: item[0]))
            answer = batch[0].turn if batch[0] in new else None
            turns += [turn for turn in (answer, *placed) if turn is not None]
        return turns

    @property
    def next_number(self) -> int:
        """The number of the next step."""
        return self._next

    @property
    def rounds(self) -> int:
        """How many model calls were journalled."""
        return sum(step.kind == "model" for step in self.steps)

    @property
    def tool_calls(self) -> int:
        """How many tool calls those made."""
        return sum(len(_calls_of(step.turn)) for step in self.steps if step.kind == "model")

    @property
    def usage(self) -> Usage | None:
        """The sum of what the journalled model calls reported (None: nothing was)."""
        total: Usage | None = None
        for step in self.steps:
            if step.usage is not None:
                total = step.usage if total is None else total + step.usage
        return total

    @property
    def open_places(self) -> list[int]:
        """The places of the last model step's calls that have no result."""
        places = self._places("tool_result")
        return [place for place in range(self._calls_made()) if place not in places]

    @property
    def started_places(self) -> set[int]:
        """The places of the last model step's calls that may have had an effect."""
        return self._places("tool_start")

    def begun_since(self, number: int) -> set[int]:
        """The places of the last model step's calls that were begun at step `number` or later."""
        return {
            step.place
            for step in self._last_round()
            if step.kind == "tool_start" and step.place is not None and step.number >= number
        }

    @property
    def last_model_step(self) -> int:
        """The number of the last model step (-1: there is none)."""
        return max((step.number for step in self.steps if step.kind == "model"), default=-1)

    @property
    def events_at_last_model_step(self) -> int:
        """How many events the call had when its last model step was journalled."""
        return max((step.events for step in self.steps if step.kind == "model"), default=0)

    def _rounds(self) -> list[list[Step]]:
        rounds: list[list[Step]] = []
        for step in self.steps:
            if step.kind == "model":
                rounds.append([])
            rounds[-1].append(step)
        return rounds

    def _last_round(self) -> list[Step]:
        rounds = self._rounds()
        return rounds[-1] if rounds else []

    def _places(self, kind: str) -> set[int]:
        return {
            step.place
            for step in self._last_round()
            if step.kind == kind and step.place is not None
        }

    def _calls_made(self) -> int:
        last = self._last_round()
        return len(_calls_of(last[0].turn)) if last else 0

    # ── what becomes of them ─────────────────────────────────────────────────────────────────

    async def model_step(self, turn: Turn, *, judged: Judged) -> None:
        """A model call gave calls: its turn and its ledger row are durable."""
        result = judged.result
        rows = self.rows(result, outcome="tool_calls", by=judged.by, rule=judged.rule)
        step = Step(
            number=self._take_number(),
            kind="model",
            turn=turn,
            usage=result.usage,
            events=self._live.count,
        )
        await self._commit([step], ledger=rows)
        self.owed = []

    async def tools_started(self, places: Sequence[int]) -> None:
        """The calls at `places` may have an effect from now on."""
        await self._commit(
            [Step(number=self._take_number(), kind="tool_start", place=place) for place in places]
        )

    async def tool_ended(self, place: int, turn: Turn) -> None:
        """The call at `place` has its result."""
        step = Step(number=self._take_number(), kind="tool_result", place=place, turn=turn)
        await self._commit([step])

    async def keep_events(self) -> None:
        """Store the events of a streamed run as they come: every 50 ms, or 4,096 characters.

        They are for readers that come back, so a failure here is left to the next step to meet.
        """
        while True:
            await self._live.pending_events(within_s=0.05, chars_max=4096)
            with contextlib.suppress(StoreError):
                await self._commit([])

    def taken_events(self) -> tuple[EventBatch, ...]:
        """The events that the next commit stores: those of a streamed run alone."""
        return self._live.taken_events() if self.call.streamed else ()

    def rows(
        self,
        result: ModelResult | None,
        *,
        outcome: str,
        by: str | None = None,
        rule: str | None = None,
    ) -> list[LedgerRow]:
        """The ledger row of the model call that gave `result`, after those that are owed."""
        row = ledger_row(self.call, result, outcome=outcome, by=by, rule=rule, receipt=self.receipt)
        return [*self.owed, row]

    def owe(self, *, outcome: str) -> None:
        """Have the next commit count a model call that was refused."""
        self.owed = self.rows(None, outcome=outcome)

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    async def _commit(self, steps: list[Step], *, ledger: Sequence[LedgerRow] = ()) -> None:
        """Make `steps` durable, then known. A cancelled caller waits for the commit's end."""
        change = Change(
            thread=self.call.thread,
            at=identity.now(),
            guard=guard_of(self.call),
            steps=tuple(steps),
            events=self.taken_events(),
            ledger=tuple(ledger),
        )
        committing = asyncio.ensure_future(self._deps.store.commit(self._scope, change))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            await asyncio.wait({committing})
            if not committing.cancelled() and committing.exception() is None:
                self.steps += steps
            else:
                self._live.not_stored(change.events)
            raise
        except StoreError:
            self._live.not_stored(change.events)
            raise
        self.steps += steps


def _calls_of(turn: Turn | None) -> list[ToolCallPart]:
    parts = turn.parts if turn is not None else ()
    return [part for part in parts if isinstance(part, ToolCallPart)]


def guard_of(call: CallRecord) -> Guard:
    """The guard of a call that is active, or waits for a review."""
    state: Literal["active", "review"] = "review" if call.state == "review" else "active"
    return Guard(call=call.id, owner=call.owner, epoch=call.epoch, state=state)


def ledger_row(
    call: CallRecord,
    result: ModelResult | None,
    *,
    outcome: str,
    by: str | None = None,
    rule: str | None = None,
    receipt: Receipt | None = None,
) -> LedgerRow:
    """The row of one model call of `call`; `result` None: nothing came of it."""
    return LedgerRow(
        id=identity.new_id("use"),
        call=call.id,
        model=result.model if result is not None else None,
        usage=result.usage if result is not None else None,
        outcome=outcome,
        created_at=identity.now(),
        check=by,
        rule=rule,
        receipt=receipt,
    )

"""More of the zoo: faults of checks, blocks and reviews."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.harness.bugs import SetAttribute, bug
from turngate import identity
from turngate.gateway import gateway, held, judging, loop, recovery, reviews, settle
from turngate.gateway.journal import Journal, ledger_row
from turngate.gateway.live import LiveCall
from turngate.messages import ToolCall
from turngate.records import Change, ReviewRecord, Scope

# ── what is run ──────────────────────────────────────────────────────────────────────────────


@bug
def swapped_after_approval(set_: SetAttribute) -> None:
    """What was approved is run with the arguments of the call beside it."""
    approved_call = held.approved_call

    def crossed(call: Any, journal: Any, place: int, *rest: Any) -> Any:
        let = approved_call(call, journal, place, *rest)
        if not isinstance(let, ToolCall):
            return let
        here, beside = f".{place}", f".{1 - place}"
        return msgspec.structs.replace(let, arguments=let.arguments.replace(here, beside))

    set_(loop, "approved_call", crossed)


@bug
def approval_forgotten(set_: SetAttribute) -> None:
    """Who takes a run over knows nothing of the decisions that let it go on."""
    from_journal = recovery.from_journal

    async def without(*given: Any, **named: Any) -> Any:
        run = await from_journal(*given, **named)
        if run is not None:
            run.reviews = ()
        return run

    set_(recovery, "from_journal", without)


@bug
def edit_lost_with_its_process(set_: SetAttribute) -> None:
    """A begun call that is run again is run as the model made it, and not as it was edited."""
    decisions = held.decisions

    def unused(journal: Any, made: Any) -> dict[int, ReviewRecord]:
        found = decisions(journal, made).items()
        return {place: one for place, one in found if not held.is_used(journal, one)}

    set_(loop, "decisions", unused)


@bug
def rejected_is_started(set_: SetAttribute) -> None:
    """All open calls of a step get a start, also those that are not run."""
    started = Journal.tools_started

    async def all_of_them(self: Journal, places: Sequence[int]) -> None:
        await started(self, sorted({*places, *self.open_places}))

    set_(Journal, "tools_started", all_of_them)


@bug
def retry_asks_twice(set_: SetAttribute) -> None:
    """After a reviewer's note the model is asked once for nothing."""
    model_round = loop._model_round

    async def twice(run: Any) -> Any:
        if run.call.note:
            await model_round(run)
        return await model_round(run)

    set_(loop, "_model_round", twice)


# ── one decision, one commit ─────────────────────────────────────────────────────────────────


class _Changing:
    """A store whose commits are altered on their way; all else is the real one's."""

    def __init__(self, store: Any, *alter: Any) -> None:
        self._store = store
        self._alter = alter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, scope: Scope, change: Change) -> int:
        length = 0
        for alter in self._alter:
            length = int(await self._store.commit(scope, alter(change)))
        return length


def _commit_through(set_: SetAttribute, *alter: Any) -> None:
    commit = reviews._commit

    async def altered(deps: Any, *given: Any, **named: Any) -> Any:
        faulty = dataclasses.replace(deps, store=_Changing(deps.store, *alter))
        return await commit(faulty, *given, **named)

    set_(reviews, "_commit", altered)


@bug
def decision_apart_from_effect(set_: SetAttribute) -> None:
    """A decision is one commit, and what it does is another."""

    def decision(change: Change) -> Change:
        assert change.update is not None
        assert change.guard is not None
        same = msgspec.structs.replace(
            change.update, state="review", owner=change.guard.owner, epoch=change.guard.epoch
        )
        return msgspec.structs.replace(change, update=same, steps=(), events=())

    def effect(change: Change) -> Change:
        return msgspec.structs.replace(change, reviews=())

    _commit_through(set_, decision, effect)


@bug
def decision_keeps_epoch(set_: SetAttribute) -> None:
    """A decision leaves the epoch as it was."""

    def kept(change: Change) -> Change:
        assert change.update is not None
        assert change.guard is not None
        same = msgspec.structs.replace(change.update, epoch=change.guard.epoch)
        return msgspec.structs.replace(change, update=same)

    _commit_through(set_, kept)


@bug
def review_read_before_call(set_: SetAttribute) -> None:
    """Whether a review is open is read before the epoch that the decision is guarded by."""

    class First(_Changing):
        async def review(self, *given: Any) -> Any:
            if not hasattr(self, "_first"):
                self._first = await self._store.review(*given)
            return self._first

    decide = reviews.decide

    async def stale(deps: Any, *given: Any, **named: Any) -> Any:
        faulty = dataclasses.replace(deps, store=First(deps.store, lambda change: change))
        return await decide(faulty, *given, **named)

    set_(gateway, "decide", stale)


@bug
def deadline_ignored(set_: SetAttribute) -> None:
    """A decision that comes after the deadline is made."""
    set_(reviews, "_is_overdue", lambda review: False)


@bug
def review_left_open(set_: SetAttribute) -> None:
    """A waiting call is cancelled, and its reviews stay open."""

    async def none(*given: Any) -> list[ReviewRecord]:
        return []

    set_(settle, "_closed_reviews", none)


@bug
def user_turn_again_after_pause(set_: SetAttribute) -> None:
    """A decision settles its answer as if nothing of the call were in the thread."""
    commit_end = settle.commit_end

    async def again(deps: Any, scope: Scope, call: Any, end: Any) -> Any:
        turn = msgspec.structs.replace(call.user_turn, id=identity.new_id("turn"))
        unplaced = msgspec.structs.replace(call, placed=None, user_turn=turn)
        return await commit_end(deps, scope, unplaced, end)

    set_(reviews, "commit_end", again)


# ── what is nowhere ──────────────────────────────────────────────────────────────────────────


@bug
def held_text_in_events(set_: SetAttribute) -> None:
    """What the model says is handed on before it was judged."""
    set_(LiveCall, "hold", LiveCall.observe)


@bug
def blocked_text_kept(set_: SetAttribute) -> None:
    """A blocked answer stands in the thread, if only as one that was blocked."""
    set_(judging, "without_words", lambda result: result)

    async def kept(deps: Any, scope: Any, call: Any, journal: Any, *, judged: Any) -> Any:
        result = judged.result
        end = settle.End(
            state="blocked",
            turns=deps.turn_builder.build_assistant_turns(result=result, status="incomplete"),
            ledger=[ledger_row(call, result, outcome="blocked")],
            usage=settle.summed(call.spent, journal.usage, result.usage),
            reason=judged.rule,
            by=judged.by,
        )
        return await settle.commit_end(deps, scope, call, end)

    set_(loop, "settle_blocked", kept)

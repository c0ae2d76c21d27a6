"""Settling: the one transaction that makes a call's outcome part of its thread.

    answered      user turn, tool exchanges, answer
    review        user turn, finished tool exchanges; of held calls the turn that made them
    blocked       an input: nothing, as if it had never been said. Else user turn, tool exchanges
    incomplete    user turn, tool exchanges, the text so far as an incomplete turn (if any)
    failed        nothing was said and no step done: the thread stays as it was
    lost          as incomplete: the process that ran the call is gone

The thread changes here alone. Every commit is guarded by the call's owner and epoch, so an outcome
is written once, by the one who owns the call. What an earlier commit of the call has placed in the
thread is not placed again. An exchange whose run ended is completed: a call without a result gets
one that says what is known of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turngate import identity
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal, guard_of
from turngate.gateway.judging import Judged
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.outcomes import Answered, AwaitingReview, Blocked, Incomplete, Outcome
from turngate.gateway.toolbox import OUTCOME_UNKNOWN, error_result
from turngate.messages import AssistantMessage, ToolMessage
from turngate.records import (
    CallRecord,
    CallState,
    Change,
    EventBatch,
    LedgerRow,
    ReviewRecord,
    Scope,
    Span,
)
from turngate.results import ModelResult
from turngate.turn_builder import TurnBuilder
from turngate.turns import Turn
from turngate.values import Usage, storable_text

__all__ = [
    "NOBODY",
    "End",
    "all_reviews",
    "carried",
    "commit_end",
    "open_reviews",
    "outcome_of",
    "result_turn",
    "settle_ask",
    "settle_blocked",
    "settle_failed",
    "settle_lost",
    "settle_run",
    "storable_result",
    "summed",
]

NOBODY = "nobody"  # owns a call that a decision let go on, and that no process has taken yet
NOT_STARTED = "Not run: the run ended before this call began."
_NOTHING_SAID = ModelResult(text="", tool_calls=(), model=None, finish_reason=None, usage=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What one commit makes of a call: its new state, and what its thread gets.

    `turns` come after the user turn, which the commit adds where the thread does not have it.
    """

    state: CallState
    turns: Sequence[Turn] = ()
    ledger: Sequence[LedgerRow] = ()
    text: str = ""
    usage: Usage | None = None
    reason: str | None = None
    by: str | None = None
    events: Sequence[EventBatch] = ()
    reviews: Sequence[ReviewRecord] = ()
    placed: int | None = None
    spent: Usage | None = None


async def settle_ask(
    deps: GatewayDeps, scope: Scope, call: CallRecord, journal: Journal, *, judged: Judged
) -> Outcome:
    """The answer of an ask, once its turns are durable; its calls stay open."""
    result = judged.result
    usage = summed(call.spent, result.usage)
    answer = msgspec.structs.replace(result, usage=usage)
    rows = journal.rows(result, outcome="answered", by=judged.by, rule=judged.rule)
    end = End(
        state="answered",
        turns=deps.turn_builder.build_assistant_turns(result=answer),
        ledger=rows,
        text=result.text,
        usage=usage,
    )
    return await commit_end(deps, scope, call, end)


async def settle_run(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    journal: Journal,
    *,
    state: CallState,
    reason: str | None = None,
    judged: Judged | None,
    asking: bool,
    reviews: Sequence[ReviewRecord] = (),
) -> Outcome:
    """The end of a call: its steps' turns, and what the last model call said.

    `judged` None: nothing; `asking`: a model call is under way that no ledger row counts yet.
    `reviews` were open, and end with the call.
    """
    said = storable_result(judged.result if judged is not None else _NOTHING_SAID)
    usage = summed(call.spent, journal.usage, said.usage)
    turns = journal.turns_with(_missing_results(deps.turn_builder, journal), since=call.placed)
    if state == "answered":
        final = msgspec.structs.replace(said, usage=usage, tool_calls=())
        turns += deps.turn_builder.build_assistant_turns(result=final)
    else:
        turns += _cut_answer(deps, said, reason=reason or state, usage=usage)
    by, rule = (judged.by, judged.rule) if judged is not None else (None, None)
    end = End(
        state=state,
        turns=turns,
        ledger=journal.rows(said, outcome=reason or state, by=by, rule=rule) if asking else (),
        text=said.text,
        usage=usage,
        reason=reason,
        events=journal.taken_events(),
        reviews=reviews,
    )
    return await commit_end(deps, scope, call, end)


async def settle_blocked(
    deps: GatewayDeps, scope: Scope, call: CallRecord, journal: Journal, *, judged: Judged
) -> Outcome:
    """The end of a call whose model step was blocked: nothing of that step is anywhere."""
    result = judged.result
    end = End(
        state="blocked",
        turns=journal.turns_with({}, since=call.placed),
        ledger=journal.rows(result, outcome="blocked", by=judged.by, rule=judged.rule),
        usage=summed(call.spent, journal.usage, result.usage),
        reason=judged.rule,
        by=judged.by,
        events=journal.taken_events(),
    )
    return await commit_end(deps, scope, call, end)


async def settle_failed(
    deps: GatewayDeps, scope: Scope, call: CallRecord, journal: Journal, *, reason: str
) -> None:
    """The end of a call whose model said nothing: the thread stays as it was.

    Its key is free again, since nothing came of it.
    """
    ended = msgspec.structs.replace(
        call, state="failed", reason=reason, ended_at=identity.now(), key=None
    )
    end = End(state="failed", ledger=journal.rows(None, outcome=reason))
    await deps.store.commit(scope, _change(call, ended, (), end))


async def settle_lost(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    *,
    reason: str = "interrupted",
    decided: ReviewRecord | None = None,
    was_asked: bool = True,
) -> Outcome:
    """The end of a call whose process is gone, or which waits for a review: nothing is asked.

    `was_asked` False: no model call was under way.

    What its journal and its stored events hold is kept: finished steps, and the text that a
    reader had seen of the last one. Its open reviews are closed; `decided` is one of them.
    """
    steps = await deps.store.steps(scope, call.id)
    live = LiveCall(call.id, stored_events(await deps.store.events(scope, call.id)))
    journal = Journal(deps, scope, call, live, steps)
    live.new_step(journal.events_at_last_model_step)
    # A model call was under way unless the run was in its tools; an ask does nothing else.
    is_driven = was_asked and call.state == "active" and call.owner != NOBODY
    asking = is_driven and not journal.open_places
    return await settle_run(
        deps,
        scope,
        call,
        journal,
        state="failed" if reason == "recovery_exhausted" else "incomplete",
        reason=reason,
        judged=Judged(result=live.said) if asking else None,
        asking=asking,
        reviews=await _closed_reviews(deps, scope, call, decided),
    )


async def outcome_of(deps: GatewayDeps, scope: Scope, call: CallRecord) -> Outcome:
    """The outcome of a call that has ended or waits for a review, read back from the store."""
    reviews = await open_reviews(deps, scope, call) if call.state == "review" else []
    return _outcome(call, await _turns_of(deps, scope, call, call.spans), reviews)


async def open_reviews(deps: GatewayDeps, scope: Scope, call: CallRecord) -> list[ReviewRecord]:
    """The open reviews of `call`, oldest first."""
    reviews = await all_reviews(deps, scope, call)
    return [review for review in reversed(reviews) if review.state == "open"]


async def all_reviews(deps: GatewayDeps, scope: Scope, call: CallRecord) -> list[ReviewRecord]:
    """The reviews of `call`, newest first."""
    reviews: list[ReviewRecord] = []
    after = None
    while True:
        page = await deps.store.reviews(scope, call=call.id, after=after, limit=1000)
        reviews += page.reviews
        after = page.next
        if after is None:
            return reviews


def result_turn(turn_builder: TurnBuilder, result: ToolMessage) -> Turn:
    """The tool turn of one result."""
    return turn_builder.build_assistant_turns(result=_NOTHING_SAID, run_messages=[result])[0]


# ── one commit ───────────────────────────────────────────────────────────────────────────────


async def commit_end(deps: GatewayDeps, scope: Scope, call: CallRecord, end: End) -> Outcome:
    """Commit what becomes of `call`; gives the outcome with all the turns that it has added."""
    has_user_turn = call.user_turn is not None and call.placed is None
    turns = (*((call.user_turn,) if has_user_turn and call.user_turn else ()), *end.turns)
    ended = msgspec.structs.replace(
        carried(call),
        state=end.state,
        reason=end.reason,
        by=end.by,
        ended_at=None if end.state == "review" else identity.now(),
        text=end.text,
        usage=end.usage,
        added=len(turns),
        waiting_for=(),
        placed=end.placed if end.placed is not None else call.placed,
        spent=end.spent if end.spent is not None else call.spent,
    )
    # Read before, since a read that fails after the commit would hide what was done.
    earlier = await _turns_of(deps, scope, call, ended.earlier)
    await deps.store.commit(scope, _change(call, ended, turns, end))
    return _outcome(ended, (*earlier, *turns), end.reviews)


def carried(call: CallRecord) -> CallRecord:
    """`call` before its next commit: what the last one added is among the `earlier`."""
    if call.first is None or not call.added:
        return call
    earlier = (*call.earlier, Span(call.first, call.added))
    return msgspec.structs.replace(call, earlier=earlier, first=None, added=0)


def _change(call: CallRecord, ended: CallRecord, turns: Sequence[Turn], end: End) -> Change:
    return Change(
        thread=call.thread,
        at=ended.ended_at or identity.now(),
        turns=tuple(turns),
        guard=guard_of(call),
        update=ended,
        ledger=tuple(end.ledger),
        events=tuple(end.events),
        reviews=tuple(end.reviews),
        user=call.user,
    )


async def _turns_of(
    deps: GatewayDeps, scope: Scope, call: CallRecord, spans: Sequence[Span]
) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for span in spans:
        end = span.first + span.count
        page = await deps.store.load(scope, call.thread, before=end, limit=span.count)
        turns += page.turns
    return tuple(turns)


def _outcome(call: CallRecord, turns: tuple[Turn, ...], reviews: Sequence[ReviewRecord]) -> Outcome:
    match call.state:
        case "answered":
            return Answered(call_id=call.id, text=call.text, turns=turns, usage=call.usage)
        case "review":
            ids = tuple(review.id for review in reviews)
            return AwaitingReview(call_id=call.id, reviews=ids, turns=turns, usage=call.usage)
        case "blocked":
            return Blocked(
                call_id=call.id,
                by=call.by or "",
                rule=call.reason or "",
                turns=turns,
                usage=call.usage,
            )
        case state:
            return Incomplete(
                call_id=call.id,
                reason=call.reason or state,
                text=call.text,
                turns=turns,
                usage=call.usage,
            )


# ── what goes in ─────────────────────────────────────────────────────────────────────────────


async def _closed_reviews(
    deps: GatewayDeps, scope: Scope, call: CallRecord, decided: ReviewRecord | None
) -> list[ReviewRecord]:
    """The open reviews of a call that ends without them, and the one that was decided."""
    if call.state != "review":
        return []
    return [
        decided
        if decided is not None and decided.id == review.id
        else msgspec.structs.replace(review, state="cancelled", decided_at=identity.now())
        for review in await open_reviews(deps, scope, call)
    ]


def _cut_answer(
    deps: GatewayDeps, said: ModelResult, *, reason: str, usage: Usage | None
) -> list[Turn]:
    """The incomplete turn of an answer that was cut; none where no text had come."""
    if not said.text:
        return []
    said = msgspec.structs.replace(said, tool_calls=(), usage=usage)
    built = deps.turn_builder.build_assistant_turns(result=said, status="incomplete")
    return [msgspec.structs.replace(turn, ended=reason) for turn in built]


def _missing_results(turn_builder: TurnBuilder, journal: Journal) -> dict[int, Turn]:
    """Results for the open calls of the last step by place, so that its exchange is whole."""
    places = journal.open_places
    if not places:
        return {}
    started = journal.started_places
    answers = [
        message
        for message in turn_builder.to_messages(journal.turns)
        if isinstance(message, AssistantMessage)
    ]
    return {
        place: result_turn(
            turn_builder,
            error_result(
                answers[-1].tool_calls[place],
                OUTCOME_UNKNOWN if place in started else NOT_STARTED,
            ),
        )
        for place in places
    }


def summed(*usages: Usage | None) -> Usage | None:
    """The sum of what was reported (None: nothing was)."""
    total: Usage | None = None
    for usage in usages:
        if usage is not None:
            total = usage if total is None else total + usage
    return total


def storable_result(result: ModelResult) -> ModelResult:
    """`result` with texts that every database keeps as they are."""
    return msgspec.structs.replace(
        result,
        text=storable_text(result.text),
        model=storable_text(result.model) if result.model is not None else None,
        reasoning=storable_text(result.reasoning) if result.reasoning is not None else None,
        tool_calls=tuple(
            msgspec.structs.replace(
                call,
                id=storable_text(call.id),
                name=storable_text(call.name),
                arguments=storable_text(call.arguments),
            )
            for call in result.tool_calls
        ),
    )

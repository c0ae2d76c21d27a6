"""Settling: the one transaction that makes a call's outcome part of its thread.

    answered      user turn, tool exchanges, answer
    incomplete    user turn, tool exchanges, the text so far as an incomplete turn (if any)
    failed        an ask: nothing; the prompt stays in the call's row. A run: as incomplete
    lost          as incomplete: the process that ran the call is gone

The thread changes here alone. Every commit is guarded by the call's owner and epoch, so an outcome
is written once, by the one who owns the call. An exchange whose run ended is completed: a call
without a result gets one that says what is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from turngate import identity
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal, guard_of, ledger_row
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.outcomes import Answered, Incomplete, Outcome
from turngate.gateway.toolbox import OUTCOME_UNKNOWN, error_result
from turngate.messages import AssistantMessage, ToolMessage
from turngate.records import CallRecord, CallState, Change, EventBatch, LedgerRow, Scope
from turngate.results import ModelResult
from turngate.turn_builder import TurnBuilder
from turngate.turns import Turn
from turngate.values import Usage, storable_text

__all__ = [
    "outcome_of",
    "result_turn",
    "settle_ask",
    "settle_failed",
    "settle_incomplete",
    "settle_lost",
    "settle_run",
    "storable_result",
]

NOT_STARTED = "Not run: the run ended before this call began."
_NOTHING_SAID = ModelResult(text="", tool_calls=(), model=None, finish_reason=None, usage=None)


async def settle_ask(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, result: ModelResult
) -> Answered:
    """The answer, once its turns are durable; its calls stay open."""
    result = storable_result(result)
    answer = deps.turn_builder.build_assistant_turns(result=result)
    row = ledger_row(call, model=result.model, usage=result.usage, outcome="answered")
    ended, turns = await _settle(
        deps, scope, call, "answered", answer, ledger=[row], text=result.text, usage=result.usage
    )
    return _answered(ended, turns)


async def settle_incomplete(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, reason: str, said: ModelResult
) -> Incomplete:
    """The end of an ask that was cut short: the text of `said` is kept, and no half call."""
    said = storable_result(said)
    answer = _cut_answer(deps, said, reason=reason, usage=said.usage)
    row = ledger_row(call, model=said.model, usage=said.usage, outcome=reason)
    ended, turns = await _settle(
        deps,
        scope,
        call,
        "incomplete",
        answer,
        ledger=[row],
        text=said.text,
        usage=said.usage,
        reason=reason,
    )
    return _incomplete(ended, turns)


async def settle_failed(deps: GatewayDeps, scope: Scope, call: CallRecord, *, reason: str) -> None:
    """The end of a call whose model said nothing: the thread stays as it was.

    Its key is free again, since nothing came of it.
    """
    row = ledger_row(call, model=None, usage=None, outcome=reason)
    ended = msgspec.structs.replace(
        call, state="failed", reason=reason, ended_at=identity.now(), key=None
    )
    await deps.store.commit(scope, _change(call, ended, (), [row]))


async def settle_run(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    journal: Journal,
    *,
    state: CallState,
    reason: str | None,
    said: ModelResult | None,
    asking: bool,
) -> Outcome:
    """The end of a run: its steps' turns, and what the last model call said.

    `said` None: nothing; `asking`: a model call is under way that no ledger row counts yet.
    """
    said = storable_result(said if said is not None else _NOTHING_SAID)
    usage = _sum(journal.usage, said.usage)
    turns = journal.turns_with(_missing_results(deps.turn_builder, journal))
    if state == "answered":
        final = msgspec.structs.replace(said, usage=usage, tool_calls=())
        turns += deps.turn_builder.build_assistant_turns(result=final)
    else:
        turns += _cut_answer(deps, said, reason=reason or state, usage=usage)
    ledger = []
    if asking:
        outcome = reason or state
        ledger.append(ledger_row(call, model=said.model, usage=said.usage, outcome=outcome))
    ended, added = await _settle(
        deps,
        scope,
        call,
        state,
        turns,
        ledger=ledger,
        text=said.text,
        usage=usage,
        reason=reason,
        events=journal.taken_events(),
    )
    return _outcome(ended, added)


async def settle_lost(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, reason: str = "interrupted"
) -> Outcome:
    """The end of a call whose process is gone: nothing is asked again.

    What its journal and its stored events hold is kept: finished steps, and the text that a
    reader had seen of the last one.
    """
    steps = await deps.store.steps(scope, call.id)
    live = LiveCall(call.id, stored_events(await deps.store.events(scope, call.id)))
    journal = Journal(deps, scope, call, live, steps)
    live.new_step(journal.events_at_last_model_step)
    # A model call was under way unless the run was in its tools; an ask does nothing else.
    return await settle_run(
        deps,
        scope,
        call,
        journal,
        state="failed" if reason == "recovery_exhausted" else "incomplete",
        reason=reason,
        said=live.said if not journal.open_places else None,
        asking=not journal.open_places,
    )


async def outcome_of(deps: GatewayDeps, scope: Scope, call: CallRecord) -> Outcome:
    """The outcome of a call that has ended, read back from the store."""
    turns: tuple[Turn, ...] = ()
    if call.first is not None and call.added:
        page = await deps.store.load(
            scope, call.thread, before=call.first + call.added, limit=call.added
        )
        turns = page.turns
    return _outcome(call, turns)


def result_turn(turn_builder: TurnBuilder, result: ToolMessage) -> Turn:
    """The tool turn of one result."""
    return turn_builder.build_assistant_turns(result=_NOTHING_SAID, run_messages=[result])[0]


# ── one commit ───────────────────────────────────────────────────────────────────────────────


async def _settle(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    state: CallState,
    answer: Iterable[Turn],
    *,
    ledger: list[LedgerRow],
    text: str,
    usage: Usage | None,
    reason: str | None = None,
    events: Sequence[EventBatch] = (),
) -> tuple[CallRecord, tuple[Turn, ...]]:
    """Commit the end of `call`; gives its last record and the turns that the thread got."""
    turns = (*((call.user_turn,) if call.user_turn is not None else ()), *answer)
    ended = msgspec.structs.replace(
        call,
        state=state,
        reason=reason,
        ended_at=identity.now(),
        text=text,
        usage=usage,
        added=len(turns),
        waiting_for=(),
    )
    await deps.store.commit(scope, _change(call, ended, turns, ledger, events))
    return ended, turns


def _change(
    call: CallRecord,
    ended: CallRecord,
    turns: tuple[Turn, ...],
    ledger: list[LedgerRow],
    events: Sequence[EventBatch] = (),
) -> Change:
    return Change(
        thread=call.thread,
        at=ended.ended_at or identity.now(),
        turns=turns,
        guard=guard_of(call),
        update=ended,
        ledger=tuple(ledger),
        events=tuple(events),
        user=call.user,
    )


def _outcome(call: CallRecord, turns: tuple[Turn, ...]) -> Outcome:
    return _answered(call, turns) if call.state == "answered" else _incomplete(call, turns)


def _answered(call: CallRecord, turns: tuple[Turn, ...]) -> Answered:
    return Answered(call_id=call.id, text=call.text, turns=turns, usage=call.usage)


def _incomplete(call: CallRecord, turns: tuple[Turn, ...]) -> Incomplete:
    return Incomplete(
        call_id=call.id,
        reason=call.reason or call.state,
        text=call.text,
        turns=turns,
        usage=call.usage,
    )


# ── what goes in ─────────────────────────────────────────────────────────────────────────────


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


def _sum(first: Usage | None, second: Usage | None) -> Usage | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second


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

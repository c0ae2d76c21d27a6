"""Settling: the one transaction that makes a call's outcome part of its thread.

    answered      user turn, assistant turn
    incomplete    user turn, the text so far as an incomplete turn (none if there is no text)
    failed        nothing; the prompt stays in the call's row
    lost          user turn: the process that ran the call is gone

The thread changes here alone. Every commit ends the active call of its id and owner, so an outcome
is written once, by the one who owns the call.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turngate import identity
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.outcomes import Answered, Incomplete
from turngate.records import CallRecord, CallState, Change, LedgerRow, Scope
from turngate.results import ModelResult
from turngate.turns import Turn
from turngate.values import Usage, storable_text

__all__ = ["settle_ask", "settle_failed", "settle_incomplete", "settle_lost"]


async def settle_ask(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, result: ModelResult
) -> Answered:
    """The answer, once its turns are durable; its calls stay open."""
    result = _storable(result)
    answer = deps.turn_builder.build_assistant_turns(result=result)
    turns = await _settle(
        deps, scope, call, state="answered", answer=answer, model=result.model, usage=result.usage
    )
    return Answered(call_id=call.id, text=result.text, turns=turns, usage=result.usage)


async def settle_incomplete(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, reason: str, said: ModelResult
) -> Incomplete:
    """The end of a call that was cut short: the text of `said` is kept, and no half call."""
    said = msgspec.structs.replace(_storable(said), tool_calls=())
    answer: list[Turn] = []
    if said.text:
        built = deps.turn_builder.build_assistant_turns(result=said, status="incomplete")
        answer = [msgspec.structs.replace(turn, ended=reason) for turn in built]
    turns = await _settle(
        deps,
        scope,
        call,
        state="incomplete",
        reason=reason,
        answer=answer,
        model=said.model,
        usage=said.usage,
    )
    return Incomplete(call_id=call.id, reason=reason, text=said.text, turns=turns, usage=said.usage)


async def settle_failed(deps: GatewayDeps, scope: Scope, call: CallRecord, *, reason: str) -> None:
    """The end of a call whose model said nothing: the thread stays as it was."""
    await _settle(deps, scope, call, state="failed", reason=reason, keep_user_turn=False)


async def settle_lost(deps: GatewayDeps, scope: Scope, call: CallRecord) -> Incomplete:
    """The end of a call whose process is gone: nothing is asked again."""
    turns = await _settle(deps, scope, call, state="incomplete", reason="interrupted")
    return Incomplete(call_id=call.id, reason="interrupted", text="", turns=turns, usage=None)


async def _settle(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    *,
    state: CallState,
    reason: str | None = None,
    answer: Iterable[Turn] = (),
    keep_user_turn: bool = True,
    model: str | None = None,
    usage: Usage | None = None,
) -> tuple[Turn, ...]:
    """Commit the end of `call`; gives the turns that the thread got."""
    asked = (call.user_turn,) if keep_user_turn and call.user_turn is not None else ()
    turns = (*asked, *answer)
    ended_at = identity.now()
    row = LedgerRow(
        id=identity.new_id("use"),
        call=call.id,
        model=model,
        usage=usage,
        outcome=reason or state,
        created_at=ended_at,
    )
    ended = msgspec.structs.replace(call, state=state, reason=reason, ended_at=ended_at)
    change = Change(
        thread=call.thread, at=ended_at, turns=turns, call=ended, ledger=(row,), user=call.user
    )
    await deps.store.commit(scope, change)
    return turns


def _storable(result: ModelResult) -> ModelResult:
    """`result` with texts that every database keeps as they are."""
    return msgspec.structs.replace(
        result,
        text=storable_text(result.text),
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

"""One ask, step by step: prepare, begin, complete, settle.

    prepare_call   reads only: the user turn, the window, the request
    begin_call     one commit before the first provider byte: the claim and the user turn
    complete       the model
    settle_*       one commit: the turns, the call's end, the ledger (gateway/settle.py)

A process may die at any await: before `begin_call` nothing has happened, after it the claim is
found by the next start (or the next call on the thread) and ends as incomplete/interrupted, and
after the settle everything is durable.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from turngate import identity
from turngate.completion import CallOptions, ChatRequest
from turngate.errors import InvalidValue, PolicyStopped, ProviderError, ThreadBusy, ThreadMoved
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.settle import settle_ask, settle_failed, settle_incomplete, settle_lost
from turngate.protocols import ContextInput
from turngate.records import CallRecord, Change, Scope
from turngate.turns import Turn
from turngate.values import ToolSpec, storable_text

__all__ = ["Ask", "PreparedCall", "begin_call", "execute_ask", "prepare_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a caller asks of a thread; `prompt` None goes on without a new user turn."""

    scope: Scope
    thread: str
    prompt: str | None
    user: str | None = None
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A request that is ready to go, and the thread's length at which its window was read."""

    ask: Ask
    user_turn: Turn | None
    position: int
    request: ChatRequest


async def prepare_call(deps: GatewayDeps, ask: Ask) -> PreparedCall:
    """The request of `ask`, from reads alone.

    Errors: `InvalidValue` for an empty prompt, and where there is nothing to answer.
    """
    user_turn = None
    if ask.prompt is not None:
        if not ask.prompt.strip():
            raise InvalidValue("the prompt is empty")
        user_turn = deps.turn_builder.build_user_turn(prompt=storable_text(ask.prompt))
    window = await deps.memory.window(ask.scope, ask.thread, current=user_turn)
    request = deps.assembler.assemble(
        ContextInput(
            messages=window.messages,
            instructions=ask.instructions if ask.instructions is not None else deps.instructions,
            tools=ask.tools,
            options=ask.options,
            model=ask.options.model,
        )
    )
    return PreparedCall(ask=ask, user_turn=user_turn, position=window.length, request=request)


async def begin_call(deps: GatewayDeps, prepared: PreparedCall) -> CallRecord:
    """The active call of `prepared`, once its claim on the thread is durable.

    Errors: `ThreadBusy` (another call is active), `ThreadMoved` (prepare again).
    """
    ask = prepared.ask
    call = CallRecord(
        id=identity.new_id("call"),
        thread=ask.thread,
        kind="ask",
        state="active",
        owner=deps.owner,
        position=prepared.position,
        created_at=identity.now(),
        user_turn=prepared.user_turn,
        user=ask.user,
    )
    change = Change(thread=ask.thread, at=call.created_at, expected=prepared.position, call=call)
    deps.live.add(call.id)  # before the commit: nobody may take the claim for an abandoned one
    try:
        await deps.store.commit(ask.scope, change)
    except BaseException:
        deps.live.discard(call.id)
        raise
    return call


async def execute_ask(deps: GatewayDeps, ask: Ask, *, live: LiveCall | None = None) -> Outcome:
    """The outcome of `ask`, once it is durable; `live` shows the call to its readers meanwhile.

    Errors: what `prepare_call` and `begin_call` raise; `ProviderError` and `PolicyStopped` where
    the model failed before its first part (the thread is then as it was); `StoreError`.
    A cancelled task leaves the call settled as incomplete.
    """
    live = live if live is not None else LiveCall()
    prepared, call = await _prepared_and_begun(deps, ask)
    try:
        live.begun(call.id)
        return await _completed(deps, prepared, call, live)
    finally:
        deps.live.discard(call.id)


async def _prepared_and_begun(deps: GatewayDeps, ask: Ask) -> tuple[PreparedCall, CallRecord]:
    """Prepare and begin, again where the thread moved or an abandoned claim stood in the way."""
    tries = deps.settings.prepare_tries_max
    while True:
        prepared = await prepare_call(deps, ask)
        tries -= 1
        try:
            return prepared, await begin_call(deps, prepared)
        except ThreadMoved:
            if tries <= 0:
                raise
        except ThreadBusy as busy:
            if tries <= 0 or not await _released(deps, ask, busy.call_id):
                raise


async def _released(deps: GatewayDeps, ask: Ask, call_id: str) -> bool:
    """Whether the claim of `call_id` is gone: an abandoned one is settled here."""
    call = await deps.store.active_call(ask.scope, ask.thread)
    if call is None or call.id != call_id:
        return True
    if call.owner == deps.owner and call.id in deps.live:
        return False
    await settle_lost(deps, ask.scope, call)
    return True


async def _completed(
    deps: GatewayDeps, prepared: PreparedCall, call: CallRecord, live: LiveCall
) -> Outcome:
    scope = prepared.ask.scope
    try:
        result = await live.cancellable(deps.llm.complete(prepared.request, observe=live.observe))
    except asyncio.CancelledError:
        reason = live.cancel_reason
        outcome = await settle_incomplete(
            deps, scope, call, reason=reason or "cancelled", said=live.said
        )
        if reason is None:
            raise  # this very task was cancelled, not the call by a reader
        return outcome
    except (ProviderError, PolicyStopped) as error:
        if error.partial is None:
            await settle_failed(deps, scope, call, reason=error.reason)
            raise
        return await settle_incomplete(
            deps, scope, call, reason=_cut_reason(error), said=error.partial
        )
    except BaseException:
        await settle_failed(deps, scope, call, reason="error")
        raise
    if result.finish_reason in ("length", "content_filter"):
        return await settle_incomplete(deps, scope, call, reason=result.finish_reason, said=result)
    return await settle_ask(deps, scope, call, result=result)


def _cut_reason(error: ProviderError | PolicyStopped) -> str:
    return "policy" if isinstance(error, PolicyStopped) else error.code

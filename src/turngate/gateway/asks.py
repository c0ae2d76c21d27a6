"""One ask: prepare, begin, complete, settle. Its tool calls come back unexecuted."""

from __future__ import annotations

import asyncio

from turngate.completion import ChatRequest
from turngate.errors import PolicyStopped, ProviderError
from turngate.gateway.calls import NewCall, prepared_and_begun
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.settle import settle_ask, settle_failed, settle_incomplete
from turngate.records import CallRecord, Scope

__all__ = ["cut_reason", "execute_ask"]


async def execute_ask(deps: GatewayDeps, new: NewCall, *, live: LiveCall | None = None) -> Outcome:
    """The outcome of an ask, once it is durable; `live` shows the call to its readers meanwhile.

    Errors: what `prepare_call` and `begin_call` raise; `ProviderError` and `PolicyStopped` where
    the model failed before its first part (the thread is then as it was); `StoreError`.
    A cancelled task leaves the call settled as incomplete.
    """
    live = live if live is not None else LiveCall(new.id)
    prepared, call = await prepared_and_begun(deps, new)
    try:
        live.begun()
        return await _completed(deps, new.scope, prepared.request, call, live)
    finally:
        deps.live.discard(call.id)


async def _completed(
    deps: GatewayDeps, scope: Scope, request: ChatRequest, call: CallRecord, live: LiveCall
) -> Outcome:
    try:
        result = await live.cancellable(deps.llm.complete(request, observe=live.observe))
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
            await settle_failed(deps, scope, call, reason=cut_reason(error))
            raise
        return await settle_incomplete(
            deps, scope, call, reason=cut_reason(error), said=error.partial
        )
    except BaseException:  # a provider's own bug; what it had said is kept
        if live.said.text:
            await settle_incomplete(deps, scope, call, reason="error", said=live.said)
        else:
            await settle_failed(deps, scope, call, reason="error")
        raise
    if result.finish_reason in ("length", "content_filter"):
        return await settle_incomplete(deps, scope, call, reason=result.finish_reason, said=result)
    return await settle_ask(deps, scope, call, result=result)


def cut_reason(error: ProviderError | PolicyStopped) -> str:
    """The reason of an incomplete outcome for the error that cut it."""
    return "policy" if isinstance(error, PolicyStopped) else error.code

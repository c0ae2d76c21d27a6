"""One helper call: a model asked by the gateway itself, for its own notes.

    complete ─► judged ─► taken: the call, its ledger row and what it wrote, in one commit
                   └────► not taken: the call and its row alone, with the reason

A helper call claims nothing and is written at its end, so a process that dies in one leaves nothing
of it, and the next step tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from turngate import identity
from turngate.completion import ChatRequest, OutputSchema
from turngate.errors import (
    PolicyStopped,
    ProviderError,
    RecallMoved,
    RequestError,
    StoreError,
    ThreadMoved,
)
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import ledger_row
from turngate.gateway.settle import storable_result
from turngate.messages import SystemMessage, UserMessage
from turngate.records import CallRecord, CallState, Change, Scope
from turngate.results import ModelResult

__all__ = ["BadAnswer", "Helper", "ask_helper", "helper_record"]

Helper = Literal["memory", "facts"]
Take = Callable[[str], Awaitable[Change]]

ANSWER_CHARS_MAX = 8_000
_TAKE_TRIES = 3


class BadAnswer(ValueError):
    """The answer is not of the form that was asked for; `reason` is a stable word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def helper_record(
    deps: GatewayDeps, kind: Helper, thread: str, *, position: int, user: str | None = None
) -> CallRecord:
    """The record of a helper call that begins now; it is stored once the call has ended."""
    return CallRecord(
        id=identity.new_id(kind),
        thread=thread,
        kind=kind,
        state="active",
        owner=deps.owner,
        position=position,
        created_at=identity.now(),
        user=user,
        model=deps.remember.options.model if deps.remember is not None else None,
    )


async def ask_helper(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    instructions: str,
    question: str,
    take: Take,
    *,
    erasures: int,
    output: OutputSchema | None = None,
) -> bool:
    """Whether the helper's answer was taken: the change that `take` makes of its text is durable.

    `take` reads what it needs, raises `BadAnswer` for what is none, and is called again where
    another writer was first. Where the thread has had other `erasures` since, nothing is taken, and
    the record names no user. Errors: `StoreError`. A cancelled call has its row too.
    """
    assert deps.remember is not None
    options = deps.remember.options
    request = ChatRequest(
        messages=(SystemMessage(instructions), UserMessage((question,))),
        options=options,
        model=options.model,
        output=output,
    )
    result: ModelResult | None = None
    unchanged = Change(thread=call.thread, at=identity.now(), erasures=erasures)
    try:
        result = storable_result(await (deps.helper or deps.llm).complete(request))
        reason = _unfit(result) or await _taken(deps, scope, call, result, take, erasures)
        if reason is None:
            return True
    except asyncio.CancelledError:
        await _keep(deps, scope, unchanged, call, result, "incomplete", "gateway_closed")
        raise
    except ThreadMoved as moved:  # what it was shown was deleted: nothing comes of it
        reason = moved.code
    except BadAnswer as bad:
        reason = bad.reason
    except ProviderError as error:
        reason = error.reason if error.reason == "content_filter" else error.code
        result = error.partial
    except PolicyStopped as error:
        reason, result = error.reason, error.partial
    except StoreError:
        raise
    except Exception:  # a provider's own bug: the notes stay as they were, and no caller meets it
        reason = "error"
    await _keep(deps, scope, unchanged, call, result, "failed", reason)
    return False


def _unfit(result: ModelResult) -> str | None:
    """Why no answer of this kind is taken, in one word; None where it may be."""
    if result.refused:
        return "refusal"
    if result.finish_reason in ("length", "content_filter"):
        return result.finish_reason
    if result.tool_calls:
        return "bad_answer"
    if not result.text.strip():
        return "empty"
    return "oversized" if len(result.text) > ANSWER_CHARS_MAX else None


async def _taken(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    result: ModelResult,
    take: Take,
    erasures: int,
) -> str | None:
    """None once what `take` makes of the answer is durable; else why it is not."""
    async with deps.fact_lock(scope, call.user):
        for _ in range(_TAKE_TRIES):
            change = msgspec.structs.replace(await take(result.text), erasures=erasures)
            with contextlib.suppress(RecallMoved):
                await deps.store.commit(scope, _with_call(change, call, result, state="answered"))
                return None
    return "recall_moved"


async def _keep(
    deps: GatewayDeps,
    scope: Scope,
    unchanged: Change,
    call: CallRecord,
    result: ModelResult | None,
    state: CallState,
    reason: str,
) -> None:
    """Store the call and its row alone; one that is cancelled as it commits may be there."""
    change = _with_call(unchanged, call, result, state=state, reason=reason)
    with contextlib.suppress(RequestError):
        try:
            await deps.store.commit(scope, change)
        except ThreadMoved as moved:
            nameless = msgspec.structs.replace(call, user=None)
            change = msgspec.structs.replace(unchanged, erasures=None)
            change = _with_call(change, nameless, result, state=state, reason=moved.code)
            await deps.store.commit(scope, change)


def _with_call(
    change: Change,
    call: CallRecord,
    result: ModelResult | None,
    *,
    state: CallState,
    reason: str | None = None,
) -> Change:
    """`change` with the ended call and its ledger row. What was said is in neither."""
    usage = result.usage if result is not None else None
    ended = msgspec.structs.replace(
        call, state=state, reason=reason, ended_at=identity.now(), usage=usage
    )
    row = ledger_row(call, result, outcome=reason or state)
    row = msgspec.structs.replace(row, helper=call.kind)
    return msgspec.structs.replace(change, begin=ended, ledger=(row,))

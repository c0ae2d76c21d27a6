"""The first half of every call: prepare (reads only), then begin (one commit, the claim).

    prepare_call   the user turn, the window, the request
    begin_call     one commit before the first provider byte: the claim and the user turn

A process may die at any await. Before `begin_call` nothing has happened; after it the claim is
found by the next start, or by the next call on the thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass

import msgspec

from turngate import identity
from turngate.completion import CallOptions, ChatRequest
from turngate.errors import InvalidValue, ThreadBusy, ThreadMoved, UnknownCall
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.settle import settle_lost
from turngate.messages import Message
from turngate.protocols import ContextInput
from turngate.records import (
    CallKind,
    CallRecord,
    Change,
    RunLimits,
    Scope,
    ToolNeed,
)
from turngate.turns import Turn
from turngate.values import ToolSpec, storable_text

__all__ = [
    "NewCall",
    "PreparedCall",
    "begin_call",
    "body_hash",
    "prepare_call",
    "prepared_and_begun",
    "request_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """What a caller asks of a thread, under a fresh id.

    `prompt` None goes on without a new user turn. `needs` are the tools of a run by name and
    hash, `local` says that one of them is in no registry, `streamed` that a reader follows the
    deltas.
    """

    id: str
    scope: Scope
    thread: str
    prompt: str | None
    kind: CallKind = "ask"
    user: str | None = None
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    needs: tuple[ToolNeed, ...] = ()
    local: bool = False
    options: CallOptions = CallOptions()
    limits: RunLimits = RunLimits()
    key: str | None = None
    streamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A request that is ready to go, and the thread's length at which its window was read."""

    new: NewCall
    user_turn: Turn | None
    position: int
    window: tuple[Message, ...]
    request: ChatRequest


async def prepare_call(deps: GatewayDeps, new: NewCall) -> PreparedCall:
    """The request of `new`, from reads alone.

    Errors: `InvalidValue` for an empty prompt, and where there is nothing to answer.
    """
    user_turn = None
    if new.prompt is not None:
        if not new.prompt.strip():
            raise InvalidValue("the prompt is empty")
        user_turn = deps.turn_builder.build_user_turn(prompt=storable_text(new.prompt))
    window = await deps.memory.window(new.scope, new.thread, current=user_turn)
    instructions = new.instructions if new.instructions is not None else deps.instructions
    request = deps.assembler.assemble(
        ContextInput(
            messages=window.messages,
            instructions=instructions,
            tools=new.tools,
            options=new.options,
            model=new.options.model,
        )
    )
    return PreparedCall(
        new=new,
        user_turn=user_turn,
        position=window.length,
        window=window.messages,
        request=request,
    )


def request_of(deps: GatewayDeps, call: CallRecord, messages: tuple[Message, ...]) -> ChatRequest:
    """The request of one round of `call`, for its window and what its run has added."""
    return deps.assembler.assemble(
        ContextInput(
            messages=messages,
            instructions=call.instructions,
            tools=call.tools,
            options=call.options,
            model=call.options.model,
        )
    )


async def begin_call(deps: GatewayDeps, prepared: PreparedCall) -> CallRecord:
    """The active call of `prepared`, once its claim on the thread is durable.

    Errors: `ThreadBusy` (another call is active), `ThreadMoved` (prepare again), `KeyInUse` (a
    call of this key was begun before).
    """
    new = prepared.new
    call = CallRecord(
        id=new.id,
        thread=new.thread,
        kind=new.kind,
        state="active",
        owner=deps.owner,
        position=prepared.position,
        created_at=identity.now(),
        user_turn=prepared.user_turn,
        user=new.user,
        key=new.key,
        body_hash=body_hash(new) if new.key is not None else None,
        instructions=new.instructions if new.instructions is not None else deps.instructions,
        model=deps.model,
        options=new.options,
        tools=new.tools,
        needs=new.needs,
        local=new.local,
        limits=new.limits,
        streamed=new.streamed,
    )
    change = Change(thread=new.thread, at=call.created_at, expected=prepared.position, begin=call)
    deps.live.add(call.id)  # before the commit: nobody may take the claim for an abandoned one
    try:
        await deps.store.commit(new.scope, change)
    except BaseException:
        deps.live.discard(call.id)
        raise
    return call


def body_hash(new: NewCall) -> str:
    """A hash of what is asked: a key stands for this body alone."""
    body = (new.thread, new.kind, new.prompt, new.instructions, new.tools, new.options)
    try:
        text = json.dumps(msgspec.to_builtins(body), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue("the request holds a value that JSON has no form for") from error
    return hashlib.sha256(text.encode()).hexdigest()


async def prepared_and_begun(deps: GatewayDeps, new: NewCall) -> tuple[PreparedCall, CallRecord]:
    """Prepare and begin, again where the thread moved or an abandoned claim stood in the way."""
    tries = deps.settings.prepare_tries_max
    while True:
        prepared = await prepare_call(deps, new)
        tries -= 1
        try:
            return prepared, await begin_call(deps, prepared)
        except ThreadMoved:
            if tries <= 0:
                raise
        except ThreadBusy as busy:
            if tries <= 0 or not await _released(deps, new, busy.call_id):
                raise


async def _released(deps: GatewayDeps, new: NewCall, call_id: str) -> bool:
    """Whether the claim of `call_id` is gone: an abandoned one is settled here."""
    call = await deps.store.active_call(new.scope, new.thread)
    if call is None or call.id != call_id:
        return True
    if call.waiting_for or (call.owner == deps.owner and call.id in deps.live):
        return False
    with contextlib.suppress(UnknownCall):  # another one settled it since it was read
        await settle_lost(deps, new.scope, call)
    return True

"""The first half of every call: prepare (reads only), then begin (one commit, the claim).

    prepare_call   the prompt as checked, the user turn, the window, the request
    begin_call     one commit before the first provider byte: the claim and the user turn
    begin_blocked  of a blocked prompt only that it was blocked, by which check and rule

A process may die at any await. Before `begin_call` nothing has happened; after it the claim is
found by the next start, or by the next call on the thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass, replace

import msgspec

from turngate import identity
from turngate.completion import CallOptions, ChatRequest
from turngate.errors import InvalidValue, PromptBlocked, ThreadBusy, ThreadMoved, UnknownCall
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.judging import checked_prompt
from turngate.gateway.outcomes import Blocked
from turngate.gateway.recalling import recalled_for, recalled_ids
from turngate.gateway.receipts import Shown, request_of, shown_context
from turngate.gateway.settle import settle_lost
from turngate.records import (
    CallKind,
    CallRecord,
    Change,
    Prompt,
    Receipt,
    RunLimits,
    Scope,
    ToolNeed,
    text_hash,
)
from turngate.turns import Turn
from turngate.values import FileRef, ToolSpec, storable_text

__all__ = [
    "NewCall",
    "PreparedCall",
    "begin_blocked",
    "begin_call",
    "body_hash",
    "prepare_call",
    "prepared_and_begun",
    "released",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """What a caller asks of a thread, under a fresh id.

    `prompt` None goes on without a new user turn, unless there are `files`. `needs` are the tools
    of a run by name and hash, `local` says that one of them is in no registry, `streamed` that a
    reader follows the deltas, `beside_review` that calls which wait for a review are no hindrance.
    """

    id: str
    scope: Scope
    thread: str
    prompt: str | None
    files: tuple[FileRef, ...] = ()
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
    beside_review: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A request that is ready to go, its receipt, and what all requests of the call are shown.

    `erasures` is how often something was deleted from the thread before it was read.
    """

    new: NewCall
    user_turn: Turn | None
    shown: Shown
    request: ChatRequest
    receipt: Receipt
    erasures: int = 0


async def prepare_call(deps: GatewayDeps, new: NewCall) -> PreparedCall:
    """The request of `new`, from reads alone.

    Errors: `InvalidValue` for an empty prompt, and where there is nothing to answer;
    `FileNotFound`; `PromptBlocked` where an input check says so.
    """
    return await _prepared(deps, new, await _checked(deps, new))


async def _checked(deps: GatewayDeps, new: NewCall) -> str | None:
    """The prompt as it is stored and sent, once the input checks let it pass."""
    if new.prompt is None and not new.files:
        return None
    for ref in new.files:
        if (await deps.store.file(new.scope, ref.id)).ref != ref:
            raise InvalidValue(f"file {ref.id!r} is another than the pointer says")
    text = storable_text(new.prompt or "")
    if deps.input_checks:
        prompt = Prompt(text=text, thread=new.thread, user=new.user, files=new.files)
        text = await checked_prompt(deps, prompt)
    if not text.strip() and not new.files:
        raise InvalidValue("the prompt is empty")
    return text


async def _prepared(deps: GatewayDeps, new: NewCall, prompt: str | None) -> PreparedCall:
    user_turn = None
    if prompt is not None:
        user_turn = deps.turn_builder.build_user_turn(prompt=prompt, files=new.files)
    erasures = await deps.store.erasures(new.scope, new.thread)
    shown = await shown_context(
        deps,
        new.scope,
        new.thread,
        current=user_turn,
        told=_instructions(deps, new),
        tools=new.tools,
        options=new.options,
        beside_review=new.beside_review,
    )
    recalled = await recalled_for(
        deps,
        new.scope,
        new.thread,
        user=new.user,
        prompt=prompt,
        window=shown.window,
        model=new.options.model,
    )
    shown = replace(shown, recalled=recalled)
    request, receipt = request_of(deps, shown)
    return PreparedCall(
        new=new,
        user_turn=user_turn,
        shown=shown,
        request=request,
        receipt=receipt,
        erasures=erasures,
    )


def _instructions(deps: GatewayDeps, new: NewCall) -> str | None:
    """The call's own, else the gateway's: the nearest wins, whole."""
    told = new.instructions if new.instructions is not None else deps.instructions
    return storable_text(told) if told else None


async def begin_call(deps: GatewayDeps, prepared: PreparedCall) -> CallRecord:
    """The active call of `prepared`, once its claim on the thread is durable.

    Errors: `ThreadBusy` (another call is active, or waits for a review), `ThreadMoved` (prepare
    again), `KeyReused` (a call of this key was begun before).
    """
    new = prepared.new
    call = msgspec.structs.replace(
        _record(deps, new),
        position=prepared.shown.window.length,
        user_turn=prepared.user_turn,
        recalled=recalled_ids(prepared.shown.recalled),
    )
    told = prepared.shown.told
    change = Change(
        thread=new.thread,
        at=call.created_at,
        expected=call.position,
        erasures=prepared.erasures,
        begin=call,
        beside_review=new.beside_review,
        texts=(told,) if told else (),
    )
    deps.live.add(call.id)  # before the commit: nobody may take the claim for an abandoned one
    try:
        await deps.store.commit(new.scope, change)
    except BaseException:
        deps.live.discard(call.id)
        raise
    return call


async def begin_blocked(deps: GatewayDeps, new: NewCall, blocked: PromptBlocked) -> Blocked:
    """The outcome of a blocked prompt, once its row is durable; nothing of the prompt is in it."""
    now = identity.now()
    call = msgspec.structs.replace(
        _record(deps, new), state="blocked", reason=blocked.rule, by=blocked.check, ended_at=now
    )
    await deps.store.commit(new.scope, Change(thread=new.thread, at=now, begin=call))
    return Blocked(call_id=call.id, by=blocked.check, rule=blocked.rule, turns=(), usage=None)


def _record(deps: GatewayDeps, new: NewCall) -> CallRecord:
    """The active record of `new`, without its prompt."""
    told = _instructions(deps, new)
    return CallRecord(
        id=new.id,
        thread=new.thread,
        kind=new.kind,
        state="active",
        owner=deps.owner,
        position=0,
        created_at=identity.now(),
        user=new.user,
        key=new.key,
        body_hash=body_hash(new) if new.key is not None else None,
        instructions=text_hash(told) if told else None,
        model=deps.model,
        options=new.options,
        tools=new.tools,
        needs=new.needs,
        local=new.local,
        checks=deps.check_names,
        rules=tuple(rule.name for rule in deps.rules),
        limits=new.limits,
        streamed=new.streamed,
    )


def body_hash(new: NewCall) -> str:
    """A hash of what is asked: a key stands for this body alone."""
    files = [ref.id for ref in new.files]
    body = (new.thread, new.kind, new.prompt, files, new.instructions, new.tools, new.options)
    try:
        text = json.dumps(msgspec.to_builtins(body), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue("the request holds a value that JSON has no form for") from error
    return hashlib.sha256(text.encode()).hexdigest()


async def prepared_and_begun(deps: GatewayDeps, new: NewCall) -> tuple[PreparedCall, CallRecord]:
    """Prepare and begin, again where the thread moved or an abandoned claim stood in the way.

    The prompt is checked once.
    """
    tries = deps.settings.prepare_tries_max
    prompt = await _checked(deps, new)
    while True:
        prepared = await _prepared(deps, new, prompt)
        tries -= 1
        try:
            return prepared, await begin_call(deps, prepared)
        except ThreadMoved:
            if tries <= 0:
                raise
        except ThreadBusy as busy:
            if tries <= 0 or not await released(deps, new.scope, busy):
                raise


async def released(deps: GatewayDeps, scope: Scope, busy: ThreadBusy) -> bool:
    """Whether the claim that was met is gone: an abandoned one is settled here."""
    if busy.in_review:
        return False
    call = await deps.store.active_call(scope, busy.thread_id)
    if call is None or call.id != busy.call_id:
        return True
    if call.waiting_for or (call.owner == deps.owner and call.id in deps.live):
        return False
    with contextlib.suppress(UnknownCall):  # another one settled it since it was read
        await settle_lost(deps, scope, call)
    return True

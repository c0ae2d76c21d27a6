"""Calls that a dead process left behind: taken over where they can go on, settled where not.

an ask                          settled as incomplete/interrupted; nothing is asked again
a run with a call's own tool    the same: nobody else has that function
a run that readers saw speak    the same, with the text they saw: it can't be said again
a run taken over too often      settled as failed/recovery_exhausted
a run whose tools are missing   waits, and says for what
any other run                   goes on from its journal, under a new owner and epoch
"""

from __future__ import annotations

import msgspec

from turngate import identity
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal, guard_of, ledger_row
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.runs import Run
from turngate.gateway.settle import settle_lost
from turngate.records import CallRecord, Change, LostCall, Scope

__all__ = ["taken_over"]

RECOVERIES_MAX = 5


async def taken_over(deps: GatewayDeps, lost: LostCall) -> Run | None:
    """The run of `lost`, ready to be driven under our ownership; None: it was settled, or waits."""
    scope, call = lost.scope, lost.call
    if call.kind == "ask" or call.local:
        await settle_lost(deps, scope, call)
        return None
    if call.recoveries >= RECOVERIES_MAX:
        await settle_lost(deps, scope, call, reason="recovery_exhausted")
        return None
    missing = _missing(deps, call)
    if missing:
        await _wait_for(deps, scope, call, missing)
        return None
    call = await _claimed(deps, scope, call)
    try:
        run = await _from_journal(deps, scope, call)
    except BaseException:
        deps.live.discard(call.id)
        raise
    if run is None:
        deps.live.discard(call.id)
    return run


async def _from_journal(deps: GatewayDeps, scope: Scope, call: CallRecord) -> Run | None:
    """The run as its journal has it, read once it is ours and nobody else can add to it.

    None: it was settled. A model call that died with its process has its row.
    """
    live = LiveCall(call.id, stored_events(await deps.store.events(scope, call.id)))
    steps = await deps.store.steps(scope, call.id)
    journal = Journal(deps, scope, call, live, steps)
    live.new_step(journal.events_at_last_model_step)
    if not journal.open_places:
        if live.said.text:
            await settle_lost(deps, scope, call)
            return None
        row = ledger_row(call, model=None, usage=None, outcome="lost")
        change = Change(thread=call.thread, at=identity.now(), guard=guard_of(call), ledger=(row,))
        await deps.store.commit(scope, change)
    window = await deps.memory.window(
        scope, call.thread, current=call.user_turn, before=call.position
    )
    live.begun()
    tools = {need.name: deps.tools[need.name] for need in call.needs}
    return Run(
        deps=deps,
        scope=scope,
        call=call,
        live=live,
        journal=journal,
        window=window.messages,
        tools=tools,
    )


def _missing(deps: GatewayDeps, call: CallRecord) -> tuple[str, ...]:
    """What keeps the run from going on here: tools that the registry lacks or has with another
    schema, by name, and its model where the gateway was opened with another one."""
    tools = [
        need.name
        for need in call.needs
        if need.name not in deps.tools or deps.tools[need.name].schema_hash != need.schema_hash
    ]
    other_model = call.options.model is None and call.model != deps.model
    return (*tools, *([f"model {call.model}"] if other_model and call.model is not None else []))


async def _wait_for(
    deps: GatewayDeps, scope: Scope, call: CallRecord, missing: tuple[str, ...]
) -> None:
    if call.waiting_for == missing:
        return
    waiting = msgspec.structs.replace(call, waiting_for=missing)
    await deps.store.commit(
        scope,
        Change(thread=call.thread, at=identity.now(), guard=guard_of(call), update=waiting),
    )


async def _claimed(deps: GatewayDeps, scope: Scope, call: CallRecord) -> CallRecord:
    """`call` under our ownership: from now on its old owner's writes change nothing."""
    claimed = msgspec.structs.replace(
        call,
        owner=deps.owner,
        epoch=call.epoch + 1,
        recoveries=call.recoveries + 1,
        waiting_for=(),
    )
    change = Change(thread=call.thread, at=identity.now(), guard=guard_of(call), update=claimed)
    deps.live.add(call.id)
    try:
        await deps.store.commit(scope, change)
    except BaseException:
        deps.live.discard(call.id)
        raise
    return claimed

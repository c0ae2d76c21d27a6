"""Calls that a dead process left behind: taken over where they can go on, settled where not.

an ask                          settled as incomplete/interrupted; nothing is asked again
a run with a call's own tool    the same: nobody else has that function
a run that readers saw speak    the same, with the text they saw: it can't be said again
a run taken over too often      settled as failed/recovery_exhausted
a run whose tools, checks,
  rules or model are not here   waits, and says for what
any other run                   goes on from its journal, under a new owner and epoch

A call that waits for a review has no process that could die.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from turngate import identity
from turngate.errors import InvalidValue
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal, guard_of, ledger_row
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.loop import Run
from turngate.gateway.recalling import recalled_again
from turngate.gateway.receipts import shown_context, told_text
from turngate.gateway.settle import NOBODY, all_reviews, settle_lost
from turngate.protocols import Tool
from turngate.records import CallRecord, Change, LostCall, Scope

__all__ = ["from_journal", "missing_here", "taken_over"]

RECOVERIES_MAX = 5


async def taken_over(deps: GatewayDeps, lost: LostCall) -> Run | None:
    """The run of `lost`, ready to be driven under our ownership; None: it was settled, or waits."""
    scope, call = lost.scope, lost.call
    if (call.kind == "ask" and call.owner != NOBODY) or call.local:
        await settle_lost(deps, scope, call)
        return None
    if call.recoveries >= RECOVERIES_MAX:
        await settle_lost(deps, scope, call, reason="recovery_exhausted")
        return None
    missing = missing_here(deps, call)
    if missing:
        await _wait_for(deps, scope, call, missing)
        return None
    call = await _claimed(deps, scope, call)
    try:
        run = await from_journal(deps, scope, call)
        if run is not None and lost.call.owner != NOBODY and not await _goes_on(run):
            run = None
        if run is None:
            deps.live.discard(call.id)
    except BaseException:
        deps.live.discard(call.id)
        raise
    return run


async def _goes_on(run: Run) -> bool:
    """Whether a run that was under way may go on; else it is settled.

    A model call that died with its process has its row.
    """
    if run.journal.open_places:
        return True
    if run.live.said.text:
        await settle_lost(run.deps, run.scope, run.call)
        return False
    change = Change(
        thread=run.call.thread,
        at=identity.now(),
        guard=guard_of(run.call),
        ledger=(ledger_row(run.call, None, outcome="lost"),),
    )
    await run.deps.store.commit(run.scope, change)
    return True


async def from_journal(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    *,
    own_tools: Mapping[str, Tool] | None = None,
) -> Run | None:
    """The run of `call`, read once it is ours and nobody else can add to its journal.

    `own_tools` are those of a local run; the registry has the others. None: what it has to show is
    more than this gateway's window or context takes, and it was settled as incomplete.
    """
    live = LiveCall(call.id, stored_events(await deps.store.events(scope, call.id)))
    steps = await deps.store.steps(scope, call.id)
    journal = Journal(deps, scope, call, live, steps)
    live.new_step(journal.events_at_last_model_step)
    told = await told_text(deps, scope, call)
    try:
        shown = await shown_context(
            deps,
            scope,
            call.thread,
            current=call.user_turn,
            told=told,
            tools=call.tools,
            options=call.options,
            before=call.position,
            beside_review=True,
        )
    except InvalidValue:
        await settle_lost(deps, scope, call, reason="context_length", was_asked=False)
        return None
    reviews = await all_reviews(deps, scope, call)
    live.begun()
    if own_tools is None:
        own_tools = {need.name: deps.tools[need.name] for need in call.needs}
    return Run(
        deps=deps,
        scope=scope,
        call=call,
        live=live,
        journal=journal,
        shown=replace(shown, recalled=await recalled_again(deps, scope, call)),
        tools=own_tools,
        reviews=reviews,
    )


def missing_here(deps: GatewayDeps, call: CallRecord) -> tuple[str, ...]:
    """What keeps the call from going on here: tools that the registry lacks or has with another
    schema, checks and rules by name, and its model where the gateway was opened with another."""
    tools = [
        need.name
        for need in call.needs
        if need.name not in deps.tools or deps.tools[need.name].schema_hash != need.schema_hash
    ]
    checks = [f"check {name}" for name in call.checks if name not in deps.check_names]
    known_rules = {rule.name for rule in deps.rules}
    rules = [f"rule {name}" for name in call.rules if name not in known_rules]
    other_model = call.options.model is None and call.model != deps.model
    models = [f"model {call.model}"] if other_model and call.model is not None else []
    return (*tools, *checks, *rules, *models)


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
        resumed_at=identity.now() if call.owner == NOBODY else call.resumed_at,
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

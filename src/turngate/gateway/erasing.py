"""Deleting a turn, a thread, or all of a user, with what came of that alone.

    turn     what is left is that there was one; what its call has of it goes, and what was learnt
    thread   all of it but the ledger, which counts what was used
    user     threads that are the user's alone; in others the turns of the user's calls; all facts

Each thread is erased in one commit, which a call that has not ended refuses. Helper calls and new
calls that read the thread before it are turned away by it (`Change.erasures`), so that nothing that
was deleted comes back. Deleting again finds nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from turngate import identity
from turngate.errors import RecallMoved, RequestError, StoreError, ThreadBusy, ThreadMoved
from turngate.gateway.calls import released
from turngate.gateway.copies import Copies, Wanted, calls_of
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.forgetting import facts_without
from turngate.records import Change, FileRecord, Scope

__all__ = ["delete_thread", "delete_turn", "delete_user"]

_TRIES = 20
_PAGE = 1000


async def delete_turn(deps: GatewayDeps, scope: Scope, thread: str, turn: str) -> None:
    """Errors: `TurnNotFound`; `ThreadBusy`; `StoreError`."""
    await _erased(deps, scope, thread, Wanted(turns={turn}))


async def delete_thread(deps: GatewayDeps, scope: Scope, thread: str) -> None:
    """Errors: `ThreadNotFound`; `ThreadBusy`; `StoreError`."""
    if not (await deps.store.calls(scope, thread=thread, limit=1)).calls:
        await deps.store.thread(scope, thread)
    await _erased(deps, scope, thread, Wanted(whole=True))


async def delete_user(deps: GatewayDeps, scope: Scope, user: str) -> None:
    """Thread after thread, as long as there are some; where it is interrupted, it can be repeated.

    Reads the records of all calls and threads of the tenant. Errors: `ThreadBusy`, with that thread
    and those after it still to do; `StoreError`.
    """
    for _ in range(_TRIES):
        threads = await _threads_of(deps, scope, user)
        if not threads:
            return
        for thread in sorted(threads):
            await _erased(deps, scope, thread, Wanted(user=user))
    raise RequestError(
        f"calls of user {user!r} keep coming", hint="Let none begin any more, and delete again."
    )


async def _threads_of(deps: GatewayDeps, scope: Scope, user: str) -> set[str]:
    """The threads that name the user, or have calls of theirs."""
    named: set[str] = set()
    after = None
    while True:
        page = await deps.store.threads(scope, after=after, limit=_PAGE)
        named.update(thread.id for thread in page.threads if thread.user == user)
        after = page.next
        await asyncio.sleep(0)
        if after is None:
            break
    return named | {call.thread async for call in calls_of(deps, scope) if call.user == user}


async def _erased(deps: GatewayDeps, scope: Scope, thread: str, wanted: Wanted) -> None:
    """Returns once what is wanted is gone."""
    for left in reversed(range(_TRIES)):
        erasures = await deps.store.erasures(scope, thread)
        try:
            found = Copies(deps, scope, thread, wanted)
            await found.find()
            if wanted.turns and found.is_gone:
                return
            of = None if found.whole else found.turn_ids
            async with facts_without(deps, scope, thread, of) as (facts, _):
                change = Change(
                    thread=thread,
                    at=identity.now(),
                    expected=found.length,
                    erasures=erasures,
                    facts=facts,
                    forget_summaries=min(found.turns, default=None),
                    erase=found.erasure,
                )
                await deps.store.commit(scope, change)
        except (RecallMoved, ThreadMoved):
            if not left:
                raise
        except ThreadBusy as busy:
            if not left or not await released(deps, scope, busy):
                raise
        else:
            await _remove_objects(deps, scope, found.files.values())
            return


async def _remove_objects(deps: GatewayDeps, scope: Scope, records: Collection[FileRecord]) -> None:
    """Remove the bytes that no file has any more; what this leaves, a sweep removes."""
    if deps.files is None or not records:
        return
    names = {record.object for record in records}
    used = await deps.store.objects_in_use(scope, names)
    with contextlib.suppress(StoreError):
        for name in names - used:
            await deps.files.delete(scope, name)

"""What is remembered of turns that go: facts lose their sources, summaries are written anew."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection

from turngate import identity
from turngate.fact_book import FactBook
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.learning import facts_of
from turngate.records import FactRecord, FactSource, Scope

__all__ = ["facts_without", "first_position"]

_PAGE = 1000


@contextlib.asynccontextmanager
async def facts_without(
    deps: GatewayDeps,
    scope: Scope,
    thread: str,
    turns: Collection[str] | None = None,
    *,
    by: str | None = None,
) -> AsyncIterator[tuple[tuple[FactRecord, ...], int]]:
    """The facts to write so that none comes of the thread, or of these turns of it, any more; and
    how many of them are erased.

    The locks of their users are held until it is left, so that it may be committed in there.
    """

    def matches(source: FactSource) -> bool:
        return source.thread == thread and (turns is None or source.turn in turns)

    holds = deps.remember is not None and deps.remember.approve != "none"
    users: set[str] = set()
    after = None
    while True:
        page = await deps.store.facts(scope, thread=thread, after=after, limit=_PAGE)
        users |= {fact.user for fact in page.facts if any(map(matches, fact.sources))}
        after = page.next
        if after is None:
            break
    changed: list[FactRecord] = []
    erased = 0
    async with contextlib.AsyncExitStack() as locks:
        for user in sorted(users):  # in this order, so that no two wait for each other
            await locks.enter_async_context(deps.fact_lock(scope, user))
            book = FactBook(await facts_of(deps, scope, user), at=identity.now())
            erased += book.forget_sources(matches, by=by, holds=holds)
            changed += book.changes
        yield tuple(changed), erased


async def first_position(
    deps: GatewayDeps, scope: Scope, thread: str, turns: Collection[str]
) -> int | None:
    """Where the first of these turns stands in the thread; None: it has none of them."""
    first = before = None
    while True:
        page = await deps.store.load(scope, thread, before=before, limit=_PAGE)
        for position, turn in enumerate(page.turns, page.first):
            if turn.id in turns:
                first = position if first is None else min(first, position)
        if page.first == 0:
            return first
        before = page.first

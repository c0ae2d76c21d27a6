"""`tenant.facts`: what is remembered of users, and how a person mends it.

    add      a fact by hand
    edit     another text; the old one is superseded
    approve  a proposed fact is shown to models from now on
    reject   it is not, or no more, and what it superseded is active again: the undo of a correction
    forget   its text is gone, here and in its history

A correction never overwrites: it is a fact of its own, and names what it supersedes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, get_args

from turngate import identity
from turngate.errors import InvalidValue, RecallMoved
from turngate.fact_book import FactBook
from turngate.facts import FACT_CHARS_MAX, one_line, refused_because
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.forgetting import facts_without, first_position
from turngate.gateway.learning import facts_of
from turngate.records import (
    Change,
    FactKind,
    FactPage,
    FactRecord,
    FactState,
    Scope,
    checked_user,
)
from turngate.values import storable_text

if TYPE_CHECKING:
    from turngate.gateway.gateway import Gateway

__all__ = ["Facts"]

T = TypeVar("T")

_REFUSED = {
    "long": f"has more than {FACT_CHARS_MAX} characters",
    "empty": "has fewer than two letters or digits",
    "instruction": "reads like an instruction, a call, mark-up or an address",
    "tool": "names a tool of the gateway",
}
_NO_THREAD = "-"  # a change of facts alone touches none
_TRIES = 20


class Facts:
    """The facts of one tenant's users.

    Every change by hand names who made it (`by`). Errors, of each: `UnknownFact`; `InvalidValue`
    for a text that is no fact, and for a fact in another state than the change is for;
    `RecallMoved` where other writers were always first.
    """

    def __init__(self, gateway: Gateway, scope: Scope) -> None:
        self._deps: GatewayDeps = gateway.deps
        self._scope = scope

    async def list(
        self,
        *,
        user: str | None = None,
        state: FactState | None = "active",
        after: str | None = None,
        limit: int = 50,
    ) -> FactPage:
        """Facts in `state` (None: any), newest first, of one user if one is given."""
        store = self._deps.store
        return await store.facts(self._scope, user=user, state=state, after=after, limit=limit)

    async def get(self, fact_id: str) -> FactRecord:
        """The fact of this id, in any state."""
        return await self._deps.store.fact(self._scope, fact_id)

    async def history(self, fact_id: str) -> tuple[FactRecord, ...]:
        """What the fact came from and what became of it: its corrections, oldest first."""
        user = (await self.get(fact_id)).user
        return (await self._book(user)).history(fact_id)

    async def add(self, user: str, text: str, *, kind: FactKind = "profile", by: str) -> FactRecord:
        """A new active fact; the same one again, of any kind, is the one that is there."""
        new = FactRecord(
            id=identity.new_id("fact"),
            user=checked_user(user),
            kind=kind,
            text=_checked_text(self._deps, text, kind),
            created_at=identity.now(),
            author=by,
            by=by,
        )
        return await self._changed(user, lambda book: book.add(new))

    async def edit(self, fact_id: str, text: str, *, by: str) -> FactRecord:
        """The fact with this text, which supersedes the old one; a new one has its sources."""
        old = await self.get(fact_id)
        text = _checked_text(self._deps, text, old.kind)
        new_id = identity.new_id("fact")
        return await self._changed(old.user, lambda book: book.edit(fact_id, text, new_id, by=by))

    async def approve(self, fact_id: str, *, by: str) -> FactRecord:
        """Let a proposed fact be shown to models; what it corrects is superseded by it."""
        user = (await self.get(fact_id)).user
        return await self._changed(user, lambda book: book.approve(fact_id, by=by))

    async def reject(self, fact_id: str, *, by: str) -> FactRecord:
        """Take a proposed or an active fact back: what it superseded is as it was before.

        The same words are not taken in again by a helper call, as a fact of whatever kind.
        """
        user = (await self.get(fact_id)).user
        return await self._changed(user, lambda book: book.reject(fact_id, by=by))

    async def forget(
        self,
        fact_id: str | None = None,
        *,
        user: str | None = None,
        thread: str | None = None,
        turn: str | None = None,
        by: str | None = None,
    ) -> int:
        """Erase the texts of facts; gives how many. What is left of each is that there was one.

        Shapes: `fact_id` takes its whole history with it, `user` all of the user's. `thread`, or a
        `turn` of it, takes what was derived from there alone: a fact with other sources loses
        these, and what an erased fact superseded is active again. A thread's summaries go too
        (those that cover the turn's exchange are rewritten by the next step).
        """
        if (fact_id is not None) + (user is not None) + (thread is not None) != 1 or (
            turn is not None and thread is None
        ):
            raise InvalidValue("forget takes one fact, a user, a thread, or a thread and its turn")
        if thread is not None:
            return await self._forget_sources(thread, turn, by)
        if user is not None:
            return await self._changed(user, lambda book: book.erase_all(by=by))
        assert fact_id is not None
        of = (await self.get(fact_id)).user
        return await self._changed(of, lambda book: book.erase_history(fact_id, by=by))

    # ── pieces ───────────────────────────────────────────────────────────────────────────────

    async def _book(self, user: str) -> FactBook:
        return FactBook(await facts_of(self._deps, self._scope, user), at=identity.now())

    async def _changed(self, user: str, change: Callable[[FactBook], T]) -> T:
        """What `change` gives of the user's facts, once it is durable."""
        async with self._deps.fact_lock(self._scope, user):
            for left in reversed(range(_TRIES)):
                book = await self._book(user)
                given = change(book)
                if not book.changes:
                    return given
                commit = Change(thread=_NO_THREAD, at=identity.now(), facts=book.changes)
                try:
                    await self._deps.store.commit(self._scope, commit)
                    return given
                except RecallMoved:
                    if not left:
                        raise
        raise AssertionError("a last try returns or raises")

    async def _forget_sources(self, thread: str, turn: str | None, by: str | None) -> int:
        deps, scope = self._deps, self._scope
        turns = {turn} if turn is not None else None
        position = 0
        if turns is not None:
            found = await first_position(deps, scope, thread, turns)
            if found is None:
                return 0
            position = found
        for left in reversed(range(_TRIES)):
            async with facts_without(deps, scope, thread, turns, by=by) as (facts, erased):
                at = identity.now()
                change = Change(thread=thread, at=at, facts=facts, forget_summaries=position)
                try:
                    await deps.store.commit(scope, change)
                    return erased
                except RecallMoved:
                    if not left:
                        raise
        raise AssertionError("a last try returns or raises")


def _checked_text(deps: GatewayDeps, text: str, kind: str) -> str:
    """`text` as a fact may have it. Errors: `InvalidValue`."""
    if kind not in get_args(FactKind):
        raise InvalidValue(f"a fact is one of {', '.join(get_args(FactKind))}")
    if not isinstance(text, str):
        raise InvalidValue("a fact is a text")
    text = one_line(storable_text(text))
    reason = refused_because(text, tools=deps.tools)
    if reason is not None:
        raise InvalidValue(
            f"this is no fact: it {_REFUSED[reason]}",
            hint="One short statement about the user, which tells the model nothing to do.",
        )
    return text

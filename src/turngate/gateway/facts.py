"""`tenant.facts`: what is remembered of users, and how a person mends it.

    add      a fact by hand
    edit     another text; the old one is superseded
    approve  a proposed fact is shown to models from now on
    reject   it is not, or no more, and what it superseded is active again: the undo of a correction
    forget   its text is gone, here and in its history

A correction never overwrites: it is a fact of its own, and names what it supersedes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, get_args

from turngate import identity
from turngate.errors import InvalidValue, RecallMoved
from turngate.facts import fact_key, one_line, refused_because, with_state
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.learning import facts_of
from turngate.records import Change, FactKind, FactPage, FactRecord, FactState, Scope
from turngate.values import storable_text

if TYPE_CHECKING:
    from turngate.gateway.gateway import Gateway

__all__ = ["Facts"]

_NO_THREAD = "-"  # a change of facts alone touches none
_TRIES = 20
_HISTORY_MAX = 1000


_Changed = tuple[FactRecord, Sequence[FactRecord]]
"""A fact as it is then, and the records to write."""


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
        fact = await self.get(fact_id)
        chain = [fact]
        while chain[0].supersedes is not None and len(chain) < _HISTORY_MAX:
            chain.insert(0, await self.get(chain[0].supersedes))
        while chain[-1].superseded_by is not None and len(chain) < _HISTORY_MAX:
            chain.append(await self.get(chain[-1].superseded_by))
        return tuple(chain)

    async def add(self, user: str, text: str, *, kind: FactKind = "profile", by: str) -> FactRecord:
        """A new active fact; the same one again is the one that is there."""
        new = FactRecord(
            id=identity.new_id("fact"),
            user=user,
            kind=kind,
            text=_checked_text(self._deps, text, kind),
            created_at=identity.now(),
            author=by,
            by=by,
        )

        async def added() -> _Changed:
            key = (kind, "active", fact_key(new.text))
            for same in await facts_of(self._deps, self._scope, user):
                if (same.kind, same.state, fact_key(same.text)) == key:
                    if same.trusted:
                        return same, ()
                    said = with_state(same, new.created_at, author=by, by=by)
                    return said, (said,)
            return new, (new,)

        return await self._changed(user, added)

    async def edit(self, fact_id: str, text: str, *, by: str) -> FactRecord:
        """The new fact with this text: it has the sources of the old one, and supersedes it."""
        old = await self.get(fact_id)
        text = _checked_text(self._deps, text, old.kind)

        async def edited() -> _Changed:
            old = await self._in_state(fact_id, "active", "proposed")
            now = identity.now()
            new = FactRecord(
                id=identity.new_id("fact"),
                user=old.user,
                kind=old.kind,
                text=text,
                created_at=now,
                sources=old.sources,
                author=by,
                by=by,
                supersedes=old.id,
            )
            superseded = with_state(old, now, state="superseded", superseded_by=new.id, by=by)
            also = await self._superseded_by_proposal(old, new) if old.state == "proposed" else ()
            return new, (new, superseded, *also)

        return await self._changed(old.user, edited)

    async def approve(self, fact_id: str, *, by: str) -> FactRecord:
        """Let a proposed fact be shown to models; what it corrects is superseded by it."""

        async def approved() -> _Changed:
            fact = await self._in_state(fact_id, "proposed")
            active = with_state(fact, identity.now(), state="active", by=by)
            return active, (active, *await self._superseded_by_proposal(fact, active))

        return await self._changed((await self.get(fact_id)).user, approved)

    async def reject(self, fact_id: str, *, by: str) -> FactRecord:
        """Take a proposed or an active fact back: what it superseded is active again.

        The same words are not taken in again by a helper call.
        """

        async def rejected() -> _Changed:
            fact = await self._in_state(fact_id, "proposed", "active")
            gone = with_state(fact, identity.now(), state="rejected", by=by)
            return gone, (gone, *await self._restored(fact))

        return await self._changed((await self.get(fact_id)).user, rejected)

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
        facts: Sequence[FactRecord] = ()
        if fact_id is not None:
            facts = await self.history(fact_id)
        elif user is not None:
            facts = await facts_of(self._deps, self._scope, user)
        return sum([await self._erase(fact, by) for fact in facts])

    # ── pieces ───────────────────────────────────────────────────────────────────────────────

    async def _changed(self, user: str, change: Callable[[], Awaitable[_Changed]]) -> FactRecord:
        """The fact that `change` gives, once its records are durable."""
        async with self._deps.fact_lock(self._scope, user):
            for left in reversed(range(_TRIES)):
                fact, facts = await change()
                if not facts:
                    return fact
                commit = Change(thread=_NO_THREAD, at=identity.now(), facts=tuple(facts))
                try:
                    await self._deps.store.commit(self._scope, commit)
                    return fact
                except RecallMoved:
                    if not left:
                        raise
        raise AssertionError("a last try returns or raises")

    async def _in_state(self, fact_id: str, *states: FactState) -> FactRecord:
        fact = await self.get(fact_id)
        if fact.state not in states:
            raise InvalidValue(f"fact {fact_id!r} is {fact.state}, not {' or '.join(states)}")
        return fact

    async def _superseded_by_proposal(
        self, proposed: FactRecord, new: FactRecord
    ) -> Sequence[FactRecord]:
        """What a proposal corrects, superseded by `new`, if it is active still."""
        if proposed.supersedes is None:
            return ()
        old = await self.get(proposed.supersedes)
        if old.state != "active":
            return ()
        return (with_state(old, identity.now(), state="superseded", superseded_by=new.id),)

    async def _restored(self, fact: FactRecord) -> Sequence[FactRecord]:
        """What `fact` superseded, active again; what was forgotten in between is passed over."""
        while fact.supersedes is not None:
            old = await self.get(fact.supersedes)
            if old.state == "superseded" and old.superseded_by == fact.id:
                return (with_state(old, identity.now(), state="active", superseded_by=None),)
            if old.state != "forgotten":
                break
            fact = old
        return ()

    async def _erase(self, fact: FactRecord, by: str | None, *, restore: bool = False) -> bool:
        """Erase one fact, if it has a text still."""
        erased = False

        async def forgotten() -> _Changed:
            nonlocal erased
            now = await self.get(fact.id)
            if now.state == "forgotten":
                return now, ()
            erased = True
            gone = with_state(
                now, identity.now(), state="forgotten", text="", sources=(), author=None, by=by
            )
            restored = await self._restored(now) if restore and now.state == "active" else ()
            return gone, (gone, *restored)

        await self._changed(fact.user, forgotten)
        return erased

    async def _forget_sources(self, thread: str, turn: str | None, by: str | None) -> int:
        erased = 0
        # Each fact of a page has lost these sources by its end, so the first page is the next one.
        while True:
            page = await self._deps.store.facts(self._scope, thread=thread, turn=turn, limit=1000)
            for fact in page.facts:
                if all(_is_of(source.thread, source.turn, thread, turn) for source in fact.sources):
                    erased += await self._erase(fact, by, restore=True)
                else:
                    await self._without_source(fact, thread, turn)
            if page.next is None:
                break
        await self._forget_summaries(thread, turn)
        return erased

    async def _without_source(self, fact: FactRecord, thread: str, turn: str | None) -> None:
        async def without() -> _Changed:
            now = await self.get(fact.id)
            kept = tuple(s for s in now.sources if not _is_of(s.thread, s.turn, thread, turn))
            if kept == now.sources:
                return now, ()
            return now, (with_state(now, identity.now(), sources=kept),)

        await self._changed(fact.user, without)

    async def _forget_summaries(self, thread: str, turn: str | None) -> None:
        """Delete the summaries of the thread that may hold words of the turn."""
        position = 0 if turn is None else await self._position(thread, turn)
        if position is None:
            return
        change = Change(thread=thread, at=identity.now(), forget_summaries=position)
        await self._deps.store.commit(self._scope, change)

    async def _position(self, thread: str, turn: str) -> int | None:
        before = None
        while True:
            page = await self._deps.store.load(self._scope, thread, before=before, limit=1000)
            for position, found in enumerate(page.turns, page.first):
                if found.id == turn:
                    return position
            if page.first == 0:
                return None
            before = page.first


def _is_of(source_thread: str, source_turn: str, thread: str, turn: str | None) -> bool:
    return source_thread == thread and turn in (None, source_turn)


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
            f"this is no fact ({reason})",
            hint="One short statement about the user, which tells the model nothing to do.",
        )
    return text

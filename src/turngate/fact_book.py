"""The facts of one user, and what becomes of them: all changes of a fact's state stand here.

    proposed ──approve──► active ──corrected──► superseded
        └──────reject───────┴─► rejected             │
    superseded ──what superseded it is taken back──► as it was before

A live fact is a proposed or an active one, and no two live facts of a user say the same. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import datetime
from typing import Any

import msgspec

from turngate.errors import InvalidValue, UnknownFact
from turngate.facts import fact_key
from turngate.records import FactRecord, FactSource, FactState

__all__ = ["FactBook"]

_LIVE: tuple[FactState, ...] = ("proposed", "active")


class FactBook:
    """The facts of one user as one commit finds and changes them, at the time `at`.

    Errors, of each change by id: `UnknownFact`; `InvalidValue` for a fact in another state than
    the change is for.
    """

    def __init__(self, facts: Iterable[FactRecord], *, at: datetime) -> None:
        self._before = {fact.id: fact for fact in sorted(facts, key=_age)}
        self._facts = dict(self._before)
        self._at = at
        # The ids of facts by what they are looked up by, so that no change walks all of them.
        self._superseded_by: dict[str, set[str]] = {}
        self._superseding: dict[str, set[str]] = {}
        self._by_key: dict[str, list[str]] | None = None  # made at its first use
        for fact in self._facts.values():
            self._index(None, fact)

    @property
    def changes(self) -> tuple[FactRecord, ...]:
        """What is to be written: new facts, and known ones at their next revision."""
        return tuple(f for f in self._facts.values() if f is not self._before.get(f.id))

    def history(self, fact_id: str) -> tuple[FactRecord, ...]:
        """All that the fact came from and that became of it, oldest first; of each of them it is
        the same."""
        found: set[str] = set()
        to_visit = [self._fact(fact_id).id]
        while to_visit:
            here = self._facts[to_visit.pop()]
            found.add(here.id)
            linked = [here.supersedes, here.superseded_by]
            linked += self._superseded_by.get(here.id, ())
            linked += self._superseding.get(here.id, ())
            to_visit += [each for each in linked if each in self._facts and each not in found]
        return tuple(sorted((self._facts[each] for each in found), key=_age))

    # ── what a helper call found ─────────────────────────────────────────────────────────────

    def take_in(self, new: FactRecord) -> None:
        """Take in what a helper call found.

        What is known gets the new one's sources, and what a person rejected does not come again. A
        new fact supersedes the one that it names, or what that was corrected to since. What no
        person said supersedes nothing that one said.
        """
        corrected = self._standing(new.supersedes)
        contradicts = corrected is not None and corrected.trusted and not new.trusted
        if contradicts:
            corrected = None
        same = self._saying(new.text, _LIVE)
        if same is None:
            if contradicts or self._saying(new.text, ("rejected",)) is not None:
                return
            same = self._put(new, supersedes=None)
        else:
            same = self._with_sources(same, new.sources)
        waits = new.state == "proposed"
        if corrected is None or corrected.id == same.id:
            if not waits and same.state == "proposed":
                self._activate(same)
        elif not waits:
            self._activate(self._put(same, supersedes=corrected.id))
        elif same.state == "proposed":
            self._put(same, supersedes=corrected.id)

    # ── by hand ──────────────────────────────────────────────────────────────────────────────

    def add(self, new: FactRecord) -> FactRecord:
        """Write down `new`, which has an author; the same one again is the one that is there."""
        same = self._saying(new.text, _LIVE)
        if same is None:
            return self._put(new)
        if same.state == "active" and same.kind == new.kind and same.author is not None:
            return self._put(same, derived=False) if same.derived else same
        said = {"kind": new.kind, "author": new.author, "derived": False, "by": new.by}
        return self._activate(self._put(same, **said))

    def edit(self, fact_id: str, text: str, new_id: str, *, by: str) -> FactRecord:
        """The fact that says `text` then: it has the sources of the old one, and supersedes it."""
        old = self._in_state(fact_id, *_LIVE)
        same = self._saying(text, _LIVE, but=old.id)
        if same is None:
            new = FactRecord(
                id=new_id,
                user=old.user,
                kind=old.kind,
                text=text,
                created_at=self._at,
                sources=old.sources,
                author=by,
                derived=old.author is None or old.derived,
            )
        else:
            new = self._with_sources(same, old.sources)
            said = {} if same.author is not None else {"author": by, "derived": True}
            new = self._activate(new, **said)
        new = self._put(new, supersedes=old.id, by=by)
        corrected = self._standing(old.supersedes) if old.state == "proposed" else None
        if corrected is not None and corrected.id != new.id:
            self._supersede(corrected, new, by=by)
        self._supersede(old, new, by=by)
        return new

    def approve(self, fact_id: str, *, by: str) -> FactRecord:
        """Let a proposed fact be active; what it corrects is superseded by it."""
        return self._activate(self._in_state(fact_id, "proposed"), by=by)

    def reject(self, fact_id: str, *, by: str) -> FactRecord:
        """Take a live fact back: what it superseded is as it was."""
        gone = self._put(self._in_state(fact_id, *_LIVE), state="rejected", by=by)
        self._restore(gone)
        return gone

    def erase_all(self, *, by: str | None) -> int:
        """Leave no text of any; gives how many had one."""
        return self._erase(self._facts, by, restore=False)

    def erase_history(self, fact_id: str, *, by: str | None) -> int:
        """Leave no text of the fact and its history; gives how many had one."""
        return self._erase({fact.id for fact in self.history(fact_id)}, by, restore=False)

    def forget_sources(
        self, matches: Callable[[FactSource], bool], *, by: str | None, holds: bool = False
    ) -> int:
        """Erase what comes from these sources alone, and nobody wrote by hand; gives how many.

        All other facts lose these sources. One that no person said any more is proposed again where
        it has corrected what one said, or where such facts wait (`holds`) and nobody decided on it.
        """
        alone: set[str] = set()
        for fact in list(self._facts.values()):
            kept = tuple(source for source in fact.sources if not matches(source))
            if len(kept) == len(fact.sources):
                continue
            if kept or (fact.author is not None and not fact.derived):
                left = self._put(fact, sources=kept)
                if fact.trusted and not left.trusted:
                    self._distrust(left, holds=holds)
            else:
                alone.add(fact.id)
        return self._erase(alone, by, restore=True)

    # ── pieces ───────────────────────────────────────────────────────────────────────────────

    def _fact(self, fact_id: str) -> FactRecord:
        try:
            return self._facts[fact_id]
        except KeyError:
            raise UnknownFact(fact_id) from None

    def _in_state(self, fact_id: str, *states: FactState) -> FactRecord:
        fact = self._fact(fact_id)
        if fact.state not in states:
            raise InvalidValue(f"fact {fact_id!r} is {fact.state}, not {' or '.join(states)}")
        return fact

    def _saying(
        self, text: str, states: tuple[FactState, ...], *, but: str | None = None
    ) -> FactRecord | None:
        """The fact in one of these states that says `text`, of whatever kind it is."""
        if self._by_key is None:
            self._by_key = {}
            for fact in self._facts.values():
                self._by_key.setdefault(fact_key(fact.text), []).append(fact.id)
        for fact_id in self._by_key.get(fact_key(text), ()):
            if self._facts[fact_id].state in states and fact_id != but:
                return self._facts[fact_id]
        return None

    def _standing(self, fact_id: str | None) -> FactRecord | None:
        """The active fact that stands for the one of this id now; None: there is none."""
        fact = self._facts.get(fact_id or "")
        while fact is not None and fact.superseded_by is not None:
            fact = self._facts.get(fact.superseded_by)
        return fact if fact is not None and fact.state == "active" else None

    def _put(self, fact: FactRecord, **changes: Any) -> FactRecord:
        before = self._before.get(fact.id)
        if before is not None:
            changes |= {"changed_at": self._at, "revision": before.revision + 1}
        known = self._facts.get(fact.id)
        self._facts[fact.id] = fact = msgspec.structs.replace(fact, **changes)
        self._index(known, fact)
        if known is None and self._by_key is not None:
            self._by_key.setdefault(fact_key(fact.text), []).append(fact.id)
        return fact

    def _index(self, before: FactRecord | None, fact: FactRecord) -> None:
        for index, link in (
            (self._superseded_by, "superseded_by"),
            (self._superseding, "supersedes"),
        ):
            old, new = getattr(before, link, None), getattr(fact, link)
            if old is not None:
                index[old].discard(fact.id)
            if new is not None:
                index.setdefault(new, set()).add(fact.id)

    def _linked(self, index: dict[str, set[str]], fact_id: str) -> list[FactRecord]:
        return [self._facts[each] for each in sorted(index.get(fact_id, ()))]

    def _with_sources(self, fact: FactRecord, sources: Iterable[FactSource]) -> FactRecord:
        more = tuple(source for source in sources if source not in fact.sources)
        return self._put(fact, sources=(*fact.sources, *more)) if more else fact

    def _supersede(self, old: FactRecord, new: FactRecord, **who: Any) -> None:
        self._put(old, state="superseded", was=old.state, superseded_by=new.id, **who)

    def _activate(self, fact: FactRecord, **who: Any) -> FactRecord:
        """`fact` as an active one; what it corrects is superseded by it."""
        corrected = self._standing(fact.supersedes)
        if corrected is not None and corrected.id != fact.id:
            fact = self._put(fact, supersedes=corrected.id)
            self._supersede(corrected, fact)
        return self._put(fact, state="active", **who)

    def _distrust(self, fact: FactRecord, *, holds: bool) -> None:
        if fact.state == "superseded" and fact.was == "active" and holds:
            self._put(fact, was="proposed")
        if fact.state != "active":
            return
        said = any(f.trusted for f in self._linked(self._superseded_by, fact.id))
        if said or (holds and fact.by is None):
            self._restore(self._put(fact, state="proposed"))

    def _erase(self, fact_ids: Container[str], by: str | None, *, restore: bool) -> int:
        erased = [
            fact.id
            for fact in reversed(self._facts.values())
            if fact.id in fact_ids and fact.state != "forgotten"
        ]
        for fact_id in erased:
            left: dict[str, Any] = {"text": "", "sources": (), "author": None, "derived": False}
            self._put(self._facts[fact_id], state="forgotten", was=None, by=by, **left)
            if restore:
                self._restore(self._facts[fact_id])
        return len(erased)

    def _restore(self, gone: FactRecord) -> None:
        """Whatever `gone` superseded is as it was before, or superseded by what stands for it."""
        for old in self._linked(self._superseded_by, gone.id):
            if old.state != "superseded":
                continue
            same = self._saying(old.text, _LIVE)
            if same is not None and same.state == "proposed" and old.was != "proposed":
                back = self._with_sources(old, same.sources)
                self._put(back, state="active", was=None, superseded_by=None)
                self._supersede(same, back)
                self._point(gone.id, back.id)
            elif same is not None:
                self._put(old, superseded_by=self._with_sources(same, old.sources).id)
            elif gone.superseded_by is not None:
                self._put(old, superseded_by=gone.superseded_by)
            else:
                restored = self._put(old, state=old.was or "active", was=None, superseded_by=None)
                self._point(gone.id, restored.id)

    def _point(self, gone: str, restored: str) -> None:
        """Let what is proposed in place of a fact that is gone correct the one that is back."""
        for fact in self._linked(self._superseding, gone):
            if fact.state == "proposed" and fact.id != restored:
                self._put(fact, supersedes=restored)


def _age(fact: FactRecord) -> tuple[datetime, str]:
    return fact.created_at, fact.id

"""Named points at which a harness may stop the world: wrappers around the seams, and no more.

    begin claim step start result events settle append   .before_commit and .after_commit
    disk                                                 .before_commit and .after_commit
    model                                                .before_send and .mid_stream
    tool                                                 .after_start and .after_effect
    review.pause review.decision review.start            .before_commit and .after_commit
    review.cancel                                        .before_commit and .after_commit
    review.check                                         .before_verdict and .after_verdict
    review.tool                                          .after_start and .after_effect
    review.goes_on

The first line is one commit of the store by what it is for: `claim` takes a lost call over, and
`append` adds results without a call. `disk` is the one COMMIT of all that wait, in its thread.
Those of reviews: a call is held, a decision is made, a decided call's tools begin, a waiting call
is cancelled; a check judges; a tool that was held does its work; and after a decision that lets a
call go on it is about to be read for that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from turngate.protocols import ThreadStore
from turngate.records import (
    CallPage,
    CallRecord,
    Change,
    EventBatch,
    FactPage,
    FactRecord,
    FactState,
    FilePage,
    FileRecord,
    LedgerRow,
    LostCall,
    OverdueReview,
    ReviewPage,
    ReviewRecord,
    ReviewState,
    Scope,
    Step,
    SummaryRecord,
    ThreadPage,
    ThreadRecord,
    TurnPage,
)

__all__ = [
    "POINTS",
    "REVIEW_POINTS",
    "FailpointStore",
    "Hit",
    "StoreProxy",
    "connecting",
    "kind_of",
]

Hit = Callable[[str], None]
"""Told of each point as it is reached."""

KINDS = ("begin", "claim", "step", "start", "result", "events", "settle", "append")
POINTS = (
    *(f"{kind}.{side}_commit" for kind in (*KINDS, "disk") for side in ("before", "after")),
    "model.before_send",
    "model.mid_stream",
    "tool.after_start",
    "tool.after_effect",
)

REVIEW_KINDS = ("review.pause", "review.decision", "review.start", "review.cancel")
REVIEW_POINTS = {
    "plain": (),
    "tools": (
        *(f"{kind}.{side}_commit" for kind in REVIEW_KINDS for side in ("before", "after")),
        "review.tool.after_start",
        "review.tool.after_effect",
        "review.goes_on",
    ),
    "texts": (
        *(f"{kind}.{side}_commit" for kind in REVIEW_KINDS for side in ("before", "after")),
        "review.tool.after_start",
        "review.tool.after_effect",
        "review.goes_on",
        "review.check.before_verdict",
        "review.check.after_verdict",
    ),
}
"""Those that a world with rules comes by as well, by what its rules are for."""

_STEPS = {"model": "step", "tool_start": "start", "tool_result": "result"}


def kind_of(change: Change) -> str:
    """What a change is for."""
    if change.begin is not None:
        return "begin"
    if change.update is not None and change.reviews:
        if change.guard is not None and change.guard.state == "active":
            return "review.pause"
        cancelled = all(review.state == "cancelled" for review in change.reviews)
        return "review.cancel" if cancelled else "review.decision"
    if change.update is not None:
        return "claim" if change.update.state == "active" else "settle"
    if change.steps:
        return _STEPS[change.steps[0].kind]
    return "events" if change.guard is not None else "append"


class StoreProxy:
    """A `ThreadStore` that hands every call on to another; a subclass adds what it is for."""

    def __init__(self, inner: ThreadStore) -> None:
        self.inner = inner

    async def commit(self, scope: Scope, change: Change) -> int:
        return await self.inner.commit(scope, change)

    async def load(
        self, scope: Scope, thread: str, *, before: int | None = None, limit: int = 50
    ) -> TurnPage:
        return await self.inner.load(scope, thread, before=before, limit=limit)

    async def thread(self, scope: Scope, thread: str) -> ThreadRecord:
        return await self.inner.thread(scope, thread)

    async def threads(
        self, scope: Scope, *, after: str | None = None, limit: int = 50
    ) -> ThreadPage:
        return await self.inner.threads(scope, after=after, limit=limit)

    async def erasures(self, scope: Scope, thread: str) -> int:
        return await self.inner.erasures(scope, thread)

    async def call(self, scope: Scope, call: str) -> CallRecord:
        return await self.inner.call(scope, call)

    async def active_call(self, scope: Scope, thread: str) -> CallRecord | None:
        return await self.inner.active_call(scope, thread)

    async def call_by_key(self, scope: Scope, key: str) -> CallRecord | None:
        return await self.inner.call_by_key(scope, key)

    async def calls(
        self,
        scope: Scope,
        *,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CallPage:
        return await self.inner.calls(scope, thread=thread, after=after, limit=limit)

    async def steps(self, scope: Scope, call: str) -> Sequence[Step]:
        return await self.inner.steps(scope, call)

    async def events(self, scope: Scope, call: str) -> Sequence[EventBatch]:
        return await self.inner.events(scope, call)

    async def review(self, scope: Scope, review: str) -> ReviewRecord:
        return await self.inner.review(scope, review)

    async def reviews(
        self,
        scope: Scope,
        *,
        call: str | None = None,
        thread: str | None = None,
        state: ReviewState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> ReviewPage:
        return await self.inner.reviews(
            scope, call=call, thread=thread, state=state, after=after, limit=limit
        )

    async def overdue_reviews(self, at: datetime) -> Sequence[OverdueReview]:
        return await self.inner.overdue_reviews(at)

    async def ledger(self, scope: Scope, call: str) -> Sequence[LedgerRow]:
        return await self.inner.ledger(scope, call)

    async def text(self, scope: Scope, text_hash: str) -> str | None:
        return await self.inner.text(scope, text_hash)

    async def summary(
        self, scope: Scope, thread: str, *, version: int | None = None
    ) -> SummaryRecord | None:
        return await self.inner.summary(scope, thread, version=version)

    async def learnt(self, scope: Scope, thread: str) -> int | None:
        return await self.inner.learnt(scope, thread)

    async def fact(self, scope: Scope, fact: str) -> FactRecord:
        return await self.inner.fact(scope, fact)

    async def facts(
        self,
        scope: Scope,
        *,
        user: str | None = None,
        state: FactState | None = None,
        thread: str | None = None,
        turn: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> FactPage:
        return await self.inner.facts(
            scope, user=user, state=state, thread=thread, turn=turn, after=after, limit=limit
        )

    async def search_facts(
        self, scope: Scope, *, user: str, query: str, limit: int = 20
    ) -> Sequence[FactRecord]:
        return await self.inner.search_facts(scope, user=user, query=query, limit=limit)

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        return await self.inner.lost_calls(owner)

    async def add_file(self, scope: Scope, record: FileRecord, *, shared: bool = False) -> bool:
        return await self.inner.add_file(scope, record, shared=shared)

    async def remove_file(self, scope: Scope, file: str) -> FileRecord | None:
        return await self.inner.remove_file(scope, file)

    async def file(self, scope: Scope, file: str) -> FileRecord:
        return await self.inner.file(scope, file)

    async def files(self, scope: Scope, *, after: str | None = None, limit: int = 50) -> FilePage:
        return await self.inner.files(scope, after=after, limit=limit)

    async def file_of_bytes(self, scope: Scope, sha256: str) -> FileRecord | None:
        return await self.inner.file_of_bytes(scope, sha256)

    async def objects_in_use(self, scope: Scope, names: Collection[str]) -> set[str]:
        return await self.inner.objects_in_use(scope, names)

    async def tenants_with_files(self) -> Sequence[Scope]:
        return await self.inner.tenants_with_files()

    async def aclose(self) -> None:
        await self.inner.aclose()


class FailpointStore(StoreProxy):
    """A store whose commits are points."""

    def __init__(self, inner: ThreadStore, hit: Hit) -> None:
        super().__init__(inner)
        self._hit = hit
        self._decided: set[str] = set()  # calls that a decision of this process let go on
        self._going_on: set[str] = set()  # those of them that were not read since

    async def commit(self, scope: Scope, change: Change) -> int:
        kind = kind_of(change)
        call = change.guard.call if change.guard is not None else ""
        if kind == "start" and call in self._decided:
            kind = "review.start"
        self._hit(f"{kind}.before_commit")
        length = await self.inner.commit(scope, change)
        self._hit(f"{kind}.after_commit")
        if kind == "review.decision" and change.update is not None:
            self._decided.add(call)
            if change.update.state == "active":
                self._going_on.add(call)
        return length

    async def events(self, scope: Scope, call: str) -> Sequence[EventBatch]:
        if call in self._going_on:
            self._going_on.discard(call)
            self._hit("review.goes_on")
        return await super().events(scope, call)


def connecting(hit: Hit) -> Callable[..., sqlite3.Connection]:
    """A `connect` for the store whose connections make a point of each COMMIT."""

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super().execute(sql, parameters)
            hit("disk.before_commit")
            cursor = super().execute(sql, parameters)
            hit("disk.after_commit")
            return cursor

    def connect(path: str, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(path, factory=Watched, **options)

    return connect

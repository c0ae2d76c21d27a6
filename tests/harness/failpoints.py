"""Named points at which a harness may stop the world: wrappers around the seams, and no more.

    begin claim step start result events settle append   .before_commit and .after_commit
    disk                                                 .before_commit and .after_commit
    model                                                .before_send and .mid_stream
    tool                                                 .after_start and .after_effect

The first line is one commit of the store by what it is for: `claim` takes a lost call over, and
`append` adds results without a call. `disk` is the one COMMIT of all that wait, in its thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from turngate.protocols import ThreadStore
from turngate.records import (
    CallPage,
    CallRecord,
    Change,
    EventBatch,
    LostCall,
    Scope,
    Step,
    ThreadPage,
    ThreadRecord,
    TurnPage,
)

__all__ = ["POINTS", "FailpointStore", "Hit", "StoreProxy", "connecting", "kind_of"]

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

_STEPS = {"model": "step", "tool_start": "start", "tool_result": "result"}


def kind_of(change: Change) -> str:
    """What a change is for."""
    if change.begin is not None:
        return "begin"
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

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        return await self.inner.lost_calls(owner)

    async def aclose(self) -> None:
        await self.inner.aclose()


class FailpointStore(StoreProxy):
    """A store whose commits are points."""

    def __init__(self, inner: ThreadStore, hit: Hit) -> None:
        super().__init__(inner)
        self._hit = hit

    async def commit(self, scope: Scope, change: Change) -> int:
        kind = kind_of(change)
        self._hit(f"{kind}.before_commit")
        length = await self.inner.commit(scope, change)
        self._hit(f"{kind}.after_commit")
        return length


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

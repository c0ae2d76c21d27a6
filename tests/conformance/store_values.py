"""Values that the tests of stores share: two tenants, and records with an id of their own."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Protocol

from turngate.protocols import ThreadStore
from turngate.records import CallRecord, CallState, Change, Guard, LedgerRow, Scope, ThreadPage
from turngate.turns import TextPart, Turn
from turngate.values import Usage

A = Scope("acme")
B = Scope("bolt")
AT = datetime(2026, 3, 1, 12, 0, 5, 123456, tzinfo=UTC)

_numbers = itertools.count(1)


class Stores(Protocol):
    """Gives stores over one set of data, which is empty at first; closes what it opened."""

    async def open(self, *, commit_s: float = 0.0) -> ThreadStore:
        """A store, each commit of which takes `commit_s` longer. One is open at a time."""
        ...

    async def ledger(self, scope: Scope) -> list[LedgerRow]:
        """The ledger of a tenant, by whatever way around the store."""
        ...


def user_turn(text: str = "hello", *, id: str | None = None, at: datetime = AT) -> Turn:
    """A user turn with one text part and, unless given, a new id."""
    return Turn(
        id=f"turn_{next(_numbers)}" if id is None else id,
        role="user",
        parts=(TextPart(text),),
        created_at=at,
    )


def call_record(
    thread: str = "t",
    *,
    id: str | None = None,
    state: CallState = "active",
    owner: str = "boot_1",
    position: int = 0,
) -> CallRecord:
    """A call of `thread`, by default active, with a user turn."""
    return CallRecord(
        id=f"call_{next(_numbers)}" if id is None else id,
        thread=thread,
        kind="ask",
        state=state,
        owner=owner,
        position=position,
        created_at=AT,
        user_turn=user_turn("asked"),
        ended_at=None if state == "active" else AT,
    )


def ledger_row(call: str = "call_1", *, id: str | None = None) -> LedgerRow:
    """A ledger row with a usage."""
    return LedgerRow(
        id=f"ledger_{next(_numbers)}" if id is None else id,
        call=call,
        model="some-model",
        usage=Usage(input_tokens=7, output_tokens=3),
        outcome="answered",
        created_at=AT,
    )


def texts_change(thread: str, *texts: str, expected: int | None = None) -> Change:
    """A change that appends one user turn for each of `texts`."""
    return Change(
        thread=thread, at=AT, expected=expected, turns=tuple(user_turn(text) for text in texts)
    )


async def append(store: ThreadStore, thread: str, *texts: str, scope: Scope = A) -> int:
    """Commit one user turn for each of `texts`; the thread's new length."""
    return await store.commit(scope, texts_change(thread, *texts))


async def texts(store: ThreadStore, thread: str, *, scope: Scope = A) -> list[str]:
    """The texts of all turns of `thread`, each of which has one text part."""
    page = await store.load(scope, thread, limit=1_000_000)
    assert page.first == 0
    assert page.length == len(page.turns)
    found = []
    for turn in page.turns:
        (part,) = turn.parts
        assert isinstance(part, TextPart)
        found.append(part.text)
    return found


def thread_ids(page: ThreadPage) -> list[str]:
    """The ids of the threads of `page`, in its order."""
    return [thread.id for thread in page.threads]


async def claim(store: ThreadStore, call: CallRecord, *, scope: Scope = A) -> int:
    """Commit an active call and nothing else."""
    return await store.commit(scope, Change(thread=call.thread, at=AT, begin=call))


def guard(call: CallRecord) -> Guard:
    """The guard of what the owner of `call` writes for it."""
    return Guard(call=call.id, owner=call.owner, epoch=call.epoch)


async def end(store: ThreadStore, call: CallRecord, *, scope: Scope = A) -> int:
    """Commit an ended call and nothing else."""
    assert call.state != "active"
    change = Change(thread=call.thread, at=AT, guard=guard(call), update=call)
    return await store.commit(scope, change)

"""Values that the tests of stores share: two tenants, and records with an id of their own."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from turngate.messages import ToolCall
from turngate.protocols import ThreadStore
from turngate.records import (
    CallRecord,
    CallState,
    Change,
    EventBatch,
    Guard,
    LedgerRow,
    ReviewPage,
    ReviewRecord,
    ReviewState,
    Scope,
    Step,
    ThreadPage,
)
from turngate.results import ModelResult
from turngate.turns import TextPart, Turn
from turngate.values import Usage

A = Scope("acme")
B = Scope("bolt")
AT = datetime(2026, 3, 1, 12, 0, 5, 123456, tzinfo=UTC)

_numbers = itertools.count(1_000)  # the dumps of older schemas have the low ones


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


def guard(call: CallRecord, *, state: Literal["active", "review"] = "active") -> Guard:
    """The guard of what the owner of `call` writes for it, while it is in `state`."""
    return Guard(call=call.id, owner=call.owner, epoch=call.epoch, state=state)


async def end(store: ThreadStore, call: CallRecord, *, scope: Scope = A) -> int:
    """Commit an ended call and nothing else."""
    assert call.state != "active"
    change = Change(thread=call.thread, at=AT, guard=guard(call), update=call)
    return await store.commit(scope, change)


def review_record(
    call: CallRecord,
    *,
    id: str | None = None,
    state: ReviewState = "open",
    of: Literal["answer", "tool call"] = "answer",
    expires_at: datetime | None = None,
) -> ReviewRecord:
    """A review of `call` with an id of its own, of an answer or of a tool call."""
    review = ReviewRecord(
        id=f"review_{next(_numbers)}" if id is None else id,
        call=call.id,
        thread=call.thread,
        held_by="some-rule",
        reason="answer",
        created_at=AT,
        step=1,
        expires_at=expires_at,
        state=state,
    )
    if of == "answer":
        result = ModelResult(
            text="held", tool_calls=(), model="m", finish_reason="stop", usage=None, reasoning="hm"
        )
        return msgspec.structs.replace(review, answer=result)
    held = ToolCall(id="call_0", name="pay", arguments='{"n": 1}')
    return msgspec.structs.replace(review, tool_call=held, place=0, call_hash="0" * 64)


def in_state(call: CallRecord, state: CallState) -> CallRecord:
    """`call` in another state."""
    ended_at = None if state in ("active", "review") else AT
    return msgspec.structs.replace(call, state=state, ended_at=ended_at)


async def hold(
    store: ThreadStore, call: CallRecord, *reviews: ReviewRecord, scope: Scope = A
) -> CallRecord:
    """Claim `call` and commit that it waits for `reviews`; its record in review."""
    await claim(store, call, scope=scope)
    held = in_state(call, "review")
    change = Change(
        thread=call.thread, at=AT, guard=guard(call), update=held, reviews=tuple(reviews)
    )
    await store.commit(scope, change)
    return held


def decision(held: CallRecord, *reviews: ReviewRecord, state: CallState = "answered") -> Change:
    """The change that writes `reviews` and brings `held` to `state`."""
    return Change(
        thread=held.thread,
        at=AT,
        guard=guard(held, state="review"),
        update=in_state(held, state),
        reviews=tuple(reviews),
    )


def review_ids(page: ReviewPage) -> list[str]:
    """The ids of the reviews of `page`, in its order."""
    return [review.id for review in page.reviews]


def writing_for(call: CallRecord, state: str) -> Change:
    """A change with something of everything, guarded for `call` in `state`."""
    return Change(
        thread=call.thread,
        at=AT,
        turns=(user_turn("x"),),
        guard=guard(call, state="review" if state == "review" else "active"),
        update=in_state(call, "answered"),
        steps=(Step(number=0, kind="tool_start", place=0),),
        events=(EventBatch(0, "[]"),),
        ledger=(ledger_row(call.id),),
        reviews=(review_record(call),),
        title="new",
    )


async def hold_one(store: ThreadStore, thread: str) -> ReviewRecord:
    """Hold a new call of `thread` for one review, and give that."""
    call = call_record(thread)
    review = review_record(call)
    await hold(store, call, review)
    return review

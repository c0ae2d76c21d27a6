"""What a store keeps beside turns, and the one change that it applies at a time. Plain values."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from turngate.errors import InvalidValue
from turngate.turns import Turn
from turngate.values import Usage

__all__ = [
    "CallKind",
    "CallRecord",
    "CallState",
    "Change",
    "Effect",
    "LedgerRow",
    "LostCall",
    "Scope",
    "ThreadPage",
    "ThreadRecord",
    "ToolContext",
    "TurnPage",
    "checked_thread_id",
]

Effect = Literal["safe", "keyed", "unsafe"]
CallKind = Literal["ask"]
CallState = Literal["active", "answered", "incomplete", "failed"]

_THREAD_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TENANT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,128}")


class Scope(Struct, frozen=True):
    """Whose rows a store call may see: an argument of each, so none can go without it.

    Errors: a tenant that is empty, longer than 128 characters or holds control characters is an
    `InvalidValue`.
    """

    tenant: str

    def __post_init__(self) -> None:
        if _TENANT.fullmatch(self.tenant) is None:
            raise InvalidValue("a tenant is 1 to 128 characters without control characters")


def checked_thread_id(thread_id: str) -> str:
    """`thread_id`, once it is 1 to 128 of ``A-Za-z0-9._:-`` (else `InvalidValue`)."""
    if _THREAD_ID.fullmatch(thread_id) is None:
        raise InvalidValue("a thread id is 1 to 128 of A-Z, a-z, 0-9 and . _ : -")
    return thread_id


class ToolContext(Struct, frozen=True, kw_only=True):
    """For whom a tool runs. `key` is the same whenever this very call is run again."""

    tenant: str
    thread: str
    call_id: str
    key: str
    user: str | None = None


class ThreadRecord(Struct, frozen=True, kw_only=True):
    """A thread without its turns; `length` counts them, deleted ones too."""

    id: str
    length: int
    created_at: datetime
    updated_at: datetime
    title: str | None = None
    user: str | None = None


class TurnPage(Struct, frozen=True, kw_only=True):
    """Successive turns, oldest first: `turns[0]` stands at position `first`.

    `length` is the thread's, at the moment of the reading; a thread that does not exist yet reads
    as length 0.
    """

    first: int
    turns: tuple[Turn, ...]
    length: int


class ThreadPage(Struct, frozen=True, kw_only=True):
    """Threads, last changed first; `next` is the cursor of the next page (None: no more)."""

    threads: tuple[ThreadRecord, ...]
    next: str | None = None


class CallRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ask, from its begin to its end.

    Shapes: `user_turn` None where the call goes on without a new prompt; `position` is the
    thread's length when its window was read; `owner` is the boot that may end the call; `reason`
    says why a call that is not answered ended.
    """

    id: str
    thread: str
    kind: CallKind
    state: CallState
    owner: str
    position: int
    created_at: datetime
    user_turn: Turn | None = None
    user: str | None = None
    ended_at: datetime | None = None
    reason: str | None = None


class LedgerRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call or attempt: the only thing that is summed for usage.

    `usage` None: the provider reported none.
    """

    id: str
    call: str
    model: str | None
    usage: Usage | None
    outcome: str
    created_at: datetime


class LostCall(Struct, frozen=True):
    """An active call whose owner is gone, and whose it is."""

    scope: Scope
    call: CallRecord


class Change(Struct, frozen=True, kw_only=True):
    """What one commit does to one thread, all or nothing.

    Shapes: `expected` is the length that the thread must have (None: any). `turns` are appended.
    `call` is a call record: an active one claims the thread, an ended one takes the place of the
    active one of its id and owner. `title` and `user`, where given, are set. A thread that is
    missing begins with its first change that has turns, a title, or `create`.
    """

    thread: str
    at: datetime
    expected: int | None = None
    turns: tuple[Turn, ...] = ()
    call: CallRecord | None = None
    ledger: tuple[LedgerRow, ...] = ()
    create: bool = False
    title: str | None = None
    user: str | None = None

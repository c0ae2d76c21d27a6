"""What a store keeps beside turns, and the one change that it applies at a time. Plain values."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from turngate.completion import CallOptions
from turngate.errors import InvalidValue
from turngate.turns import Turn
from turngate.values import ToolSpec, Usage

__all__ = [
    "CallKind",
    "CallPage",
    "CallRecord",
    "CallState",
    "Change",
    "Effect",
    "EventBatch",
    "Guard",
    "LedgerRow",
    "LostCall",
    "RunLimits",
    "Scope",
    "Step",
    "StepKind",
    "ThreadPage",
    "ThreadRecord",
    "ToolContext",
    "ToolNeed",
    "TurnPage",
    "checked_thread_id",
]

Effect = Literal["safe", "keyed", "unsafe"]
CallKind = Literal["ask", "run"]
StepKind = Literal["model", "tool_start", "tool_result"]
CallState = Literal["active", "answered", "incomplete", "failed"]

_THREAD_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TENANT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,128}")


def _is_of(form: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


class Scope(Struct, frozen=True):
    """Whose rows a store call may see: an argument of each, so none can go without it.

    Errors: a tenant that is empty, longer than 128 characters or holds control characters is an
    `InvalidValue`.
    """

    tenant: str

    def __post_init__(self) -> None:
        if not _is_of(_TENANT, self.tenant):
            raise InvalidValue("a tenant is 1 to 128 characters without control characters")


def checked_thread_id(thread_id: str) -> str:
    """`thread_id`, once it is 1 to 128 of ``A-Za-z0-9._:-`` (else `InvalidValue`)."""
    if not _is_of(_THREAD_ID, thread_id):
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


class RunLimits(Struct, frozen=True, kw_only=True):
    """When a run ends by itself; the reason is then the name of the limit.

    Units: `rounds_max` counts model calls, `calls_max` tool calls, `tokens_max` input and output
    tokens over all model calls (None: no limit), `time_max_s` seconds from the first begin.
    """

    rounds_max: int = 24
    calls_max: int = 128
    tokens_max: int | None = None
    time_max_s: float = 900.0


class ToolNeed(Struct, frozen=True):
    """A tool that a run began with, by name and schema hash: it goes on with this one alone."""

    name: str
    schema_hash: str


class CallRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ask or run, from its begin to its end.

    Shapes: `user_turn` None where the call goes on without a new prompt; `position` is the
    thread's length when its window was read; `owner` and `epoch` name who may write for it;
    `recoveries` counts how often another process took it over. `model` is the one that the gateway
    was opened with (None: the server's own), `tools` are what it sees; `local` says that one of
    them is in no registry. `reason` says why a call that is not answered ended; `waiting_for`
    names what kept the last process from taking it over. `first` is the position of the first
    turn that it added (the store fills it in), `added` their number. `streamed`: its deltas are
    stored. `text` is the answer's, `usage` the sum of its model calls.
    """

    id: str
    thread: str
    kind: CallKind
    state: CallState
    owner: str
    position: int
    created_at: datetime
    epoch: int = 0
    recoveries: int = 0
    user_turn: Turn | None = None
    user: str | None = None
    key: str | None = None
    body_hash: str | None = None
    instructions: str | None = None
    model: str | None = None
    options: CallOptions = CallOptions()
    tools: tuple[ToolSpec, ...] = ()
    needs: tuple[ToolNeed, ...] = ()
    local: bool = False
    limits: RunLimits = RunLimits()
    streamed: bool = False
    waiting_for: tuple[str, ...] = ()
    ended_at: datetime | None = None
    reason: str | None = None
    text: str = ""
    usage: Usage | None = None
    first: int | None = None
    added: int = 0


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One journalled step of a run.

    Shapes: a ``model`` step has the assistant turn that it gave, a ``tool_result`` the tool turn;
    `place` is the index of the tool call among the calls of the last model step, for
    ``tool_start`` and ``tool_result``. `events` is how many events the call had at this step.
    """

    number: int
    kind: StepKind
    turn: Turn | None = None
    place: int | None = None
    usage: Usage | None = None
    events: int = 0


class EventBatch(Struct, frozen=True):
    """Successive events of a call from number `first` on, as one JSON array."""

    first: int
    body: str


class Guard(Struct, frozen=True, kw_only=True):
    """Who writes for a call: a change with a guard applies only while this is its active owner."""

    call: str
    owner: str
    epoch: int


class CallPage(Struct, frozen=True, kw_only=True):
    """Asks and runs, newest first; `next` is the cursor of the next page (None: no more)."""

    calls: tuple[CallRecord, ...]
    next: str | None = None


class LedgerRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call or attempt: the only thing that is summed for usage.

    `usage` None: the provider reported none. `outcome` is how the attempt ended: ``answered``,
    ``tool_calls``, ``lost`` (its process died), or the reason of an incomplete end.
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
    `begin` is an active call that claims the thread. `guard` names the active call for which all
    of the change is done, and `update` is its new record: ended, or taken over by another owner.
    `title` and `user`, where given, are set. A thread that is missing begins with its first
    change that has turns, or with `create`.
    """

    thread: str
    at: datetime
    expected: int | None = None
    turns: tuple[Turn, ...] = ()
    begin: CallRecord | None = None
    guard: Guard | None = None
    update: CallRecord | None = None
    steps: tuple[Step, ...] = ()
    events: tuple[EventBatch, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    create: bool = False
    title: str | None = None
    user: str | None = None

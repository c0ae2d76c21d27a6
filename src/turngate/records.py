"""What a store keeps beside turns, and the one change that it applies at a time. Plain values."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from turngate.completion import CallOptions
from turngate.errors import InvalidValue
from turngate.messages import ToolCall
from turngate.results import ModelResult
from turngate.turns import Turn
from turngate.values import FileRef, ToolSpec, Usage

__all__ = [
    "Allow",
    "Block",
    "CallKind",
    "CallPage",
    "CallRecord",
    "CallState",
    "Change",
    "DefaultAction",
    "Effect",
    "Erasure",
    "EventBatch",
    "FactKind",
    "FactPage",
    "FactRecord",
    "FactSource",
    "FactState",
    "FilePage",
    "FileRecord",
    "FileShown",
    "Guard",
    "LedgerRow",
    "LeftOut",
    "LostCall",
    "OverdueReview",
    "Prompt",
    "Proposal",
    "RecalledIds",
    "Receipt",
    "Replace",
    "Review",
    "ReviewPage",
    "ReviewRecord",
    "ReviewState",
    "RunLimits",
    "Scope",
    "Span",
    "Step",
    "StepKind",
    "StoredObject",
    "SummaryRecord",
    "Swept",
    "ThreadPage",
    "ThreadRecord",
    "ToolContext",
    "ToolNeed",
    "TurnPage",
    "checked_thread_id",
    "checked_user",
    "text_hash",
]

Effect = Literal["safe", "keyed", "unsafe"]
CallKind = Literal["ask", "run", "memory", "facts"]
StepKind = Literal["model", "tool_start", "tool_result"]
CallState = Literal["active", "review", "answered", "blocked", "incomplete", "failed"]
DefaultAction = Literal["approve", "reject"]
ReviewState = Literal["open", "approved", "edited", "rejected", "retried", "cancelled"]
FactKind = Literal["profile", "preference", "event"]
FactState = Literal["active", "proposed", "superseded", "rejected", "forgotten"]

_THREAD_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,128}")  # of a tenant, of a user


def _is_of(form: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def text_hash(text: str) -> str:
    """The name of a text that is kept once: its SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


class Scope(Struct, frozen=True):
    """Whose rows a store call may see: an argument of each, so none can go without it.

    Errors: a tenant that is empty, longer than 128 characters or holds control characters is an
    `InvalidValue`.
    """

    tenant: str

    def __post_init__(self) -> None:
        if not _is_of(_NAME, self.tenant):
            raise InvalidValue("a tenant is 1 to 128 characters without control characters")


def checked_thread_id(thread_id: str) -> str:
    """`thread_id`, once it is 1 to 128 of ``A-Za-z0-9._:-`` (else `InvalidValue`)."""
    if not _is_of(_THREAD_ID, thread_id):
        raise InvalidValue("a thread id is 1 to 128 of A-Z, a-z, 0-9 and . _ : -")
    return thread_id


def checked_user(user: str) -> str:
    """`user`, once it is a name as a tenant may have it (else `InvalidValue`)."""
    if not _is_of(_NAME, user):
        raise InvalidValue("a user is 1 to 128 characters without control characters")
    return user


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


class Span(Struct, frozen=True):
    """`count` successive turns of a thread, from position `first` on."""

    first: int
    count: int


class RecalledIds(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call recalled, by name: the version of its thread's summary, and the ids of facts."""

    summary: int | None = None
    facts: tuple[str, ...] = ()


class CallRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ask or run, from its begin to its end; or a helper call, which is written at its end.

    Shapes: `user_turn` None where the call goes on without a new prompt; `position` is the
    thread's length when its window was read; `instructions` is the hash of their text, which the
    store keeps once. `owner` and `epoch` name who may write for it;
    `recoveries` counts how often another process took it over, `resumed_at` is when a person's
    decision last let it go on. `model` is the one that the gateway was opened with (None: the
    server's own), `tools` are what it sees; `local` says that one of them is in no registry.
    `checks` and `rules` are the names of the checks and review rules that judge it; `note` is what
    a reviewer told its model, `recalled` what it was reminded of. `reason` says why a call that is
    not answered ended, and `by` which check or rule, or that a review, blocked it; `waiting_for`
    names what kept the last process from going on with it. `first` is the position of the first
    turn that its last commit added (the store fills it in), `added` their number, `earlier` what it
    had added before. `placed`: its user turn and its steps below this number stand in the thread
    (None: nothing does). `streamed`: its deltas are stored. `text` is the answer's, `usage` the sum
    of its model calls.
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
    resumed_at: datetime | None = None
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
    checks: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    note: str | None = None
    recalled: RecalledIds | None = None
    limits: RunLimits = RunLimits()
    streamed: bool = False
    waiting_for: tuple[str, ...] = ()
    ended_at: datetime | None = None
    reason: str | None = None
    by: str | None = None
    text: str = ""
    usage: Usage | None = None
    first: int | None = None
    added: int = 0
    earlier: tuple[Span, ...] = ()
    placed: int | None = None
    spent: Usage | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the turns that it added stand in its thread."""
        last = (Span(self.first, self.added),) if self.first is not None else ()
        return (*self.earlier, *last)


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
    """Who writes for a call: a change with a guard applies only while this is its owner, and only
    in this state."""

    call: str
    owner: str
    epoch: int
    state: Literal["active", "review"] = "active"


class CallPage(Struct, frozen=True, kw_only=True):
    """Calls of every kind, newest first; `next` is the cursor of the next page (None: no more)."""

    calls: tuple[CallRecord, ...]
    next: str | None = None


class LeftOut(Struct, frozen=True, kw_only=True):
    """What a request might have shown and did not: how many, and why."""

    what: Literal["turns", "result_chars", "files", "facts"]
    count: int
    why: str


class FileShown(Struct, frozen=True):
    """How a file of the current turn was shown: as an image, a file, its text, or a line."""

    id: str
    shown: Literal["image", "audio", "file", "text", "line", "gone"]


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one model call was shown; with its turns, the request can be made again.

    Shapes: `request_hash` is the SHA-256 of the request. `window` are positions of the thread as
    it was at `length`; the call's own user turn `current` comes after them, then the turns of its
    first `steps` journalled turns. `instructions` is the hash of their text; `waiting` are the ids
    of tool calls that were shown as waiting for a review; of longer tool results `result_chars`
    were shown. `summary` is the version of the thread's summary, `facts` are ids. `tokens` are
    estimates by source, and `budget` what the request might have.
    """

    request_hash: str
    length: int
    window: Span | None = None
    current: str | None = None
    steps: int = 0
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    result_chars: int | None = None
    files: tuple[FileShown, ...] = ()
    summary: int | None = None
    facts: tuple[str, ...] = ()
    tokens: dict[str, int] = {}
    budget: int | None = None
    left_out: tuple[LeftOut, ...] = ()


class LedgerRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call or attempt: the only thing that is summed for usage.

    `usage` None: the provider reported none. `outcome` is how the attempt ended: ``answered``,
    ``tool_calls``, ``lost`` (its process died), ``blocked``, ``review``, or the reason of an
    incomplete end. `check` is the check that blocked or replaced what came, or held it for a
    review, and `rule` the rule or reason that it named. `receipt` says what the model was shown
    (None: it died before anything came of it), `helper` is the kind of a helper call.
    """

    id: str
    call: str
    model: str | None
    usage: Usage | None
    outcome: str
    created_at: datetime
    check: str | None = None
    rule: str | None = None
    receipt: Receipt | None = None
    helper: Literal["memory", "facts"] | None = None


class LostCall(Struct, frozen=True):
    """An active call whose owner is gone, and whose it is."""

    scope: Scope
    call: CallRecord


# ── checks and reviews ───────────────────────────────────────────────────────────────────────


class Prompt(Struct, frozen=True, kw_only=True):
    """What an input check judges."""

    text: str
    thread: str
    user: str | None = None
    files: tuple[FileRef, ...] = ()


class Proposal(Struct, frozen=True, kw_only=True):
    """What an output check or a review rule judges: what a model said in one step."""

    text: str
    thread: str
    user: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class Allow(Struct, frozen=True):
    """It passes; a prompt passes as `text`, if that is given."""

    text: str | None = None


class Replace(Struct, frozen=True):
    """It passes with `text` in place of what the model said; its reasoning goes too."""

    text: str


class Block(Struct, frozen=True):
    """It does not pass: nothing of it is kept but the name of the `rule` that it broke."""

    rule: str


class Review(Struct, frozen=True):
    """A person is to decide; `reason` tells that person why."""

    reason: str


class ReviewRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's decision on what a model proposed: open, or made, by whom and why.

    Shapes: `held_by` is the check or rule that asked for it, `reason` why. A review of an answer
    has the whole `answer`; one of a tool call has `tool_call`, its `place` among the calls of its
    step, `step` (the number of the next step, when it was held) and `call_hash` over its exact
    bytes. `default` is what is done at `expires_at`. `text` or `arguments` are what an edit put in
    place, `note` what the model was told for its next try.
    """

    id: str
    call: str
    thread: str
    held_by: str
    reason: str
    created_at: datetime
    step: int
    expires_at: datetime | None = None
    default: DefaultAction = "reject"
    answer: ModelResult | None = None
    tool_call: ToolCall | None = None
    place: int | None = None
    call_hash: str | None = None
    state: ReviewState = "open"
    decided_by: str | None = None
    decided_at: datetime | None = None
    why: str | None = None
    text: str | None = None
    arguments: str | None = None
    note: str | None = None

    @property
    def kind(self) -> Literal["answer", "tool_call"]:
        return "answer" if self.tool_call is None else "tool_call"


class ReviewPage(Struct, frozen=True, kw_only=True):
    """Reviews, newest first; `next` is the cursor of the next page (None: no more)."""

    reviews: tuple[ReviewRecord, ...]
    next: str | None = None


class OverdueReview(Struct, frozen=True):
    """An open review whose deadline is over, and whose it is."""

    scope: Scope
    review: ReviewRecord


# ── what is remembered ───────────────────────────────────────────────────────────────────────


class SummaryRecord(Struct, frozen=True, kw_only=True):
    """One version of a thread's summary: it stands in for all turns below position `upto`.

    Versions count from 1; each is made of the one before and the turns since then. `call` is the
    helper call that wrote it.
    """

    thread: str
    version: int
    upto: int
    text: str
    call: str
    created_at: datetime


class FactSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn that a fact was taken from. `trusted`: its user said it; else a tool's result did."""

    thread: str
    turn: str
    trusted: bool = True


class FactRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something short that is remembered of a user, in one of three kinds.

    Shapes: `sources` are the turns that it comes from; `author` is who wrote it by hand (None: the
    helper call `call` did), with `derived` where that was an edit of what has sources, and `by` who
    decided on it last. `supersedes` is the fact that it corrects, `superseded_by` the one that
    corrected it, and `was` the state that it had then. The text of an id never changes, except that
    a forgotten fact has none. `revision` goes up by 1 with each change, and guards it.
    """

    id: str
    user: str
    kind: FactKind
    text: str
    created_at: datetime
    state: FactState = "active"
    sources: tuple[FactSource, ...] = ()
    author: str | None = None
    derived: bool = False
    call: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    was: FactState | None = None
    by: str | None = None
    changed_at: datetime | None = None
    revision: int = 0

    @property
    def trusted(self) -> bool:
        """Whether a person wrote it, or its user said it in some turn."""
        return self.author is not None or any(source.trusted for source in self.sources)


class FactPage(Struct, frozen=True, kw_only=True):
    """Facts, newest first; `next` is the cursor of the next page (None: no more)."""

    facts: tuple[FactRecord, ...]
    next: str | None = None


# ── one commit ───────────────────────────────────────────────────────────────────────────────


class Erasure(Struct, frozen=True, kw_only=True):
    """What a change erases of its thread: all of it (`whole`), or turns with what copies them.

    Shapes: `turns` are what is left of those with their ids. `calls` take the place of ended calls
    with their ids, whose stored events go; `steps` are pairs of a call's id and one of its steps,
    and `reviews` are of these calls. `files` are ids, `texts` hashes of what goes too. `user`: the
    thread names that user no more.
    """

    whole: bool = False
    turns: tuple[Turn, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    steps: tuple[tuple[str, Step], ...] = ()
    reviews: tuple[ReviewRecord, ...] = ()
    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    user: str | None = None


class Change(Struct, frozen=True, kw_only=True):
    """What one commit does to one thread, all or nothing.

    Shapes: `expected` is the length that the thread must have, and `erasures` how often something
    was erased from it (None: any). `turns` are appended.
    `begin` is a new call; an active one claims the thread, and with `beside_review` it may stand
    beside calls that wait for a review. `guard` names the call for which all of the change is
    done, and `update` is its new record: ended, held for a review, or with another owner.
    `reviews` are new, or take the place of those with their ids. `texts` are kept once for a
    tenant, by their hash. `summary` is the thread's next version; `forget_summaries` deletes those
    that stand in for the turn at that position. `facts` are new, or take the place of those with
    their ids at the revision before. `learnt` are the positions that facts were taken from: they
    begin where the last ones ended. `erase` is taken out of a thread that no call is busy with.
    `title` and `user`, where given, are set. A thread that is missing begins with its first change
    that has turns, or with `create`.
    """

    thread: str
    at: datetime
    expected: int | None = None
    erasures: int | None = None
    turns: tuple[Turn, ...] = ()
    begin: CallRecord | None = None
    beside_review: bool = False
    guard: Guard | None = None
    update: CallRecord | None = None
    steps: tuple[Step, ...] = ()
    events: tuple[EventBatch, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    reviews: tuple[ReviewRecord, ...] = ()
    texts: tuple[str, ...] = ()
    summary: SummaryRecord | None = None
    forget_summaries: int | None = None
    facts: tuple[FactRecord, ...] = ()
    learnt: Span | None = None
    erase: Erasure | None = None
    create: bool = False
    title: str | None = None
    user: str | None = None


class StoredObject(Struct, frozen=True, kw_only=True):
    """Bytes in a file store. `name` is the store's own; no two puts are ever given the same."""

    name: str
    sha256: str
    size_bytes: int


class FileRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file: its pointer, and the object that holds its bytes (files of equal bytes share one).

    `call` is the one whose tool gave it as a result (None: it was put). `claimed_type` is what the
    caller said it is, `sniffed_type` what its first bytes say (None: nothing). The pointer has the
    first of them that is there.
    """

    ref: FileRef
    object: str
    created_at: datetime
    call: str | None = None
    claimed_type: str | None = None
    sniffed_type: str | None = None

    @property
    def stored(self) -> StoredObject:
        """The object that holds the bytes."""
        return StoredObject(
            name=self.object, sha256=self.ref.sha256, size_bytes=self.ref.size_bytes
        )


class FilePage(Struct, frozen=True, kw_only=True):
    """Files, newest first; `next` is the cursor of the next page (None: no more)."""

    files: tuple[FileRecord, ...]
    next: str | None = None


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep removed: objects without a file, and unfinished uploads; bytes of both."""

    objects: int = 0
    uploads: int = 0
    size_bytes: int = 0

"""Values to rows and rows to values: pure, and the same for every database.

A turn, a call and a ledger row are each one JSON document, decoded by one typed call. What can't
be stored the same way everywhere is refused here as an `InvalidValue`, before a store is touched:
lone surrogates anywhere, NUL in a column of its own, a time without a zone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from turngate.errors import InvalidValue, StoreError
from turngate.facts import fact_words, stem
from turngate.records import (
    CallRecord,
    Change,
    Erasure,
    FactRecord,
    FileRecord,
    Guard,
    LedgerRow,
    ReviewRecord,
    Scope,
    Span,
    Step,
    SummaryRecord,
    ThreadRecord,
    checked_thread_id,
    text_hash,
)
from turngate.turns import Turn

INTEGER_MAX = 2**63 - 1  # of a BIGINT column

ThreadRow = tuple[str, int, int, int, str | None, str | None, int]
"""id, length, created_at, updated_at, title, user, changed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_encoder = msgspec.json.Encoder()
# Whatever is stored as one document: how an error calls it, and its typed decode in C.
_DOCUMENTS: dict[type[Struct], tuple[str, Callable[[str], Any]]] = {
    kind: (name, msgspec.json.Decoder(kind).decode)
    for kind, name in (
        (Turn, "turn"),
        (CallRecord, "call"),
        (LedgerRow, "ledger row"),
        (Step, "step"),
        (ReviewRecord, "review"),
        (FileRecord, "file"),
        (SummaryRecord, "summary"),
        (FactRecord, "fact"),
    )
}

_Value = TypeVar("_Value", bound=Struct)
_Row = TypeVar("_Row", bound=tuple[Any, ...])


class CallRow(NamedTuple):
    """A call record as columns."""

    id: str
    state: str
    owner: str
    epoch: int
    key: str | None
    body: str


class ReviewRow(NamedTuple):
    """A review as columns."""

    id: str
    call: str
    state: str
    expires_us: int | None
    body: str


class FileRow(NamedTuple):
    """A file record as columns."""

    tenant: str
    id: str
    sha256: str
    object: str
    body: str


class FactRow(NamedTuple):
    """A fact as columns; `sources` are (thread, turn), `words` None where it can't be found."""

    id: str
    user: str
    state: str
    revision: int
    body: str
    sources: tuple[tuple[str, str], ...]
    words: str | None


class ErasureRows(NamedTuple):
    """What is erased, as columns: `turns` and `reviews` are (id, body), `steps` (call, number,
    body)."""

    whole: bool
    turns: tuple[tuple[str, str], ...]
    calls: tuple[CallRow, ...]
    steps: tuple[tuple[str, int, str], ...]
    reviews: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    texts: tuple[str, ...]
    user: str | None


class ChangeRows(NamedTuple):
    """A change, checked and encoded: what is left is to write it.

    Shapes: `lengths` are the lowest and highest length that the thread may have; `turns` are
    (id, body), `ledger` (id, call, body), `steps` and `events` (call, number, body), `summary`
    (version, upto, body). `begins`: a missing thread begins with this change; `touches`: an
    existing one is altered by it.
    """

    tenant: str
    thread: str
    at_us: int
    lengths: tuple[int, int]
    erasures: int | None
    title: str | None
    user: str | None
    turns: tuple[tuple[str, str], ...]
    begin: CallRow | None
    beside_review: bool
    guard: Guard | None
    update: CallRow | None
    ledger: tuple[tuple[str, str, str], ...]
    steps: tuple[tuple[str, int, str], ...]
    events: tuple[tuple[str, int, str], ...]
    reviews: tuple[ReviewRow, ...]
    texts: tuple[tuple[str, str], ...]
    summary: tuple[int, int, str] | None
    forget_summaries: int | None
    facts: tuple[FactRow, ...]
    learnt: Span | None
    erase: ErasureRows | None
    begins: bool
    touches: bool


# --------------------------------------------------------------------------- values to rows


def change_rows(scope: Scope, change: Change) -> ChangeRows:
    """`change` as rows. Errors: `InvalidValue`, which names the field."""
    expected = change.expected
    if expected is not None and not 0 <= expected <= INTEGER_MAX:
        raise InvalidValue("a change's expected length is 0 or more")
    title = _column_text("title", change.title) if change.title is not None else None
    user = _column_text("user", change.user) if change.user is not None else None
    return ChangeRows(
        tenant=scope.tenant,
        thread=checked_thread_id(change.thread),
        at_us=unix_us(change.at),
        lengths=(0, INTEGER_MAX) if expected is None else (expected, expected),
        erasures=change.erasures,
        title=title,
        user=user,
        turns=_distinct(
            "turn", ((_id("turn", turn.id), _document(Turn, turn)) for turn in change.turns)
        ),
        begin=None if change.begin is None else _call_row(change.thread, change.begin),
        beside_review=change.beside_review,
        guard=_checked_guard(change),
        update=None if change.update is None else _call_row(change.thread, change.update),
        ledger=_distinct("ledger row", map(_ledger_columns, change.ledger)),
        steps=tuple(
            (_guarded_call(change), step.number, _document(Step, step)) for step in change.steps
        ),
        events=tuple(
            (_guarded_call(change), batch.first, _body_text("event", batch.body))
            for batch in change.events
        ),
        reviews=tuple(_review_row(change, review) for review in change.reviews),
        texts=tuple((text_hash(_body_text("text", text)), text) for text in change.texts),
        summary=None if change.summary is None else _summary_row(change, change.summary),
        forget_summaries=change.forget_summaries,
        facts=_distinct("fact", map(_fact_row, change.facts)),
        learnt=_checked_span(change.learnt),
        erase=None if change.erase is None else _erasure_rows(change.thread, change.erase),
        begins=bool(change.turns) or title is not None or change.create,
        touches=bool(change.turns or change.erase) or title is not None or user is not None,
    )


def _erasure_rows(thread: str, erase: Erasure) -> ErasureRows:
    """`erase` as rows; a call that has not ended is no part of it."""
    calls = tuple(_call_row(thread, call) for call in erase.calls)
    if any(call.state in ("active", "review") for call in calls):
        raise InvalidValue("nothing is erased of a call that has not ended")
    return ErasureRows(
        whole=erase.whole,
        turns=tuple((turn.id, _document(Turn, turn)) for turn in erase.turns),
        calls=calls,
        steps=tuple((call, step.number, _document(Step, step)) for call, step in erase.steps),
        reviews=tuple((each.id, _document(ReviewRecord, each)) for each in erase.reviews),
        files=erase.files,
        texts=erase.texts,
        user=erase.user,
    )


def _ledger_columns(row: LedgerRow) -> tuple[str, str, str]:
    _check_times("a ledger row", row, "created_at")
    return _id("ledger row", row.id), _id("call", row.call), _document(LedgerRow, row)


def _call_row(thread: str, call: CallRecord) -> CallRow:
    if call.thread != thread:
        raise InvalidValue("a change's call belongs to the thread of the change")
    _check_times("a call", call, "created_at", "ended_at", "resumed_at")
    return CallRow(
        id=_id("call", call.id),
        state=call.state,
        owner=_id("owner", call.owner),
        epoch=call.epoch,
        key=_column_text("key", call.key) if call.key is not None else None,
        body=_document(CallRecord, call),
    )


def _review_row(change: Change, review: ReviewRecord) -> ReviewRow:
    if (review.call, review.thread) != (_guarded_call(change), change.thread):
        raise InvalidValue("a change's review belongs to the call of its guard and to its thread")
    _check_times("a review", review, "created_at", "decided_at")
    return ReviewRow(
        id=_id("review", review.id),
        call=review.call,
        state=review.state,
        expires_us=None if review.expires_at is None else unix_us(review.expires_at),
        body=_document(ReviewRecord, review),
    )


def _summary_row(change: Change, summary: SummaryRecord) -> tuple[int, int, str]:
    if summary.thread != change.thread:
        raise InvalidValue("a change's summary belongs to the thread of the change")
    _check_times("a summary", summary, "created_at")
    body = _document(SummaryRecord, summary)
    if not (0 < summary.version <= INTEGER_MAX and 0 < summary.upto <= INTEGER_MAX):
        raise InvalidValue("a summary's version and upto are 1 or more")
    return summary.version, summary.upto, body


def _fact_row(fact: FactRecord) -> FactRow:
    _check_times("a fact", fact, "created_at", "changed_at")
    if not 0 <= fact.revision <= INTEGER_MAX:
        raise InvalidValue("a fact's revision is 0 or more")
    sources = ((_id("thread", s.thread), _id("turn", s.turn)) for s in fact.sources)
    return FactRow(
        id=_id("fact", fact.id),
        user=_id("user", fact.user),
        state=fact.state,
        revision=fact.revision,
        body=_document(FactRecord, fact),
        sources=tuple(dict.fromkeys(sources)),
        words=" ".join(fact_words(fact.text)) if fact.state == "active" else None,
    )


def _checked_span(span: Span | None) -> Span | None:
    if span is not None and not (span.first >= 0 and 0 < span.count <= INTEGER_MAX - span.first):
        raise InvalidValue("what was learnt is one position or more, from 0 on")
    return span


def _checked_guard(change: Change) -> Guard | None:
    """The change's guard, once what needs one has it and means the same call."""
    guard, update = change.guard, change.update
    guarded = change.steps or change.events or change.reviews
    if guard is None and (update is not None or guarded):
        raise InvalidValue("an update, steps, events and reviews need the guard of their call")
    if guard is not None and update is not None and update.id != guard.call:
        raise InvalidValue("a change updates the call of its guard")
    return guard


def _guarded_call(change: Change) -> str:
    assert change.guard is not None, "_checked_guard comes first"
    return change.guard.call


def _body_text(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"an {what} holds a lone surrogate, which is no text") from error
    return text


def _document(kind: type[_Value], value: _Value) -> str:
    """`value` as one JSON text; NUL is fine in it, since JSON escapes it.

    The text is read back before it is stored, about 1 us, for a row that can't be read again
    would cost its whole thread: a value of another type than was declared, say.
    """
    what, decode = _DOCUMENTS[kind]
    try:
        body = _encoder.encode(value).decode()
        same: bool = decode(body) == value
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a {what} holds a lone surrogate, which is no text") from error
    except InvalidValue:
        raise
    except (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InvalidValue(f"a {what} is not of its documented form: {error}") from error
    if not same:
        raise InvalidValue(f"a {what} would be read back as another value")
    return body


def file_row(scope: Scope, record: FileRecord) -> FileRow:
    """`record` as a row. Errors: `InvalidValue`, which names the field."""
    file_id = _id("file", record.ref.id)
    _check_times("a file", record, "created_at")
    body = _document(FileRecord, record)
    return FileRow(scope.tenant, file_id, record.ref.sha256, record.object, body)


def _id(what: str, value: str) -> str:
    if value == "":
        raise InvalidValue(f"the id of a {what} is empty")
    return _column_text(f"id of a {what}", value)


def _column_text(what: str, value: str) -> str:
    """`value`, once it is text that every database can hold in a column."""
    if not isinstance(value, str):
        raise InvalidValue(f"the {what} is no text")
    if "\0" in value:
        raise InvalidValue(f"the {what} holds a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(f"the {what} holds a lone surrogate, which is no text") from error
    return value


def _distinct(what: str, rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """`rows`, whose first column is an id that none of them shares with another."""
    kept = tuple(rows)
    if len({row[0] for row in kept}) < len(kept):
        raise InvalidValue(f"a change holds a {what} twice")
    return kept


def _check_times(what: str, record: Struct, *fields: str) -> None:
    for field in fields:
        at = getattr(record, field)
        if at is not None and at.utcoffset() is None:
            raise InvalidValue(f"{what}'s {field} needs a time zone")


def unix_us(at: datetime) -> int:
    """`at` in whole microseconds since 1970 in UTC. Errors: a naive time is an `InvalidValue`."""
    if at.utcoffset() is None:
        raise InvalidValue("a change's time needs a time zone")
    return (at - _EPOCH) // _MICROSECOND


# --------------------------------------------------------------------------- rows to values


def values_from_rows(kind: type[_Value], rows: Iterable[Sequence[Any]]) -> list[_Value]:
    """The values whose documents are the first column of `rows`, in their order.

    One typed decode in C for each row; nothing else is done for it in Python. Errors: a damaged
    row is a `StoreError`.
    """
    what, decode = _DOCUMENTS[kind]
    try:
        return [decode(row[0]) for row in rows]
    except (msgspec.MsgspecError, InvalidValue, RecursionError) as error:
        raise StoreError(
            f"a stored {what} can't be read: its row is damaged, or a newer version wrote it",
            hint="Upgrade Turngate; if it is the newest, restore the database from a backup.",
        ) from error


def turns_from_bodies(bodies: Iterable[Sequence[Any]]) -> list[Turn]:
    """`values_from_rows` of turns."""
    return values_from_rows(Turn, bodies)


def call_from_row(body: str, first: int | None) -> CallRecord:
    """The call of a row. Errors: as for `values_from_rows`."""
    (call,) = values_from_rows(CallRecord, ((body,),))
    return call if first is None else msgspec.structs.replace(call, first=first)


def thread_from_row(row: ThreadRow) -> ThreadRecord:
    """The thread of a row."""
    thread_id, length, created_us, updated_us, title, user, _ = row
    return ThreadRecord(
        id=thread_id,
        length=length,
        created_at=moment(created_us),
        updated_at=moment(updated_us),
        title=title,
        user=user,
    )


def moment(us: int) -> datetime:
    """The time, in UTC, that is `us` microseconds after the beginning of 1970."""
    return _EPOCH + us * _MICROSECOND


# ----------------------------------------------------------------------------- listing cursor


def cursor_after(row: ThreadRow) -> str:
    """The cursor of the page that begins after `row`."""
    return f"{row[-1]}:{row[0]}"


def cursor_key(cursor: str | None) -> tuple[int, str]:
    """The key (changed, id) below which the page begins; None is the first page.

    Errors: what no listing gave is an `InvalidValue`.
    """
    if cursor is None:
        return INTEGER_MAX, ""
    changed, separator, thread = cursor.partition(":")
    if separator and len(changed) <= 19 and changed.isascii() and changed.isdigit():
        return min(int(changed), INTEGER_MAX), checked_thread_id(thread)
    raise InvalidValue("the cursor is not one that a listing gave")


# -------------------------------------------------------------------------- full-text search

_QUERY_WORDS_MAX = 32


def fact_mark(*names: str) -> str:
    """One word that stands for `names`, whatever signs they hold."""
    joined = "".join(f"{len(name)}:{name}" for name in names)
    return "m" + hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def fact_query(tenant: str, user: str, text: str) -> str | None:
    """The search for a user's facts that share a word with `text`; None where it has no word.

    Nothing of `text` but letters and digits gets into it, each word within quotes.
    """
    words = dict.fromkeys(stem(word) for word in fact_words(text))
    if not words:
        return None
    terms = (f'"{word}"*' for word in list(words)[:_QUERY_WORDS_MAX])
    return f'(marks : "{fact_mark(tenant, user)}") AND (words : ({" OR ".join(terms)}))'

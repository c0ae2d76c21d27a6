"""Values to rows and rows to values: pure, and the same for every database.

A turn, a call and a ledger row are each one JSON document, decoded by one typed call. What can't
be stored the same way everywhere is refused here as an `InvalidValue`, before a store is touched:
lone surrogates anywhere, NUL in a column of its own, a time without a zone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

from turngate.errors import InvalidValue, StoreError
from turngate.records import (
    CallRecord,
    Change,
    Guard,
    LedgerRow,
    Scope,
    Step,
    ThreadRecord,
    checked_thread_id,
)
from turngate.turns import Turn

__all__ = [
    "INTEGER_MAX",
    "CallRow",
    "ChangeRows",
    "ThreadRow",
    "call_from_row",
    "change_rows",
    "cursor_after",
    "cursor_key",
    "moment",
    "steps_from_bodies",
    "thread_from_row",
    "turns_from_bodies",
    "unix_us",
]

INTEGER_MAX = 2**63 - 1  # of a BIGINT column

ThreadRow = tuple[str, int, int, int, str | None, str | None, int]
"""id, length, created_at, updated_at, title, user, changed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_encoder = msgspec.json.Encoder()
_turn = msgspec.json.Decoder(Turn).decode
_call = msgspec.json.Decoder(CallRecord).decode
_ledger_row = msgspec.json.Decoder(LedgerRow).decode
_step = msgspec.json.Decoder(Step).decode

_Value = TypeVar("_Value", Turn, CallRecord, LedgerRow, Step)


class CallRow(NamedTuple):
    """A call record as columns."""

    id: str
    state: str
    owner: str
    epoch: int
    key: str | None
    body: str


class ChangeRows(NamedTuple):
    """A change, checked and encoded: what is left is to write it.

    Shapes: `lengths` are the lowest and highest length that the thread may have; `turns` are
    (id, body), `ledger` (id, call, body), `steps` and `events` (call, number, body). `begins`: a
    missing thread begins with this change; `touches`: an existing one is altered by it.
    """

    tenant: str
    thread: str
    at_us: int
    lengths: tuple[int, int]
    title: str | None
    user: str | None
    turns: tuple[tuple[str, str], ...]
    begin: CallRow | None
    guard: Guard | None
    update: CallRow | None
    ledger: tuple[tuple[str, str, str], ...]
    steps: tuple[tuple[str, int, str], ...]
    events: tuple[tuple[str, int, str], ...]
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
        title=title,
        user=user,
        turns=_turn_rows(change.turns),
        begin=None if change.begin is None else _call_row(change.thread, change.begin),
        guard=_checked_guard(change),
        update=None if change.update is None else _call_row(change.thread, change.update),
        ledger=_ledger_rows(change.ledger),
        steps=tuple(
            (_guarded_call(change), step.number, _document("step", step, _step))
            for step in change.steps
        ),
        events=tuple(
            (_guarded_call(change), batch.first, _body_text("event", batch.body))
            for batch in change.events
        ),
        begins=bool(change.turns) or title is not None or change.create,
        touches=bool(change.turns) or title is not None or user is not None,
    )


def _turn_rows(turns: Sequence[Turn]) -> tuple[tuple[str, str], ...]:
    rows = tuple((_id("turn", turn.id), _document("turn", turn, _turn)) for turn in turns)
    _refuse_repeated("turn", [row[0] for row in rows])
    return rows


def _ledger_rows(ledger: Sequence[LedgerRow]) -> tuple[tuple[str, str, str], ...]:
    for row in ledger:
        _aware("a ledger row's created_at", row.created_at)
    rows = tuple(
        (
            _id("ledger row", row.id),
            _id("call", row.call),
            _document("ledger row", row, _ledger_row),
        )
        for row in ledger
    )
    _refuse_repeated("ledger row", [row[0] for row in rows])
    return rows


def _call_row(thread: str, call: CallRecord) -> CallRow:
    if call.thread != thread:
        raise InvalidValue("a change's call belongs to the thread of the change")
    _aware("a call's created_at", call.created_at)
    if call.ended_at is not None:
        _aware("a call's ended_at", call.ended_at)
    return CallRow(
        id=_id("call", call.id),
        state=call.state,
        owner=_id("owner", call.owner),
        epoch=call.epoch,
        key=_column_text("key", call.key) if call.key is not None else None,
        body=_document("call", call, _call),
    )


def _checked_guard(change: Change) -> Guard | None:
    """The change's guard, once what needs one has it and means the same call."""
    guard, update = change.guard, change.update
    if guard is None and (update is not None or change.steps or change.events):
        raise InvalidValue("an update, steps and events need the guard of their call")
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


def _document(what: str, value: _Value, decode: Callable[[str], _Value]) -> str:
    """`value` as one JSON text; NUL is fine in it, since JSON escapes it.

    The text is read back before it is stored, about 1 us, for a row that can't be read again
    would cost its whole thread: a value of another type than was declared, say.
    """
    try:
        body = _encoder.encode(value).decode()
        same = decode(body) == value
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a {what} holds a lone surrogate, which is no text") from error
    except InvalidValue:
        raise
    except (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InvalidValue(f"a {what} is not of its documented form: {error}") from error
    if not same:
        raise InvalidValue(f"a {what} would be read back as another value")
    return body


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


def _refuse_repeated(what: str, ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        raise InvalidValue(f"a change holds a {what} twice")


def _aware(what: str, at: datetime) -> None:
    if at.utcoffset() is None:
        raise InvalidValue(f"{what} needs a time zone")


def unix_us(at: datetime) -> int:
    """`at` in whole microseconds since 1970 in UTC. Errors: a naive time is an `InvalidValue`."""
    _aware("a change's time", at)
    return (at - _EPOCH) // _MICROSECOND


# --------------------------------------------------------------------------- rows to values


def turns_from_bodies(bodies: Iterable[tuple[str]]) -> list[Turn]:
    """The turns of rows with one column, in their order. Errors: a damaged row is a `StoreError`.

    One typed decode in C for each row; nothing else is done for it in Python.
    """
    try:
        return [_turn(body) for (body,) in bodies]
    except (msgspec.MsgspecError, InvalidValue, RecursionError) as error:
        raise _damaged("turn") from error


def call_from_row(body: str, first: int | None) -> CallRecord:
    """The call of a row. Errors: a damaged row is a `StoreError`."""
    try:
        call = _call(body)
        return call if first is None else msgspec.structs.replace(call, first=first)
    except (msgspec.MsgspecError, InvalidValue, RecursionError) as error:
        raise _damaged("call") from error


def steps_from_bodies(bodies: Iterable[tuple[str]]) -> list[Step]:
    """The steps of rows with one column, in their order. Errors: as for turns."""
    try:
        return [_step(body) for (body,) in bodies]
    except (msgspec.MsgspecError, InvalidValue, RecursionError) as error:
        raise _damaged("step") from error


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


def _damaged(what: str) -> StoreError:
    return StoreError(
        f"a stored {what} can't be read: its row is damaged, or a newer version wrote it",
        hint="Upgrade Turngate; if it is the newest, restore the database from a backup.",
    )


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

"""One change, written into an open transaction of a SQLite connection.

Whoever calls holds a savepoint: on any error here some statements may already have run.
"""

from __future__ import annotations

import sqlite3

from turngate.errors import InvalidValue, ThreadBusy, ThreadMoved, UnknownCall
from turngate.stores.rows import CallRow, ChangeRows, call_from_body
from turngate.stores.statements import (
    ACTIVE_CALL,
    BEGIN_OR_MOVE_THREAD,
    CLAIM_THREAD,
    END_CALL,
    INSERT_LEDGER_ROW,
    INSERT_TURN,
    MOVE_THREAD,
    THREAD_LENGTH,
    TURN_EXISTS,
)

__all__ = ["store_change"]


def store_change(db: sqlite3.Connection, rows: ChangeRows) -> int:
    """The thread's length after `rows` are written.

    The call is judged first, then the length, then the ids. Errors: `ThreadBusy`, `UnknownCall`,
    `ThreadMoved`, and `InvalidValue` for an id that the tenant already has.
    """
    if rows.call is not None:
        if rows.call.claims:
            _claim(db, rows, rows.call)
        else:
            _end(db, rows, rows.call)
    length = _moved_length(db, rows)
    if rows.turns:
        _insert_turns(db, rows, first=length - len(rows.turns))
    if rows.ledger:
        _insert_ledger(db, rows)
    return length


def _claim(db: sqlite3.Connection, rows: ChangeRows, call: CallRow) -> None:
    values = (rows.tenant, call.id, rows.thread, call.state, call.owner, call.body)
    if db.execute(CLAIM_THREAD, values).rowcount == 1:
        return
    active = db.execute(ACTIVE_CALL, (rows.tenant, rows.thread)).fetchone()
    if active is None:
        raise InvalidValue(f"the tenant already has a call {call.id!r}")
    raise ThreadBusy(rows.thread, call_id=call_from_body(active[0]).id)


def _end(db: sqlite3.Connection, rows: ChangeRows, call: CallRow) -> None:
    values = (call.state, call.body, rows.tenant, call.id, rows.thread, call.owner)
    if db.execute(END_CALL, values).rowcount == 0:
        raise UnknownCall(call.id)


def _moved_length(db: sqlite3.Connection, rows: ChangeRows) -> int:
    """The thread's length with the new turns, once it was one that the change allows."""
    lowest, highest = rows.lengths
    if not rows.touches:
        length = _length(db, rows)
        if length is not None or not rows.begins:
            return _allowed(rows, length or 0)
    if rows.begins and lowest == 0:
        moved = db.execute(
            BEGIN_OR_MOVE_THREAD,
            (
                *(rows.tenant, rows.thread, len(rows.turns), rows.tenant),
                *(rows.title, rows.user, rows.at_us, rows.at_us, lowest, highest),
            ),
        ).fetchone()
    else:
        moved = db.execute(
            MOVE_THREAD,
            (
                *(len(rows.turns), rows.tenant, rows.title, rows.user, rows.at_us),
                *(rows.tenant, rows.thread, lowest, highest),
            ),
        ).fetchone()
    if moved is not None:
        return int(moved[0])
    # Either the length is another, or nothing in the change begins the thread that it names.
    return _allowed(rows, _length(db, rows) or 0)


def _length(db: sqlite3.Connection, rows: ChangeRows) -> int | None:
    found = db.execute(THREAD_LENGTH, (rows.tenant, rows.thread)).fetchone()
    return None if found is None else int(found[0])


def _allowed(rows: ChangeRows, length: int) -> int:
    lowest, highest = rows.lengths
    if not lowest <= length <= highest:
        raise ThreadMoved(rows.thread, expected=lowest, length=length)
    return length


def _insert_turns(db: sqlite3.Connection, rows: ChangeRows, *, first: int) -> None:
    values = [
        (rows.tenant, rows.thread, position, turn_id, body)
        for position, (turn_id, body) in enumerate(rows.turns, first)
    ]
    try:
        db.executemany(INSERT_TURN, values)
    except sqlite3.IntegrityError as error:
        # The turns before the one that was refused are there by now, and so is that one, so the
        # last that is found was there before.
        ids = [turn_id for turn_id, _ in rows.turns]
        found = [i for i in ids if db.execute(TURN_EXISTS, (rows.tenant, i)).fetchone()]
        if not found:
            raise
        raise InvalidValue(f"the tenant already has a turn {found[-1]!r}") from error


def _insert_ledger(db: sqlite3.Connection, rows: ChangeRows) -> None:
    for row_id, call, body in rows.ledger:
        try:
            db.execute(INSERT_LEDGER_ROW, (rows.tenant, row_id, call, body))
        except sqlite3.IntegrityError as error:
            raise InvalidValue(f"the tenant already has a ledger row {row_id!r}") from error

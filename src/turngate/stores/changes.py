"""One change, written into an open transaction of a SQLite connection.

Whoever calls holds a savepoint: on any error here some statements may already have run.
"""

from __future__ import annotations

import sqlite3

from turngate.errors import (
    InvalidValue,
    KeyReused,
    RecallMoved,
    ThreadBusy,
    ThreadMoved,
    UnknownCall,
)
from turngate.records import Guard
from turngate.stores import statements as sql
from turngate.stores.rows import (
    CallRow,
    ChangeRows,
    ErasureRows,
    FactRow,
    ReviewRow,
    call_from_row,
    fact_mark,
)


def store_change(db: sqlite3.Connection, rows: ChangeRows) -> int:
    """The thread's length after `rows` are written.

    The call is judged first, then the length, then the ids. Errors: `ThreadBusy`, `UnknownCall`,
    `ThreadMoved`, `RecallMoved`, and `InvalidValue` for an id that the tenant already has. Where
    something is erased: `ThreadBusy` for a call that has not ended, `RecallMoved` for a fact that
    still names a source of it.
    """
    if rows.begin is not None:
        _claim(db, rows, rows.begin)
    if rows.guard is not None:
        _update(db, rows, rows.guard)
    if rows.erasures is not None:
        _check_erasures(db, rows, rows.erasures)
    length = _moved_length(db, rows)
    if rows.turns:
        _insert_turns(db, rows, first=length - len(rows.turns))
    if rows.ledger:
        _insert_ledger(db, rows)
    if rows.steps:
        db.executemany(sql.INSERT_STEP, [(rows.tenant, *step) for step in rows.steps])
    if rows.events:
        db.executemany(sql.INSERT_EVENTS, [(rows.tenant, *batch) for batch in rows.events])
    for review in rows.reviews:
        _put_review(db, rows, review)
    if rows.texts:
        db.executemany(sql.KEEP_TEXT, [(rows.tenant, *text) for text in rows.texts])
    _remember(db, rows)
    if rows.erase is not None:
        _erase(db, rows, rows.erase)
    if rows.erase is not None or rows.forget_summaries is not None:
        db.execute(sql.COUNT_ERASURE, (rows.tenant, rows.thread))
    return 0 if rows.erase is not None and rows.erase.whole else length


def _claim(db: sqlite3.Connection, rows: ChangeRows, call: CallRow) -> None:
    values = (
        *(rows.tenant, call.id, rows.thread, call.state, call.owner, call.epoch, call.key),
        *(rows.tenant, call.body),
    )
    if call.state == "active" and not rows.beside_review:
        held = db.execute(sql.CALL_IN_REVIEW, (rows.tenant, rows.thread)).fetchone()
        if held is not None:
            raise ThreadBusy(rows.thread, call_id=held[0], in_review=True)
    if db.execute(sql.CLAIM_THREAD, values).rowcount == 1:
        return
    active = db.execute(sql.ACTIVE_CALL, (rows.tenant, rows.thread)).fetchone()
    if active is not None and call.state == "active":
        raise ThreadBusy(rows.thread, call_id=call_from_row(*active).id)
    if call.key is not None:
        earlier = db.execute(sql.CALL_BY_KEY, (rows.tenant, call.key)).fetchone()
        if earlier is not None:
            raise KeyReused(call.key, call_id=call_from_row(*earlier).id)
    raise InvalidValue(f"the tenant already has a call {call.id!r}")


def _update(db: sqlite3.Connection, rows: ChangeRows, guard: Guard) -> None:
    """Write the call's new record, if there is one, as the owner that `guard` names."""
    guarded = (rows.tenant, guard.call, rows.thread, guard.owner, guard.epoch, guard.state)
    call = rows.update
    if call is None:
        done = db.execute(sql.GUARD_CALL, guarded)
    else:
        values = (
            *(call.state, call.owner, call.epoch, call.key),
            *(len(rows.turns), rows.tenant, rows.thread, call.body),
        )
        try:
            done = db.execute(sql.UPDATE_CALL, (*values, *guarded))
        except sqlite3.IntegrityError as error:  # a call in review goes on, and meets an active one
            active = db.execute(sql.ACTIVE_CALL, (rows.tenant, rows.thread)).fetchone()
            if active is None:
                raise
            raise ThreadBusy(rows.thread, call_id=call_from_row(*active).id) from error
    if done.rowcount == 0:
        raise UnknownCall(guard.call)


def _moved_length(db: sqlite3.Connection, rows: ChangeRows) -> int:
    """The thread's length with the new turns, once it was one that the change allows."""
    lowest, highest = rows.lengths
    if not rows.touches:
        length = _length(db, rows)
        if length is not None or not rows.begins:
            return _allowed(rows, length or 0)
    if rows.begins and lowest == 0:
        moved = db.execute(
            sql.BEGIN_OR_MOVE_THREAD,
            (
                *(rows.tenant, rows.thread, len(rows.turns), rows.tenant),
                *(rows.title, rows.user, rows.at_us, rows.at_us, lowest, highest),
            ),
        ).fetchone()
    else:
        moved = db.execute(
            sql.MOVE_THREAD,
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
    found = db.execute(sql.THREAD_LENGTH, (rows.tenant, rows.thread)).fetchone()
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
        db.executemany(sql.INSERT_TURN, values)
    except sqlite3.IntegrityError as error:
        # The turns before the one that was refused are there by now, and so is that one, so the
        # last that is found was there before.
        ids = [turn_id for turn_id, _ in rows.turns]
        found = [i for i in ids if db.execute(sql.TURN_EXISTS, (rows.tenant, i)).fetchone()]
        if not found:
            raise
        raise InvalidValue(f"the tenant already has a turn {found[-1]!r}") from error


def _insert_ledger(db: sqlite3.Connection, rows: ChangeRows) -> None:
    for row_id, call, body in rows.ledger:
        try:
            db.execute(sql.INSERT_LEDGER_ROW, (rows.tenant, row_id, call, body))
        except sqlite3.IntegrityError as error:
            raise InvalidValue(f"the tenant already has a ledger row {row_id!r}") from error


def _put_review(db: sqlite3.Connection, rows: ChangeRows, review: ReviewRow) -> None:
    values = (
        *(rows.tenant, review.id, review.call, rows.thread, review.state, rows.tenant),
        *(review.expires_us, review.body, review.call),
    )
    if db.execute(sql.PUT_REVIEW, values).rowcount == 0:
        raise InvalidValue(f"the tenant already has a review {review.id!r} of another call")


# ------------------------------------------------------------------------ what is remembered


def _remember(db: sqlite3.Connection, rows: ChangeRows) -> None:
    """Write the summary and the facts. Errors: `RecallMoved` where another was first."""
    key = (rows.tenant, rows.thread)
    if rows.forget_summaries is not None:
        db.execute(sql.DELETE_SUMMARIES, (*key, rows.forget_summaries))
    if rows.summary is not None:
        version, upto, _ = rows.summary
        newest = db.execute(sql.NEWEST_SUMMARY, key).fetchone() or ("", 0, 0)
        if version != newest[1] + 1 or upto <= newest[2]:
            raise RecallMoved(f"the summary of thread {rows.thread!r}")
        db.execute(sql.INSERT_SUMMARY, (*key, *rows.summary))
    if rows.learnt is not None:
        first, end = rows.learnt.first, rows.learnt.first + rows.learnt.count
        if db.execute(sql.MOVE_LEARNT, (*key, end, first)).rowcount == 0:
            raise RecallMoved(f"what was learnt of thread {rows.thread!r}")
    for fact in rows.facts:
        _put_fact(db, rows.tenant, fact)


def _put_fact(db: sqlite3.Connection, tenant: str, fact: FactRow) -> None:
    if fact.revision == 0:
        new = (tenant, fact.id, fact.user, fact.state, tenant, fact.body)
        if db.execute(sql.INSERT_FACT, new).rowcount == 0:
            raise InvalidValue(f"the tenant already has a fact {fact.id!r}")
    else:
        next_ = (fact.state, fact.revision, fact.body)
        known = (tenant, fact.id, fact.user, fact.revision - 1)
        if db.execute(sql.UPDATE_FACT, (*next_, *known)).rowcount == 0:
            raise RecallMoved(f"fact {fact.id!r}")
    db.execute(sql.DELETE_FACT_SOURCES, (tenant, fact.id))
    db.executemany(sql.INSERT_FACT_SOURCE, [(tenant, *source, fact.id) for source in fact.sources])
    own = fact_mark(tenant, fact.user, fact.id)
    db.execute(sql.REMOVE_FACT_WORDS, (tenant, f'marks : "{own}"'))
    if fact.words is not None:
        marks = f"{fact_mark(tenant, fact.user)} {own}"
        db.execute(sql.ADD_FACT_WORDS, (tenant, fact.id, marks, fact.words))


# -------------------------------------------------------------------------- what is erased


def _check_erasures(db: sqlite3.Connection, rows: ChangeRows, expected: int) -> None:
    found = db.execute(sql.ERASURES, (rows.tenant, rows.thread)).fetchone()
    if (0 if found is None else found[0]) != expected:
        length = _length(db, rows) or 0
        raise ThreadMoved(rows.thread, expected=length, length=length)


def _erase(db: sqlite3.Connection, rows: ChangeRows, erase: ErasureRows) -> None:
    """Write what is left of a thread. Errors: `ThreadBusy`, and `RecallMoved` for a fact that
    still comes of what goes."""
    key = (rows.tenant, rows.thread)
    active = db.execute(sql.ACTIVE_CALL, key).fetchone()
    if active is not None:
        raise ThreadBusy(rows.thread, call_id=call_from_row(*active).id)
    held = db.execute(sql.CALL_IN_REVIEW, key).fetchone()
    if held is not None:
        raise ThreadBusy(rows.thread, call_id=held[0], in_review=True)
    if erase.whole:
        left = [db.execute(sql.SOURCE_LEFT, key).fetchone()]
    else:
        left = [db.execute(sql.SOURCE_OF_TURN_LEFT, (*key, id)).fetchone() for id, _ in erase.turns]
    if any(left):
        raise RecallMoved(f"what is remembered of thread {rows.thread!r}")
    texts = [(rows.tenant, text, rows.tenant, f"%{text}%") for text in erase.texts]
    db.executemany(sql.ERASE_TEXT, texts)
    db.executemany(sql.REMOVE_FILE, [(rows.tenant, file) for file in erase.files])
    if erase.whole:
        for statement in sql.ERASE_THREAD.values():
            db.execute(statement, key if statement.count("?") == 2 else (rows.tenant, *key))
        return
    db.executemany(sql.ERASE_TURN, [(body, *key, id) for id, body in erase.turns])
    db.executemany(sql.ERASE_CALL, [(call.body, *key, call.id) for call in erase.calls])
    db.executemany(sql.ERASE_EVENTS, [(rows.tenant, call.id) for call in erase.calls])
    steps = [(body, rows.tenant, call, number) for call, number, body in erase.steps]
    db.executemany(sql.ERASE_STEP, steps)
    db.executemany(sql.ERASE_REVIEW, [(body, *key, id) for id, body in erase.reviews])
    if erase.user is not None:
        db.execute(sql.ERASE_USER, (*key, erase.user))

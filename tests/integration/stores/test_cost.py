"""What calls of the SQLite store cost, in statements and rows, at any length of a thread."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store_values import AT, A, append, call_record, claim, user_turn
from turngate.records import Change
from turngate.stores import statements
from turngate.stores.sqlite import SqliteStore
from turngate.stores.statements import MIGRATIONS


class Counted:
    """A `connect` that counts the statements of reading connections, their rows and their work.

    `progress` counts the instructions of SQLite's own machine: it grows with the rows that are
    visited, whether or not they are given.
    """

    def __init__(self) -> None:
        self.statements = self.rows = self.progress = 0

    def clear(self) -> None:
        self.statements = self.rows = self.progress = 0

    def connect(self, name: str, **kwargs: Any) -> sqlite3.Connection:
        count = self

        class Cursor(sqlite3.Cursor):
            def fetchall(self) -> list[Any]:
                found = super().fetchall()
                count.rows += len(found)
                return found

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
                count.statements += 1
                return self.cursor(Cursor).execute(statement, *parameters)

        if not name.startswith("file:"):
            return sqlite3.Connection(name, **kwargs)
        db = Connection(name, **kwargs)
        db.set_progress_handler(self._stepped, 1)
        return db

    def _stepped(self) -> int:
        self.progress += 1
        return 0


async def test_a_window_costs_the_same_at_any_length(tmp_path: Path) -> None:
    """[S24] A window of 40 turns reads 40 rows, of a thread of 10, 1,000 or 100,000 turns."""
    count = Counted()
    store = await SqliteStore.open(tmp_path / "turngate.db", connect=count.connect)
    costs = {}
    for length in (10, 1_000, 100_000):
        thread = f"t{length}"
        turns = tuple(user_turn("x") for _ in range(length))
        assert await store.commit(A, Change(thread=thread, at=AT, turns=turns)) == length
        await store.load(A, thread, limit=40)
        for before in (None, length, length // 2):
            count.clear()
            page = await store.load(A, thread, before=before, limit=40)
            end = length if before is None else before
            assert (page.first, len(page.turns)) == (max(0, end - 40), min(40, end))
            costs[length, before] = (count.statements, count.rows, count.progress)
    await store.aclose()
    assert costs[10, None][:2] == (2, 11)
    long = [cost for (length, _), cost in costs.items() if length > 10]
    assert {cost[:2] for cost in long} == {(2, 41)}
    # SQLite itself takes the same way, to an instruction or two.
    assert max(cost[2] for cost in long) - min(cost[2] for cost in long) <= 2


async def test_an_append_writes_only_its_own_rows(tmp_path: Path) -> None:
    """[S24] Appending to a thread of 100,000 turns takes as many steps as to one of 100."""
    steps = 0

    def connect(name: str, **kwargs: Any) -> sqlite3.Connection:
        def stepped() -> int:
            nonlocal steps
            steps += 1
            return 0

        db = sqlite3.Connection(name, **kwargs)
        if not name.startswith("file:"):
            db.set_progress_handler(stepped, 1)
        return db

    store = await SqliteStore.open(tmp_path / "turngate.db", connect=connect)
    costs = []
    for length in (100, 100_000):
        turns = tuple(user_turn("x") for _ in range(length))
        await store.commit(A, Change(thread=f"t{length}", at=AT, turns=turns))
        await append(store, f"t{length}", "a")
        steps = 0
        await append(store, f"t{length}", "a")
        costs.append(steps)
    await store.aclose()
    assert costs[0] == costs[1] > 0


async def test_a_listing_takes_one_statement(tmp_path: Path) -> None:
    """[S24] A hundred threads of twenty turns are listed, and one is loaded, in few statements."""
    # Case t-list-threads-query-count.
    count = Counted()
    store = await SqliteStore.open(tmp_path / "turngate.db", connect=count.connect)
    for number in range(100):
        thread = f"t{number}"
        turns = tuple(user_turn("x") for _ in range(20))
        await store.commit(A, Change(thread=thread, at=AT, turns=turns))
        await claim(store, call_record(thread))
    for limit in (1, 10, 100):
        count.clear()
        assert len((await store.threads(A, limit=limit)).threads) == limit
        assert count.statements == 1
        assert count.rows <= limit + 1
    count.clear()
    assert len((await store.load(A, "t7")).turns) == 20
    assert count.statements == 2
    await store.aclose()


READING = ["THREAD", "THREADS", "THREAD_LENGTH", "TURNS", "TURN_EXISTS", "CALL", "ACTIVE_CALL"]
OF_REVIEWS = ["CALL_IN_REVIEW", "REVIEW", "OVERDUE_REVIEWS"]
PLANNED: dict[str, str] = {
    name: getattr(statements, name)
    for name in (*READING, *OF_REVIEWS, "MOVE_THREAD", "UPDATE_CALL", "GUARD_CALL", "LOST_CALLS")
} | {f"REVIEWS {columns}": text for columns, text in statements.REVIEWS.items()}


@pytest.mark.parametrize("name", PLANNED)
def test_a_statement_walks_along_a_key(name: str) -> None:
    """[S24] No statement of a call scans a table or sorts."""
    text = PLANNED[name]
    with closing(sqlite3.connect(":memory:")) as db:
        for step in MIGRATIONS:
            for statement in step:
                db.execute(statement)
        plan = db.execute(f"EXPLAIN QUERY PLAN {text}", ["x"] * text.count("?")).fetchall()
    details = [row[3] for row in plan if not row[3].startswith("SCALAR SUBQUERY")]
    assert details
    for detail in details:
        # Only what looks in every tenant may read a whole index: of active calls, of open reviews.
        whole = (name == "LOST_CALLS" and "calls_active" in detail) or (
            name == "OVERDUE_REVIEWS" and "reviews_due" in detail
        )
        assert detail.startswith("SEARCH") or whole
        assert "TEMP B-TREE" not in detail

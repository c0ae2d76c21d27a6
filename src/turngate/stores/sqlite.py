"""The store of one process: threads in a SQLite database.

Legal order: ``open (any other call)* aclose*``, on one event loop. One connection writes, in a
thread of its own, many changes to a commit. Another one reads, on the event loop, because a read
here is a bounded walk along a key, about 0.1 ms, and any other thread would have to wait for the
loop to give way. Long reads are made in pieces, and let the loop go on in between.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import weakref
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from turngate.errors import (
    FileNotFound,
    InvalidValue,
    StoreError,
    ThreadNotFound,
    TurngateError,
    UnknownCall,
    UnknownFact,
    UnknownReview,
)
from turngate.facts import best_matches
from turngate.records import (
    CallPage,
    CallRecord,
    Change,
    EventBatch,
    FactPage,
    FactRecord,
    FactState,
    FilePage,
    FileRecord,
    LedgerRow,
    LostCall,
    OverdueReview,
    ReviewPage,
    ReviewRecord,
    ReviewState,
    Scope,
    Step,
    SummaryRecord,
    ThreadPage,
    ThreadRecord,
    TurnPage,
)
from turngate.stores import statements as sql
from turngate.stores.changes import store_change
from turngate.stores.connections import Connect, reading_connection, store_error
from turngate.stores.files import remove_file_row, store_file_row
from turngate.stores.group_commit import Apply, GroupCommit
from turngate.stores.lock import WriterLock
from turngate.stores.rows import (
    call_from_row,
    change_rows,
    cursor_after,
    cursor_key,
    fact_query,
    file_row,
    thread_from_row,
    turns_from_bodies,
    unix_us,
    values_from_rows,
)
from turngate.stores.writer import Writer
from turngate.turns import Turn

__all__ = ["SqliteStore"]

PIECE_ROWS = 100  # read in one go on the event loop
THREADS_MAX = 1000  # on one page
FOUND_MAX = 200  # facts that share a word with a query, of which the best are given


class SqliteStore:
    """Threads in one SQLite database.

    What each call means is told once, by `turngate.protocols.ThreadStore`. A page has a limit of
    1 to 1000.
    """

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: Writer | None) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._closed = False
        if writer is not None:
            # Who forgets to close must not leave a thread that holds the lock.
            weakref.finalize(self, writer.abandon)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        connect: Connect = sqlite3.connect,
        read_only: bool = False,
        wait_s: float = 5.0,
    ) -> SqliteStore:
        """The store in the file `path`, which is made and migrated unless `read_only`.

        Only one process may write, any number may read beside it. Units: a write waits `wait_s`
        seconds for a foreign program's lock. Errors: `StoreInUse` at once where another process
        writes; `StoreError` where the file can't be opened, has a newer schema, or is missing and
        `read_only`.
        """
        path = _checked_path(path)
        if read_only:
            return cls(path, reading_connection(path, connect=connect), None)
        lock = WriterLock.acquire(path)
        group = GroupCommit(path, connect=connect, wait_s=wait_s)
        writer = Writer(group, on_end=lock.release)
        await writer.start()
        try:
            return cls(path, reading_connection(path, connect=connect), writer)
        except BaseException:
            await writer.close()
            raise

    async def aclose(self) -> None:
        """Finish the writes under way and close; later calls are a `StoreError`."""
        self._check_loop()
        if self._closed:
            return
        self._closed = True
        # The writer closes last: the last one moves the log into the database, and it alone may.
        self._reader.close()
        if self._writer is not None:
            await self._writer.close()

    # ------------------------------------------------------------------------------ writing

    async def commit(self, scope: Scope, change: Change) -> int:
        """The thread's new length, once all of `change` is durable; on any error nothing is.

        Errors: as in the seam, and `InvalidValue` for an id that the tenant already has, so that
        a change that is sent again is not stored twice.
        """
        self._check_writable()
        rows = change_rows(scope, change)
        return await self._written(functools.partial(store_change, rows=rows))

    # ------------------------------------------------------------------------------ reading

    async def load(
        self, scope: Scope, thread: str, *, before: int | None = None, limit: int = 50
    ) -> TurnPage:
        """The last `limit` turns below position `before` (None: the end), oldest first.

        A missing thread reads as empty with length 0. Reads O(limit) rows at any length.
        """
        if limit < 1 or (before is not None and before < 0):
            raise InvalidValue("a page has a limit of 1 or more, below a position of 0 or more")
        found = self._rows(sql.THREAD_LENGTH, scope.tenant, thread)
        length = int(found[0][0]) if found else 0
        end = length if before is None else min(before, length)
        first = max(0, end - limit)
        # Stored positions stay as long as their thread, so the pieces fit without a transaction.
        turns: list[Turn] = []
        for start in range(first, end, PIECE_ROWS):
            if turns:
                await asyncio.sleep(0)
            stop = min(start + PIECE_ROWS, end)
            turns += turns_from_bodies(self._rows(sql.TURNS, scope.tenant, thread, start, stop))
        if len(turns) != end - first:
            found = self._rows(sql.THREAD_LENGTH, scope.tenant, thread)
            if (int(found[0][0]) if found else 0) < end:  # it was deleted between two pieces
                return await self.load(scope, thread, before=before, limit=limit)
            raise StoreError(
                f"thread {thread!r} lacks turns between the positions {first} and {end}",
                hint="The file is damaged. Restore it from a backup.",
            )
        return TurnPage(first=first, turns=tuple(turns), length=length)

    async def thread(self, scope: Scope, thread: str) -> ThreadRecord:
        return thread_from_row(self._row(ThreadNotFound, sql.THREAD, scope, thread))

    async def threads(
        self, scope: Scope, *, after: str | None = None, limit: int = 50
    ) -> ThreadPage:
        rows, next_ = self._page(
            "threads", sql.THREADS, scope.tenant, after=after, limit=limit, cursor=cursor_after
        )
        return ThreadPage(threads=tuple(map(thread_from_row, rows)), next=next_)

    async def erasures(self, scope: Scope, thread: str) -> int:
        found = self._rows(sql.ERASURES, scope.tenant, thread)
        return int(found[0][0]) if found else 0

    async def call(self, scope: Scope, call: str) -> CallRecord:
        return call_from_row(*self._row(UnknownCall, sql.CALL, scope, call))

    async def active_call(self, scope: Scope, thread: str) -> CallRecord | None:
        found = self._rows(sql.ACTIVE_CALL, scope.tenant, thread)
        return call_from_row(*found[0]) if found else None

    async def call_by_key(self, scope: Scope, key: str) -> CallRecord | None:
        found = self._rows(sql.CALL_BY_KEY, scope.tenant, key)
        return call_from_row(*found[0]) if found else None

    async def calls(
        self,
        scope: Scope,
        *,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CallPage:
        statement = sql.CALLS if thread is None else sql.CALLS_OF_THREAD
        values = [scope.tenant] if thread is None else [scope.tenant, thread]
        rows, next_ = self._page("calls", statement, *values, after=after, limit=limit)
        calls = tuple(call_from_row(body, first) for body, first, _, _ in rows)
        return CallPage(calls=calls, next=next_)

    async def steps(self, scope: Scope, call: str) -> Sequence[Step]:
        return values_from_rows(Step, self._rows(sql.STEPS, scope.tenant, call))

    async def events(self, scope: Scope, call: str) -> Sequence[EventBatch]:
        return [EventBatch(*row) for row in self._rows(sql.EVENTS, scope.tenant, call)]

    async def review(self, scope: Scope, review: str) -> ReviewRecord:
        row = self._row(UnknownReview, sql.REVIEW, scope, review)
        return values_from_rows(ReviewRecord, [row])[0]

    async def reviews(
        self,
        scope: Scope,
        *,
        call: str | None = None,
        thread: str | None = None,
        state: ReviewState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> ReviewPage:
        if call is not None and thread is not None:
            raise InvalidValue("reviews are listed of a call or of a thread, not of both")
        asked = {"call": call, "thread": thread, "state": state}
        named = {column: value for column, value in asked.items() if value is not None}
        statement, values = sql.REVIEWS[tuple(named)], (scope.tenant, *named.values())
        rows, next_ = self._page("reviews", statement, *values, after=after, limit=limit)
        return ReviewPage(reviews=tuple(values_from_rows(ReviewRecord, rows)), next=next_)

    async def overdue_reviews(self, at: datetime) -> Sequence[OverdueReview]:
        overdue: list[OverdueReview] = []
        above = ("", "")
        while found := self._rows(sql.OVERDUE_REVIEWS, unix_us(at), *above, PIECE_ROWS):
            for tenant, _, body in found:
                (review,) = values_from_rows(ReviewRecord, [(body,)])
                overdue.append(OverdueReview(Scope(tenant), review))
            above = found[-1][:2]
            await asyncio.sleep(0)
        return overdue

    async def ledger(self, scope: Scope, call: str) -> Sequence[LedgerRow]:
        rows = values_from_rows(LedgerRow, self._rows(sql.LEDGER, scope.tenant, call))
        return sorted(rows, key=lambda row: row.created_at)

    async def text(self, scope: Scope, text_hash: str) -> str | None:
        found = self._rows(sql.TEXT, scope.tenant, text_hash)
        return str(found[0][0]) if found else None

    async def summary(
        self, scope: Scope, thread: str, *, version: int | None = None
    ) -> SummaryRecord | None:
        if version is None:
            found = self._rows(sql.NEWEST_SUMMARY, scope.tenant, thread)
        else:
            found = self._rows(sql.SUMMARY, scope.tenant, thread, version)
        return values_from_rows(SummaryRecord, found)[0] if found else None

    async def learnt(self, scope: Scope, thread: str) -> int | None:
        found = self._rows(sql.LEARNT, scope.tenant, thread)
        return int(found[0][0]) if found else None

    async def fact(self, scope: Scope, fact: str) -> FactRecord:
        return values_from_rows(FactRecord, [self._row(UnknownFact, sql.FACT, scope, fact)])[0]

    async def facts(
        self,
        scope: Scope,
        *,
        user: str | None = None,
        state: FactState | None = None,
        thread: str | None = None,
        turn: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> FactPage:
        asked = {"user": user, "state": state, "thread": thread, "turn": turn}
        named = {column: value for column, value in asked.items() if value is not None}
        if tuple(named) not in sql.FACTS:
            raise InvalidValue("facts are listed by user and state, or by thread and turn")
        tenants = (scope.tenant,) * (1 if thread is None else 2)
        statement, values = sql.FACTS[tuple(named)], (*tenants, *named.values())
        rows, next_ = self._page("facts", statement, *values, after=after, limit=limit)
        return FactPage(facts=tuple(values_from_rows(FactRecord, rows)), next=next_)

    async def search_facts(
        self, scope: Scope, *, user: str, query: str, limit: int = 20
    ) -> Sequence[FactRecord]:
        search = fact_query(scope.tenant, user, query)
        if search is None:
            return ()
        found = self._rows(sql.FACTS_FOUND, scope.tenant, user, search, scope.tenant, FOUND_MAX)
        return best_matches(query, values_from_rows(FactRecord, found), limit=limit)

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        lost: list[LostCall] = []
        above = ("", "")
        while found := self._rows(sql.LOST_CALLS, owner, *above, PIECE_ROWS):
            lost += [
                LostCall(Scope(tenant), call_from_row(body, first))
                for tenant, _, body, first in found
            ]
            above = found[-1][:2]
            await asyncio.sleep(0)
        return lost

    # -------------------------------------------------------------------------------- files

    async def add_file(self, scope: Scope, record: FileRecord, *, shared: bool = False) -> bool:
        self._check_writable()
        row = file_row(scope, record)
        return await self._written(lambda db: store_file_row(db, row, shared=shared)) == 1

    async def remove_file(self, scope: Scope, file: str) -> FileRecord | None:
        self._check_writable()
        record = await self.file(scope, file)
        last = await self._written(lambda db: remove_file_row(db, scope, record))
        return record if last else None

    async def file(self, scope: Scope, file: str) -> FileRecord:
        return values_from_rows(FileRecord, [self._row(FileNotFound, sql.FILE, scope, file)])[0]

    async def files(self, scope: Scope, *, after: str | None = None, limit: int = 50) -> FilePage:
        rows, next_ = self._page("files", sql.FILES, scope.tenant, after=after, limit=limit)
        return FilePage(files=tuple(values_from_rows(FileRecord, rows)), next=next_)

    async def file_of_bytes(self, scope: Scope, sha256: str) -> FileRecord | None:
        found = self._rows(sql.FILE_OF_BYTES, scope.tenant, sha256)
        return values_from_rows(FileRecord, found)[0] if found else None

    async def objects_in_use(self, scope: Scope, names: Collection[str]) -> set[str]:
        used: set[str] = set()
        for number, name in enumerate(names, 1):
            if self._rows(sql.OBJECT_IN_USE, scope.tenant, name):
                used.add(name)
            if number % PIECE_ROWS == 0:
                await asyncio.sleep(0)
        return used

    async def tenants_with_files(self) -> Sequence[Scope]:
        found: list[Scope] = []
        above = ""
        while rows := self._rows(sql.TENANTS_WITH_FILES, above, PIECE_ROWS):
            found += [Scope(tenant) for (tenant,) in rows]
            above = rows[-1][0]
            await asyncio.sleep(0)
        return found

    # ------------------------------------------------------------------------------- pieces

    def _check_writable(self) -> None:
        self._check_usable()
        if self._writer is None:
            raise StoreError(
                f"{self._path} is open for reading only", hint="Open it without read_only."
            )

    async def _written(self, apply: Apply) -> int:
        """What `apply` gives, once it is durable."""
        assert self._writer is not None, "_check_writable comes first"
        return await self._writer.submit(apply)

    def _rows(self, statement: str, *parameters: str | int) -> list[Any]:
        """All rows of one bounded statement. Errors: `StoreError`."""
        self._check_usable()
        try:
            return self._reader.execute(statement, parameters).fetchall()
        except UnicodeEncodeError:
            return []  # an id that is no text names nothing
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error

    def _row(
        self, missing: Callable[[str], TurngateError], statement: str, scope: Scope, name: str
    ) -> Any:
        """The row of that name. Errors: `missing`, and `StoreError`."""
        found = self._rows(statement, scope.tenant, name)
        if not found:
            raise missing(name)
        return found[0]

    def _page(
        self,
        what: str,
        statement: str,
        *values: str,
        after: str | None,
        limit: int,
        cursor: Callable[[Any], str] = lambda row: f"{row[-2]}:{row[-1]}",
    ) -> tuple[list[Any], str | None]:
        """The rows of one page from cursor `after` on, and the cursor of the next page."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of {what} has a limit of 1 to {THREADS_MAX}")
        found = self._rows(statement, *values, *cursor_key(after), limit + 1)
        return found[:limit], cursor(found[limit - 1]) if len(found) > limit else None

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self._path} is closed")
        self._check_loop()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise StoreError(
                f"the store {self._path} belongs to another event loop",
                hint="Use it on the event loop that opened it, or open it again on this one.",
            )


def _checked_path(path: str | Path) -> Path:
    """`path` in full, links followed, so that each name of a file has the same lock."""
    if str(path) in ("", ":memory:") or str(path).startswith("file:"):
        raise StoreError(
            f"{str(path)!r} names no file, and a writer and a reader can only share a file",
            hint="Name a file; one in a temporary folder may be short-lived.",
        )
    path = Path(path).resolve()
    if path.is_dir():
        raise StoreError(f"{path} is a folder", hint="Name a file in it.")
    return path

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
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from turngate.errors import (
    FileNotFound,
    InvalidValue,
    StoreError,
    ThreadNotFound,
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
from turngate.stores.changes import store_change
from turngate.stores.connections import Connect, reading_connection, store_error
from turngate.stores.files import file_row, remove_file_row, store_file_row
from turngate.stores.group_commit import Apply, GroupCommit
from turngate.stores.lock import WriterLock
from turngate.stores.rows import (
    call_from_row,
    change_rows,
    cursor_after,
    cursor_key,
    fact_query,
    facts_from_bodies,
    files_from_bodies,
    ledger_from_bodies,
    reviews_from_bodies,
    steps_from_bodies,
    summary_from_body,
    thread_from_row,
    turns_from_bodies,
    unix_us,
)
from turngate.stores.statements import (
    ACTIVE_CALL,
    CALL,
    CALL_BY_KEY,
    CALLS,
    CALLS_OF_THREAD,
    EVENTS,
    FACT,
    FACTS,
    FACTS_FOUND,
    FILE,
    FILE_OF_BYTES,
    FILES,
    LEARNT,
    LEDGER,
    LOST_CALLS,
    NEWEST_SUMMARY,
    OBJECT_IN_USE,
    OVERDUE_REVIEWS,
    REVIEW,
    REVIEWS,
    STEPS,
    SUMMARY,
    TENANTS_WITH_FILES,
    TEXT,
    THREAD,
    THREAD_LENGTH,
    THREADS,
    TURNS,
)
from turngate.stores.writer import Writer
from turngate.turns import Turn

__all__ = ["SqliteStore"]

PIECE_ROWS = 100  # read in one go on the event loop
THREADS_MAX = 1000  # on one page
FOUND_MAX = 200  # facts that share a word with a query, of which the best are given


class SqliteStore:
    """Threads in one SQLite database, as `turngate.protocols.ThreadStore` says."""

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
        found = self._rows(THREAD_LENGTH, scope.tenant, thread)
        length = int(found[0][0]) if found else 0
        end = length if before is None else min(before, length)
        first = max(0, end - limit)
        # Stored positions never change, so the pieces fit together without a transaction.
        turns: list[Turn] = []
        for start in range(first, end, PIECE_ROWS):
            if turns:
                await asyncio.sleep(0)
            stop = min(start + PIECE_ROWS, end)
            turns += turns_from_bodies(self._rows(TURNS, scope.tenant, thread, start, stop))
        if len(turns) != end - first:
            raise StoreError(
                f"thread {thread!r} lacks turns between the positions {first} and {end}",
                hint="The file is damaged. Restore it from a backup.",
            )
        return TurnPage(first=first, turns=tuple(turns), length=length)

    async def thread(self, scope: Scope, thread: str) -> ThreadRecord:
        """The thread without its turns. Errors: `ThreadNotFound`."""
        found = self._rows(THREAD, scope.tenant, thread)
        if not found:
            raise ThreadNotFound(thread)
        return thread_from_row(found[0])

    async def threads(
        self, scope: Scope, *, after: str | None = None, limit: int = 50
    ) -> ThreadPage:
        """Threads of the tenant, last changed first, from cursor `after` on; `limit` 1 to 1000."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of threads has a limit of 1 to {THREADS_MAX}")
        found = self._rows(THREADS, scope.tenant, *cursor_key(after), limit + 1)
        page = found[:limit]
        return ThreadPage(
            threads=tuple(thread_from_row(row) for row in page),
            next=cursor_after(page[-1]) if len(found) > limit else None,
        )

    async def call(self, scope: Scope, call: str) -> CallRecord:
        """The record of a call. Errors: `UnknownCall`."""
        found = self._rows(CALL, scope.tenant, call)
        if not found:
            raise UnknownCall(call)
        return call_from_row(*found[0])

    async def active_call(self, scope: Scope, thread: str) -> CallRecord | None:
        """The active call of the thread, or None."""
        found = self._rows(ACTIVE_CALL, scope.tenant, thread)
        return call_from_row(*found[0]) if found else None

    async def call_by_key(self, scope: Scope, key: str) -> CallRecord | None:
        """The call that was begun with this key, or None."""
        found = self._rows(CALL_BY_KEY, scope.tenant, key)
        return call_from_row(*found[0]) if found else None

    async def calls(
        self,
        scope: Scope,
        *,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CallPage:
        """Calls of the tenant (of one thread), newest first; `limit` 1 to 1000."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of calls has a limit of 1 to {THREADS_MAX}")
        cursor = cursor_key(after)
        if thread is None:
            found = self._rows(CALLS, scope.tenant, *cursor, limit + 1)
        else:
            found = self._rows(CALLS_OF_THREAD, scope.tenant, thread, *cursor, limit + 1)
        page = found[:limit]
        return CallPage(
            calls=tuple(call_from_row(body, first) for body, first, _, _ in page),
            next=f"{page[-1][2]}:{page[-1][3]}" if len(found) > limit else None,
        )

    async def steps(self, scope: Scope, call: str) -> Sequence[Step]:
        """The journalled steps of a call, in their order."""
        return steps_from_bodies(self._rows(STEPS, scope.tenant, call))

    async def events(self, scope: Scope, call: str) -> Sequence[EventBatch]:
        """The stored events of a call, in their order."""
        return [EventBatch(*row) for row in self._rows(EVENTS, scope.tenant, call)]

    async def review(self, scope: Scope, review: str) -> ReviewRecord:
        """The review of this id. Errors: `UnknownReview`."""
        found = self._rows(REVIEW, scope.tenant, review)
        if not found:
            raise UnknownReview(review)
        return reviews_from_bodies(found[0])[0]

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
        """Reviews (of one call or one thread, in one state), newest first; `limit` 1 to 1000."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of reviews has a limit of 1 to {THREADS_MAX}")
        if call is not None and thread is not None:
            raise InvalidValue("reviews are listed of a call or of a thread, not of both")
        asked = {"call": call, "thread": thread, "state": state}
        named = {column: value for column, value in asked.items() if value is not None}
        cursor = cursor_key(after)
        found = self._rows(REVIEWS[tuple(named)], scope.tenant, *named.values(), *cursor, limit + 1)
        page = found[:limit]
        return ReviewPage(
            reviews=tuple(reviews_from_bodies(body for body, _, _ in page)),
            next=f"{page[-1][1]}:{page[-1][2]}" if len(found) > limit else None,
        )

    async def overdue_reviews(self, at: datetime) -> Sequence[OverdueReview]:
        """Open reviews whose deadline was before `at`, each with its own scope."""
        overdue: list[OverdueReview] = []
        above = ("", "")
        while found := self._rows(OVERDUE_REVIEWS, unix_us(at), *above, PIECE_ROWS):
            reviews = reviews_from_bodies(body for _, _, body in found)
            overdue += [
                OverdueReview(Scope(row[0]), review)
                for row, review in zip(found, reviews, strict=True)
            ]
            above = found[-1][:2]
            await asyncio.sleep(0)
        return overdue

    async def ledger(self, scope: Scope, call: str) -> Sequence[LedgerRow]:
        """The ledger rows of a call, oldest first."""
        rows = ledger_from_bodies(self._rows(LEDGER, scope.tenant, call))
        return sorted(rows, key=lambda row: row.created_at)

    async def text(self, scope: Scope, text_hash: str) -> str | None:
        """The text of this hash that a change has kept, or None."""
        found = self._rows(TEXT, scope.tenant, text_hash)
        return str(found[0][0]) if found else None

    async def summary(
        self, scope: Scope, thread: str, *, version: int | None = None
    ) -> SummaryRecord | None:
        """The thread's summary of that version (None: the newest), or None."""
        if version is None:
            found = self._rows(NEWEST_SUMMARY, scope.tenant, thread)
        else:
            found = self._rows(SUMMARY, scope.tenant, thread, version)
        return summary_from_body(found[0][0]) if found else None

    async def learnt(self, scope: Scope, thread: str) -> int | None:
        """The position below which facts were taken from the thread (None: none ever were)."""
        found = self._rows(LEARNT, scope.tenant, thread)
        return int(found[0][0]) if found else None

    async def fact(self, scope: Scope, fact: str) -> FactRecord:
        """The fact of this id. Errors: `UnknownFact`."""
        found = self._rows(FACT, scope.tenant, fact)
        if not found:
            raise UnknownFact(fact)
        return facts_from_bodies(found[0])[0]

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
        """Facts (of a user or in a state, or from a thread or a turn of it), newest first."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of facts has a limit of 1 to {THREADS_MAX}")
        asked = {"user": user, "state": state, "thread": thread, "turn": turn}
        named = {column: value for column, value in asked.items() if value is not None}
        if tuple(named) not in FACTS:
            raise InvalidValue("facts are listed by user and state, or by thread and turn")
        values = (scope.tenant,) * (thread is not None) + tuple(named.values())
        cursor = cursor_key(after)
        found = self._rows(FACTS[tuple(named)], scope.tenant, *values, *cursor, limit + 1)
        page = found[:limit]
        return FactPage(
            facts=tuple(facts_from_bodies(body for body, _, _ in page)),
            next=f"{page[-1][1]}:{page[-1][2]}" if len(found) > limit else None,
        )

    async def search_facts(
        self, scope: Scope, *, user: str, query: str, limit: int = 20
    ) -> Sequence[FactRecord]:
        """The active facts of the user that share a word with `query`, best first."""
        search = fact_query(scope.tenant, user, query)
        if search is None:
            return ()
        found = self._rows(FACTS_FOUND, scope.tenant, user, search, scope.tenant, FOUND_MAX)
        facts = facts_from_bodies(body for (body,) in found)
        return best_matches(query, facts, limit=limit)

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        """Active calls of any owner but `owner`, each with its own scope."""
        lost: list[LostCall] = []
        above = ("", "")
        while found := self._rows(LOST_CALLS, owner, *above, PIECE_ROWS):
            lost += [
                LostCall(Scope(tenant), call_from_row(body, first))
                for tenant, _, body, first in found
            ]
            above = found[-1][:2]
            await asyncio.sleep(0)
        return lost

    # -------------------------------------------------------------------------------- files

    async def add_file(self, scope: Scope, record: FileRecord, *, shared: bool = False) -> bool:
        """Whether the row is stored: see the seam."""
        self._check_writable()
        row = file_row(scope, record)
        return await self._written(lambda db: store_file_row(db, row, shared=shared)) == 1

    async def remove_file(self, scope: Scope, file: str) -> FileRecord | None:
        """The removed record, if no file has its object any more. Errors: `FileNotFound`."""
        self._check_writable()
        record = await self.file(scope, file)
        last = await self._written(lambda db: remove_file_row(db, scope, record))
        return record if last else None

    async def file(self, scope: Scope, file: str) -> FileRecord:
        """The record of a file. Errors: `FileNotFound`."""
        found = self._rows(FILE, scope.tenant, file)
        if not found:
            raise FileNotFound(file)
        return files_from_bodies(found[0])[0]

    async def files(self, scope: Scope, *, after: str | None = None, limit: int = 50) -> FilePage:
        """Files of the tenant, newest first; `limit` 1 to 1000."""
        if not 1 <= limit <= THREADS_MAX:
            raise InvalidValue(f"a page of files has a limit of 1 to {THREADS_MAX}")
        found = self._rows(FILES, scope.tenant, *cursor_key(after), limit + 1)
        page = found[:limit]
        return FilePage(
            files=tuple(files_from_bodies(body for body, _, _ in page)),
            next=f"{page[-1][1]}:{page[-1][2]}" if len(found) > limit else None,
        )

    async def file_of_bytes(self, scope: Scope, sha256: str) -> FileRecord | None:
        """The newest file of the tenant with this hash, or None."""
        found = self._rows(FILE_OF_BYTES, scope.tenant, sha256)
        return files_from_bodies(found[0])[0] if found else None

    async def objects_in_use(self, scope: Scope, names: Collection[str]) -> set[str]:
        """Those of `names` that are the object of a file of the tenant."""
        used: set[str] = set()
        for number, name in enumerate(names, 1):
            if self._rows(OBJECT_IN_USE, scope.tenant, name):
                used.add(name)
            if number % PIECE_ROWS == 0:
                await asyncio.sleep(0)
        return used

    async def tenants_with_files(self) -> Sequence[Scope]:
        """Every tenant that has a file."""
        found: list[Scope] = []
        above = ""
        while rows := self._rows(TENANTS_WITH_FILES, above, PIECE_ROWS):
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

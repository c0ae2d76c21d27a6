"""Many jobs, one transaction: what the writing thread does with its connection.

Each job runs in a savepoint of its own, so that one that fails is taken back alone, and one COMMIT
with its one fsync makes all of them durable. No outcome exists before that COMMIT has returned.

Legal order: ``open (begin (commit | nothing))* close``, all in one thread. A connection whose
transaction failed is dropped, and the next `begin` opens another.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from pathlib import Path

from turngate.errors import RequestError, StoreError, TurngateError
from turngate.stores.connections import Connect, is_busy, store_error, writing_connection

Apply = Callable[[sqlite3.Connection], int]
"""Writes one change into the open transaction and gives the thread's new length."""


class Job:
    """A change that waits for its commit, and whoever awaits it. Units: `since` is monotonic."""

    __slots__ = ("apply", "future", "since")

    def __init__(self, apply: Apply, future: Future[int]) -> None:
        self.apply = apply
        self.future = future
        self.since = time.monotonic()


Outcome = tuple[Job, int | TurngateError]

_ERRORS_OF_A_JOB = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class GroupCommit:
    """The writing connection of the database at `path`; waits `wait_s` for a foreign lock."""

    def __init__(self, path: Path, *, connect: Connect, wait_s: float) -> None:
        self._path = path
        self._connect = connect
        self._wait_s = wait_s
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open and migrate. Errors: `StoreError`."""
        if self._db is None:
            self._db = writing_connection(self._path, connect=self._connect, wait_s=self._wait_s)

    def close(self) -> None:
        """Close the connection, and with it whatever was not committed."""
        db, self._db = self._db, None
        if db is not None:
            # If it can't, the files are as after a crash, which the next opening is made for.
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def begin(self, jobs: list[Job]) -> list[Outcome]:
        """Begin a transaction for `jobs`; give the outcomes of those that have waited too long.

        They are taken out of `jobs`, all of them if the database can't be opened. If some are
        left, the transaction has begun.
        """
        late: list[Outcome] = []
        try:
            self.open()
            while jobs:
                error = self._begin_error(self._wait_s + jobs[0].since - time.monotonic())
                if error is None:
                    break
                limit = time.monotonic() - self._wait_s
                late += self._failed([job for job in jobs if job.since <= limit], error)
                jobs[:] = [job for job in jobs if job.since > limit]
        except (StoreError, sqlite3.Error) as error:
            self.close()
            late += self._failed(jobs, error)
            jobs.clear()
        return late

    def commit(self, jobs: Sequence[Job], *, before_commit: Callable[[], None]) -> list[Outcome]:
        """The outcomes of `jobs`, in order, once those that succeeded are durable together.

        Legal after a `begin` that left `jobs`. If the transaction fails, it fails for all.
        """
        db = self._db
        assert db is not None, "commit() without begin()"
        try:
            outcomes = [(job, self._applied(db, job)) for job in jobs]
            before_commit()
            db.execute("COMMIT")
        except Exception as error:  # whatever it is, nothing of it is known to be durable
            self.close()
            return self._failed(jobs, error)
        return outcomes

    def _begin_error(self, wait_s: float) -> sqlite3.OperationalError | None:
        """None once the transaction has begun, or the error of a lock that outlasted `wait_s`."""
        db = self._db
        assert db is not None, "_begin_error() without open()"
        # The connection waits for the full time by itself. A job that had to wait for an earlier
        # one to give up has less left.
        shorter = wait_s < 0.9 * self._wait_s
        if shorter:
            db.execute(f"PRAGMA busy_timeout = {max(1, round(wait_s * 1000))}")
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return error
            raise
        finally:
            if shorter:
                db.execute(f"PRAGMA busy_timeout = {round(self._wait_s * 1000)}")
        return None

    def _applied(self, db: sqlite3.Connection, job: Job) -> int | TurngateError:
        """The job's result, or its own error after it was taken back.

        Errors: one that concerns the whole transaction.
        """
        if job.future.cancelled():
            return 0  # nobody hears it; the change is wholly absent
        db.execute("SAVEPOINT job")
        try:
            length = job.apply(db)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not isinstance(error, _ERRORS_OF_A_JOB):
                raise  # a full disk, a damaged file: it concerns them all
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            return error if isinstance(error, RequestError) else self._store_error(error)
        db.execute("RELEASE job")
        return length

    def _failed(self, jobs: Sequence[Job], error: Exception) -> list[Outcome]:
        """One error object for each: they are raised in different tasks."""
        return [(job, self._store_error(error)) for job in jobs]

    def _store_error(self, error: Exception) -> StoreError:
        cause: BaseException | None = error
        if isinstance(error, StoreError):
            outcome, cause = StoreError(str(error), hint=error.hint), error.__cause__
        elif isinstance(error, sqlite3.Error) and is_busy(error):
            message = f"another program has locked {self._path} for {self._wait_s:g} s"
            outcome = StoreError(message, hint="End its transaction, or raise store_wait_s.")
        else:
            outcome = store_error(self._path, error)
        outcome.__cause__ = cause
        return outcome

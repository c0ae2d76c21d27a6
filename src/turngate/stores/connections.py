"""Connections to a SQLite database, its migration, and driver errors in our own words."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from turngate.errors import StoreError
from turngate.stores.statements import MIGRATIONS, RECORD_MIGRATION, SCHEMA_VERSION

Connect = Callable[..., sqlite3.Connection]
"""`sqlite3.connect`, or what takes its place: tests pass one with faults."""

# Each commit goes to the write-ahead log alone. After 16,000 pages (64 MB) one commit has to move
# them into the database first: about 0.1 s, and seldom enough to be outside the 99th percentile.
WRITER_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync alone leaves the data in the disk's cache
    "PRAGMA wal_autocheckpoint = 16000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -65536",
)

# A reader never waits for a writer, only for a recovery; it runs on the event loop.
READER_WAIT_S = 0.1
READER_PRAGMAS = ("PRAGMA query_only = ON", "PRAGMA cache_size = -16384")


def writing_connection(path: Path, *, connect: Connect, wait_s: float) -> sqlite3.Connection:
    """The one connection that writes, with the newest schema; `wait_s` is for foreign locks.

    Errors: `StoreError`; nothing is left open.
    """
    try:
        db = connect(str(path), timeout=wait_s, isolation_level=None, cached_statements=256)
    except sqlite3.Error as error:
        raise store_error(path, error) from error
    try:
        # First of all, so that another program's database is refused before it is altered.
        _refuse_foreign(db, path)
        _keep_log(db, path)
        for pragma in WRITER_PRAGMAS:
            db.execute(pragma)
        migrate(db, path)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(path, error) from error
        raise
    return db


def reading_connection(path: Path, *, connect: Connect) -> sqlite3.Connection:
    """A connection that can't write, to a database of just the present schema.

    Errors: `StoreError`; nothing is left open.
    """
    if not path.is_file():
        raise StoreError(f"there is no database {path}", hint="Check the path.")
    try:
        return _opened_for_reading(path, connect, "mode=ro")
    except StoreError as error:
        # In a folder that can't be written SQLite can't make its shared memory. Without a log
        # beside it the file is whole by itself, and nobody here can be writing to it.
        log = path.with_name(path.name + "-wal")
        if not isinstance(error.__cause__, sqlite3.OperationalError) or log.exists():
            raise
        return _opened_for_reading(path, connect, "mode=ro&immutable=1")


def _opened_for_reading(path: Path, connect: Connect, options: str) -> sqlite3.Connection:
    db: sqlite3.Connection | None = None
    try:
        db = connect(
            f"{path.absolute().as_uri()}?{options}",
            uri=True,
            timeout=READER_WAIT_S,
            isolation_level=None,
            cached_statements=64,
        )
        for pragma in READER_PRAGMAS:
            db.execute(pragma)
        version = schema_version(db)
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        raise store_error(path, error) from error
    if version != len(MIGRATIONS):
        db.close()
        raise _wrong_version(path, version, len(MIGRATIONS))
    return db


# -------------------------------------------------------------------------------- migration


def schema_version(db: sqlite3.Connection) -> int:
    """How many steps of the schema the database has; 0 for one without tables of ours."""
    found = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'turngate_schema'")
    if found.fetchone() == (0,):
        return 0
    (version,) = db.execute(SCHEMA_VERSION).fetchone()
    return int(version or 0)


def migrate(
    db: sqlite3.Connection, path: Path, steps: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Bring the database to the newest of `steps`, each in one transaction with its row.

    Doing it again changes nothing; after a crash in between it goes on where it was. Errors: a
    schema newer than `steps` is a `StoreError`, and the database is left as it is.
    """
    version = schema_version(db)
    if version > len(steps):
        raise _wrong_version(path, version, len(steps))
    for number in range(version + 1, len(steps) + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in steps[number - 1]:
                db.execute(statement)
            db.execute(RECORD_MIGRATION, (number,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and schema_version(db) == 0:
        raise StoreError(
            f"{path} is the database of another program", hint="Name a file of its own."
        )


def _keep_log(db: sqlite3.Connection, path: Path) -> None:
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":  # SQLite says so by its answer alone
        raise StoreError(
            f"{path} can't have a write-ahead log here (journal mode {mode!r})",
            hint="Keep the database on a local disk.",
        )


def _wrong_version(path: Path, version: int, known: int) -> StoreError:
    if version > known:
        return StoreError(
            f"{path} has schema version {version}; this program knows versions up to {known}",
            hint="Upgrade Turngate.",
        )
    if version == 0:
        return StoreError(f"{path} is not a database of Turngate", hint="Check the path.")
    return StoreError(
        f"{path} has the older schema version {version}, which reading does not raise to {known}",
        hint="Open it for writing once.",
    )


# ----------------------------------------------------------------------------------- errors

# By the first part of the driver's name that fits.
_HINTS = {
    "SQLITE_BUSY": "Another program has the database locked. End its transaction and repeat.",
    "SQLITE_CANTOPEN": "The path must be a file in an existing folder that may be written.",
    "SQLITE_CORRUPT": "The file is damaged. Restore it from a backup.",
    "SQLITE_FULL": "The disk is full. Free some space and repeat.",
    "SQLITE_IOERR": "The disk gave an error. Look at the system's log, then repeat.",
    "SQLITE_NOTADB": "The file is no SQLite database. Name another.",
    "SQLITE_READONLY": "The file or its folder can't be written. Check their permissions.",
}


def store_error(path: Path, error: BaseException) -> StoreError:
    """The driver's `error` in our words; raise it `from` that error."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    hint = next((hint for prefix, hint in _HINTS.items() if name.startswith(prefix)), None)
    return StoreError(f"the database {path} failed: {error} ({name})", hint=hint)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection's lock was in the way for as long as was waited."""
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")

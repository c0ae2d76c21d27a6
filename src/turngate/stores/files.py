"""Rows of files: written into an open transaction of a SQLite connection, and read back.

Whoever calls a writing function holds a savepoint, as in `changes`.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from turngate.errors import FileNotFound, InvalidValue
from turngate.records import FileRecord, Scope
from turngate.stores.rows import checked_file_id, file_body
from turngate.stores.statements import (
    FILE,
    INSERT_FILE,
    OBJECT_IN_USE,
    REMOVE_FILE,
    SHARE_FILE,
)

__all__ = ["FileRow", "file_row", "remove_file_row", "store_file_row"]


class FileRow(NamedTuple):
    """A file record as columns."""

    tenant: str
    id: str
    sha256: str
    object: str
    body: str


def file_row(scope: Scope, record: FileRecord) -> FileRow:
    """`record` as a row. Errors: `InvalidValue`, which names the field."""
    file_id = checked_file_id(record.ref.id)
    return FileRow(scope.tenant, file_id, record.ref.sha256, record.object, file_body(record))


def store_file_row(db: sqlite3.Connection, row: FileRow, *, shared: bool) -> int:
    """1 once the row is written; 0 where it is `shared` and no file has its object.

    Errors: `InvalidValue` for an id that the tenant already has.
    """
    values = (row.tenant, row.id, row.sha256, row.object, row.tenant, row.body)
    if shared:
        done = db.execute(SHARE_FILE, (*values, row.tenant, row.object))
    else:
        done = db.execute(INSERT_FILE, values)
    if done.rowcount == 1:
        return 1
    if db.execute(FILE, (row.tenant, row.id)).fetchone() is not None:
        raise InvalidValue(f"the tenant already has a file {row.id!r}")
    return 0


def remove_file_row(db: sqlite3.Connection, scope: Scope, record: FileRecord) -> int:
    """1 if the row that is removed was the last one with its object, else 0.

    Errors: `FileNotFound` where another change has removed it.
    """
    if db.execute(REMOVE_FILE, (scope.tenant, record.ref.id)).rowcount == 0:
        raise FileNotFound(record.ref.id)
    key = (scope.tenant, record.object)
    return int(db.execute(OBJECT_IN_USE, key).fetchone() is None)

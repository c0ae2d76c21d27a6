"""Rows of files, written into an open transaction of a SQLite connection.

Whoever calls a writing function holds a savepoint, as in `changes`.
"""

from __future__ import annotations

import sqlite3

from turngate.errors import FileNotFound, InvalidValue
from turngate.records import FileRecord, Scope
from turngate.stores import statements as sql
from turngate.stores.rows import FileRow


def store_file_row(db: sqlite3.Connection, row: FileRow, *, shared: bool) -> int:
    """1 once the row is written; 0 where it is `shared` and no file has its object.

    Errors: `InvalidValue` for an id that the tenant already has.
    """
    values = (row.tenant, row.id, row.sha256, row.object, row.tenant, row.body)
    if shared:
        done = db.execute(sql.SHARE_FILE, (*values, row.tenant, row.object))
    else:
        done = db.execute(sql.INSERT_FILE, values)
    if done.rowcount == 1:
        return 1
    if db.execute(sql.FILE, (row.tenant, row.id)).fetchone() is not None:
        raise InvalidValue(f"the tenant already has a file {row.id!r}")
    return 0


def remove_file_row(db: sqlite3.Connection, scope: Scope, record: FileRecord) -> int:
    """1 if the row that is removed was the last one with its object, else 0.

    Errors: `FileNotFound` where another change has removed it.
    """
    if db.execute(sql.REMOVE_FILE, (scope.tenant, record.ref.id)).rowcount == 0:
        raise FileNotFound(record.ref.id)
    key = (scope.tenant, record.object)
    return int(db.execute(sql.OBJECT_IN_USE, key).fetchone() is None)

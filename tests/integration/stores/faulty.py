"""Connections with faults, to be given to a store as its `connect`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from turngate.stores.connections import Connect


def connections(before: Callable[[str, sqlite3.Connection], None]) -> Connect:
    """A `connect` whose connections call `before(statement, connection)` before each execute."""

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            before(statement, self)
            return super().execute(statement, *parameters)

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        return sqlite3.connect(*args, factory=Connection, **kwargs)

    return connect


def slow_commits(commit_s: float) -> Connect:
    """A `connect` whose commits take `commit_s` seconds longer."""

    def before(statement: str, _: sqlite3.Connection) -> None:
        if statement == "COMMIT" and commit_s:
            time.sleep(commit_s)

    return connections(before)


def driver_error(name: str, message: str) -> sqlite3.OperationalError:
    """An error as the driver gives it, for SQLite's error `name`."""
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error

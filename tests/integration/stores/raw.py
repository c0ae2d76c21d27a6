"""Looks into a SQLite database around the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from turngate.records import LedgerRow


def raw_rows(path: Path, statement: str, *parameters: object) -> list[Any]:
    """All rows of one statement, on a connection of its own."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement, parameters).fetchall()


def ledger_of(path: Path, tenant: str) -> list[LedgerRow]:
    """The ledger of a tenant, in the order in which it was written."""
    found = raw_rows(path, "SELECT body FROM ledger WHERE tenant = ? ORDER BY rowid", tenant)
    return [msgspec.json.decode(body, type=LedgerRow) for (body,) in found]


def content(path: Path) -> bytes:
    """The bytes of a file."""
    return path.read_bytes()


def write(path: Path, text: str) -> None:
    """Make a file of `text`."""
    path.write_text(text, encoding="utf-8")


def entries(folder: Path) -> list[Path]:
    """What stands in a folder."""
    return list(folder.iterdir())

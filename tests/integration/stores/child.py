"""Another process that uses a database: ``python child.py ROLE PATH [ARGUMENT]``.

It prints one line for each thing that happened, at once. Roles:

append   append turns from eight tasks until killed; a line for each acknowledgement
early    the same with a planted bug: each commit is acknowledged before it is made
open     open for writing, say so, and wait
refused  open for writing, and print the error's owner
read     read threads through a reading store until killed; a line for each reading
lock     hold a write lock, as a foreign program would, for ARGUMENT seconds
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from turngate.errors import StoreInUse
from turngate.records import Change, Scope
from turngate.stores.connections import Connect
from turngate.stores.sqlite import SqliteStore
from turngate.turns import TextPart, Turn

SCOPE = Scope("acme")
TASKS = 8


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # one write, so that a kill never leaves half of it


class LateCommit(sqlite3.Connection):
    """The planted bug: of the commits of changes only each tenth is made."""

    transactions = 0
    has_changes = False

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement == "SAVEPOINT job":
            self.has_changes = True
        if statement == "COMMIT" and self.has_changes:
            self.transactions += 1
            if self.transactions % 10:
                return self.cursor()
        if statement == "BEGIN IMMEDIATE" and self.in_transaction:
            return self.cursor()
        return super().execute(statement, *parameters)


def late_connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    return sqlite3.connect(*args, factory=LateCommit, **kwargs)


async def append(path: str, connect: Connect) -> None:
    store = await SqliteStore.open(path, connect=connect)

    async def task(thread: str) -> None:
        while True:
            at = datetime.now(UTC)
            turns = tuple(
                Turn(id=uuid.uuid4().hex, role="user", parts=(TextPart("x" * 200),), created_at=at)
                for _ in range(4)
            )
            length = await store.commit(SCOPE, Change(thread=thread, at=at, turns=turns))
            say(f"{thread} {length} {' '.join(turn.id for turn in turns)}")

    await asyncio.gather(*(task(f"t{number}") for number in range(TASKS)))


async def read(path: str) -> None:
    store = await SqliteStore.open(path, read_only=True)
    while True:
        begun = time.perf_counter()
        page = await store.threads(SCOPE, limit=20)
        turns = sum([len((await store.load(SCOPE, t.id)).turns) for t in page.threads])
        say(f"{turns} {time.perf_counter() - begun}")
        await asyncio.sleep(0.01)


async def open_and_wait(path: str) -> None:
    store = await SqliteStore.open(path)
    say("open")
    await asyncio.sleep(3600)
    await store.aclose()


async def refused(path: str) -> None:
    try:
        await SqliteStore.open(path)
    except StoreInUse as error:
        say(error.owner)


def lock(path: str, seconds: float) -> None:
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute("BEGIN IMMEDIATE")
    say("locked")
    time.sleep(seconds)
    db.execute("ROLLBACK")
    say("free")


def main(role: str, path: str, argument: str = "") -> None:
    match role:
        case "append":
            asyncio.run(append(path, sqlite3.connect))
        case "early":
            asyncio.run(append(path, late_connect))
        case "open":
            asyncio.run(open_and_wait(path))
        case "refused":
            asyncio.run(refused(path))
        case "read":
            asyncio.run(read(path))
        case "lock":
            lock(path, float(argument))
        case _:
            raise SystemExit(f"no role {role!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])

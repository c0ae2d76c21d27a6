"""Power cuts: at any write or sync the files are copied as a cut may leave them, and opened.

Run as ``python -m tests.harness.power_cut FOLDER --seed N --cuts N``. The store's real writing path
(`GroupCommit` and `store_change`) runs in one thread over a disk of ours, so that a seed gives the
same cuts again. A second database in memory takes the same changes and knows the right state after
each commit: what is found after a cut is the state of the last acknowledged commit, or of the one
that was on its way. Nothing else.

    I1 an acknowledged commit is lost     I0 the file is damaged, or what is there is no state
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import json
import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.harness import bugs
from tests.harness.authoring import Author
from tests.harness.faulty_disk import Disk, Operation
from tests.harness.world import TENANT
from turngate.errors import RequestError
from turngate.identity import now
from turngate.records import Change, Scope
from turngate.stores.changes import store_change
from turngate.stores.connections import migrate
from turngate.stores.group_commit import GroupCommit, Job
from turngate.stores.rows import ChangeRows
from turngate.stores.sqlite import SqliteStore

COMMITS = 30  # between an opening and the next closing
OPENINGS = 2  # in one life of a database
CUT_SHARE = 0.05  # of the operations
CHECKPOINT_PAGES = 20

_TABLES = ("threads", "turns", "calls", "ledger", "steps", "events")


def state_of(db: sqlite3.Connection) -> str:
    """A hash of all rows."""
    digest = hashlib.sha256()
    for table in _TABLES:
        rows = db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
        digest.update(repr((table, rows)).encode())
    return digest.hexdigest()


class Life:
    """One database from its making on, and the cuts in its life."""

    def __init__(
        self, folder: Path, seed: str, loop: asyncio.AbstractEventLoop, *, cuts_max: int
    ) -> None:
        self.cuts = 0
        self.acknowledged = 0
        self.faults: list[str] = []
        self._cuts_max = cuts_max
        self._folder = folder
        self._loop = loop
        self._seed = seed
        self._chance = random.Random(seed)
        self._disk = Disk(checkpoint_pages=CHECKPOINT_PAGES)
        self._disk.on_operation = self._maybe_cut
        self._right = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self._right, Path(":memory:"))
        self._allowed = [state_of(self._right)]  # the acknowledged state, and the coming one
        self._before: list[str] = []

    def live(self) -> None:
        author = Author(self._chance)
        path = self._folder / "t.db"
        for _ in range(OPENINGS):
            group = GroupCommit(path, connect=self._disk.connect, wait_s=1.0)
            group.open()
            for _ in range(COMMITS):
                size = self._chance.choice((1, 1, 1, 2, 4))
                self._commit(group, [author.next() for _ in range(size)])
            group.close()
        self._right.close()
        self._disk.unregister()

    def _commit(self, group: GroupCommit, changes: Sequence[ChangeRows]) -> None:
        right = [self._rightly(rows) for rows in changes]
        self._allowed.append(state_of(self._right))
        jobs = [
            Job(functools.partial(store_change, rows=rows), self._loop.create_future())
            for rows in changes
        ]
        assert not group.begin(jobs), "nobody else has this database"
        outcomes = group.commit(jobs, before_commit=lambda: None)
        told = [
            type(outcome) if isinstance(outcome, Exception) else None for _, outcome in outcomes
        ]
        if told != right:
            self.faults.append(f"I0 the outcomes are {told} in place of {right}")
        self.acknowledged += right.count(None)
        self._before.append(self._allowed.pop(0))

    def _rightly(self, rows: ChangeRows) -> type[Exception] | None:
        """Do `rows` in memory; gives the kind of their error."""
        self._right.execute("SAVEPOINT change")
        try:
            store_change(self._right, rows)
        except RequestError as error:
            self._right.execute("ROLLBACK TO change")
            return type(error)
        finally:
            self._right.execute("RELEASE change")
        return None

    def _maybe_cut(self, operation: Operation) -> None:
        # A sync is where it matters most, and there are few of them.
        share = CUT_SHARE if operation.kind == "write" else 4 * CUT_SHARE
        if self.cuts >= self._cuts_max or self._chance.random() > share:
            return
        self.cuts += 1
        folder = self._folder / f"cut{self.cuts}"
        folder.mkdir()
        self._disk.after_power_cut(folder, self._chance)
        try:
            fault = self._loop.run_until_complete(self._fault_after(folder / "t.db"))
        except Exception as error:
            fault = f"I0 it can't be used: {error!r}"
        if fault is not None:
            where = f"seed {self._seed}, cut {self.cuts} at {operation.kind} {operation.number}"
            self.faults.append(f"{where}: {fault}")
        shutil.rmtree(folder)

    async def _fault_after(self, database: Path) -> str | None:
        """What is wrong with the files of a cut, once the store has opened and used them."""
        store = await SqliteStore.open(database)
        try:
            with closing(sqlite3.connect(database)) as db:
                found = state_of(db)
                (whole,) = db.execute("PRAGMA integrity_check").fetchone()
            if whole != "ok":
                return f"I0 the file is damaged: {whole}"
            if found not in self._allowed:
                if found in self._before:
                    behind = len(self._before) - self._before.index(found)
                    return f"I1 the last {behind} acknowledged commits are lost"
                return "I0 what is there is the state of no commit"
            await store.commit(Scope(TENANT), Change(thread="later", at=now(), create=True))
        finally:
            await store.aclose()
        return None


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--bug")
    arguments = parser.parse_args(given)
    if arguments.bug is not None:
        bugs.plant(arguments.bug)
    cuts = acknowledged = lives = 0
    faults: list[str] = []
    loop = asyncio.new_event_loop()
    while cuts < arguments.cuts and not faults:
        folder = arguments.folder / str(lives)
        folder.mkdir(parents=True)
        life = Life(folder, f"{arguments.seed}-{lives}", loop, cuts_max=arguments.cuts - cuts)
        life.live()
        lives += 1
        cuts += life.cuts
        acknowledged += life.acknowledged
        faults += life.faults
        shutil.rmtree(folder)
    loop.close()
    print(json.dumps({"cuts": cuts, "acknowledged": acknowledged, "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

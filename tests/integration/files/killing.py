"""A kill loop for files: children that put and delete, and a parent that kills them.

Run as ``python -m tests.integration.files.killing FOLDER ROUNDS SEED [BUG]``: it prints one line
per broken promise and exits with 1 if there is any. The parent forks, and never uses obstore
itself: its threads would not live on in a child. BUG plants a fault, to show that the loop would
see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import select
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import obstore

from tests.integration.files.support import age, gateway_over, objects_in, uploads_in
from turngate.files import ObjectFiles
from turngate.gateway import Files
from turngate.records import FileRecord, Scope, StoredObject
from turngate.stores.sqlite import SqliteStore

TENANTS = ("acme", "bolt")
ACTORS = 4
PATIENCE_S = 1.0
# Few, so that puts and deletes of the same bytes meet; one is uploaded in parts.
PAYLOADS = (b"", b"small", b"other" * 1000, bytes(range(256)) * 24_000)
POINTS = (
    *("part.written", "upload.closed", "upload.synced", "object.renamed", "object.kept"),
    *("row.before", "row.after", "removal.before", "removal.after", "object.deleted"),
)


def watched(hit: Callable[[str], None]) -> None:
    """Make points of the steps of a put and a delete, in this process."""

    def around(owner: Any, name: str, *, before: str = "", after: str = "") -> None:
        inner = getattr(owner, name)

        async def step(*arguments: Any, **more: Any) -> Any:
            if before:
                hit(before)
            result = await inner(*arguments, **more)
            if after:
                hit(after)
            return result

        setattr(owner, name, step)

    inner_synced = ObjectFiles._synced

    async def synced(self: ObjectFiles, key: str) -> None:
        await inner_synced(self, key)
        hit("upload.synced" if key.startswith("uploads/") else "object.kept")

    inner_rename = obstore.rename

    def rename(*arguments: Any) -> None:
        inner_rename(*arguments)
        hit("object.renamed")

    ObjectFiles._synced = synced  # type: ignore[method-assign]
    obstore.rename = rename  # type: ignore[assignment]  # it is called by place alone
    around(ObjectFiles, "_uploaded", after="upload.closed")
    around(SqliteStore, "add_file", before="row.before", after="row.after")
    around(SqliteStore, "remove_file", before="removal.before", after="removal.after")
    around(ObjectFiles, "delete", after="object.deleted")


def plant(bug: str) -> None:
    """Make this process faulty in the way of `bug`."""
    if bug == "row_before_object":
        put = ObjectFiles.put
        behind = set()

        async def early(self: ObjectFiles, scope: Scope, chunks: Any) -> StoredObject:
            data = b"".join([piece async for piece in chunks])
            hash_ = hashlib.sha256(data).hexdigest()

            async def given() -> Any:
                yield data

            task = asyncio.create_task(put(self, scope, given()))
            behind.add(task)
            return StoredObject(name=f"{hash_}-0", sha256=hash_, size_bytes=len(data))

        ObjectFiles.put = early  # type: ignore[method-assign]
    elif bug == "shared_object_deleted":
        remove = SqliteStore.remove_file

        async def always(self: SqliteStore, scope: Scope, file: str) -> FileRecord | None:
            record = await self.file(scope, file)
            await remove(self, scope, file)
            return record

        SqliteStore.remove_file = always  # type: ignore[method-assign]
    else:
        raise SystemExit(f"unknown bug {bug!r}")


async def child(folder: Path, seed: str, out: int, hit: Callable[[str], None]) -> None:
    """Put and delete; say ``! id`` of a put, ``? id`` before and ``- id`` after a delete."""
    chance = random.Random(seed)

    async def act(files: Files) -> None:
        mine: list[str] = []
        for number in range(10_000):
            if mine and chance.random() < 0.4:
                file_id = mine.pop(chance.randrange(len(mine)))
                os.write(out, f"? {file_id}\n".encode())
                await files.delete(file_id)
                os.write(out, f"- {file_id}\n".encode())
                continue
            data = chance.choice(PAYLOADS)

            async def pieces(data: bytes = data) -> Any:
                for start in range(0, len(data), 1 << 20):
                    yield data[start : start + (1 << 20)]
                    hit("part.written")

            ref = await files.put(pieces(), name=f"{number}")
            os.write(out, f"! {ref.id}\n".encode())
            mine.append(ref.id)

    async with gateway_over(folder) as gateway, asyncio.TaskGroup() as group:
        for number in range(ACTORS):
            group.create_task(act(gateway.tenant(TENANTS[number % 2]).files))


def killed_round(folder: Path, seed: str, plan: tuple[str, int], bug: str | None) -> list[str]:
    """What a child said before it died at the n-th hit of its point."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        reached: Counter[str] = Counter()

        def hit(point: str) -> None:
            reached[point] += 1
            if (point, reached[point]) == plan:
                os.write(writing, f"died {point}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

        with contextlib.suppress(BaseException):
            watched(hit)
            if bug is not None:
                plant(bug)
            asyncio.run(child(folder, seed, writing, hit))
        os._exit(1)
    os.close(writing)
    descriptor = os.pidfd_open(pid)
    said = b""
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([descriptor], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
        said += pipe.read()
    os.close(descriptor)
    os.waitpid(pid, 0)
    return said.decode().splitlines()


def rows_in(folder: Path) -> dict[str, tuple[str, FileRecord]]:
    """Every file's tenant and record, by its id."""
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as db:
        found = db.execute("SELECT tenant, id, body FROM files").fetchall()
    return {
        file_id: (tenant, msgspec.json.decode(body, type=FileRecord))
        for tenant, file_id, body in found
    }


def faults_in(folder: Path, put: set[str], deleting: set[str], deleted: set[str]) -> list[str]:
    """The promises that are broken: rows without their whole object, and lost or undead files."""
    rows, faults = rows_in(folder), []
    homes = {
        tenant: folder / "t.db.files/objects" / ObjectFiles("x").tenant_key(Scope(tenant))
        for tenant in TENANTS
    }
    for file_id, (tenant, record) in rows.items():
        place = homes[tenant] / record.object
        data = place.read_bytes() if place.exists() else None
        if data is None or hashlib.sha256(data).hexdigest() != record.ref.sha256:
            faults.append(f"{file_id} has a row and not its whole object")
    faults += [f"{file_id} was acknowledged and is lost" for file_id in put - deleting - set(rows)]
    faults += [f"{file_id} was deleted and is there" for file_id in deleted & set(rows)]
    return faults


async def sweep(folder: Path) -> None:
    async with gateway_over(folder) as gateway:
        await gateway.sweep_files()


def in_a_process_of_its_own(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("the sweep failed")


def main() -> int:
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    bug = sys.argv[4] if len(sys.argv) > 4 else None
    chance = random.Random(seed)
    folder.mkdir(exist_ok=True)
    put: set[str] = set()
    deleting: set[str] = set()
    deleted: set[str] = set()
    kills = 0
    points: Counter[str] = Counter()
    faults: list[str] = []
    orphans = 0
    for number in range(rounds):
        plan = (POINTS[number % len(POINTS)], chance.choice((1, 2, 3, 5, 8, 13)))
        said = killed_round(folder, f"{seed}-{number}", plan, bug)
        put |= {line[2:] for line in said if line.startswith("! ")}
        deleting |= {line[2:] for line in said if line.startswith("? ")}
        deleted |= {line[2:] for line in said if line.startswith("- ")}
        kills += 1
        points.update(line[5:] for line in said if line.startswith("died "))
        faults += [f"round {number}: {f}" for f in faults_in(folder, put, deleting, deleted)]
        if faults:
            break
    if not faults:
        used = {record.object for _, record in rows_in(folder).values()}
        orphans = len(objects_in(folder).keys() - used) + len(uploads_in(folder))
        age(folder)
        in_a_process_of_its_own(lambda: asyncio.run(sweep(folder)))
        faults += [f"after the sweep: {f}" for f in faults_in(folder, put, deleting, deleted)]
        if objects_in(folder).keys() != used or uploads_in(folder):
            faults.append("after the sweep: something is left that no file has")
    print(
        f"{kills} kills, {sum(points.values())} at {len(points)} named points,"
        f" {len(put)} acknowledged puts, {orphans} orphans swept, {len(faults)} faults"
    )
    print("\n".join(faults[:10]))
    missed = set(POINTS) - set(points)
    if missed and bug is None and rounds >= 2 * len(POINTS):
        print(f"points never reached: {sorted(missed)}")
        return 1
    return 1 if faults or not put else 0


if __name__ == "__main__":
    raise SystemExit(main())

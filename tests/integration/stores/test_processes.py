"""Several processes on one SQLite database: one writes, others read, and any may be killed."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from pathlib import Path

import pytest

from tests.conformance.store_values import A, append, texts
from tests.integration.stores.processes import child, line, rest
from turngate.errors import StoreInUse
from turngate.records import Scope
from turngate.stores.sqlite import SqliteStore

ROUNDS = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turngate.db"


async def test_a_second_process_is_refused_and_told_by_whom(path: Path) -> None:
    """[S25] The error names process, machine and time, and comes at once."""
    with child("open", path) as other:
        assert await asyncio.to_thread(line, other) == "open"
        begun = time.perf_counter()
        with pytest.raises(StoreInUse) as caught:
            await SqliteStore.open(path)
        assert time.perf_counter() - begun < 2
        assert re.fullmatch(
            rf"process {other.pid} on \S+, since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00",
            caught.value.owner,
        )
        assert caught.value.hint is not None


async def test_a_killed_process_gives_the_right_to_write_back(path: Path) -> None:
    """[S25] After kill -9 the next process opens at once, and names no dead one."""
    with child("open", path) as other:
        assert await asyncio.to_thread(line, other) == "open"
        other.kill()
        other.wait()
        store = await SqliteStore.open(path)
        with child("refused", path) as third:
            assert (await asyncio.to_thread(line, third)).startswith(f"process {os.getpid()} on ")
        await store.aclose()


async def test_many_tasks_and_processes_share_one_file(path: Path) -> None:
    """[S25] [S26] [S27] All 400 turns are stored beside readers, a refused writer and a lock."""
    # Case t-sqlite-locked.
    store = await SqliteStore.open(path, wait_s=5)
    await append(store, "first", "x")

    async def write(thread: str) -> None:
        for number in range(4):
            await append(store, thread, f"turn {number}")
            await asyncio.sleep(0.001)

    with (
        child("read", path) as one,
        child("read", path) as two,
        child("lock", path, "1") as foreign,
        child("refused", path) as second,
    ):
        for process in (one, two, foreign, second):
            assert await asyncio.to_thread(line, process)
        begun = time.perf_counter()
        await asyncio.gather(*(write(f"t{number}") for number in range(100)))
        assert await asyncio.to_thread(line, foreign) == "free"
        assert time.perf_counter() - begun < 5
        await asyncio.sleep(0.1)
        for reader in (one, two):
            reader.kill()
            readings = [reading.split() for reading in rest(reader)]
            assert len(readings) > 20
            assert max(float(seconds) for _, seconds in readings) < 0.9  # of a lock of 1 s
            assert int(readings[-1][0]) > int(readings[0][0])
    for number in range(100):
        assert await texts(store, f"t{number}") == [f"turn {n}" for n in range(4)]
    await store.aclose()


async def lost_after_kill(path: Path, role: str, after_s: float) -> tuple[int, int]:
    """How many turns were acknowledged by a process that was then killed, and how many are lost.

    Also judges what is there: threads without gaps, whole changes, nothing twice.
    """
    with child(role, path) as process:
        acknowledged = [await asyncio.to_thread(line, process)]
        await asyncio.sleep(after_s)
        process.kill()
        acknowledged += rest(process)
    store = await SqliteStore.open(path)
    found: dict[str, dict[str, int]] = {}
    for thread in (await store.threads(Scope("acme"))).threads:
        page = await store.load(A, thread.id, limit=1_000_000)
        assert page.length % 4 == 0
        found[thread.id] = {turn.id: position for position, turn in enumerate(page.turns)}
        assert len(found[thread.id]) == page.length
    await store.aclose()
    expected = [
        (thread, int(length) - 4 + place, turn)
        for thread, length, *turns in (text.split() for text in acknowledged)
        for place, turn in enumerate(turns)
    ]
    lost = [one for one in expected if found.get(one[0], {}).get(one[2]) != one[1]]
    return len(expected), len(lost)


async def test_no_acknowledged_turn_is_lost_by_a_kill(path: Path) -> None:
    """[S29] After each of many kills at a random moment all acknowledged turns are there."""
    moments = random.Random(7)
    acknowledged = 0
    for _ in range(ROUNDS):
        count, lost = await lost_after_kill(path, "append", moments.uniform(0, 0.05))
        assert lost == 0
        acknowledged += count
    assert acknowledged > 20 * ROUNDS


async def test_the_kill_test_sees_a_planted_bug(path: Path) -> None:
    """[S29] A store that acknowledges before its commit is caught within a few kills."""
    for _ in range(5):
        _, lost = await lost_after_kill(path, "early", 0.02)
        if lost:
            return
    pytest.fail("a commit that came after its acknowledgement was not noticed")

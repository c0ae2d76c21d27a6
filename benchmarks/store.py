"""Appends to the SQLite store: on an idle loop, and beside a loop that has no idle time.

The floor is the same statements on bare sqlite3, in one thread and without asyncio, with as many
changes to a commit as there are writers (in the long table 32). Rates and times of one run stand
beside the floor of that run; compare nothing else.

    python -m benchmarks.store [seconds of each measurement]
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.table import Row
from turngate.records import Change, Scope
from turngate.stores.changes import store_change
from turngate.stores.connections import writing_connection
from turngate.stores.rows import change_rows
from turngate.stores.sqlite import SqliteStore
from turngate.turns import TextPart, Turn
from turngate.values import Usage

__all__ = ["figures", "main", "run"]

Figures = dict[str, float]
"""Appends or windows a second (`per_s`), and milliseconds for one (`p50_ms`, `p99_ms`)."""

WRITERS = (1, 8, 32)
STREAMS = (1, 4, 16)
STREAM_WRITERS = 16
STREAM_SLICE_S = 0.0003
FLOOR_BATCH = 32
TURNS = 4
ROUND_S = 0.5

_SCOPE = Scope("acme")
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_ids = itertools.count()


def change(thread: str) -> Change:
    """Four new turns of about 450 bytes each for `thread`."""
    turns = tuple(
        Turn(
            id=f"turn_{next(_ids):032x}",
            role="user" if place == 0 else "assistant",
            parts=(TextPart("What a person says, or a model. " * 9),),
            created_at=_AT,
            model="some-model",
            usage=Usage(input_tokens=900, output_tokens=80),
        )
        for place in range(TURNS)
    )
    return Change(thread=thread, at=_AT, turns=turns)


def floor(folder: Path, seconds: float, batch: int = FLOOR_BATCH) -> Figures:
    """Bare sqlite3 in one thread: a savepoint for each change, a commit for each `batch`."""
    db = writing_connection(folder / "floor.db", connect=sqlite3.connect, wait_s=5)
    appended = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        changes = [change_rows(_SCOPE, change(f"t-{place}")) for place in range(batch)]
        db.execute("BEGIN IMMEDIATE")
        for rows in changes:
            db.execute("SAVEPOINT job")
            store_change(db, rows)
            db.execute("RELEASE job")
        db.execute("COMMIT")
        appended += batch
    rate = appended / (time.perf_counter() - begun)
    db.close()
    return {"per_s": rate, "p50_ms": 1e3 * batch / rate, "p99_ms": float("nan")}


async def appends(folder: Path, seconds: float, *, writers: int, streams: int = 0) -> Figures:
    """`writers` tasks that append to threads of their own, beside `streams` tasks of pure work."""
    store = await SqliteStore.open(folder / f"store-{writers}-{streams}.db")
    stop = asyncio.Event()
    busy = [asyncio.create_task(_stream(stop)) for _ in range(streams)]
    taken: list[float] = []
    begun = time.perf_counter()

    async def append(thread: str) -> None:
        while time.perf_counter() - begun < seconds:
            started = time.perf_counter()
            await store.commit(_SCOPE, change(thread))
            taken.append(time.perf_counter() - started)

    await asyncio.gather(*(append(f"t-{place}") for place in range(writers)))
    elapsed = time.perf_counter() - begun
    stop.set()
    await asyncio.gather(*busy)
    await store.aclose()
    return _figures(taken, elapsed)


async def windows(folder: Path, seconds: float) -> Figures:
    """Reading the last 40 turns, one window after the other."""
    store = await SqliteStore.open(folder / "windows.db")
    for _ in range(25):
        await store.commit(_SCOPE, change("t"))
    taken: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        await store.load(_SCOPE, "t", limit=40)
        taken.append(time.perf_counter() - started)
    await store.aclose()
    return _figures(taken, time.perf_counter() - begun)


def decoding(seconds: float) -> Figures:
    """The floor of a window: its 40 rows, decoded by one loop around msgspec alone."""
    bodies = [msgspec.json.encode(turn).decode() for _ in range(10) for turn in change("t").turns]
    decode = msgspec.json.Decoder(Turn).decode
    taken: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        for body in bodies:
            decode(body)
        taken.append(time.perf_counter() - started)
    return _figures(taken, time.perf_counter() - begun)


def _figures(taken: list[float], elapsed_s: float) -> Figures:
    taken.sort()
    return {
        "per_s": len(taken) / elapsed_s,
        "p50_ms": 1e3 * taken[len(taken) // 2],
        "p99_ms": 1e3 * taken[int(0.99 * len(taken))],
    }


async def _stream(stop: asyncio.Event) -> None:
    """Decode in slices of about 0.3 ms, and leave the loop no idle time."""
    payload = msgspec.json.encode({"choices": [{"delta": {"content": "word"}}] * 4})
    while not stop.is_set():
        until = time.perf_counter() + STREAM_SLICE_S
        while time.perf_counter() < until:
            msgspec.json.decode(payload)
        await asyncio.sleep(0)


def figures(
    seconds: float = 3.0,
    runner: Callable[[Coroutine[Any, Any, Figures]], Figures] = asyncio.run,
) -> list[tuple[str, Figures]]:
    """Name and figures of each measurement, the floor first and once more at the end."""
    found: list[tuple[str, Figures]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "again").mkdir()
        found.append(("floor: bare sqlite3, batches of 32", floor(folder, seconds)))
        for writers in WRITERS:
            idle = runner(appends(folder, seconds, writers=writers))
            found.append((f"idle loop, {writers} writers", idle))
        for streams in STREAMS:
            measured = appends(folder, seconds, writers=STREAM_WRITERS, streams=streams)
            found.append((f"{streams} busy streams, {STREAM_WRITERS} writers", runner(measured)))
        found.append(("floor, again", floor(folder / "again", seconds)))
        found.append(("window of 40 turns", runner(windows(folder, seconds / 3))))
        found.append(("floor: decoding its 40 rows", decoding(seconds / 3)))
    return found


def run(rounds: int) -> list[Row]:
    """The medians of short rounds, for the table of `python -m benchmarks`."""
    found: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            for measured, of in _round(Path(name)):
                found.setdefault(measured, []).append(of)

    def median(name: str, figure: str) -> float:
        return statistics.median(of[figure] for of in found[name])

    rows = [
        Row(
            name=f"appends of 4 turns, {name}",
            unit="a second",
            ours=median(name, "per_s"),
            floor=median(f"floor {floor_batch}", "per_s"),
            is_rate=True,
        )
        for name, floor_batch in _MEASURED
    ]
    rows += [
        Row(
            name=f"an append, {name}, {figure}",
            unit="ms",
            ours=median(name, f"{figure}_ms"),
            floor=median(f"floor {floor_batch}", "p50_ms"),
        )
        for name, floor_batch in _MEASURED
        if "busy" in name
        for figure in ("p50", "p99")
    ]
    window = Row(
        name="a window of 40 turns",
        unit="ms",
        ours=median("window", "p50_ms"),
        floor=median("floor of the window", "p50_ms"),
    )
    return [*rows, window]


_MEASURED = (
    *((f"{writers} at once", writers) for writers in WRITERS),
    (f"{STREAM_WRITERS} beside {STREAMS[-1]} busy streams", STREAM_WRITERS),
)
"""What `run` shows, and the batch of its floor."""


def _round(folder: Path) -> list[tuple[str, Figures]]:
    found: list[tuple[str, Figures]] = []
    for name, writers in _MEASURED:
        (folder / f"floor-{writers}").mkdir()
        found.append((f"floor {writers}", floor(folder / f"floor-{writers}", ROUND_S, writers)))
        streams = STREAMS[-1] if "busy" in name else 0
        measured = appends(folder, ROUND_S, writers=writers, streams=streams)
        found.append((name, asyncio.run(measured)))
    found.append(("window", asyncio.run(windows(folder, ROUND_S / 2))))
    found.append(("floor of the window", decoding(ROUND_S / 2)))
    return found


def main() -> None:
    """Print a table, for asyncio and, where it is installed, for uvloop."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    runners: dict[str, Callable[[Coroutine[Any, Any, Figures]], Figures]] = {"asyncio": asyncio.run}
    try:
        import uvloop
    except ImportError:
        print("uvloop is not installed: asyncio alone")
    else:
        runners["uvloop"] = uvloop.run
    for loop, runner in runners.items():
        print(f"{'append of 4 turns, ' + loop:38}{'per s':>8}{'p50 ms':>9}{'p99 ms':>9}")
        for name, of in figures(seconds, runner):
            print(f"{name:38}{of['per_s']:8,.0f}{of['p50_ms']:9.2f}{of['p99_ms']:9.2f}")


if __name__ == "__main__":
    main()

"""A turn of a long thread: what an ask reads, writes and takes at 1,000 and at 100,000 turns.

Each length has a database of its own, with one thread of the turns of `benchmarks.convert`, and
the window is 40 turns. The model is scripted and answers at once. In place of a floor stands the
same turn at length 1,000. Rows are those that SQLite gives, and its steps are the instructions of
its virtual machine, which a hidden scan would show in; bytes are all that the process writes, to
the log and at its checkpoints (Linux only).
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from benchmarks.convert import window
from benchmarks.table import Row
from turngate.bootstrap import create_gateway_deps
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.context import RecentWindow, ThreadMemory
from turngate.gateway import Gateway, Thread
from turngate.protocols import TokenCounter
from turngate.records import Change, Scope
from turngate.stores.rows import turns_from_bodies
from turngate.stores.sqlite import SqliteStore
from turngate.turns import Turn
from turngate.values import Usage

__all__ = ["LENGTHS", "run"]

LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000)
WINDOW_TURNS = 40
ASKS = 32  # of a pass
PASSES = 2  # a round
TURNS_A_CHANGE = 1_000
AIM = 1.2  # times the cost of the shortest thread
COUNTING_AIM = 1.18  # counting tokens and the receipt's hash: 15 % of an ask at most

Figures = dict[str, float]

_SCOPE = Scope("acme")
_THREAD = "long"
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_PROMPT = "What is the weather in the towns along the river?"
_USAGE = Usage(input_tokens=2_700, output_tokens=80)
_WRITTEN = Path("/proc/self/io")
_ids = itertools.count()


class _Model:
    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        for piece in ("It will be clear, ", "with a light wind ", "from the west."):
            yield piece
        yield StreamEnd("stop", usage=_USAGE, model="a-model")


class _NoCounter:
    """Counts nothing, at no cost."""

    def count_text(self, text: str, *, model: str | None = None) -> int:
        return 0

    def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
        return 0

    def count_request(self, request: ChatRequest) -> int:
        return 0

    def learn(self, request: ChatRequest, usage: Usage, *, model: str | None) -> None:
        pass


# ── what SQLite does ─────────────────────────────────────────────────────────────────────────


class _Cursor(sqlite3.Cursor):
    rows = 0  # of all cursors

    def fetchone(self) -> Any:
        row = super().fetchone()
        _Cursor.rows += row is not None
        return row

    def fetchall(self) -> list[Any]:
        rows = super().fetchall()
        _Cursor.rows += len(rows)
        return rows


class _Connection(sqlite3.Connection):
    steps = 0  # of all connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_progress_handler(self._step, 1)

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self.cursor(_Cursor).execute(statement, parameters)

    @staticmethod
    def _step() -> int:
        _Connection.steps += 1
        return 0


def _written_bytes() -> int:
    """What this process has written so far; 0 where the system does not tell."""
    if not _WRITTEN.exists():
        return 0
    lines = dict(line.split(": ") for line in _WRITTEN.read_text().splitlines())
    return int(lines["wchar"])


# ── asks ─────────────────────────────────────────────────────────────────────────────────────


async def _fill(path: Path, length: int) -> None:
    turns = itertools.cycle(turns_from_bodies(window()))
    store = await SqliteStore.open(path)
    for _ in range(length // TURNS_A_CHANGE):
        new = [
            msgspec.structs.replace(turn, id=f"turn_{next(_ids):032x}")
            for turn in itertools.islice(turns, TURNS_A_CHANGE)
        ]
        await store.commit(_SCOPE, Change(thread=_THREAD, at=_AT, turns=tuple(new)))
    await store.aclose()


@asynccontextmanager
async def _thread(
    path: Path, *, is_watched: bool = False, counter: TokenCounter | None = None
) -> AsyncIterator[Thread]:
    """The thread in `path`, with a gateway that has warmed up, and has learned from 32 usages."""
    connect = functools.partial(sqlite3.connect, factory=_Connection)
    store = await SqliteStore.open(path, connect=connect if is_watched else sqlite3.connect)
    strategy = RecentWindow(turns=WINDOW_TURNS)
    deps = create_gateway_deps(store=store, provider=_Model(), window=strategy)
    if counter is not None:
        memory = ThreadMemory(
            store=store, turn_builder=deps.turn_builder, strategy=strategy, counter=counter
        )
        deps = replace(deps, counter=counter, memory=memory)
    async with Gateway(deps) as gateway:
        thread = gateway.tenant(_SCOPE.tenant).thread(_THREAD)
        await _ask(thread, ASKS)
        yield thread
    await store.aclose()


async def _ask(thread: Thread, count: int) -> None:
    for _ in range(count):
        await thread.ask(_PROMPT)


async def _cpu_us(thread: Thread) -> float:
    gc.collect()
    begun = time.process_time()
    await _ask(thread, ASKS)
    return 1e6 * (time.process_time() - begun) / ASKS


async def _watched(path: Path) -> Figures:
    """What one turn reads and writes."""
    async with _thread(path, is_watched=True) as thread:
        rows, steps, written = _Cursor.rows, _Connection.steps, _written_bytes()
        await _ask(thread, ASKS)
        return {
            "rows": (_Cursor.rows - rows) / ASKS,
            "steps": (_Connection.steps - steps) / ASKS,
            "bytes": (_written_bytes() - written) / ASKS,
        }


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


async def _lengths(folder: Path, rounds: int) -> dict[int, Figures]:
    """The figures of a turn at each length."""
    paths = {length: folder / f"{length}.db" for length in LENGTHS}
    for length, path in paths.items():
        await _fill(path, length)
    found = {length: await _watched(path) for length, path in paths.items()}
    async with AsyncExitStack() as stack:
        threads = {
            length: await stack.enter_async_context(_thread(path)) for length, path in paths.items()
        }
        for _ in range(rounds * PASSES):
            for length, thread in threads.items():
                cpu = await _cpu_us(thread)
                found[length]["cpu"] = min(cpu, found[length].get("cpu", cpu))
    return found


async def _counting(folder: Path, rounds: int) -> Row:
    """What counting tokens and the receipt's hash cost an ask."""
    counted, bare = folder / "counted.db", folder / "bare.db"
    for path in (counted, bare):
        await _fill(path, LENGTHS[0])
    best: Figures = {}
    async with _thread(counted) as whole, _thread(bare, counter=_NoCounter()) as uncounted:
        for _ in range(rounds * PASSES * 2):
            found = {"whole": await _cpu_us(whole), "uncounted": await _cpu_us(uncounted)}
            with patch("turngate.gateway.receipts.request_hash", lambda request: ""):
                found["floor"] = await _cpu_us(uncounted)
            best = {name: min(cpu, best.get(name, cpu)) for name, cpu in found.items()}
    return Row(
        name="ask with a window of 40, CPU, counted and hashed",
        unit="us",
        ours=best["whole"],
        floor=best["floor"],
        aim=COUNTING_AIM,
        parts={"without counting": best["uncounted"]},
    )


def run(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(_lengths(Path(name), rounds))
        counting = asyncio.run(_counting(Path(name), rounds))
    shortest, longest = LENGTHS[0], LENGTHS[-1]
    names = {"rows": "rows read", "steps": "SQLite's steps", "bytes": "bytes written", "cpu": "CPU"}
    units = {"rows": "rows", "steps": "steps", "bytes": "bytes", "cpu": "us"}
    rows = [
        Row(
            name=f"turn {longest:,} against turn {shortest:,}, {name}",
            unit=units[figure],
            ours=found[longest][figure],
            floor=found[shortest][figure],
            aim=AIM,
            parts={f"{length:,}": found[length][figure] for length in LENGTHS},
        )
        for figure, name in names.items()
        if found[shortest][figure]
    ]
    return [*rows, counting]

"""Asks and runs on SQLite: what they cost beside the bare commits of the very same rows.

The model is scripted and its tool is safe and empty, so what is left is the gateway, the journal
and the store. A run of one exchange makes five commits: begin, model step, tool start, tool
result, and the last model step with the settle. Its changes are recorded once; the floor writes
them again into a new database, on bare sqlite3 in one thread without asyncio, and its rows are
made and encoded before the clock runs. With 32 at once it puts 32 changes into a commit.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peer import Peer
from benchmarks.table import Row
from turngate.bootstrap import create_gateway_deps
from turngate.completion import ChatRequest, FunctionCallDelta, ModelPart, StreamEnd
from turngate.gateway import Gateway, Tenant, TextEvent
from turngate.records import Change, Scope
from turngate.stores.changes import store_change
from turngate.stores.connections import writing_connection
from turngate.stores.rows import ChangeRows, change_rows
from turngate.stores.sqlite import SqliteStore
from turngate.tools import tool
from turngate.values import Usage

__all__ = ["run"]

CALLS = 192  # of a pass, asks or runs
LONG_EXCHANGES = 9
STEPS_AN_EXCHANGE = 3  # model, tool start, tool result
WRITERS = (1, 32)
PEER_STEPS = 3  # model, tool, model; with its begin and its end also five commits

Figures = dict[str, float]
"""Microseconds of CPU time (`cpu`) and of the clock (`wall`) for one ask or run."""

_USAGE = Usage(input_tokens=900, output_tokens=80)
_ANSWER = ["It will be clear, ", "with a light wind ", "from the west."]


@tool(effect="safe")
async def forecast(town: str) -> str:
    """The weather of tomorrow."""
    return '{"high": 21.5, "low": 12.1, "sky": "clear"}'


class _Model:
    """Asks for the tool until the request holds `exchanges` results, and then answers."""

    def __init__(self, exchanges: int) -> None:
        self._exchanges = exchanges

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        results = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            results += message.role == "tool"
        if results < self._exchanges:
            yield FunctionCallDelta(
                index=0, id=f"call_{results}", name="forecast", arguments='{"town": "Neckartal"}'
            )
            yield StreamEnd("tool_calls", usage=_USAGE, model="a-model")
        else:
            for piece in _ANSWER:
                yield piece
            yield StreamEnd("stop", usage=_USAGE, model="a-model")


class _Recording(SqliteStore):
    """Keeps the rows of what it commits, in order."""

    def record(self) -> list[ChangeRows]:
        self.kept: list[ChangeRows] = []
        return self.kept

    async def commit(self, scope: Scope, change: Change) -> int:
        length = await super().commit(scope, change)
        self.kept.append(change_rows(scope, change))
        return length


@asynccontextmanager
async def _gateway(store: SqliteStore, exchanges: int) -> AsyncIterator[Tenant]:
    deps = create_gateway_deps(store=store, provider=_Model(exchanges), tools=[forecast])
    async with Gateway(deps) as gateway:
        yield gateway.tenant("acme")


# ── ours ─────────────────────────────────────────────────────────────────────────────────────


async def _calls(tenant: Tenant, exchanges: int, *, count: int, writers: int) -> None:
    """`count` calls by `writers` callers, each on a new thread: runs, or asks for no exchange."""

    async def caller() -> None:
        for _ in range(count // writers):
            thread = tenant.thread()
            if exchanges:
                await thread.run("What is the weather in the Neckartal?", tools=["forecast"])
            else:
                await thread.ask("What is the weather in the Neckartal?")

    await asyncio.gather(*(caller() for _ in range(writers)))


async def _ours(path: Path, exchanges: int, count: int, writers: int) -> Figures:
    store = await SqliteStore.open(path)
    async with _gateway(store, exchanges) as tenant:
        await _calls(tenant, exchanges, count=writers, writers=writers)
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        await _calls(tenant, exchanges, count=count, writers=writers)
        figures = _each(cpu, wall, count)
    await store.aclose()
    return figures


async def _recorded(path: Path, exchanges: int, count: int, writers: int) -> list[ChangeRows]:
    store = await _Recording.open(path)
    assert isinstance(store, _Recording)
    rows = store.record()
    async with _gateway(store, exchanges) as tenant:
        await _calls(tenant, exchanges, count=count, writers=writers)
    await store.aclose()
    return rows


async def _first_tokens(path: Path, count: int) -> list[float]:
    """Microseconds from the call to its first piece of text, in order of size."""
    store = await SqliteStore.open(path)
    waits: list[float] = []
    async with _gateway(store, 0) as tenant:
        for _ in range(count):
            begun = time.perf_counter()
            async with tenant.thread().stream_ask("What is the weather?") as events:
                async for event in events:
                    if isinstance(event, TextEvent):
                        waits.append(1e6 * (time.perf_counter() - begun))
                        break
                async for _ in events:
                    pass
    await store.aclose()
    return sorted(waits)


# ── the floor ────────────────────────────────────────────────────────────────────────────────


def _bare(path: Path, rows: Sequence[ChangeRows], count: int, batch: int) -> Figures:
    """The rows of `count` calls again, `batch` changes to a commit."""
    db = writing_connection(path, connect=sqlite3.connect, wait_s=5)
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    for start in range(0, len(rows), batch):
        db.execute("BEGIN IMMEDIATE")
        for change in rows[start : start + batch]:
            store_change(db, change)
        db.execute("COMMIT")
    figures = _each(cpu, wall, count)
    db.close()
    return figures


def _bare_begins(path: Path, rows: Sequence[ChangeRows]) -> list[float]:
    """Microseconds of each commit that an ask needs before its first token."""
    db = writing_connection(path, connect=sqlite3.connect, wait_s=5)
    waits: list[float] = []
    for change in rows:
        begun = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        store_change(db, change)
        db.execute("COMMIT")
        if change.begin is not None:
            waits.append(1e6 * (time.perf_counter() - begun))
    db.close()
    return waits


def _each(cpu: float, wall: float, count: int) -> Figures:
    return {
        "cpu": 1e6 * (time.process_time() - cpu) / count,
        "wall": 1e6 * (time.perf_counter() - wall) / count,
    }


# ── rounds ───────────────────────────────────────────────────────────────────────────────────


def _best(rounds: int, contenders: dict[str, Callable[[], Figures]]) -> dict[str, Figures]:
    """The least CPU time of all rounds, and the median of the clock."""
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            if figures := contender():
                found[name].append(figures)
    return {
        name: {
            "cpu": min(figures["cpu"] for figures in all_rounds),
            "wall": statistics.median(figures["wall"] for figures in all_rounds),
        }
        for name, all_rounds in found.items()
        if all_rounds
    }


def _measured(
    folder: Path, exchanges: int, writers: int, rounds: int, peer: Peer | None = None
) -> dict[str, Figures]:
    # Alone each commit waits for the disk, so fewer calls do.
    count = CALLS if writers > 1 else CALLS // (3 if exchanges < LONG_EXCHANGES else 8)
    kept = asyncio.run(_recorded(folder / "kept.db", exchanges, count, writers))
    places = iter(range(10_000))

    def path() -> Path:
        return folder / f"round-{next(places)}.db"

    contenders: dict[str, Callable[[], Figures]] = {
        "floor": lambda: _bare(path(), kept, count, writers),
        "ours": lambda: asyncio.run(_ours(path(), exchanges, count, writers)),
    }
    if peer is not None:
        asked = {"steps": PEER_STEPS, "count": max(32, writers * 2), "writers": writers}
        contenders["DBOS"] = lambda: peer.ask(**asked)
    return _best(rounds, contenders)


def _rows(name: str, found: dict[str, Figures]) -> list[Row]:
    return [
        Row(
            name=f"{name}, {what}",
            unit="us",
            ours=found["ours"][clock],
            floor=found["floor"][clock],
            others={"DBOS": found["DBOS"][clock]} if "DBOS" in found else {},
        )
        for what, clock in (("CPU", "cpu"), ("clock", "wall"))
    ]


def _per_step(long: dict[str, Figures]) -> dict[str, Figures]:
    """The cost of a long run for each of its commits."""
    commits = LONG_EXCHANGES * STEPS_AN_EXCHANGE + 2
    return {
        name: {clock: cost / commits for clock, cost in figures.items()}
        for name, figures in long.items()
    }


def _first_token(folder: Path, rounds: int) -> Row:
    kept = asyncio.run(_recorded(folder / "kept.db", 0, CALLS, 1))
    ours: list[float] = []
    bare: list[float] = []
    for place in range(rounds):
        ours.append(statistics.median(asyncio.run(_first_tokens(folder / f"{place}.db", CALLS))))
        bare.append(statistics.median(_bare_begins(folder / f"bare-{place}.db", kept)))
    return Row(
        name="first token of an ask, added wait",
        unit="us",
        ours=statistics.median(ours),
        floor=statistics.median(bare),
    )


def run(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with Peer(".venv-bench-dbos", "benchmarks.peers.dbos_runs") as peer:
        for writers in WRITERS:
            with tempfile.TemporaryDirectory() as folder:
                ask = _measured(Path(folder), 0, writers, rounds)
            with tempfile.TemporaryDirectory() as folder:
                short = _measured(Path(folder), 1, writers, rounds, peer)
            rows += _rows(f"ask, {writers} at once", ask)
            rows += _rows(f"run with a tool, {writers} at once", short)
            if writers == 1:
                with tempfile.TemporaryDirectory() as folder:
                    long = _measured(Path(folder), LONG_EXCHANGES, writers, rounds)
                rows += _rows("a journalled step", _per_step(long))
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_first_token(Path(folder), rounds))
    return rows

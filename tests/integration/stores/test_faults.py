"""The SQLite store when the disk fails, another program locks, or the loop gives no time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.conformance.store_values import AT, A, append, texts, texts_change, user_turn
from tests.integration.stores.faulty import connections, driver_error, slow_commits
from turngate.errors import InvalidValue, StoreError, ThreadMoved
from turngate.records import Change
from turngate.stores import sqlite
from turngate.stores import writer as writer_module
from turngate.stores.changes import store_change
from turngate.stores.connections import Connect
from turngate.stores.rows import ChangeRows
from turngate.stores.sqlite import SqliteStore
from turngate.stores.writer import Writer
from turngate.values import Usage

Statements = list[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turngate.db"


class Failing:
    """A `connect` that fails where a test says so, and counts its connections."""

    def __init__(self) -> None:
        self.statement = ""  # that fails, if it begins so
        self.error = driver_error("SQLITE_IOERR", "disk I/O error")
        self.opened = 0

    def connect(self) -> Connect:
        inner = connections(self._before)

        def connect(*args: object, **kwargs: object) -> sqlite3.Connection:
            self.opened += 1
            if self.statement == "connect":
                raise self.error
            return inner(*args, **kwargs)

        return connect

    def _before(self, statement: str, _: sqlite3.Connection) -> None:
        if self.statement and statement.strip().startswith(self.statement):
            raise self.error


@pytest.fixture
def failing() -> Failing:
    return Failing()


@pytest.fixture
async def store(path: Path, failing: Failing) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, connect=failing.connect(), wait_s=0.3)
    yield store
    failing.statement = ""
    await store.aclose()


@pytest.mark.parametrize("statement", ["COMMIT", "BEGIN", "SAVEPOINT", "INSERT INTO threads"])
@pytest.mark.parametrize("name", ["SQLITE_IOERR", "SQLITE_FULL"])
async def test_a_failed_commit_acknowledges_nothing(
    store: SqliteStore, failing: Failing, statement: str, name: str
) -> None:
    """[S23] All changes of the batch fail, and the next one works on a new connection."""
    await append(store, "t", "before")
    failing.statement, failing.error = statement, driver_error(name, "said the driver")
    opened = failing.opened
    outcomes = await asyncio.gather(
        *(append(store, f"t{n}", "lost") for n in range(10)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 10
    assert len({id(outcome) for outcome in outcomes}) == 10
    assert all(getattr(outcome, "hint", None) for outcome in outcomes)
    assert all(getattr(outcome, "__cause__", None) is failing.error for outcome in outcomes)
    failing.statement = ""
    assert await append(store, "t", "after") == 2
    assert failing.opened == opened + (10 if statement == "BEGIN" else 1)
    assert await texts(store, "t") == ["before", "after"]
    assert [len(await texts(store, f"t{n}")) for n in range(10)] == [0] * 10


async def test_a_connection_that_can_not_be_opened_again_is_tried_each_time(
    store: SqliteStore, failing: Failing
) -> None:
    """[S23] While the database can't be opened writes fail, reads go on, and then all is well."""
    await append(store, "t", "before")
    failing.statement = "COMMIT"
    with pytest.raises(StoreError):
        await append(store, "t", "lost")
    failing.statement = "connect"
    failing.error = driver_error("SQLITE_CANTOPEN", "unable to open database file")
    for _ in range(2):
        with pytest.raises(StoreError, match="unable to open"):
            await append(store, "t", "lost too")
    assert await texts(store, "t") == ["before"]
    failing.statement = ""
    assert await append(store, "t", "after") == 2


async def test_a_full_database_refuses_and_then_goes_on(path: Path) -> None:
    """[S23] Where SQLite itself finds no room the change is refused whole; small ones still go."""
    pages_max = 200

    def before(statement: str, db: sqlite3.Connection) -> None:
        if statement == "BEGIN IMMEDIATE":
            sqlite3.Connection.execute(db, f"PRAGMA max_page_count = {pages_max}").close()

    store = await SqliteStore.open(path, connect=connections(before))
    await append(store, "t", "before")
    with pytest.raises(StoreError, match="full") as caught:
        await append(store, "t", "first", "x" * 2_000_000)
    assert caught.value.hint is not None
    assert await append(store, "t", "small") == 2
    pages_max = 100_000
    assert await append(store, "t", "first", "x" * 2_000_000) == 4
    await store.aclose()


async def test_a_bug_in_one_change_fails_it_alone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S5] [S23] An error that nobody foresaw takes back its own change, and is typed."""

    def buggy(db: sqlite3.Connection, rows: ChangeRows) -> int:
        length = store_change(db, rows)
        if rows.thread == "bad":
            raise LookupError("a bug")
        return length

    monkeypatch.setattr(sqlite, "store_change", buggy)
    outcomes = await asyncio.gather(
        append(store, "good", "a"),
        append(store, "bad", "a"),
        append(store, "fine", "a"),
        return_exceptions=True,
    )
    assert outcomes[0] == outcomes[2] == 1
    assert isinstance(outcomes[1], StoreError)
    assert isinstance(outcomes[1].__cause__, LookupError)
    assert await texts(store, "bad") == []


async def test_changes_that_wait_together_share_a_commit(path: Path) -> None:
    """[S2] Two hundred changes need a few commits, and a wrong one among them fails alone."""
    commits: Statements = []

    def before(statement: str, _: sqlite3.Connection) -> None:
        if statement == "COMMIT":
            commits.append(statement)

    store = await SqliteStore.open(path, connect=connections(before))
    commits.clear()
    changes = [texts_change(f"t{n}", "a", expected=n % 2) for n in range(200)]
    outcomes = await asyncio.gather(
        *(store.commit(A, change) for change in changes), return_exceptions=True
    )
    assert [isinstance(o, ThreadMoved) for o in outcomes] == [n % 2 == 1 for n in range(200)]
    assert len(commits) <= 20
    await store.aclose()


async def test_a_commit_is_durable_when_it_is_acknowledged(path: Path) -> None:
    """[S10] The writing connection syncs each commit, and uses a log beside the database."""
    found: list[object] = []

    def before(statement: str, db: sqlite3.Connection) -> None:
        if statement == "COMMIT":
            for pragma in ("journal_mode", "synchronous", "locking_mode"):
                found.extend(sqlite3.Connection.execute(db, f"PRAGMA {pragma}").fetchone())

    store = await SqliteStore.open(path, connect=connections(before))
    found.clear()
    await append(store, "t", "a")
    assert found == ["wal", 2, "normal"]
    await store.aclose()


# ------------------------------------------------------------------------------ foreign locks


@contextmanager
def foreign_lock(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """A write lock of another program, for some seconds or until the end of the block."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        taken.set()
        release.wait(seconds)
        db.execute("ROLLBACK")
        db.close()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        release.set()
        thread.join()


async def test_a_foreign_lock_is_waited_for(path: Path) -> None:
    """[S27] A lock shorter than the wait is noticed by nobody, and reads go on meanwhile."""
    store = await SqliteStore.open(path, wait_s=5)
    await append(store, "t", "a")
    with foreign_lock(path, seconds=0.3):
        begun = time.perf_counter()
        task = asyncio.create_task(append(store, "t", "b"))
        while not task.done():
            assert (await store.load(A, "t")).length in (1, 2)
            await asyncio.sleep(0.01)
        assert time.perf_counter() - begun > 0.2
    assert await task == 2
    await store.aclose()


async def test_a_foreign_lock_fails_each_write_after_its_own_wait(
    store: SqliteStore, path: Path
) -> None:
    """[S27] A write waits `wait_s` from when it was sent, gets a clear error, and blocks nobody."""
    with foreign_lock(path):

        async def waited(delay_s: float) -> float:
            await asyncio.sleep(delay_s)
            begun = time.perf_counter()
            with pytest.raises(StoreError, match=r"locked .* for 0\.3 s") as caught:
                await append(store, "t", "x")
            assert caught.value.hint is not None
            return time.perf_counter() - begun

        for seconds in await asyncio.gather(*(waited(0.05 * n) for n in range(8))):
            assert 0.25 < seconds < 1.2  # one after the other they would take 2.4 s
    assert await append(store, "t", "a") == 1


async def test_closing_beside_a_foreign_lock_ends(path: Path) -> None:
    """[S21] [S27] Closing waits for the write that waits, and no longer."""
    store = await SqliteStore.open(path, wait_s=0.2)
    with foreign_lock(path):
        task = asyncio.create_task(append(store, "t", "x"))
        await asyncio.sleep(0)
        await asyncio.wait_for(store.aclose(), 2)
        with pytest.raises(StoreError):
            await task


def writers_ended() -> None:
    """Wait until no writing thread is left in this process."""
    until = time.monotonic() + 5
    while any(thread.name == "turngate-writer" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


# --------------------------------------------------------------------------------- busy loops


async def _burst(stop: asyncio.Event) -> None:
    while not stop.is_set():
        until = time.perf_counter() + 0.0003
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


@pytest.mark.parametrize("streams", [1, 4, 16])
async def test_appends_go_on_beside_a_busy_loop(path: Path, streams: int) -> None:
    """[S30] Opening, appending and closing all get their time from a loop that never sleeps."""
    await _append_beside(path, streams)


@pytest.mark.optional
def test_appends_go_on_beside_a_busy_uvloop(path: Path) -> None:
    """[S30] The same on the event loop that servers use."""
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(_append_beside(path, streams=4))


async def _append_beside(path: Path, streams: int) -> None:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(_burst(stop)) for _ in range(streams)]
    try:
        async with asyncio.timeout(20):  # a thread that the loop starves may need longer
            store = await SqliteStore.open(path)
            taken: list[float] = []

            async def write(thread: str) -> None:
                for _ in range(10):
                    begun = time.perf_counter()
                    await append(store, thread, "a", "b", "c", "d")
                    taken.append(time.perf_counter() - begun)

            await asyncio.gather(*(write(f"t{n}") for n in range(16)))
            await store.aclose()
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    # A wide margin for a loaded machine; benchmarks/store.py has the figures.
    assert sorted(taken)[len(taken) // 2] < 0.2


@pytest.mark.parametrize("busy", [True, False])
async def test_only_a_busy_loop_lends_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """[S30] A loop without idle time gives way to a slow commit for a small part of the time."""
    lent: list[float] = []
    lend = Writer._lend

    def timed(writer: Writer) -> None:
        begun = time.perf_counter()
        lend(writer)
        lent.append(time.perf_counter() - begun)

    monkeypatch.setattr(Writer, "_lend", timed)
    monkeypatch.setattr(writer_module, "LOOKS_MAX", 10_000)  # else an idle loop lends in the end
    store = await SqliteStore.open(path, connect=slow_commits(0.2))
    stop = asyncio.Event()
    streams = [asyncio.create_task(_burst(stop)) for _ in range(4 if busy else 0)]
    lent.clear()
    assert await append(store, "t", "a") == 1
    stop.set()
    await asyncio.gather(*streams)
    await store.aclose()
    if busy:
        assert len(lent) >= 5
        assert sum(lent) < 0.1
    else:
        assert len(lent) <= 2  # a loaded machine may make the loop look busy for a moment


async def test_an_open_that_is_cancelled_leaves_no_lock(path: Path) -> None:
    """[S25] After a cancelled opening the same process can open the database."""

    def before(statement: str, _: sqlite3.Connection) -> None:
        if statement == "PRAGMA synchronous = FULL":
            time.sleep(0.1)

    task = asyncio.create_task(SqliteStore.open(path, connect=connections(before)))
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(writers_ended)
    store = await SqliteStore.open(path)
    await append(store, "t", "a")
    await store.aclose()


async def test_an_opening_that_fails_leaves_no_lock(path: Path, failing: Failing) -> None:
    """[S25] After a failed opening the same process can open the database."""
    failing.statement = "CREATE TABLE turns"
    with pytest.raises(StoreError):
        await SqliteStore.open(path, connect=failing.connect())
    store = await SqliteStore.open(path)
    await append(store, "t", "a")
    await store.aclose()


def test_a_loop_that_ends_without_closing_ends_the_thread(path: Path) -> None:
    """[S25] Where nobody closes, the change under way is whole and the lock is given back."""

    async def leave() -> None:
        store = await SqliteStore.open(path)
        await append(store, "t", "a")
        task = asyncio.create_task(append(store, "t", "b"))
        await asyncio.sleep(0)
        task.cancel()

    async def look() -> list[str]:
        store = await SqliteStore.open(path)
        found = await texts(store, "t")
        await store.aclose()
        return found

    asyncio.run(leave())
    writers_ended()
    assert asyncio.run(look()) in (["a"], ["a", "b"])


async def test_a_value_that_json_does_not_hold_is_a_typed_error(store: SqliteStore) -> None:
    """[S7] A number that is too large for a document is the caller's error."""
    usage = Usage(input_tokens=10**5000, output_tokens=0)
    turn = msgspec.structs.replace(user_turn(), usage=usage)
    with pytest.raises(InvalidValue, match="form"):
        await store.commit(A, Change(thread="t", at=AT, turns=(turn,)))

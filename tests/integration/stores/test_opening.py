"""Opening a SQLite database: migration, foreign files, and reading beside a writer or alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store_values import (
    AT,
    A,
    B,
    append,
    guard,
    in_state,
    review_record,
    texts,
    thread_ids,
)
from tests.integration.stores.faulty import connections, driver_error
from tests.integration.stores.raw import content, entries, raw_rows, write
from turngate import open_gateway, tool
from turngate.errors import StoreError, StoreInUse
from turngate.records import Change, LostCall, ReviewPage
from turngate.stores import connections as connections_module
from turngate.stores.connections import migrate, schema_version
from turngate.stores.sqlite import SqliteStore
from turngate.stores.statements import MIGRATIONS
from turngate.testing import ScriptedProvider
from turngate.turns import Turn

OLDEST = Path(__file__).with_name("schema_1.sql")
SECOND = Path(__file__).with_name("schema_2.sql")  # by the steps and the calls of version 2

OLD_TABLES = ("threads", "turns", "calls", "ledger", "steps", "events")

# A step as a later version may have it: additive, with a value for the rows that are there.
NEXT_STEP = (
    "ALTER TABLE threads ADD COLUMN pinned BIGINT NOT NULL DEFAULT 0",
    "CREATE TABLE receipts (tenant TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (tenant, id))",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turngate.db"


def database_from(dump: Path, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(dump.read_text(encoding="utf-8"))


def dump_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


async def all_turns(store: SqliteStore) -> dict[str, Sequence[Turn]]:
    return {
        f"{scope.tenant}/{thread.id}": (await store.load(scope, thread.id, limit=1000)).turns
        for scope in (A, B)
        for thread in (await store.threads(scope)).threads
    }


# ---------------------------------------------------------------------------------- migration


async def test_the_oldest_schema_opens_with_its_rows(path: Path) -> None:
    """[S28] Rows with nulls, tool calls and long texts are read as they were."""
    # Case t-migration-existing-rows.
    database_from(OLDEST, path)
    before = raw_rows(path, "SELECT tenant, thread, position, id, body FROM turns ORDER BY 1, 2, 3")
    store = await SqliteStore.open(path)
    found = await all_turns(store)
    assert {thread: len(turns) for thread, turns in found.items()} == {
        "acme/empty": 0,
        "acme/support-42": 4,
        "bolt/support-42": 1,
    }
    assert [part.__class__.__name__ for t in found["acme/support-42"] for part in t.parts] == [
        "TextPart",
        "FilePart",
        "ReasoningPart",
        "ToolCallPart",
        "ToolResultPart",
        "TextPart",
    ]
    assert (await store.thread(A, "empty")).title is None
    assert await store.active_call(B, "support-42") is not None
    assert await append(store, "support-42", "and on") == 5
    await store.aclose()
    after = raw_rows(path, "SELECT tenant, thread, position, id, body FROM turns ORDER BY 1, 2, 3")
    assert [row for row in after if row in before] == before


async def test_the_second_schema_opens_with_its_rows(path: Path) -> None:
    """[S28] Calls, steps, events and keys of before are read, and may be held for a review."""
    database_from(SECOND, path)
    before = {table: raw_rows(path, f"SELECT * FROM {table}") for table in OLD_TABLES}
    store = await SqliteStore.open(path)
    found = await all_turns(store)
    assert {thread: len(turns) for thread, turns in found.items()} == {
        "acme/support-42": 6,
        "acme/keyed": 2,
        "bolt/support-42": 2,
    }
    calls = (await store.calls(A)).calls
    assert [(call.thread, call.kind, call.state) for call in calls] == [
        ("lost", "run", "active"),
        ("keyed", "ask", "answered"),
        ("support-42", "run", "answered"),
        ("support-42", "ask", "answered"),
    ]
    lost, keyed, run, _ = calls
    assert (run.first, run.added, run.earlier, run.checks, run.placed) == (2, 4, (), (), None)
    assert await store.call_by_key(A, "k1") == keyed
    assert [step.kind for step in await store.steps(A, lost.id)] == [
        "model",
        "tool_start",
        "tool_result",
    ]
    assert await store.events(A, run.id) != []
    assert await store.lost_calls("boot_new") == [LostCall(A, lost)]
    assert await store.reviews(A) == ReviewPage(reviews=())
    assert {table: raw_rows(path, f"SELECT * FROM {table}") for table in OLD_TABLES} == before

    review = review_record(lost)
    held = in_state(lost, "review")
    change = Change(thread="lost", at=AT, guard=guard(lost), update=held, reviews=(review,))
    await store.commit(A, change)
    await store.aclose()
    store = await SqliteStore.open(path)
    assert (await store.reviews(A, thread="lost")).reviews == (review,)
    assert await store.call(A, lost.id) == held
    await store.aclose()


async def test_a_run_of_the_second_schema_goes_on(path: Path) -> None:
    """[S28] A run that died before the upgrade is answered after it, from its journal."""
    database_from(SECOND, path)

    @tool(effect="safe")
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    provider = ScriptedProvider(["It is 8."])
    async with open_gateway(path, provider=provider, tools=[double]) as gateway:
        acme = gateway.tenant("acme")
        (record,) = (await acme.calls(thread="lost")).calls
        outcome = await acme.call(record.id).outcome()
        turns = (await acme.thread("lost").turns()).turns
    assert outcome.expect().text == "It is 8."
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert outcome.turns == turns
    assert len(provider.requests) == 1


@pytest.mark.parametrize("statement", range(len(MIGRATIONS[2]) + 2))
def test_the_step_of_reviews_that_is_cut_goes_on_later(path: Path, statement: int) -> None:
    """[S28] Cut at any statement, it leaves the second schema with its rows as they were."""
    database_from(SECOND, path)
    before = dump_of(path)
    seen: list[str] = []

    def fail(text: str, db: sqlite3.Connection) -> None:
        if text == "BEGIN IMMEDIATE" or (seen and text != "ROLLBACK"):
            seen.append(text)
        if len(seen) == statement + 2:
            seen.append("once")
            raise driver_error("SQLITE_FULL", "database or disk is full")

    with closing(connections(fail)(str(path), isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError):
            migrate(db, path)
        assert schema_version(db) == 2
        assert list(db.iterdump()) == before
        migrate(db, path)
        assert schema_version(db) == len(MIGRATIONS)


async def test_a_step_keeps_the_rows_and_runs_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S28] A later step loses no row, and opening once more changes nothing."""
    database_from(OLDEST, path)
    store = await SqliteStore.open(path)
    before = await all_turns(store)
    await store.aclose()
    monkeypatch.setattr(connections_module, "MIGRATIONS", (*MIGRATIONS, NEXT_STEP))
    monkeypatch.setattr(connections_module.migrate, "__defaults__", ((*MIGRATIONS, NEXT_STEP),))
    store = await SqliteStore.open(path)
    assert await all_turns(store) == before
    await store.aclose()
    assert raw_rows(path, "SELECT pinned FROM threads") == [(0,), (0,), (0,)]
    once = dump_of(path)
    await (await SqliteStore.open(path)).aclose()
    assert dump_of(path) == once


@pytest.mark.parametrize("statement", range(len(MIGRATIONS[0]) + 2))
def test_a_migration_that_is_cut_goes_on_later(path: Path, statement: int) -> None:
    """[S28] A step that fails at any statement leaves the version before, and can be repeated."""
    seen: list[str] = []

    def before(text: str, db: sqlite3.Connection) -> None:
        if text == "BEGIN IMMEDIATE" or (seen and text != "ROLLBACK"):
            seen.append(text)
        if len(seen) == statement + 2:  # the first seen is BEGIN itself
            seen.append("once")
            raise driver_error("SQLITE_FULL", "database or disk is full")

    with closing(connections(before)(str(path), isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError):
            migrate(db, path)
        assert not db.in_transaction
        assert schema_version(db) == 0
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        migrate(db, path)
        assert schema_version(db) == len(MIGRATIONS)


async def test_a_newer_schema_is_refused(path: Path) -> None:
    """[S28] A program that is older than the database says so."""
    # Case t-rolling-upgrade-old-reader.
    await (await SqliteStore.open(path)).aclose()
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO turngate_schema (version) VALUES (99)")
        db.commit()
    before = content(path)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="schema version 99") as caught:
            await SqliteStore.open(path, read_only=read_only)
        assert caught.value.hint == "Upgrade Turngate."
    assert content(path) == before


def test_a_migration_does_not_touch_a_newer_schema(path: Path) -> None:
    """[S28] Where no step is known any more, migrating is an error."""
    database_from(OLDEST, path)
    with closing(sqlite3.connect(path)) as db, pytest.raises(StoreError, match="up to 0"):
        migrate(db, path, steps=())


async def test_an_older_schema_is_not_raised_by_reading(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S26] [S28] A reader of an older database says what to do."""
    database_from(OLDEST, path)
    monkeypatch.setattr(connections_module, "MIGRATIONS", (*MIGRATIONS, NEXT_STEP))
    with pytest.raises(StoreError, match="older schema") as caught:
        await SqliteStore.open(path, read_only=True)
    assert caught.value.hint == "Open it for writing once."


# -------------------------------------------------------------------------------- wrong files


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_foreign_database_is_refused(path: Path, read_only: bool) -> None:
    """[S28] Another program's database is left as it is."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    before = content(path)
    with pytest.raises(StoreError, match=r"another program|not a database of Turngate"):
        await SqliteStore.open(path, read_only=read_only)
    assert content(path) == before


@pytest.mark.parametrize("read_only", [False, True])
async def test_what_is_no_database_is_refused(path: Path, read_only: bool) -> None:
    """[S28] A text file is left as it is."""
    write(path, "not a database " * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        await SqliteStore.open(path, read_only=read_only)
    assert caught.value.hint is not None
    assert content(path) == b"not a database " * 100


async def test_a_disk_without_a_write_ahead_log_is_refused(path: Path) -> None:
    """[S28] Where SQLite falls back to another journal, by its answer alone, nothing is begun."""

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            if statement == "PRAGMA journal_mode = WAL":
                statement = "SELECT 'delete'"
            return super().execute(statement, *parameters)

    with pytest.raises(StoreError, match="write-ahead log") as caught:
        await SqliteStore.open(path, connect=Connection)
    assert caught.value.hint is not None


@pytest.mark.parametrize("name", ["", ":memory:", "file:x?mode=memory", ".", "missing/turngate.db"])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_path_that_can_be_no_database_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, read_only: bool
) -> None:
    """[S28] Memory, a folder and a missing folder are errors with a hint."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(name, read_only=read_only)
    assert caught.value.hint is not None
    assert entries(tmp_path) == []


async def test_a_folder_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    """[S28] A folder is named as one."""
    with pytest.raises(StoreError, match="is a folder"):
        await SqliteStore.open(tmp_path)


# ------------------------------------------------------------------------------------ reading


async def test_a_missing_database_is_not_made_by_reading(path: Path) -> None:
    """[S26] Reading what is not there is an error, and makes no file."""
    with pytest.raises(StoreError, match="there is no database"):
        await SqliteStore.open(path, read_only=True)
    assert entries(path.parent) == []


async def test_reading_works_beside_a_writer(path: Path) -> None:
    """[S10] [S26] A reading store sees each commit of the writing one, and can't write."""
    writer = await SqliteStore.open(path)
    reader = await SqliteStore.open(path, read_only=True)
    for length in range(1, 6):
        await append(writer, "t", "x")
        assert (await reader.load(A, "t")).length == length
    with pytest.raises(StoreError, match="reading only"):
        await append(reader, "t", "x")
    await writer.aclose()
    assert thread_ids(await reader.threads(A)) == ["t"]
    await reader.aclose()


async def test_reading_works_without_a_log(path: Path) -> None:
    """[S26] A database that was closed has no log beside it, and reads well."""
    writer = await SqliteStore.open(path)
    await append(writer, "t", "x")
    await writer.aclose()
    assert not path.with_name(path.name + "-wal").exists()
    before = content(path)
    reader = await SqliteStore.open(path, read_only=True)
    assert await texts(reader, "t") == ["x"]
    assert await reader.lost_calls("boot_1") == []
    await reader.aclose()
    assert content(path) == before


async def test_reading_works_after_a_crash(path: Path, tmp_path: Path) -> None:
    """[S26] Files that a killed writer left, log and all, read well before anybody repairs them."""
    writer = await SqliteStore.open(path)
    await append(writer, "t", "x")
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", copy)
    await writer.aclose()
    reader = await SqliteStore.open(copy / path.name, read_only=True)
    assert await texts(reader, "t") == ["x"]
    await reader.aclose()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_reading_works_in_a_folder_that_can_not_be_written(path: Path) -> None:
    """[S26] Where SQLite can make no shared memory, a database without a log still reads."""
    writer = await SqliteStore.open(path)
    await append(writer, "t", "x")
    await writer.aclose()
    path.parent.chmod(0o555)
    try:
        reader = await SqliteStore.open(path, read_only=True)
        assert await texts(reader, "t") == ["x"]
        await reader.aclose()
        with pytest.raises(StoreError):
            await SqliteStore.open(path)
    finally:
        path.parent.chmod(0o755)


async def test_reading_falls_back_only_without_a_log(path: Path) -> None:
    """[S26] A file is taken as unchanging just when no log stands beside it."""
    writer = await SqliteStore.open(path)
    await append(writer, "t", "x")
    uris: list[str] = []

    def connect(name: str, **kwargs: object) -> sqlite3.Connection:
        uris.append(name.partition("?")[2])
        if name.endswith("mode=ro"):
            raise driver_error("SQLITE_CANTOPEN", "unable to open database file")
        return sqlite3.connect(name, **kwargs)  # type: ignore[call-overload, no-any-return]

    with pytest.raises(StoreError):
        await SqliteStore.open(path, read_only=True, connect=connect)
    assert uris == ["mode=ro"]
    await writer.aclose()
    reader = await SqliteStore.open(path, read_only=True, connect=connect)
    assert uris[1:] == ["mode=ro", "mode=ro&immutable=1"]
    assert await texts(reader, "t") == ["x"]
    await reader.aclose()


# ------------------------------------------------------------------------------ one writer


async def test_a_second_writer_of_the_process_is_refused(path: Path) -> None:
    """[S25] Two stores of one process may not both write, by whatever name of the file."""
    store = await SqliteStore.open(path)
    other = path.with_name("link.db")
    other.symlink_to(path)
    for name in (path, other):
        with pytest.raises(StoreInUse, match=f"process {os.getpid()} on ") as caught:
            await SqliteStore.open(name)
        assert " since 20" in caught.value.owner
    await store.aclose()
    await (await SqliteStore.open(other)).aclose()


async def test_the_schema_is_made_once(path: Path) -> None:
    """[S28] Opening again leaves the file as it is."""
    await (await SqliteStore.open(path)).aclose()
    before = dump_of(path)
    for _ in range(2):
        await (await SqliteStore.open(path)).aclose()
    assert dump_of(path) == before


async def test_a_damaged_row_is_a_store_error(path: Path) -> None:
    """[S7] A row that can't be read is an error that says so, and others still read."""
    store = await SqliteStore.open(path)
    await append(store, "t", "x")
    await append(store, "gap", "x", "y")
    await store.commit(A, Change(thread="fine", at=AT, create=True))
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE turns SET body = '{' WHERE thread = 't'")
        db.execute("DELETE FROM turns WHERE thread = 'gap' AND position = 0")
        db.commit()
    with pytest.raises(StoreError, match="can't be read"):
        await store.load(A, "t")
    with pytest.raises(StoreError, match="lacks turns"):
        await store.load(A, "gap")
    assert (await store.load(A, "fine")).turns == ()
    await asyncio.sleep(0)
    await store.aclose()

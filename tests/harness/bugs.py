"""The zoo: faults that a harness plants on purpose, to show that it would see them.

A harness that never caught anything proves nothing. Each of these is a mistake that one could make
in good faith. `plant` patches the program within a process of a test alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turngate import identity
from turngate.gateway import gateway, loop, recovery, settle, tenants, toolbox
from turngate.gateway.journal import Journal
from turngate.gateway.live import LiveCall
from turngate.messages import ToolCall
from turngate.records import CallRecord, Change, EventBatch, LedgerRow, LostCall, Scope, Step
from turngate.stores import connections, rows, sqlite, statements
from turngate.stores.group_commit import GroupCommit, Job, Outcome
from turngate.turns import Turn

__all__ = ["BUGS", "SetAttribute", "plant"]

SetAttribute = Callable[[object, str, Any], None]
"""`setattr`, or one that is undone after a test."""

Bug = Callable[[SetAttribute], None]
BUGS: dict[str, Bug] = {}


def plant(name: str, set_: SetAttribute = setattr) -> None:
    """Make this process faulty in the way of `name`."""
    importlib.import_module("tests.harness.review_bugs")  # it adds its own
    BUGS[name](set_)


def bug(function: Bug) -> Bug:
    BUGS[function.__name__] = function
    return function


# ── the store ────────────────────────────────────────────────────────────────────────────────


@bug
def acknowledge_before_commit(set_: SetAttribute) -> None:
    """A commit is acknowledged while it is still on its way."""
    commit = sqlite.SqliteStore.commit
    behind: set[asyncio.Task[int]] = set()

    async def early(self: sqlite.SqliteStore, scope: Scope, change: Change) -> int:
        if change.update is None or change.update.state != "answered":
            return await commit(self, scope, change)

        async def late() -> int:
            await asyncio.sleep(0.01)
            return await commit(self, scope, change)

        task = asyncio.create_task(late())
        behind.add(task)
        task.add_done_callback(behind.discard)
        return 0

    set_(sqlite.SqliteStore, "commit", early)


def _pragma_in_place_of_full(set_: SetAttribute, mode: str) -> None:
    pragmas = tuple(
        pragma.replace("synchronous = FULL", f"synchronous = {mode}")
        for pragma in connections.WRITER_PRAGMAS
    )
    assert pragmas != connections.WRITER_PRAGMAS, "the pragma has another form by now"
    set_(connections, "WRITER_PRAGMAS", pragmas)


@bug
def synchronous_normal(set_: SetAttribute) -> None:
    """The log is synced at a checkpoint alone."""
    _pragma_in_place_of_full(set_, "NORMAL")


@bug
def synchronous_off(set_: SetAttribute) -> None:
    """Nothing is ever synced."""
    _pragma_in_place_of_full(set_, "OFF")


@bug
def commit_error_swallowed(set_: SetAttribute) -> None:
    """A transaction that failed as a whole is told as done."""
    failed = GroupCommit._failed

    def told_as_done(self: GroupCommit, jobs: Sequence[Job], error: Exception) -> list[Outcome]:
        return [(job, 1) for job, _ in failed(self, jobs, error)]

    set_(GroupCommit, "_failed", told_as_done)


@bug
def closed_connection_kept(set_: SetAttribute) -> None:
    """After a failed transaction the connection is closed, and no other one is opened."""

    def closed(self: GroupCommit) -> None:
        if self._db is not None:
            self._db.close()

    set_(GroupCommit, "close", closed)


@bug
def job_not_taken_back(set_: SetAttribute) -> None:
    """A change that was refused half way leaves its first half behind."""
    applied = GroupCommit._applied

    class Forgetful:
        def __init__(self, db: Any) -> None:
            self._db = db

        def execute(self, sql: str, *parameters: Any) -> Any:
            return self._db.execute("SELECT 1" if sql == "ROLLBACK TO job" else sql, *parameters)

        def executemany(self, *arguments: Any) -> Any:
            return self._db.executemany(*arguments)

    def kept(self: GroupCommit, db: Any, job: Job) -> Any:
        return applied(self, Forgetful(db), job)  # type: ignore[arg-type]  # as much as is used

    set_(GroupCommit, "_applied", kept)


@bug
def no_fence(set_: SetAttribute) -> None:
    """Whoever writes for an active call is heard, whatever its owner and epoch."""
    for name in ("GUARD_CALL", "UPDATE_CALL"):
        loose = getattr(statements, name).replace("owner = ? AND epoch = ? AND state = ?", "")
        assert loose != getattr(statements, name), "the statement has another form by now"
        set_(statements, name, loose + "(? <> '' OR ? >= 0 OR ? <> '')")


@bug
def no_claim(set_: SetAttribute) -> None:
    """A second call of a thread is let in: the database does not hold the rule any more."""
    migrate = connections.migrate

    def loosened(db: Any, *rest: Any) -> None:
        migrate(db, *rest)
        db.execute("DROP INDEX IF EXISTS calls_active")

    set_(connections, "migrate", loosened)


@bug
def key_not_stored(set_: SetAttribute) -> None:
    """A call forgets its key as it is stored."""
    call_row = rows._call_row
    set_(rows, "_call_row", lambda thread, call: call_row(thread, call)._replace(key=None))


# ── the gateway ──────────────────────────────────────────────────────────────────────────────


@bug
def swapped_results(set_: SetAttribute) -> None:
    """Two calls of one reply get each other's results."""
    run_tool = toolbox.run_tool

    async def crossed(tools: Any, call: ToolCall, context: Any, **more: Any) -> Any:
        place = {"0": "1", "1": "0"}.get(call.id[-1], call.id[-1])
        other = msgspec.structs.replace(
            call, arguments=call.arguments.replace(call.id, call.id[:-1] + place)
        )
        return await run_tool(tools, other, context, **more)

    set_(loop, "run_tool", crossed)


@bug
def result_dropped_at_settle(set_: SetAttribute) -> None:
    """A run that ends in its tools leaves the calls open that had no result yet."""
    set_(settle, "_missing_results", lambda turn_builder, journal: {})


@bug
def effect_before_start(set_: SetAttribute) -> None:
    """A tool begins while its start is still on its way to the disk."""
    started = Journal.tools_started
    behind: set[asyncio.Task[None]] = set()

    async def later(self: Journal, places: Sequence[int]) -> None:
        async def commit() -> None:
            await asyncio.sleep(0.002)
            await started(self, places)

        task = asyncio.create_task(commit())
        behind.add(task)
        task.add_done_callback(behind.discard)

    set_(Journal, "tools_started", later)


@bug
def unsafe_run_again(set_: SetAttribute) -> None:
    """After a take-over an unsafe tool is taken for one that may run again."""
    call_to_run = loop._call_to_run

    def anew(run: Any, place: int, answer: Any, started: Any, *rest: Any, **more: Any) -> Any:
        return call_to_run(run, place, answer, set(), *rest, **more)

    set_(loop, "_call_to_run", anew)


@bug
def user_turn_twice(set_: SetAttribute) -> None:
    """A take-over puts the prompt into the thread, where the settle puts it once more."""

    class Doubling:
        def __init__(self, store: Any, turn: Turn) -> None:
            self._store, self._turn = store, turn

        async def commit(self, scope: Scope, change: Change) -> int:
            copy = msgspec.structs.replace(self._turn, id=identity.new_id("turn"))
            change = msgspec.structs.replace(change, turns=(copy,))
            return int(await self._store.commit(scope, change))

    claimed = recovery._claimed

    async def doubled(deps: Any, scope: Scope, call: CallRecord, **rest: Any) -> CallRecord:
        if call.user_turn is None:
            return await claimed(deps, scope, call, **rest)
        faulty = dataclasses.replace(deps, store=Doubling(deps.store, call.user_turn))
        return await claimed(faulty, scope, call, **rest)

    set_(recovery, "_claimed", doubled)


@bug
def settle_leaves_active(set_: SetAttribute) -> None:
    """An outcome is stored, and its call stays active."""
    change_of = settle._change

    def unended(call: CallRecord, ended: CallRecord, *rest: Any) -> Change:
        return change_of(call, msgspec.structs.replace(ended, state="active"), *rest)

    set_(settle, "_change", unended)


@bug
def epoch_not_raised(set_: SetAttribute) -> None:
    """A take-over keeps the epoch of the owner that it takes from."""

    class SameEpoch:
        def __init__(self, store: Any) -> None:
            self._store = store

        async def commit(self, scope: Scope, change: Change) -> int:
            assert change.update is not None
            assert change.guard is not None
            same = msgspec.structs.replace(change.update, epoch=change.guard.epoch)
            return int(
                await self._store.commit(scope, msgspec.structs.replace(change, update=same))
            )

    claimed = recovery._claimed

    async def kept(deps: Any, scope: Scope, call: CallRecord, **rest: Any) -> CallRecord:
        faulty = dataclasses.replace(deps, store=SameEpoch(deps.store))
        record = await claimed(faulty, scope, call, **rest)
        return msgspec.structs.replace(record, epoch=call.epoch)

    set_(recovery, "_claimed", kept)


@bug
def step_without_row(set_: SetAttribute) -> None:
    """A model step is journalled, and nobody pays for it."""
    commit = Journal._commit

    async def unpaid(
        self: Journal, steps: list[Step], *, ledger: tuple[LedgerRow, ...] = ()
    ) -> None:
        await commit(self, steps)

    set_(Journal, "_commit", unpaid)


@bug
def dead_ask_asked_again(set_: SetAttribute) -> None:
    """An ask whose process died is sent to the model once more."""
    taken_over = recovery.taken_over

    async def as_run(deps: Any, lost: LostCall) -> Any:
        if lost.call.tools:
            return await taken_over(deps, lost)
        call = msgspec.structs.replace(lost.call, kind="run")
        return await taken_over(deps, LostCall(lost.scope, call))

    set_(gateway, "taken_over", as_run)


@bug
def events_lost_on_flush(set_: SetAttribute) -> None:
    """The first event of each batch is left out."""
    taken = LiveCall.taken_events

    def shorter(self: LiveCall) -> tuple[EventBatch, ...]:
        batches = taken(self)
        events = [msgspec.json.decode(batch.body) for batch in batches]
        return tuple(
            EventBatch(batch.first, msgspec.json.encode(kept[1:] or kept).decode())
            for batch, kept in zip(batches, events, strict=True)
        )

    set_(LiveCall, "taken_events", shorter)


@bug
def running_call_not_found(set_: SetAttribute) -> None:
    """A call that runs here is taken for one whose process is gone."""

    async def not_taken_up(self: gateway.Gateway, record: CallRecord) -> bool:
        return False

    set_(gateway.Gateway, "live", lambda self, call_id: None)
    set_(gateway.Gateway, "_is_taken_up", not_taken_up)


@bug
def step_number_from_count(set_: SetAttribute) -> None:
    """A journal goes on from the count of its steps, and not from the last one's number."""
    begin = Journal.__init__

    def counting(self: Journal, *given: Any) -> None:
        begin(self, *given)
        self._next = len(self.steps)

    set_(Journal, "__init__", counting)


@bug
def cancel_not_awaited(set_: SetAttribute) -> None:
    """A cancelled caller comes back before its call is settled, by a disk that takes its time."""
    cut = loop._cut

    async def at_once(running: Any, reason: str) -> None:
        running.live.cancel(reason)

    async def slowly(*arguments: Any) -> Any:
        await asyncio.sleep(0.02)
        return await cut(*arguments)

    set_(tenants, "_left", at_once)
    set_(loop, "_cut", slowly)

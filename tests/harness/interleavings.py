"""Every order in which two actors can meet, over the real store and gateway.

An actor is a coroutine; each store call that it or a task of its makes, and each model call, is a
gate. One actor at a time is let through its next gate, and then the world comes to rest. `explore`
plays a spec once for every order of gates there is, each time for a tenant of its own.

    I2 I3 I6 I7 I8   as in `checks`          I5 a refused change altered the database
    R  the results are not those of any order   STUCK an actor never ends
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.checks import Rows, faults_of, read_rows
from tests.harness.failpoints import StoreProxy
from tests.harness.judges import checks_of, rules_of
from tests.harness.world import TOOLS, Log, World
from turngate import Gateway
from turngate.bootstrap import create_gateway_deps
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.errors import RequestError
from turngate.gateway import GatewayDeps
from turngate.gateway.tenants import Tenant, Thread
from turngate.protocols import ThreadStore
from turngate.records import Change, Scope
from turngate.stores.sqlite import SqliteStore

__all__ = ["Env", "Spec", "explore"]

ACTOR: ContextVar[str | None] = ContextVar("ACTOR", default=None)
READS = ("load", "call", "active_call", "call_by_key", "steps", "events")
OF_REVIEWS = ("review", "reviews", "overdue_reviews")
_ACTIVE = """
SELECT thread FROM calls WHERE tenant = ? AND state = 'active' GROUP BY thread HAVING count(*) > 1
"""
_GATES_MAX = 200
_REST = 25  # turns of the loop without a store call: then nobody is on the way to one


class Gates:
    """Where the actors wait, and what is under way."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._under_way = 0
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        actor = ACTOR.get()
        if actor is None:
            return
        gate = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(actor, []).append(gate)
        await gate

    async def inside(self, work: Awaitable[Any]) -> Any:
        self._under_way += 1
        try:
            return await work
        finally:
            self._under_way -= 1
            self._changed.set()

    def release(self, actor: str) -> None:
        gate = self.waiting[actor].pop(0)
        if not gate.done():
            gate.set_result(None)

    def open(self, store: GatedStore) -> None:
        """Let everybody through from now on."""
        store.gated = ()
        for actor in self.waiting:
            while self.waiting[actor]:
                self.release(actor)

    @property
    def enabled(self) -> tuple[str, ...]:
        """The actors that wait at a gate; one whose task was cancelled there waits no more."""
        for actor, gates in self.waiting.items():
            self.waiting[actor] = [gate for gate in gates if not gate.done()]
        return tuple(sorted(actor for actor, gates in self.waiting.items() if gates))

    async def rest(self, polls_s: float) -> None:
        """Return once nothing moves by itself any more."""
        if polls_s:
            await asyncio.sleep(polls_s)
        quiet = 0
        while quiet < _REST:
            if self._under_way:
                quiet = 0
                self._changed.clear()
                await self._changed.wait()
            quiet += 1
            await asyncio.sleep(0)


class GatedStore(StoreProxy):
    """A store whose calls are gates; a refused change must leave every row as it was."""

    def __init__(self, inner: ThreadStore, gates: Gates, database: Path) -> None:
        super().__init__(inner)
        self.faults: list[str] = []
        self.gated: tuple[str, ...] = ()
        self._gates = gates
        self._db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        for name in (*READS, *OF_REVIEWS, "lost_calls"):
            setattr(self, name, self._gate(name, getattr(inner, name)))

    def close(self) -> None:
        self._db.close()

    async def commit(self, scope: Scope, change: Change) -> int:
        if "commit" in self.gated:
            await self._gates.wait()
        before = self._rows(scope)
        try:
            length = int(await self._gates.inside(self.inner.commit(scope, change)))
            if self._db.execute(_ACTIVE, (scope.tenant,)).fetchall():
                self.faults.append("I2: a thread has two active calls")
            return length
        except RequestError as error:
            if self._rows(scope) != before:
                self.faults.append(f"I5: a change that was refused was stored in part ({error!r})")
            raise

    def _gate(
        self, name: str, call: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def gated(*arguments: Any, **named: Any) -> Any:
            if name in self.gated:
                await self._gates.wait()
            return await self._gates.inside(call(*arguments, **named))

        return gated

    def _rows(self, scope: Scope) -> list[Any]:
        tables = ("threads", "turns", "calls", "ledger", "steps", "events", "reviews")
        return [
            self._db.execute(f"SELECT * FROM {table} WHERE tenant = ?", (scope.tenant,)).fetchall()
            for table in tables
        ]


class GatedModel:
    """The model of the world, behind a gate where the spec has one."""

    def __init__(self, world: World, store: GatedStore, gates: Gates) -> None:
        self._world = world
        self._store = store
        self._gates = gates

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        if "model" in self._store.gated:
            await self._gates.wait()
        async for part in self._world.stream(request):
            yield part


@dataclass
class Env:
    """What a spec's actors share: two processes' gateways, and one thread."""

    gateways: list[Gateway]
    deps: list[GatewayDeps]
    tenant_id: str
    log: Log
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant_id)

    def tenant(self, process: int = 0) -> Tenant:
        return self.gateways[process].tenant(self.tenant_id)

    def thread(self, process: int = 0) -> Thread:
        return self.tenant(process).thread("t")


Actor = Callable[[Env], Awaitable[Any]]


@dataclass(frozen=True)
class Spec:
    """Two or more actors and what must hold of their results; `setup` runs alone before them.

    `gates` are the store calls and the model calls between which the actors may be changed, `mode`
    says what judges the model (`judges`), and `after` is done alone once the actors have ended.
    `polls_s` is how long the world needs to rest where an actor looks again and again.
    """

    name: str
    actors: Sequence[Actor]
    check: Callable[[Env, Sequence[Any], Rows], list[str]]
    setup: Callable[[Env], Awaitable[None]] | None = None
    gates: tuple[str, ...] = (*READS, "commit", "model", "lost_calls")
    mode: str = "plain"
    after: Callable[[Env], Awaitable[None]] | None = None
    polls_s: float = 0.0


async def explore(spec: Spec, folder: Path) -> tuple[int, list[str]]:
    """How many orders there are, and the faults of the first that has any."""
    database = folder / "t.db"
    gates = Gates()
    sqlite = await SqliteStore.open(database)
    store = GatedStore(sqlite, gates, database)
    log, notes = folder / "log", Log(folder / "log")
    model = GatedModel(World(notes, Log(folder / "effects"), lambda point: None), store, gates)
    deps = [
        create_gateway_deps(
            store=store,
            provider=model,
            tools=TOOLS,
            checks=checks_of(spec.mode, lambda point: None),
            reviews=rules_of(spec.mode),
        )
        for _ in range(2)
    ]
    played = 0
    faults: list[str] = []
    prefixes: list[list[str]] = [[]]
    gateways = [Gateway(each) for each in deps]
    try:
        while prefixes and not faults:
            prefix = prefixes.pop()
            env = Env(gateways, deps, f"s{played}", notes)
            trace, results = await _played(spec, env, gates, store, prefix)
            played += 1
            rows = read_rows(database, env.tenant_id)
            order = "".join(chosen for _, chosen in trace)
            lines, effects = Log.read(log), Log.read(folder / "effects")
            log.write_bytes(b"")
            (folder / "effects").write_bytes(b"")
            found = [
                *store.faults,
                *spec.check(env, results, rows),
                *faults_of(rows, lines, effects),
            ]
            if any(result is STUCK for result in results):
                found.append("STUCK: an actor never ended")
            faults += [f"{spec.name}, order {order}: {fault}" for fault in found]
            for at in range(len(prefix), len(trace)):
                enabled, chosen = trace[at]
                before = [earlier for _, earlier in trace[:at]]
                prefixes += [[*before, other] for other in enabled if other != chosen]
    finally:
        gates.open(store)
    store.gated = ()
    for gateway in gateways:
        await gateway.aclose()
    store.close()
    await sqlite.aclose()
    return played, faults


STUCK = object()


async def _played(
    spec: Spec, env: Env, gates: Gates, store: GatedStore, prefix: Sequence[str]
) -> tuple[list[tuple[tuple[str, ...], str]], list[Any]]:
    """Play the actors in the order of `prefix`, then the first who can; gives the whole order."""
    store.gated = ()
    gates.waiting.clear()
    if spec.setup is not None:
        await spec.setup(env)
    store.gated = spec.gates

    async def acted(actor: Actor, name: str) -> Any:
        ACTOR.set(name)
        try:
            return await actor(env)
        except RequestError as error:
            return error

    names = "ABC"
    tasks = [asyncio.create_task(acted(actor, names[i])) for i, actor in enumerate(spec.actors)]
    trace: list[tuple[tuple[str, ...], str]] = []
    await gates.rest(spec.polls_s)
    while enabled := gates.enabled:
        planned = prefix[len(trace)] if len(trace) < len(prefix) else enabled[0]
        if planned not in enabled or len(trace) > _GATES_MAX:
            gates.open(store)
            for task in tasks:
                task.cancel()
            raise AssertionError(f"{spec.name} did not go the same way again, or has no end")
        trace.append((enabled, planned))
        gates.release(planned)
        await gates.rest(spec.polls_s)
    store.gated = ()
    done, stuck = await asyncio.wait(tasks, timeout=1.0)
    for task in stuck:
        task.cancel()
    if spec.after is not None:
        await spec.after(env)
    return trace, [task.result() if task in done else STUCK for task in tasks]

"""Let the Nth operation of the disk fail, for N = 1, 2, 3 … until all of a scenario passes.

Run as ``python -m tests.harness.fail_nth FOLDER MODE --seed N [--work WORK]``. MODE ``once`` has
one operation fail, in turn by a full disk, an input/output error, and a write that is cut short;
``lasting`` has all fail from the Nth on, until the program has told somebody. WORK is a bit of
everything (``all``), or what a person decides on (``reviews``).

    N1 an error is none of the typed ones    N2 later work does not go on
    and all that `checks` looks for, once another process has opened the file on a sound disk
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import traceback
from collections.abc import Awaitable, Sequence
from pathlib import Path

import apsw

from tests.harness import bugs
from tests.harness.checks import faults_of, read_rows
from tests.harness.faulty_disk import Disk, Operation
from tests.harness.judges import checks_of, rules_of
from tests.harness.review_checks import leaked_bytes
from tests.harness.world import GO_ON, OWN, TENANT, TOOLS, Log, World, flush_often, result_of
from turngate import Gateway, ToolResultPart
from turngate.bootstrap import create_gateway_deps
from turngate.errors import StoreError, UnknownToolCall
from turngate.gateway import Answered, AwaitingReview, Blocked, GatewayDeps, Outcome
from turngate.gateway.tenants import Thread
from turngate.records import ReviewRecord
from turngate.stores.connections import Connect
from turngate.stores.sqlite import SqliteStore

CHECKPOINT_PAGES = 40
TIMEOUT_S = 20.0
_ERRORS = {
    "open": apsw.SQLITE_CANTOPEN,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}


class Failing:
    """What happens at the Nth operation."""

    def __init__(self, number: int, *, lasting: bool, way: int) -> None:
        self.failed = 0
        self.told = False
        self._number = number
        self._lasting = lasting
        self._way = way

    def __call__(self, operation: Operation) -> int | None:
        lasting = self._lasting and not self.told
        if operation.number != self._number and not (lasting and operation.number > self._number):
            return None
        self.failed += 1
        if operation.kind == "write" and self._way == 2:
            return 100  # the bytes of a write that is cut short
        full = operation.kind == "write" and self._way == 1
        raise apsw.exception_for(apsw.SQLITE_FULL if full else _ERRORS[operation.kind])


class Scenario:
    """A bit of everything that a gateway stores, on a disk that fails once or for a while."""

    def __init__(self, folder: Path, failing: Failing, *, work: str = "all") -> None:
        self._judged = "texts" if work == "reviews" else "plain"
        self.faults: list[str] = []
        self.acknowledged = 0
        self.errors = 0
        self._failing = failing
        self._database = folder / "t.db"
        self._log = Log(folder / "log")
        self._world = World(self._log, Log(folder / "effects"), lambda point: None)
        self._disk = Disk(checkpoint_pages=CHECKPOINT_PAGES)
        self._disk.on_operation = failing

    async def play(self) -> None:
        connect = self._disk.connect
        for part in range(2):
            store = await self._opened(connect)
            if store is None:
                self.faults.append("N2 the store does not open any more")
                return
            async with Gateway(self._deps(store)) as gateway:
                await self._tried(gateway.recover())
                if part == 0:
                    await (self._work if self._judged == "plain" else self._reviewed)(gateway)
                self._failing.told = True
                await self._later(gateway, f"after{part}")
            await self._tried(store.aclose())
        self._disk.unregister()
        # Another process, on a sound disk.
        async with Gateway(self._deps(await SqliteStore.open(self._database))) as gateway:
            await gateway.recover()
            await self._decide_all(gateway)
            for lost in await gateway.deps.store.lost_calls(""):
                await gateway.outcome(lost.scope, lost.call.id)
            await self._answer_open(gateway.tenant(TENANT).thread("t0"))
            await self._later(gateway, "end")
            store = gateway.deps.store  # type: ignore[assignment]  # it is one of ours
        await store.aclose()  # type: ignore[union-attr]  # there is one

    def _deps(self, store: SqliteStore) -> GatewayDeps:
        return create_gateway_deps(
            store=store,
            provider=self._world,
            tools=TOOLS,
            checks=checks_of(self._judged, lambda point: None),
            reviews=rules_of(self._judged),
        )

    async def _opened(self, connect: Connect) -> SqliteStore | None:
        opened: list[SqliteStore] = []

        async def open_() -> None:
            opened.append(await SqliteStore.open(self._database, connect=connect))

        for _ in range(3):
            await self._tried(open_())
            if opened:
                return opened[0]
        return None

    async def _work(self, gateway: Gateway) -> None:
        tenant = gateway.tenant(TENANT)
        first, second = tenant.thread("t0"), tenant.thread("t1")
        await self._told(first.ask("say a"))
        await asyncio.gather(
            self._told(first.run("tools b safe,unsafe|keyed", tools=TOOLS)),
            self._told(second.ask("say k", key="k")),
        )
        await self._told(self._streamed(second))
        await self._told(first.ask("own e 2", tools=[OWN]))
        await self._tried(self._answer_open(first))
        await self._told(first.ask(None, instructions=GO_ON))
        await self._told(second.ask("say k", key="k"))

    async def _reviewed(self, gateway: Gateway) -> None:
        """Two calls are held and decided on; each decision is there whole, or not at all."""
        first, second = (gateway.tenant(TENANT).thread(name) for name in ("t2", "t3"))
        await self._told(first.ask("say h-hold"))
        await self._told(second.run("tools p pay,look", tools=TOOLS))
        await self._told(first.ask("say b-block", pending="go_on"))
        await self._tried(self._decide_all(gateway, rounds=1))

    async def _decide_all(self, gateway: Gateway, *, rounds: int = 10) -> None:
        tenant = gateway.tenant(TENANT)
        for _ in range(rounds):
            for review in (await tenant.reviews.list()).reviews:
                await self._tried(self._decide(gateway, review))
            for call in (await tenant.calls()).calls:
                if call.state == "active":
                    await self._told(tenant.call(call.id).outcome())

    async def _decide(self, gateway: Gateway, review: ReviewRecord) -> None:
        reviews = gateway.tenant(TENANT).reviews
        if review.answer is not None:
            decided = await reviews.edit(review.id, by="ann", text="in better words")
        else:
            decided = await reviews.approve(review.id, by="ann")
        self._log.note(decided=decided.id, state=decided.state, by=decided.decided_by)

    async def _streamed(self, thread: Thread) -> Outcome | None:
        async with thread.stream_run("slowly d keyed,unsafe", tools=TOOLS) as events:
            async for _ in events:
                pass
        return events.outcome

    async def _answer_open(self, thread: Thread) -> None:
        """Give the results of the caller's own calls, if the ask that made them is stored."""
        slots = ["e.0.0", "e.0.1"]
        results = [
            ToolResultPart(call_id=slot, content=result_of(slot), name="own") for slot in slots
        ]
        with contextlib.suppress(UnknownToolCall):
            await thread.add_results(results)
            self._log.note(added=slots)

    async def _later(self, gateway: Gateway, token: str) -> None:
        for name in ("t0", "t1") if self._judged == "plain" else ("t0",):
            failed = self._failing.failed
            for attempt in ("", "again"):
                try:
                    outcome = (
                        await gateway.tenant(TENANT).thread(name).ask(f"say {name}{token}{attempt}")
                    )
                except StoreError as error:
                    if self._failing.failed > failed and not attempt:
                        continue  # the operation that was to fail came only now
                    self.faults.append(f"N2 thread {name} can't be asked any more: {error!r}")
                except Exception as error:
                    self.faults.append(f"N1 thread {name} can't be asked any more: {error!r}")
                else:
                    if not isinstance(outcome, Answered):
                        self.faults.append(f"N2 thread {name} is not answered any more")
                    self._note(outcome)
                break

    async def _told(self, work: Awaitable[Outcome | None]) -> None:
        async def noted() -> None:
            outcome = await work
            if outcome is not None:
                self._note(outcome)

        await self._tried(noted())

    async def _tried(self, work: Awaitable[object]) -> None:
        try:
            await work
        except StoreError:
            self.errors += 1
            self._failing.told = True
        except Exception:
            self.faults.append(f"N1 {traceback.format_exc()[-1200:]}")

    def _note(self, outcome: Outcome) -> None:
        self.acknowledged += 1
        states = {Answered: "answered", AwaitingReview: "review", Blocked: "blocked"}
        self._log.note(
            ended=outcome.call_id,
            state=states.get(type(outcome), "incomplete"),
            text=outcome.text,
            turns=[turn.id for turn in outcome.turns],
        )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("mode", choices=("once", "lasting"))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--work", choices=("all", "reviews"), default="all")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--bug")
    parser.add_argument("--until", default="", help="go on until a fault of this kind is found")
    arguments = parser.parse_args(given)
    flush_often()
    if arguments.bug is not None:
        bugs.plant(arguments.bug)
    seen = {"failures": 0, "acknowledged": 0, "errors": 0}
    faults: list[str] = []
    number = 1
    while not any(f": {arguments.until}" in fault for fault in faults):
        folder = arguments.folder / str(number)
        folder.mkdir(parents=True)
        lasting = arguments.mode == "lasting"
        failing = Failing(number, lasting=lasting, way=(number + arguments.seed) % 3)
        scenario = Scenario(folder, failing, work=arguments.work)
        try:
            asyncio.run(asyncio.wait_for(scenario.play(), TIMEOUT_S))
        except TimeoutError:
            scenario.faults.append("N2 the scenario does not end")
        rows = read_rows(folder / "t.db")
        log, effects = Log.read(folder / "log"), Log.read(folder / "effects")
        found = scenario.faults + faults_of(rows, log, effects, finished=True, failing=True)
        found += leaked_bytes(folder / "t.db")
        faults += [f"{arguments.mode}, operation {number}: {fault}" for fault in found]
        seen["failures"] += failing.failed
        seen["acknowledged"] += scenario.acknowledged
        seen["errors"] += scenario.errors
        if not faults:
            shutil.rmtree(folder)
        if not failing.failed:
            break
        number += arguments.step
    print(json.dumps({**seen, "scenarios": number, "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A kill loop: children that use one database, and die at named points or at any moment.

Run as ``python -m tests.harness.kill_loop FOLDER --seed N --episodes A B --kills N``; its last line
is a JSON object of figures, and it exits with 1 if there is a fault. The parent imports once and
forks. An episode is one database: each child opens it, goes on where the last one died, does more,
and dies; the last one of all is left alone and has to finish everything. After each death the
parent reads the bare rows and looks for broken promises (`checks`, `review_checks`).

Episodes take turns in what judges them (`judges.MODES`): nothing; rules that hold calls of tools;
checks and rules of all kinds. Reviewers then decide beside those who ask.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness import bugs
from tests.harness.checks import faults_of, read_rows
from tests.harness.deciding import Reviewer
from tests.harness.failpoints import POINTS, REVIEW_POINTS, FailpointStore, Hit, connecting
from tests.harness.judges import HELD_MARKS, MODES, checks_of, rules_of
from tests.harness.review_checks import leaked_bytes
from tests.harness.world import GO_ON, OWN, TENANT, TOOLS, Log, World, flush_often, result_of
from turngate import Gateway, ToolCallPart, ToolResultPart, identity
from turngate.bootstrap import create_gateway_deps
from turngate.errors import RequestError, ThreadBusy, UnknownCall
from turngate.gateway import Answered, AwaitingReview, Blocked, Outcome
from turngate.gateway.tenants import Thread
from turngate.records import Change, Guard, Scope, Step
from turngate.stores.sqlite import SqliteStore

THREADS = 3
ACTORS = 5  # more than threads, so that some meet
REVIEWERS = 2
KEYS = 4  # a thread
PATIENCE_S = 0.09  # with a child that never comes to its point
FINISH_S = 20.0

SCOPE = Scope(TENANT)
NAMES = tuple(tool.spec.name for tool in TOOLS)
HELD = ("pay", "pay,safe|book", "book,look", "look,unsafe|pay", "pay,pay", "safe|book")


class Child:
    """What one process does with the database until it dies, or to the end."""

    def __init__(
        self,
        folder: Path,
        name: str,
        chance: random.Random,
        hit: Hit,
        *,
        point: str = "",
        mode: str = "plain",
    ) -> None:
        self._folder = folder
        self._name = name
        self._point = point
        self._mode = mode
        self._chance = chance
        self._hit = hit
        self._log = Log(folder / "log")
        self._number = 0

    @property
    def _cancels(self) -> bool:
        """Whether it is there to cancel waiting calls: else few would be before a decision."""
        return self._point.startswith("review.cancel") and self._mode != "plain"

    async def live(self, *, finish: bool) -> None:
        world = World(self._log, Log(self._folder / "effects"), self._hit)
        store = await SqliteStore.open(self._folder / "t.db", connect=connecting(self._hit))
        before = [lost.call for lost in await store.lost_calls("")]
        deps = create_gateway_deps(
            store=FailpointStore(store, self._hit),
            provider=world,
            tools=TOOLS,
            checks=checks_of(self._mode, self._hit),
            reviews=rules_of(self._mode),
        )
        async with Gateway(deps) as gateway:
            self._tenant = gateway.tenant(TENANT)
            self._reviewer = Reviewer(self._tenant, store, self._log, self._chance, self._name)
            await gateway.recover()
            await gateway.sweep_reviews()
            for call in before:
                await self._write_late(
                    store, Guard(call=call.id, owner=call.owner, epoch=call.epoch)
                )
                await self._write_late(
                    store, Guard(call=call.id, owner=deps.owner, epoch=call.epoch)
                )
            if finish:
                await self._finish(store)
            else:
                async with asyncio.TaskGroup() as group:
                    for number in range(ACTORS):
                        group.create_task(self._act(f"t{number % THREADS}"))
                    for _ in range(0 if self._mode == "plain" or self._cancels else REVIEWERS):
                        group.create_task(self._review(gateway))
        await store.aclose()

    # ── as a stale owner ─────────────────────────────────────────────────────────────────────

    async def _write_late(self, store: SqliteStore, guard: Guard) -> None:
        """Write for a call under the name that it had before it was taken over."""
        marker = identity.new_id("stale")
        self._log.note(stale=marker)
        record = await store.call(SCOPE, guard.call)
        if (record.owner, record.epoch) == (guard.owner, guard.epoch) and record.state == "active":
            self._log.note(fault=f"I5 call {guard.call} was not taken over")
            return
        step = Step(number=999, kind="tool_start", place=0)
        change = Change(
            thread=record.thread, at=identity.now(), guard=guard, steps=(step,), title=marker
        )
        try:
            await store.commit(SCOPE, change)
        except UnknownCall:
            return
        self._log.note(fault=f"I5 a stale owner of {guard.call} was heard")

    # ── the work ─────────────────────────────────────────────────────────────────────────────

    async def _act(self, name: str) -> None:
        thread = self._tenant.thread(name)
        works = [self._ask, self._keyed, self._keyed, self._run, self._stream, self._own]
        # A point that only some work comes by is reached sooner with more of it.
        favoured = {"events": self._stream, "append": self._own, "tool": self._run}
        works += [favoured[kind]] * 6 if (kind := self._point.split(".")[0]) in favoured else []
        if self._mode != "plain":
            works += [self._held_run] * 3
        if self._mode == "texts":
            works += [self._held_answer, self._judged] * 2
        if self._cancels:
            works = [self._held_run]
        while True:
            try:
                await self._answer_open(thread)
                await self._chance.choice(works)(thread)
            except ThreadBusy as busy:
                await self._meet(busy, thread)

    async def _review(self, gateway: Gateway) -> None:
        while True:
            if not await self._reviewer.decide_any() or self._chance.random() < 0.5:
                await asyncio.sleep(0.001)
            if self._chance.random() < 0.1:
                await gateway.sweep_reviews()

    def _token(self, mark: str = "") -> str:
        self._number += 1
        return f"{self._name}.{self._number}{mark}"

    async def _ask(self, thread: Thread) -> None:
        self._acknowledged(await thread.ask(f"say {self._token()}"))

    async def _run(self, thread: Thread) -> None:
        names = self._chance.choice(("safe,unsafe", "keyed,unsafe|safe", "unsafe", "keyed,safe"))
        prompt = f"tools {self._token()} {names}"
        self._acknowledged(await thread.run(prompt, tools=NAMES))

    async def _stream(self, thread: Thread) -> None:
        """A streamed run, read to its end, left at some event, or cancelled by its id."""
        prompt = f"slowly {self._token()} keyed,unsafe|safe"
        way = self._chance.choice(("read", "leave", "cancel"))
        stream = thread.stream_run(prompt, tools=NAMES, detach=way == "cancel")
        leave_after = self._chance.randrange(8)
        async with stream as events:
            seen = 0
            async for _ in events:
                seen += 1
                if way != "read" and seen > leave_after:
                    break
        if way == "cancel" and stream.call_id is not None:
            self._acknowledged(await self._tenant.call(stream.call_id).cancel())
        elif stream.outcome is not None:
            self._acknowledged(stream.outcome)

    async def _held_run(self, thread: Thread) -> None:
        """A run whose tools a person decides on; its steps or its answer may be held as well."""
        mark = self._chance.choice(("", "", "-hold", "-strict")) if self._mode == "texts" else ""
        prompt = f"tools {self._token(mark)} {self._chance.choice(HELD)}"
        if self._chance.random() < 0.3:
            await self._followed(thread, prompt)
        else:
            self._acknowledged(await thread.run(prompt, tools=NAMES))

    async def _followed(self, thread: Thread, prompt: str) -> None:
        async with thread.stream_run(prompt, tools=NAMES) as events:
            async for _ in events:
                pass
        if events.outcome is not None:
            self._acknowledged(events.outcome)

    async def _held_answer(self, thread: Thread) -> None:
        token = self._token(self._chance.choice(HELD_MARKS))
        way = self._chance.randrange(3)
        if way == 0:
            self._acknowledged(await thread.ask(f"say {token}"))
        elif way == 1:
            self._acknowledged(await thread.run(f"tell {token}"))
        else:
            await self._followed(thread, f"tell {token}")

    async def _judged(self, thread: Thread) -> None:
        """What is blocked, or passes in other words; some of it is cut as well."""
        mark = self._chance.choice(("-block", "-swap", "-stop", "-raw", "-bar", "-hold"))
        token = self._token(mark)
        if mark == "-bar":
            self._acknowledged(await thread.run(f"tools {token} safe,pay", tools=NAMES))
        elif mark == "-hold":
            self._acknowledged(await thread.ask(f"cut {token}"))
        else:
            kind = "say" if self._chance.random() < 0.7 else "cut"
            self._acknowledged(await thread.ask(f"{kind} {token}"))

    async def _own(self, thread: Thread) -> None:
        """An ask with calls of the caller's own; they are answered in one go or one by one."""
        token, count = self._token(), self._chance.randrange(1, 3)
        outcome = await thread.ask(f"own {token} {count}", tools=[OWN])
        self._acknowledged(outcome)
        await self._answer_open(thread)
        self._acknowledged(await thread.ask(None, instructions=GO_ON))

    async def _keyed(self, thread: Thread) -> None:
        await self._keyed_call(thread, self._chance.randrange(KEYS))

    async def _keyed_call(self, thread: Thread, number: int) -> None:
        """One of the thread's keyed calls, as often as anyone likes: it is one call for ever."""
        key = f"{thread.id}-k{number}"
        if number % 2:
            outcome = await thread.run(f"tools {key} keyed,unsafe", tools=NAMES, key=key)
        else:
            outcome = await thread.ask(f"say {key}", key=key)
        self._log.note(key=key, call=outcome.call_id)
        self._acknowledged(outcome)

    async def _answer_open(self, thread: Thread, *, last: int = 40) -> None:
        """Answer what asks left open among the `last` turns."""
        turns = (await thread.turns(limit=last)).turns
        parts = [part for turn in turns for part in turn.parts]
        done = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
        slots = [
            part.id
            for part in parts
            if isinstance(part, ToolCallPart) and part.name == "own" and part.id not in done
        ]
        if not slots:
            return
        results = [
            ToolResultPart(call_id=slot, content=result_of(slot), name="own") for slot in slots
        ]
        pieces = [results] if self._chance.random() < 0.5 else [[result] for result in results]
        for piece in pieces:
            await thread.add_results(piece)
            self._log.note(added=[result.call_id for result in piece])

    async def _meet(self, busy: ThreadBusy, thread: Thread) -> None:
        """Another call is in the way: wait for it, cancel it, or come back later.

        If it waits for a review: decide, go on beside it, or cancel it now and then.
        """
        call = self._tenant.call(busy.call_id)
        way = self._chance.randrange(6 if busy.in_review else 3)
        if busy.in_review and self._cancels:
            way = 1
        if way == 0 and not busy.in_review:
            with contextlib.suppress(RequestError):  # it may wait for another gateway
                self._acknowledged(await call.outcome())
        elif way == 1:
            outcome = await call.cancel()
            if isinstance(outcome, AwaitingReview):
                self._log.note(fault=f"I9: call {call.id} was cancelled, and waits for a review")
            self._acknowledged(outcome)
        elif way == 2:
            await asyncio.sleep(0.001)
        elif way == 3:
            with contextlib.suppress(ThreadBusy):
                prompt = f"say {self._token()}"
                self._acknowledged(await thread.ask(prompt, pending="go_on"))
        else:
            await self._reviewer.decide_any()

    def _acknowledged(self, outcome: Outcome) -> None:
        record = "answered" if isinstance(outcome, Answered) else "incomplete"
        if isinstance(outcome, AwaitingReview):
            self._log.note(opened=outcome.reviews)
            record = "review"
        elif isinstance(outcome, Blocked):
            record = "blocked"
        elif not isinstance(outcome, Answered) and outcome.reason == "recovery_exhausted":
            record = "failed"
        self._log.note(
            ended=outcome.call_id,
            state=record,
            text=outcome.text,
            turns=[turn.id for turn in outcome.turns],
        )

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    async def _finish(self, store: SqliteStore) -> None:
        for lost in await store.lost_calls(""):
            self._acknowledged(await self._tenant.call(lost.call.id).outcome())
        while await self._reviewer.decide_any(last=True):
            for call in (await self._tenant.calls(limit=1000)).calls:
                if call.state == "active":
                    self._acknowledged(await self._tenant.call(call.id).outcome())
        for number in range(THREADS):
            thread = self._tenant.thread(f"t{number}")
            for key in range(KEYS):
                await self._keyed_call(thread, key)
            await self._answer_open(thread, last=1000)
            outcome = await thread.ask(f"say {self._token()}")
            if not isinstance(outcome, Answered):
                self._log.note(fault=f"I2 thread {thread.id} can't be asked any more")
            self._acknowledged(outcome)


# ── the parent ───────────────────────────────────────────────────────────────────────────────


def forked(folder: Path, name: str, seed: str, plan: Plan, bug: str | None) -> int:
    """A child that lives by `plan`, and its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        log = Log(folder / "log")
        reached: Counter[str] = Counter()

        def hit(point: str) -> None:
            reached[point] += 1
            if point == plan.point and reached[point] == plan.time:
                log.note(kill=point)
                os.kill(os.getpid(), signal.SIGKILL)

        flush_often()
        if bug is not None:
            bugs.plant(bug, setattr)
        child = Child(folder, name, random.Random(seed), hit, point=plan.point, mode=plan.mode)
        asyncio.run(child.live(finish=plan.point == "finish"))
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            text = "".join(traceback.format_exc()[-1500:])
            Log(folder / "log").note(fault=f"I0 a child failed: {text}")
    finally:
        os._exit(code)


class Plan:
    """How a child ends: at the `time`-th hit of `point`, ``random`` after a delay, ``finish``.

    `mode` says what judges it meanwhile.
    """

    def __init__(self, point: str, time: int, delay_s: float, mode: str) -> None:
        self.point = point
        self.time = time
        self.delay_s = delay_s
        self.mode = mode

    @classmethod
    def chosen(cls, chance: random.Random, mode: str, points: Sequence[str]) -> Plan:
        """`points` are those that are asked for, if any are."""
        if not points and chance.random() < 0.2:
            return cls("random", 0, chance.uniform(0.003, 0.04), mode)
        of_reviews = REVIEW_POINTS[mode]
        if not points:
            points = of_reviews if of_reviews and chance.random() < 0.6 else POINTS
        point = chance.choice(points)
        times: Sequence[int] = (1, 2, 3, 5) if point in of_reviews else (1, 1, 1, 2, 3)
        if point.startswith("review.cancel"):
            times = (1,)
        return cls(point, chance.choice(times), PATIENCE_S, mode)


def ended(pid: int, within_s: float) -> bool:
    """Whether the child ended by itself; else it is killed now."""
    descriptor = os.pidfd_open(pid)
    try:
        found, _, _ = select.select([descriptor], [], [], within_s)
        if not found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)
    finally:
        os.close(descriptor)
        os.waitpid(pid, 0)


def warm_up(folder: Path) -> None:
    """Do once what each child would else do for the first time, and let its threads end."""
    folder.mkdir(parents=True)
    child = Child(folder, "warm", random.Random(0), lambda point: None, mode="texts")
    asyncio.run(child.live(finish=True))
    while threading.active_count() > 1:
        time.sleep(0.001)


class Figures:
    """What a loop has seen."""

    def __init__(self) -> None:
        self.kills = 0
        self.acknowledged = 0
        self.decided = 0
        self.points: Counter[str] = Counter()
        self.faults: list[str] = []

    def as_json(self) -> str:
        return json.dumps(vars(self))


def episode(folder: Path, number: int, arguments: argparse.Namespace, figures: Figures) -> None:
    """Kill `arguments.kills` children over one database, then let one finish it."""
    chance = random.Random(f"{arguments.seed}-{number}")
    folder.mkdir(parents=True)
    mode = arguments.mode or MODES[number % len(MODES)]
    faults: list[str] = []
    for round_ in range(arguments.kills):
        plan = Plan.chosen(chance, mode, arguments.points)
        seed = f"{arguments.seed}-{number}-{round_}"
        pid = forked(folder, f"e{number}r{round_}", seed, plan, arguments.bug)
        ended(pid, plan.delay_s)
        figures.kills += 1
        faults = found_faults(folder)
        if faults:
            break
    else:
        plan = Plan("finish", 0, FINISH_S, mode)
        pid = forked(folder, f"e{number}end", f"{arguments.seed}-{number}", plan, arguments.bug)
        if not ended(pid, FINISH_S):
            faults = [f"I2 the undisturbed process did not end within {FINISH_S:g} s"]
        faults += found_faults(folder, finished=True)
    figures.faults += [f"episode {number}, kill {figures.kills}: {fault}" for fault in faults]
    log = Log.read(folder / "log")
    figures.acknowledged += sum("ended" in line or "added" in line for line in log)
    figures.decided += sum("decided" in line for line in log)
    figures.points.update(line["kill"] for line in log if "kill" in line)
    if not faults:
        shutil.rmtree(folder)


def found_faults(folder: Path, *, finished: bool = False) -> list[str]:
    log, effects = Log.read(folder / "log"), Log.read(folder / "effects")
    faults = faults_of(read_rows(folder / "t.db"), log, effects, finished=finished)
    return [*faults, *leaked_bytes(folder / "t.db")]


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, nargs=2, default=(0, 1))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--mode", choices=MODES, help="in place of each in turn")
    parser.add_argument("--bug")
    parser.add_argument("--until", default="", help="go on until a fault of this kind is found")
    parser.add_argument("--points", nargs="*", default=())
    arguments = parser.parse_args(given)
    warm_up(arguments.folder / "warm")
    gc.collect()
    gc.freeze()  # the children share what is here
    figures = Figures()
    for number in range(*arguments.episodes):
        episode(arguments.folder / str(number), number, arguments, figures)
        if any(f": {arguments.until}" in fault for fault in figures.faults):
            break
    print(figures.as_json())
    return 1 if figures.faults else 0


if __name__ == "__main__":
    started = time.monotonic()
    code: Any = main()
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)
    raise SystemExit(code)

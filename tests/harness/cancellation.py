"""Cancel a caller at each of its awaits, one after the other, until none is left.

The coroutine under test is driven step by step: each time it gives control away counts as one
await, and at the Nth the calling task is cancelled while it waits there.

    I1 what an outcome told is not stored   I2 the thread is not free afterwards
    I3 I6 I8 as in `checks`                 R  the caller got something else than its cancellation
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.bugs import SetAttribute
from tests.harness.checks import faults_of, read_rows
from tests.harness.judges import checks_of, rules_of
from tests.harness.world import OWN, TENANT, TOOLS, Log, World, result_of
from turngate import Gateway, ToolResultPart, identity
from turngate.bootstrap import create_gateway_deps
from turngate.errors import ThreadBusy
from turngate.gateway import Answered, Incomplete, NewCall, execute_ask, loop
from turngate.gateway.loop import execute_run
from turngate.gateway.reviews import Decision, decide
from turngate.gateway.tenants import Thread
from turngate.gateway.toolbox import tools_by_name
from turngate.records import Scope, ToolNeed
from turngate.stores.sqlite import SqliteStore

__all__ = ["SCENES", "Scene", "cancel_everywhere", "cancel_inside"]

_SCOPE = Scope(TENANT)
_BUSY_TRIES = 200  # a call whose caller was cancelled twice is settled in its own time


@dataclass(frozen=True)
class Scene:
    """A piece of work on one thread. `settled`: who is cancelled comes back to a free thread.

    `mode` says what judges the model (`judges`); a decision is whole after it, or absent.
    """

    name: str
    work: Callable[[Gateway, Thread, str], Coroutine[Any, Any, Any]]
    setup: Callable[[Thread, str], Awaitable[Any]] | None = None
    settled: bool = True
    mode: str = "plain"


async def ask(gateway: Gateway, thread: Thread, token: str) -> Any:
    return await thread.ask(f"say {token}")


async def run(gateway: Gateway, thread: Thread, token: str) -> Any:
    return await thread.run(f"tools {token} safe,unsafe|safe", tools=TOOLS)


async def keyed(gateway: Gateway, thread: Thread, token: str) -> Any:
    return await thread.ask(f"say {token}", key=token)


async def stream(gateway: Gateway, thread: Thread, token: str) -> Any:
    async with thread.stream_run(f"tools {token} safe,unsafe", tools=TOOLS) as events:
        async for _ in events:
            pass
    return events.outcome


async def cancel_by_id(gateway: Gateway, thread: Thread, token: str) -> Any:
    async with thread.stream_ask(f"say {token}", detach=True) as events:
        pass
    return await gateway.tenant(TENANT).call(events.call_id or "").cancel()


async def open_call(thread: Thread, token: str) -> Any:
    return await thread.ask(f"own {token} 2", tools=[OWN])


async def add(gateway: Gateway, thread: Thread, token: str) -> Any:
    slots = [f"{token}.0.0", f"{token}.0.1"]
    return await thread.add_results(
        [ToolResultPart(call_id=slot, content=result_of(slot), name="own") for slot in slots]
    )


async def ask_itself(gateway: Gateway, thread: Thread, token: str) -> Any:
    """The work of an ask in the very task that is cancelled: the gateway's own as it goes down."""
    new = NewCall(id=identity.new_id("call"), scope=_SCOPE, thread=thread.id, prompt=f"say {token}")
    return await execute_ask(gateway.deps, new)


async def run_itself(gateway: Gateway, thread: Thread, token: str) -> Any:
    """The work of a run in the very task that is cancelled."""
    new = NewCall(
        id=identity.new_id("run"),
        scope=_SCOPE,
        thread=thread.id,
        prompt=f"tools {token} safe,unsafe",
        kind="run",
        tools=tuple(tool.spec for tool in TOOLS),
        needs=tuple(ToolNeed(tool.spec.name, tool.schema_hash) for tool in TOOLS),
        streamed=True,
    )
    return await execute_run(gateway.deps, new, tools=tools_by_name(TOOLS))


async def held_answer(thread: Thread, token: str) -> Any:
    return await thread.ask(f"say {token}-hold")


async def held_call(thread: Thread, token: str) -> Any:
    return await thread.run(f"tools {token} pay,look", tools=TOOLS)


async def held_ask(gateway: Gateway, thread: Thread, token: str) -> Any:
    return await held_answer(thread, token)


async def held_run(gateway: Gateway, thread: Thread, token: str) -> Any:
    return await held_call(thread, token)


async def approve(gateway: Gateway, thread: Thread, token: str) -> Any:
    reviews = gateway.tenant(TENANT).reviews
    for review in (await reviews.list(thread=thread.id)).reviews:
        await reviews.approve(review.id, by="ann")


async def decision_itself(gateway: Gateway, thread: Thread, token: str) -> Any:
    """The work of a decision in the very task that is cancelled; whatever may go on is left."""
    page = await gateway.tenant(TENANT).reviews.list(thread=thread.id)
    for review in page.reviews:
        decision = Decision(action="approve", by="ann")
        decided = await decide(gateway.deps, _SCOPE, review.id, decision)
        if decided.run is not None:
            gateway.deps.live.discard(decided.run.call.id)


SCENES = (
    Scene("ask", ask),
    Scene("run", run),
    Scene("keyed ask", keyed),
    Scene("stream", stream),
    Scene("cancel", cancel_by_id, settled=False),
    Scene("add_results", add, open_call),
    Scene("the work of an ask", ask_itself),
    Scene("the work of a run", run_itself),
    Scene("held ask", held_ask, mode="texts"),
    Scene("held run", held_run, mode="tools"),
    Scene("approve an answer", approve, held_answer, settled=False, mode="texts"),
    Scene("approve calls", approve, held_call, settled=False, mode="tools"),
    Scene("the work of a decision", decision_itself, held_call, settled=False, mode="tools"),
    Scene("the work of an answer's", decision_itself, held_answer, settled=False, mode="texts"),
)


@types.coroutine
def _counted(
    work: Coroutine[Any, Any, Any], at_await: Callable[[int], None]
) -> Generator[Any, Any, Any]:
    """`work`, which tells of each of its awaits as it begins."""
    count = 0
    send: Callable[[], Any] = lambda: work.send(None)  # noqa: E731
    while True:
        try:
            waiting = send()
        except StopIteration as end:
            return end.value
        count += 1
        at_await(count)
        try:
            yield waiting
            send = lambda: work.send(None)  # noqa: E731
        except BaseException as error:
            raised = error
            send = lambda raised=raised: work.throw(raised)  # type: ignore[misc]  # noqa: E731


async def cancel_everywhere(
    scene: Scene, folder: Path, *, twice: bool = False, delayed: bool = False
) -> tuple[int, list[str]]:
    """How many awaits there are, and the faults; `twice` cancels at the next await again.

    `delayed` cancels one turn of the loop later, when what was awaited may have come.
    """
    log, effects = folder / "log", folder / "effects"
    world = World(Log(log), Log(effects), lambda point: None)
    store = await SqliteStore.open(folder / "t.db")
    faults: list[str] = []
    number = 1
    deps = create_gateway_deps(
        store=store,
        provider=world,
        tools=TOOLS,
        checks=checks_of(scene.mode, lambda point: None),
        reviews=rules_of(scene.mode),
    )
    async with Gateway(deps) as gateway:
        while not faults:
            token, thread = f"x{number}", gateway.tenant(TENANT).thread(f"t{number}")
            if scene.setup is not None:
                await scene.setup(thread, token)
            reached = await _cancelled_at(scene, gateway, thread, number, twice, delayed, faults)
            await _check_free(scene, gateway, thread, token, twice, faults)
            rows = read_rows(folder / "t.db")
            found = faults_of(rows, Log.read(log), Log.read(effects))
            faults += [f"{scene.name}, await {number}: {fault}" for fault in found]
            if not reached:
                break
            number += 1
    await store.aclose()
    return number - 1, faults


async def _cancelled_at(
    scene: Scene,
    gateway: Gateway,
    thread: Thread,
    number: int,
    twice: bool,
    delayed: bool,
    faults: list[str],
) -> bool:
    """Do the scene's work and cancel it at its await `number`; whether it came to that."""
    loop = asyncio.get_running_loop()
    reached = False
    task: asyncio.Task[Any]

    def at_await(count: int) -> None:
        nonlocal reached
        if count == number or (twice and count == number + 1):
            reached = True
            if delayed:
                loop.call_soon(lambda: loop.call_soon(task.cancel))
            else:
                loop.call_soon(task.cancel)

    async def driven() -> Any:
        return await _counted(scene.work(gateway, thread, f"x{number}"), at_await)

    task = loop.create_task(driven())
    done, _ = await asyncio.wait({task}, timeout=10.0)
    if not done:
        faults.append(f"I2: {scene.name}, await {number}: the caller hangs")
        task.cancel()
        return False
    if not task.cancelled() and task.exception() is not None:
        faults.append(f"R: {scene.name}, await {number}: {task.exception()!r}")
    return reached


async def _check_free(
    scene: Scene, gateway: Gateway, thread: Thread, token: str, twice: bool, faults: list[str]
) -> None:
    """The thread can be asked again, at once where its caller came back to a settled call."""
    settled = scene.settled and not twice
    tries = 1 if settled else _BUSY_TRIES
    active = await gateway.deps.store.active_call(_SCOPE, thread.id)
    if settled and active is not None and active.id in gateway.deps.live:
        faults.append(f"I2: after {scene.name}, {token} is not settled yet")
    while True:
        tries -= 1
        try:
            outcome = await thread.ask(f"say {token}-next")
        except ThreadBusy as busy:
            if busy.in_review:
                await gateway.tenant(TENANT).call(busy.call_id).cancel()
                continue
            if tries > 0:
                await asyncio.sleep(0.005)
                continue
            faults.append(f"I2: after {scene.name}, {token} is not free: {busy}")
        except Exception as error:
            faults.append(f"R: after {scene.name}, {token}: {error!r}")
        else:
            if not isinstance(outcome, Answered):
                faults.append(f"R: after {scene.name}, {token}: {outcome!r}")
        return


async def cancel_inside(piece: str, folder: Path, set_: SetAttribute) -> tuple[int, list[str]]:
    """Cancel a run by its call at each await of one of its inner pieces, a coroutine of `loop`."""
    log, effects = folder / "log", folder / "effects"
    world = World(Log(log), Log(effects), lambda point: None)
    store = await SqliteStore.open(folder / "t.db")
    original = getattr(loop, piece)
    faults: list[str] = []
    number, reached = 1, False

    async def watched(run: loop.Run, *given: Any, **named: Any) -> Any:
        def at_await(count: int) -> None:
            nonlocal reached
            if count == number:
                reached = True
                asyncio.get_running_loop().call_soon(run.live.cancel, "cancelled")

        if run.call.kind == "ask":  # it comes by here too, as the next one on the thread
            return await original(run, *given, **named)
        return await _counted(original(run, *given, **named), at_await)

    set_(loop, piece, watched)
    async with Gateway(create_gateway_deps(store=store, provider=world, tools=TOOLS)) as gateway:
        while not faults:
            reached = False
            token, thread = f"x{number}", gateway.tenant(TENANT).thread(f"t{number}")
            outcome = await thread.run(f"tools {token} safe,unsafe|safe", tools=TOOLS)
            if reached and not (isinstance(outcome, Incomplete) and outcome.reason == "cancelled"):
                faults.append(f"R: {piece}, await {number}: {outcome!r}")
            await _check_free(SCENES[0], gateway, thread, token, False, faults)
            found = faults_of(read_rows(folder / "t.db"), Log.read(log), Log.read(effects))
            faults += [f"{piece}, await {number}: {fault}" for fault in found]
            if not reached:
                break
            number += 1
    await store.aclose()
    return number - 1, faults

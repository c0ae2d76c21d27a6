"""What the next process makes of calls whose process died.

A death is a copy of the database files while the call runs: what a kill -9 leaves at that moment.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.gateway.test_asks import said
from tests.integration.gateway.test_runs import answer, calls, results
from turngate import (
    Gateway,
    Incomplete,
    Settled,
    TextEvent,
    ToolContext,
    ToolEnded,
    ToolMessage,
    ToolStarted,
    open_gateway,
    tool,
)
from turngate.errors import ThreadBusy
from turngate.gateway import CallStream
from turngate.records import Scope
from turngate.testing import Pause, ScriptedProvider, ScriptStep
from turngate.tools import FunctionTool


class Deaths:
    """Databases of one test: `died` copies the present one to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.path.parent.mkdir(parents=True)

    @property
    def path(self) -> Path:
        return self._folder / str(self._number) / "turngate.db"

    def died(self) -> None:
        source = self.path
        self._number += 1
        self.path.parent.mkdir()
        for file in source.parent.iterdir():
            if not file.name.endswith(".lock"):
                shutil.copy(file, self.path.parent / file.name)

    @asynccontextmanager
    async def opened(
        self,
        *scripts: list[ScriptStep],
        tools: tuple[FunctionTool, ...] = (),
        resume: bool = True,
        model: str | None = None,
    ) -> AsyncIterator[tuple[Gateway, ScriptedProvider]]:
        provider = ScriptedProvider(*scripts)
        async with open_gateway(
            self.path, provider=provider, tools=tools, resume=resume, model=model
        ) as gateway:
            yield gateway, provider


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    return Deaths(tmp_path / "deaths")


class Effects:
    """Tools of each class that note the key of each effect, and then wait."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.reached = asyncio.Event()
        self.hold = True

    def tool(self, effect: str) -> FunctionTool:
        @tool(name="act", effect=effect)  # type: ignore[call-overload, untyped-decorator]  # from a parameter
        async def act(context: ToolContext) -> str:
            self.keys.append(context.key)
            self.reached.set()
            if self.hold:
                await asyncio.Event().wait()
            return "done"

        assert isinstance(act, FunctionTool)
        return act


async def stored_events_of(gateway: Gateway, stream: CallStream, count: int) -> None:
    """Wait until the first `count` events are in the store, as they are within 50 ms."""
    while True:
        batches = await gateway.deps.store.events(Scope("acme"), stream.call_id or "")
        if sum(len(json.loads(batch.body)) for batch in batches) >= count:
            return
        await asyncio.sleep(0.01)


async def killed_in_tool(deaths: Deaths, effects: Effects, act: FunctionTool) -> str:
    """The id of a run whose process died while its tool ran."""
    async with deaths.opened(calls(("act", "{}"), text="Now."), tools=(act,)) as (gateway, _):
        stream = gateway.tenant("acme").thread("t1").stream_run("go", tools=["act"], detach=True)
        async with stream as events:
            await effects.reached.wait()
            await stored_events_of(gateway, events, 2)
            deaths.died()
    effects.hold = False
    assert events.call_id is not None
    return events.call_id


@pytest.mark.parametrize("effect", ["safe", "keyed"])
async def test_safe_and_keyed_tools_run_again_with_the_same_key(
    deaths: Deaths, effect: str
) -> None:
    """A started call of a repeatable tool is run again, with the key of the first time."""
    effects = Effects()
    act = effects.tool(effect)
    run = await killed_in_tool(deaths, effects, act)
    async with deaths.opened(answer("all done"), tools=(act,)) as (gateway, provider):
        outcome = (await gateway.tenant("acme").call(run).outcome()).expect()
    assert outcome.text == "all done"
    assert results(outcome.turns) == [("c0", "done", False)]
    assert len(effects.keys) == 2
    assert len(set(effects.keys)) == 1
    assert len(provider.requests) == 1


async def test_unsafe_tool_never_runs_again(deaths: Deaths) -> None:
    """The model is told that the outcome is unknown, and the run goes on to its answer."""
    effects = Effects()
    act = effects.tool("unsafe")
    run = await killed_in_tool(deaths, effects, act)
    async with deaths.opened(answer("I'll check."), tools=(act,)) as (gateway, provider):
        outcome = (await gateway.tenant("acme").call(run).outcome()).expect()
        page = await gateway.tenant("acme").thread("t1").turns()
    assert len(effects.keys) == 1
    ((call_id, content, is_error),) = results(outcome.turns)
    assert (call_id, is_error) == ("c0", True)
    assert "outcome is unknown" in content
    assert page.turns == outcome.turns
    last = provider.requests[0].messages[-1]
    assert isinstance(last, ToolMessage)
    assert last.content == content


async def test_events_go_on_with_their_numbers_after_a_restart(deaths: Deaths) -> None:
    """A reader that comes back after a restart misses nothing and sees nothing twice."""
    effects = Effects()
    act = effects.tool("safe")
    run = await killed_in_tool(deaths, effects, act)
    async with deaths.opened(answer("all done"), tools=(act,)) as (gateway, _):
        events = [event async for event in gateway.tenant("acme").call(run).events()]
    kinds = [type(event) for event in events]
    assert kinds == [TextEvent, ToolStarted, ToolStarted, ToolEnded, TextEvent, Settled]
    async with deaths.opened() as (gateway, _):
        again = [event async for event in gateway.tenant("acme").call(run).events(after=2)]
    assert again[:-1] == events[2:-1]
    assert isinstance(again[-1], Settled)


async def test_run_killed_before_its_model_spoke_asks_again(deaths: Deaths) -> None:
    """The model call that died is made once more, over the same window."""
    pause = Pause()
    async with deaths.opened(answer("first"), [pause]) as (gateway, first):
        thread = gateway.tenant("acme").thread("t1")
        await thread.ask("hello")
        async with thread.stream_run("go", detach=True) as events:
            await pause.reached.wait()
            deaths.died()
    run = events.call_id or ""
    async with deaths.opened(answer("again")) as (gateway, second):
        outcome = (await gateway.tenant("acme").call(run).outcome()).expect()
        record = await gateway.tenant("acme").call(run).record()
    assert outcome.text == "again"
    assert second.requests[0].messages == first.requests[1].messages
    assert (record.recoveries, record.epoch) == (1, 1)


async def test_run_whose_text_a_reader_saw_ends_interrupted(deaths: Deaths) -> None:
    """What a reader saw can't be said again: it stays as an incomplete turn."""
    pause = Pause()
    async with deaths.opened(["The answer", pause]) as (gateway, _):
        stream = gateway.tenant("acme").thread("t1").stream_run("go", detach=True)
        async with stream as events:
            await pause.reached.wait()
            await stored_events_of(gateway, events, 1)
            deaths.died()
    async with deaths.opened(answer("other")) as (gateway, provider):
        outcome = await gateway.tenant("acme").call(events.call_id or "").outcome()
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text) == ("interrupted", "The answer")
    assert said(outcome.turns) == [("user", "go"), ("assistant", "The answer")]
    assert provider.requests == []


async def test_ask_of_a_dead_process_ends_interrupted(deaths: Deaths) -> None:
    """The question stays, nothing is asked again, and the thread goes on at once."""
    pause = Pause()
    async with deaths.opened([pause]) as (gateway, _):
        stream = gateway.tenant("acme").thread("t1").stream_ask("hi", detach=True)
        async with stream:
            await pause.reached.wait()
            deaths.died()
    async with deaths.opened(answer("ok")) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        assert said((await thread.turns()).turns) == [("user", "hi")]
        assert provider.requests == []
        (await thread.ask("still there?")).expect()


async def test_run_waits_for_its_tools_and_says_so(deaths: Deaths) -> None:
    """Without its tool, or with one of another schema, a run waits; with it, it goes on."""
    effects = Effects()
    act = effects.tool("safe")
    run = await killed_in_tool(deaths, effects, act)

    @tool(name="act", effect="safe")
    async def other(place: str) -> str:
        return place

    for tools in ((), (other,)):
        async with deaths.opened(tools=tools) as (gateway, _):
            record = await gateway.tenant("acme").call(run).record()
            assert (record.state, record.waiting_for) == ("active", ("act",))
            with pytest.raises(ThreadBusy):
                await gateway.tenant("acme").thread("t1").ask("me")
    async with deaths.opened(answer("done"), tools=(act,)) as (gateway, _):
        (await gateway.tenant("acme").call(run).outcome()).expect()


async def test_run_goes_on_with_its_own_model_alone(deaths: Deaths) -> None:
    """A gateway that was opened with another model leaves the run waiting."""
    pause = Pause()
    async with deaths.opened([pause], model="m1") as (gateway, _):
        stream = gateway.tenant("acme").thread("t1").stream_run("go", detach=True)
        async with stream as events:
            await pause.reached.wait()
            deaths.died()
    run = events.call_id or ""
    async with deaths.opened(answer("no"), model="m2") as (gateway, provider):
        assert (await gateway.tenant("acme").call(run).record()).waiting_for == ("model m1",)
        assert provider.requests == []
    async with deaths.opened(answer("yes"), model="m1") as (gateway, _):
        assert (await gateway.tenant("acme").call(run).outcome()).expect().text == "yes"


async def test_waiting_run_can_be_cancelled(deaths: Deaths) -> None:
    """A run that waits is cancelled by its id; its thread is free again."""
    effects = Effects()
    run = await killed_in_tool(deaths, effects, effects.tool("safe"))
    async with deaths.opened(answer("ok")) as (gateway, _):
        outcome = await gateway.tenant("acme").call(run).cancel()
        assert isinstance(outcome, Incomplete)
        assert outcome.reason == "cancelled"
        (await gateway.tenant("acme").thread("t1").ask("me")).expect()


async def test_local_run_ends_interrupted(deaths: Deaths) -> None:
    """A run with a function that is in no registry can't be taken over."""
    effects = Effects()
    act = effects.tool("safe")
    async with deaths.opened(calls(("act", "{}"))) as (gateway, _):
        stream = gateway.tenant("acme").thread("t1").stream_run("go", tools=[act], detach=True)
        async with stream as events:
            await effects.reached.wait()
            deaths.died()
    async with deaths.opened(answer("no")) as (gateway, provider):
        outcome = await gateway.tenant("acme").call(events.call_id or "").outcome()
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == "interrupted"
    assert [turn.role for turn in outcome.turns] == ["user", "assistant", "tool"]
    assert provider.requests == []


async def test_without_resume_the_next_call_on_the_thread_ends_it(deaths: Deaths) -> None:
    """`resume=False` leaves dead calls alone until their thread is used."""
    effects = Effects()
    act = effects.tool("safe")
    run = await killed_in_tool(deaths, effects, act)
    async with deaths.opened(answer("ok"), tools=(act,), resume=False) as (gateway, _):
        assert (await gateway.tenant("acme").call(run).record()).state == "active"
        (await gateway.tenant("acme").thread("t1").ask("me")).expect()
        record = await gateway.tenant("acme").call(run).record()
    assert (record.state, record.reason) == ("incomplete", "interrupted")
    assert len(effects.keys) == 1


async def test_run_that_kills_its_process_ends_after_five_recoveries(deaths: Deaths) -> None:
    """A poisonous run is given up, and others go on."""
    effects = Effects()
    act = effects.tool("safe")
    run = await killed_in_tool(deaths, effects, act)
    effects.hold = True
    for _ in range(5):
        effects.reached.clear()
        async with deaths.opened(tools=(act,)):
            await effects.reached.wait()
            deaths.died()
    async with deaths.opened(answer("ok"), tools=(act,)) as (gateway, _):
        record = await gateway.tenant("acme").call(run).record()
        outcome = await gateway.tenant("acme").call(run).outcome()
        (await gateway.tenant("acme").thread("t1").ask("me")).expect()
    assert (record.state, record.reason, record.recoveries) == (
        "failed",
        "recovery_exhausted",
        5,
    )
    assert isinstance(outcome, Incomplete)
    assert len(effects.keys) == 6

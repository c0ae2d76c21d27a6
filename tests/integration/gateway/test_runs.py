"""Runs: the loop, its limits, its journal, and what another process makes of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_asks import said
from turngate import (
    Answered,
    AssistantMessage,
    Incomplete,
    RunLimits,
    Settled,
    TextEvent,
    ToolCall,
    ToolEnded,
    ToolMessage,
    ToolResultPart,
    ToolStarted,
    Turn,
    Usage,
    UserMessage,
    tool,
)
from turngate.completion import FunctionCallDelta, StreamEnd
from turngate.errors import (
    InvalidValue,
    KeyReused,
    ProviderError,
    ThreadBusy,
    UnknownCall,
    UnknownToolCall,
)
from turngate.testing import Pause, ScriptStep
from turngate.tools import FunctionTool, ToolThreads


def calls(*arguments: tuple[str, str], text: str = "") -> list[ScriptStep]:
    """A script that says `text` and calls each (name, arguments)."""
    deltas: list[ScriptStep] = [
        FunctionCallDelta(index=index, id=f"c{index}", name=name, arguments=json)
        for index, (name, json) in enumerate(arguments)
    ]
    usage = Usage(input_tokens=10, output_tokens=2)
    return [*([text] if text else []), *deltas, StreamEnd("tool_calls", usage=usage, model="m1")]


def answer(text: str) -> list[ScriptStep]:
    return [text, StreamEnd("stop", usage=Usage(input_tokens=20, output_tokens=3), model="m1")]


@tool(effect="safe")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def results(turns: tuple[Turn, ...]) -> list[tuple[str, str, bool]]:
    """Call id, content and error mark of each stored tool result."""
    return [
        (part.call_id, part.content, part.is_error)
        for turn in turns
        for part in turn.parts
        if isinstance(part, ToolResultPart)
    ]


async def test_run_calls_tools_until_the_answer(opened: Opener) -> None:
    """A run executes its calls, shows their results to the model, and stores all turns in order."""
    scripts = [calls(("double", '{"number":21}'), text="Let me see."), answer("42")]
    async with opened(*scripts, tools=[double]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        outcome = (await thread.run("Twice 21?", tools=["double"])).expect()
        page = await thread.turns()
    assert outcome.text == "42"
    assert outcome.usage == Usage(input_tokens=30, output_tokens=5)
    assert [turn.role for turn in page.turns] == ["user", "assistant", "tool", "assistant"]
    assert outcome.turns == page.turns
    assert results(page.turns) == [("c0", "42", False)]
    assert [turn.usage for turn in page.turns] == [None, None, None, outcome.usage]
    assert [turn.model for turn in page.turns] == [None, "m1", None, "m1"]
    assert [spec.name for spec in provider.requests[0].tools] == ["double"]
    assert provider.requests[1].messages == (
        UserMessage(("Twice 21?",)),
        AssistantMessage(
            text="Let me see.",
            tool_calls=(ToolCall(id="c0", name="double", arguments='{"number":21}'),),
        ),
        ToolMessage(call_id="c0", content="42", name="double"),
    )


async def test_run_shows_only_the_tools_it_names(opened: Opener) -> None:
    """A registered tool that the call does not name is neither shown nor run."""
    scripts = [calls(("double", '{"number":1}')), answer("no")]
    async with opened(*scripts, tools=[double]) as (gateway, provider):
        outcome = await gateway.tenant("acme").thread("t1").run("hi")
        with pytest.raises(InvalidValue, match="nope"):
            await gateway.tenant("acme").thread("t2").run("hi", tools=["nope"])
    assert provider.requests[0].tools == ()
    ((_, content, is_error),) = results(outcome.turns)
    assert is_error
    assert "There is no tool 'double'" in content


async def test_parallel_calls_run_in_parallel_and_stay_in_order(opened: Opener) -> None:
    """Two calls that wait for each other both end; results stand in the order of the calls."""
    first_in, second_in = asyncio.Event(), asyncio.Event()

    @tool
    async def first() -> str:
        first_in.set()
        await second_in.wait()
        await asyncio.sleep(0.02)
        return "one"

    @tool
    async def second() -> str:
        second_in.set()
        await first_in.wait()
        return "two"

    scripts = [calls(("first", ""), ("second", "{}")), answer("both")]
    async with opened(*scripts, tools=[first, second]) as (gateway, provider):
        outcome = await gateway.tenant("acme").thread("t1").run("go", tools=["first", "second"])
    assert results(outcome.turns) == [("c0", "one", False), ("c1", "two", False)]
    assert [m.content for m in provider.requests[1].messages if isinstance(m, ToolMessage)] == [
        "one",
        "two",
    ]


@tool(timeout_s=0.05)
async def hangs() -> str:
    """Hang for ever."""
    await asyncio.Event().wait()
    return "never"


@tool
async def raises() -> str:
    """Raise."""
    raise LookupError("no such parcel")


@tool
def exits() -> str:
    """Leave the process."""
    raise SystemExit(3)


@tool
async def is_cancelled() -> str:
    """Raise a cancellation of its own."""
    raise asyncio.CancelledError


@tool
async def gives_bytes() -> object:
    """Give what is no JSON."""
    return {"data": b"raw"}


@tool
async def gives_nan() -> object:
    """Give a number that is no JSON."""
    return [float("nan")]


@tool(output_chars_max=10)
async def gives_much() -> str:
    """Give too much."""
    return "x" * 25


BAD_TOOLS: list[tuple[FunctionTool, str, str, bool]] = [
    (double, '{"number":"many"}', "do not fit", True),
    (double, '{"number":1', "do not fit", True),
    (double, '{"number":1,"more":2}', "do not fit", True),
    (double, "[1]", "do not fit", True),
    (hangs, "{}", "did not end within 0.05 seconds", True),
    (raises, "{}", "no such parcel", True),
    (exits, "{}", "SystemExit", True),
    (is_cancelled, "{}", "cancelled", True),
    (gives_bytes, "{}", "no JSON", True),
    (gives_nan, "{}", "no JSON", True),
    (gives_much, "{}", "xxxxxxxxxx\n[15 more characters were cut", False),
]


@pytest.mark.parametrize(("bad", "arguments", "content", "is_error"), BAD_TOOLS)
async def test_whatever_a_tool_does_its_call_gets_one_result(
    opened: Opener, bad: FunctionTool, arguments: str, content: str, is_error: bool
) -> None:
    """Bad arguments, exceptions, exits, hangs and bad results become a result for the model."""
    async with opened(calls((bad.spec.name, arguments)), answer("ok"), tools=[bad]) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t1").run("go", tools=[bad.spec.name])
    ((call_id, text, marked),) = results(outcome.expect().turns)
    assert (call_id, marked) == ("c0", is_error)
    assert content in text


async def test_blocking_tools_are_counted_and_capped(opened: Opener) -> None:
    """A blocking function that hangs holds its place; beyond the cap a call is refused at once."""
    threads = ToolThreads(threads_max=1)
    done = False

    @tool(timeout_s=0.05, threads=threads)
    def blocks() -> str:
        while not done:
            time.sleep(0.01)
        return "late"

    scripts = [calls(("blocks", ""), ("blocks", "")), answer("ok")]
    async with opened(*scripts, tools=[blocks]) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t1").run("go", tools=["blocks"])
        assert threads.busy == 1
        done = True
        while threads.busy:  # noqa: ASYNC110  # a thread ends by itself, without an event
            await asyncio.sleep(0.01)
    texts = [content for _, content, _ in results(outcome.turns)]
    assert "did not end" in texts[0]
    assert "threads for blocking tools are taken" in texts[1]


LIMITS = [
    (RunLimits(rounds_max=2), "rounds", 2),
    (RunLimits(calls_max=1), "calls", 2),
    (RunLimits(tokens_max=20), "tokens", 2),
]


@pytest.mark.parametrize(("limits", "reason", "rounds"), LIMITS)
async def test_run_ends_at_its_limits(
    opened: Opener, limits: RunLimits, reason: str, rounds: int
) -> None:
    """A run that never answers ends by its limit, with its finished exchanges stored."""
    async with opened(calls(("double", '{"number":1}')), tools=[double]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.run("go", tools=["double"], limits=limits)
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == reason
    assert len(provider.requests) == rounds
    assert len(results(outcome.turns)) == rounds


async def test_calls_beyond_the_limit_are_not_run(opened: Opener) -> None:
    """Of two calls in one reply only the first runs where the run may make one."""
    ran: list[int] = []

    @tool
    async def note(number: int) -> str:
        ran.append(number)
        return "noted"

    scripts = [calls(("note", '{"number":1}'), ("note", '{"number":2}'))]
    async with opened(*scripts, tools=[note]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.run("go", tools=["note"], limits=RunLimits(calls_max=1))
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == "calls"
    assert ran == [1]
    assert [is_error for _, _, is_error in results(outcome.turns)] == [False, True]


async def test_run_ends_at_its_time_limit(opened: Opener) -> None:
    """A model that never speaks is left when the run's time is over."""
    async with opened([Pause()], tools=[]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.run("go", limits=RunLimits(time_max_s=0.05))
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == "time"
    assert said(outcome.turns) == [("user", "go")]


async def test_cancelled_run_completes_its_exchange(opened: Opener) -> None:
    """A run cancelled in its tools keeps results that came, and says what is known of the rest."""
    running = asyncio.Event()

    @tool
    async def waits() -> str:
        running.set()
        await asyncio.Event().wait()
        return "never"

    scripts = [calls(("double", '{"number":2}'), ("waits", "")), answer("next")]
    async with opened(*scripts, tools=[double, waits]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        async with thread.stream_run("go", tools=["double", "waits"]) as events:
            ended = 0
            async for event in events:
                ended += isinstance(event, ToolEnded)
                if ended:
                    await running.wait()
                    break
        outcome = events.outcome
        following = await thread.run("again")
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == "reader_gone"
    assert results(outcome.turns)[0] == ("c0", "4", False)
    assert "outcome is unknown" in results(outcome.turns)[1][1]
    assert isinstance(following, Answered)


async def test_failing_model_after_an_exchange_keeps_the_exchange(opened: Opener) -> None:
    """A model that fails in a later round leaves the finished exchange and no error."""
    failure = ProviderError("gone", code="network")
    async with opened(calls(("double", '{"number":2}')), [failure], tools=[double]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.run("go", tools=["double"])
        assert isinstance(outcome, Incomplete)
        assert outcome.reason == "network"
        assert [turn.role for turn in outcome.turns] == ["user", "assistant", "tool"]
        with pytest.raises(ProviderError):
            await gateway.tenant("acme").thread("t2").run("go", tools=["double"])


async def test_stream_run_tells_each_step(opened: Opener) -> None:
    """A reader sees text, tool start, tool end, text and the outcome; and may come back by id."""
    scripts = [calls(("double", '{"number":2}'), text="Hm."), answer("4")]
    async with opened(*scripts, tools=[double]) as (gateway, _):
        tenant = gateway.tenant("acme")
        async with tenant.thread("t1").stream_run("go", tools=["double"]) as events:
            seen = [event async for event in events]
        assert events.call_id is not None
        again = [event async for event in tenant.call(events.call_id).events(after=1)]
        with pytest.raises(UnknownCall):
            _ = [event async for event in gateway.tenant("b").call(events.call_id).events()]
    assert seen[:4] == [
        TextEvent("Hm."),
        ToolStarted(call_id="c0", name="double", arguments='{"number":2}'),
        ToolEnded(call_id="c0", name="double", content="4"),
        TextEvent("4"),
    ]
    assert isinstance(seen[4], Settled)
    assert again == seen[1:]


async def test_key_gives_the_same_call_once(opened: Opener) -> None:
    """A repeated key and body gives the first outcome; it joins while that runs; else refused."""
    pause = Pause()
    async with opened(["a", pause, "b"], ["other"]) as (gateway, provider):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t1")
        first = asyncio.create_task(thread.ask("hi", key="k1"))
        await pause.reached.wait()
        async with thread.stream_ask("hi", key="k1") as joined:
            with pytest.raises(KeyReused):
                await thread.ask("another", key="k1")
            async for event in joined:
                if isinstance(event, TextEvent):
                    break
        assert not first.done()
        pause.release()
        outcome = await first
        assert await thread.ask("hi", key="k1") == outcome
        with pytest.raises(KeyReused):
            await thread.ask("another", key="k1")
        await gateway.tenant("b").thread("t1").ask("hi", key="k1")
    assert len(provider.requests) == 2
    async with opened(["never"]) as (gateway, provider):
        assert await gateway.tenant("acme").thread("t1").ask("hi", key="k1") == outcome
    assert provider.requests == []


async def test_failed_call_frees_its_key(opened: Opener) -> None:
    """A call of which nothing came may be tried again with its key."""
    async with opened([ProviderError("gone", code="network")], ["ok"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(ProviderError):
            await thread.ask("hi", key="k")
        assert (await thread.ask("hi", key="k")).expect().text == "ok"


async def test_cancel_by_id(opened: Opener) -> None:
    """A call is cancelled by its id; a second cancel gives the same outcome."""
    pause = Pause()
    async with opened(["part", pause]) as (gateway, _):
        tenant = gateway.tenant("acme")
        async with tenant.thread("t1").stream_ask("hi", detach=True) as events:
            await pause.reached.wait()
        call = tenant.call(events.call_id or "")
        with pytest.raises(ThreadBusy):
            await tenant.thread("t1").ask("more")
        outcome = await call.cancel()
        assert isinstance(outcome, Incomplete)
        assert (outcome.reason, outcome.text) == ("cancelled", "part")
        assert await call.cancel() == outcome
        assert await call.outcome() == outcome
        with pytest.raises(UnknownCall):
            await gateway.tenant("b").call(events.call_id or "").cancel()


async def test_add_results_answers_open_calls(opened: Opener) -> None:
    """Results are stored once; unknown ids and other contents are refused; then the ask goes on."""
    scripts = [calls(("double", '{"number":4}'), ("double", '{"number":5}')), answer("8 and 10")]
    async with opened(*scripts) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        await thread.ask("go", tools=[double.spec])
        eight = ToolResultPart(call_id="c0", content="8", name="double")
        with pytest.raises(UnknownToolCall):
            await thread.add_results([eight, ToolResultPart(call_id="c9", content="?")])
        assert (await thread.turns()).length == 2
        assert len(await thread.add_results([eight])) == 1
        assert await thread.add_results([eight]) == ()
        with pytest.raises(InvalidValue):
            await thread.add_results([ToolResultPart(call_id="c0", content="9")])
        await thread.add_results([ToolResultPart(call_id="c1", content="10")])
        assert (await thread.ask(None)).expect().text == "8 and 10"
    assert [m.content for m in provider.requests[1].messages if isinstance(m, ToolMessage)] == [
        "8",
        "10",
    ]

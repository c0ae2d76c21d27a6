"""Asks from the first call to what they leave behind, on a real store and a scripted model."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.gateway.conftest import Opener
from turngate import (
    Answered,
    AssistantMessage,
    CallOptions,
    Incomplete,
    RecentWindow,
    Settled,
    SystemMessage,
    TextEvent,
    TextPart,
    Turn,
    Usage,
    UserMessage,
)
from turngate.completion import FunctionCallDelta, ReasoningDelta, StreamEnd
from turngate.errors import (
    InvalidValue,
    NotAnswered,
    ProviderError,
    RequestError,
    ThreadBusy,
    ThreadNotFound,
)
from turngate.testing import CUT, Pause
from turngate.values import ToolSpec

USAGE = Usage(input_tokens=7, output_tokens=3)


def said(turns: tuple[Turn, ...]) -> list[tuple[str, str]]:
    """Role and text of each turn."""
    return [
        (turn.role, "".join(part.text for part in turn.parts if isinstance(part, TextPart)))
        for turn in turns
    ]


async def test_ask_stores_question_and_answer(opened: Opener) -> None:
    """An answered ask leaves a user and an assistant turn, with model and usage on the latter."""
    async with opened(["Hel", "lo", StreamEnd("stop", usage=USAGE, model="m1")]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        answer = (await thread.ask("hi")).expect()
        page = await thread.turns()
    assert answer.text == "Hello"
    assert answer.usage == USAGE
    assert answer.turns == page.turns
    assert said(page.turns) == [("user", "hi"), ("assistant", "Hello")]
    assert (page.first, page.length) == (0, 2)
    assert (page.turns[0].model, page.turns[0].usage) == (None, None)
    assert (page.turns[1].model, page.turns[1].usage) == ("m1", USAGE)


async def test_second_ask_shows_the_first(opened: Opener) -> None:
    """The next request holds the earlier exchange, the instructions first."""
    async with opened(["one"], ["two"], instructions="Be kind.") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        await thread.ask("first", options=CallOptions(temperature=0))
        await thread.ask("second", instructions="Be brief.")
    assert provider.requests[0].options.temperature == 0
    assert provider.requests[0].messages == (SystemMessage("Be kind."), UserMessage(("first",)))
    assert provider.requests[1].messages == (
        SystemMessage("Be brief."),
        UserMessage(("first",)),
        AssistantMessage(text="one"),
        UserMessage(("second",)),
    )


async def test_window_limits_what_is_shown(opened: Opener) -> None:
    """A window of three turns shows the prompt and the two turns before it."""
    async with opened(["a"], window=RecentWindow(turns=3)) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        for number in range(4):
            await thread.ask(f"q{number}")
    assert provider.requests[3].messages == (
        UserMessage(("q2",)),
        AssistantMessage(text="a"),
        UserMessage(("q3",)),
    )


async def test_calls_of_an_ask_come_back_unexecuted(opened: Opener) -> None:
    """Tool calls stay open in the stored turn and are listed on the answer."""
    script = [
        FunctionCallDelta(index=0, id="c1", name="track", arguments='{"id":'),
        FunctionCallDelta(index=0, arguments="5}"),
        StreamEnd("tool_calls"),
    ]
    tools = (ToolSpec(name="track", parameters={"type": "object"}),)
    async with opened(script) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        answer = (await thread.ask("Where?", tools=tools)).expect()
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("c1", "track", '{"id":5}')
    ]
    assert provider.requests[0].tools == tools


async def test_stream_ask_gives_text_then_settled(opened: Opener) -> None:
    """A reader gets each piece, and `Settled` only once the turns can be read back."""
    async with opened([ReasoningDelta("hm"), "Hel", "lo"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        pieces: list[str] = []
        async with thread.stream_ask("hi") as events:
            async for event in events:
                if isinstance(event, TextEvent):
                    pieces.append(event.text)
                elif isinstance(event, Settled):
                    assert (await thread.turns()).length == 2
        assert pieces == ["Hel", "lo"]
        assert isinstance(events.outcome, Answered)


async def test_leaving_the_stream_keeps_the_text_so_far(opened: Opener) -> None:
    """A reader that leaves cancels the call; what was said is an incomplete turn at once."""
    pause = Pause()
    call = FunctionCallDelta(index=0, id="c", name="f", arguments='{"a')
    async with opened(["Hel", "lo", call, pause, "never"], ["next"]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        async with thread.stream_ask("hi") as events:
            seen = 0
            async for event in events:
                seen += isinstance(event, TextEvent)
                if seen == 2:
                    await pause.reached.wait()
                    break
        outcome = events.outcome
        page = await thread.turns()
        assert provider.closed == 1
        following = await thread.ask("again")
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text) == ("reader_gone", "Hello")
    assert said(page.turns) == [("user", "hi"), ("assistant", "Hello")]
    assert (page.turns[1].status, page.turns[1].ended) == ("incomplete", "reader_gone")
    assert isinstance(following, Answered)
    with pytest.raises(NotAnswered):
        outcome.expect()


async def test_leaving_before_the_first_part_keeps_the_user_turn(opened: Opener) -> None:
    """A reader that leaves before any part leaves its question and no empty assistant turn."""
    pause = Pause()
    async with opened([pause, "never"], ["later"]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        async with thread.stream_ask("hi"):
            await pause.reached.wait()
        assert said((await thread.turns()).turns) == [("user", "hi")]
        await thread.ask("again")
    assert provider.requests[1].messages == (UserMessage(("hi",)), UserMessage(("again",)))


async def test_cancelling_the_awaiting_task_settles_and_raises(opened: Opener) -> None:
    """A cancelled `ask` reaches its caller as a cancellation once the text so far is stored."""
    pause = Pause()
    async with opened(["part", pause]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        asking = asyncio.create_task(thread.ask("hi"))
        await pause.reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        page = await thread.turns()
    assert said(page.turns) == [("user", "hi"), ("assistant", "part")]
    assert page.turns[1].ended == "cancelled"
    assert provider.closed == 1


async def test_closing_the_gateway_settles_running_calls(opened: Opener) -> None:
    """A gateway that closes under a call keeps what was said."""
    pause = Pause()
    async with opened(["part", pause]) as (gateway, _):
        asking = asyncio.create_task(gateway.tenant("acme").thread("t1").ask("hi"))
        await pause.reached.wait()
    outcome = await asking
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text) == ("gateway_closed", "part")
    async with opened() as (gateway, _):
        page = await gateway.tenant("acme").thread("t1").turns()
    assert said(page.turns) == [("user", "hi"), ("assistant", "part")]


async def test_failure_before_the_first_part_leaves_the_thread_as_it_was(opened: Opener) -> None:
    """The error reaches the caller, no turn is added, and the next ask goes through."""
    error = ProviderError("the server is overloaded", code="provider", reason="overloaded")
    async with opened([error], ["fine"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(ProviderError) as caught:
            await thread.ask("hi")
        assert caught.value.reason == "overloaded"
        assert (await thread.turns()).length == 0
        assert (await thread.ask("hi")).expect().text == "fine"
        assert (await thread.turns()).length == 2


async def test_failure_reaches_the_stream_reader(opened: Opener) -> None:
    """Iterating a call that fails before its first part raises its error."""
    error = ProviderError("no route", code="network")
    async with opened([error]) as (gateway, _):
        async with gateway.tenant("acme").thread("t1").stream_ask("hi") as events:
            with pytest.raises(ProviderError):
                _ = [event async for event in events]
        assert events.outcome is None


async def test_cut_stream_is_incomplete_and_keeps_its_text(opened: Opener) -> None:
    """A stream that is cut after its first part never passes for an answer."""
    async with opened(["The answer is", CUT]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.ask("hi")
        page = await thread.turns()
    assert isinstance(outcome, Incomplete)
    assert outcome.reason == "truncated"
    assert said(page.turns) == [("user", "hi"), ("assistant", "The answer is")]
    assert page.turns[1].status == "incomplete"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_limited_answer_is_incomplete_without_its_calls(opened: Opener, reason: str) -> None:
    """`length` and `content_filter` give an incomplete turn with usage and no half call."""
    script = [
        "cut he",
        FunctionCallDelta(index=0, id="c", name="f", arguments='{"a'),
        StreamEnd(reason, usage=USAGE, model="m1"),  # type: ignore[arg-type]
    ]
    async with opened(script) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t1").ask("hi")
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text, outcome.usage) == (reason, "cut he", USAGE)
    assert said(outcome.turns) == [("user", "hi"), ("assistant", "cut he")]
    assert (outcome.turns[1].model, outcome.turns[1].usage) == ("m1", USAGE)


async def test_second_call_on_a_thread_is_refused_with_the_first_ones_id(opened: Opener) -> None:
    """One active call per thread; another thread and another tenant are free."""
    pause = Pause()
    async with opened([pause, "first"], ["other"]) as (gateway, _):
        tenant = gateway.tenant("acme")
        async with tenant.thread("t1").stream_ask("hi") as events:
            await pause.reached.wait()
            with pytest.raises(ThreadBusy) as caught:
                await tenant.thread("t1").ask("me too")
            assert caught.value.call_id == events.call_id
            await tenant.thread("t2").ask("hi")
            await gateway.tenant("other").thread("t1").ask("hi")
            pause.release()
            async for _ in events:
                pass
        page = await tenant.thread("t1").turns()
    assert said(page.turns) == [("user", "hi"), ("assistant", "first")]


async def test_asks_in_a_row_wait_for_each_save(opened: Opener) -> None:
    """A client that waits for each reply finds every earlier turn in the next request."""
    async with opened(["a"]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        for number in range(5):
            await thread.ask(f"q{number}")
            assert len(provider.requests[number].messages) == 2 * number + 1


async def test_foreign_thread_reads_as_missing(opened: Opener) -> None:
    """Another tenant's thread of the same id is a thread of one's own that does not exist yet."""
    async with opened(["secret"], ["mine"]) as (gateway, provider):
        await gateway.tenant("a").thread("x").ask("the secret")
        foreign = gateway.tenant("b").thread("x")
        assert (await foreign.turns()).turns == ()
        with pytest.raises(ThreadNotFound):
            await foreign.record()
        assert (await gateway.tenant("b").threads()).threads == ()
        await foreign.ask("hello")
        assert provider.requests[1].messages == (UserMessage(("hello",)),)
        assert (await gateway.tenant("a").thread("x").turns()).length == 2


@pytest.mark.parametrize("prompt", ["", " \n", None])
async def test_nothing_to_answer_is_refused(opened: Opener, prompt: str | None) -> None:
    """An empty prompt, or none on an empty thread, is a typed error and stores nothing."""
    async with opened() as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(InvalidValue):
            await thread.ask(prompt)
        assert (await thread.turns()).length == 0
    assert provider.requests == []


async def test_text_that_no_database_keeps_is_normalised_once(opened: Opener) -> None:
    """NUL and lone surrogates become U+FFFD in prompt and answer; all else stays as it is."""
    async with opened(["a\0b\ud800c é👩‍👩‍👧\u2028"]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        answer = (await thread.ask("x\0y\udfffz e\u0301")).expect()
        page = await thread.turns()
    assert answer.text == "a\ufffdb\ufffdc é👩‍👩‍👧\u2028"
    assert said(page.turns) == [("user", "x\ufffdy\ufffdz e\u0301"), ("assistant", answer.text)]
    assert provider.requests[0].messages == (UserMessage(("x\ufffdy\ufffdz e\u0301",)),)


async def test_custom_provider_bug_releases_the_thread(opened: Opener) -> None:
    """An unexpected exception of a provider reaches the caller and blocks nobody."""
    async with opened([KeyError("bug")], ["fine"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(KeyError):
            await thread.ask("hi")
        assert (await thread.ask("hi")).expect().text == "fine"


async def test_closed_gateway_refuses(opened: Opener) -> None:
    """After its context a gateway refuses calls by a typed error."""
    async with opened() as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
    with pytest.raises(RequestError):
        await thread.ask("hi")


async def test_read_only_gateway_reads_beside_a_writer(opened: Opener) -> None:
    """A second, reading gateway sees what is acknowledged and cannot write."""
    async with opened(["ok"]) as (writing, _):
        await writing.tenant("acme").thread("t1").ask("hi")
        async with opened(read_only=True) as (reading, _):
            thread = reading.tenant("acme").thread("t1")
            assert (await thread.turns()).length == 2
            with pytest.raises(Exception, match="read"):
                await thread.ask("no")


async def test_create_begins_a_thread_with_a_title(opened: Opener) -> None:
    """`create` begins a thread, sets its title, and touches no turn."""
    async with opened(["ok"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1", user="u1")
        record = await thread.create(title="Parcels")
        assert (record.length, record.title, record.user) == (0, "Parcels", "u1")
        await thread.ask("hi")
        again = await thread.create(title="Parcels II")
        assert (again.length, again.title) == (2, "Parcels II")
        assert (await thread.turns()).length == 2

"""Reviews: what waits for a person, what a decision does, and what is left of both by a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_checks import ledger
from tests.integration.gateway.test_recovery import Deaths, Effects
from tests.integration.gateway.test_runs import answer, calls, results
from turngate import (
    Answered,
    AwaitingReview,
    Blocked,
    Gateway,
    Incomplete,
    Settled,
    SystemMessage,
    TextEvent,
    ToolMessage,
    Usage,
    open_gateway,
    tool,
)
from turngate.errors import (
    InvalidValue,
    NotAnswered,
    ReviewDecided,
    StoreError,
    ThreadBusy,
    UnknownReview,
)
from turngate.gateway import Outcome, Reviews
from turngate.history import NOT_APPROVED
from turngate.protocols import ReviewRule
from turngate.records import Allow, Block, Proposal, Review
from turngate.testing import Pause, ScriptedProvider
from turngate.tools import FunctionTool

EVERY = ReviewRule(name="every", answers=True)
PAYING = ReviewRule(name="paying", tools=("pay",))


class Payments:
    """A tool that notes what it was run with."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def tool(self, effect: str = "unsafe") -> FunctionTool:
        @tool(name="pay", effect=effect)  # type: ignore[call-overload, untyped-decorator]  # from a parameter
        def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        assert isinstance(pay, FunctionTool)
        return pay


@pytest.fixture
def payments() -> Payments:
    return Payments()


@asynccontextmanager
async def reopened(path: Path, *scripts: Any, **options: Any) -> AsyncIterator[Gateway]:
    provider = ScriptedProvider(*scripts)
    async with open_gateway(path, provider=provider, **options) as gateway:
        yield gateway


def reviews_of(gateway: Gateway) -> Reviews:
    return gateway.tenant("acme").reviews


def held(outcome: Outcome) -> AwaitingReview:
    assert isinstance(outcome, AwaitingReview)
    return outcome


async def ended(gateway: Gateway, call_id: str) -> Outcome:
    return await gateway.tenant("acme").call(call_id).outcome()


# ── answers ──────────────────────────────────────────────────────────────────────────────────


async def test_held_answer_stands_in_its_review_alone(opened: Opener, tmp_path: Path) -> None:
    """The thread has the user turn, without usage; the review has the answer and who holds it."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        page = await thread.turns()
        (review,) = (await reviews_of(gateway).list()).reviews
        record = await gateway.tenant("acme").call(outcome.call_id).record()
    assert outcome.reviews == (review.id,)
    assert (outcome.text, outcome.turns) == ("", page.turns)
    assert [(turn.role, turn.usage) for turn in page.turns] == [("user", None)]
    assert (review.kind, review.held_by, review.state) == ("answer", "every", "open")
    assert review.answer is not None
    assert review.answer.text == "proposed"
    assert (record.state, record.text, record.ended_at) == ("review", "", None)
    assert [row["outcome"] for row in ledger(tmp_path)] == ["review"]
    with pytest.raises(NotAnswered, match="awaiting_review"):
        outcome.expect()


async def test_approved_answer_is_settled_with_its_usage(opened: Opener, tmp_path: Path) -> None:
    """The answer comes to the thread as it was proposed; the ledger gets no further row."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        review = await reviews_of(gateway).approve(outcome.reviews[0], by="ann", why="fine")
        final = await ended(gateway, outcome.call_id)
        page = await thread.turns()
    assert (review.state, review.decided_by, review.why) == ("approved", "ann", "fine")
    assert review.decided_at is not None
    assert isinstance(final, Answered)
    assert (final.text, final.turns) == ("proposed", page.turns)
    assert page.turns[1].usage == final.usage == Usage(input_tokens=20, output_tokens=3)
    assert len(ledger(tmp_path)) == 1


async def test_edited_answer_keeps_the_original_apart(opened: Opener) -> None:
    """The thread has the edit; the original stands in the review, with who and why."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        await reviews_of(gateway).edit(outcome.reviews[0], by="ann", text="better", why="tone")
        page = await thread.turns()
        review = await reviews_of(gateway).get(outcome.reviews[0])
    assert [turn.text for turn in page.turns] == ["hello", "better"]
    assert (review.state, review.text, review.why) == ("edited", "better", "tone")
    assert review.answer is not None
    assert review.answer.text == "proposed"


async def test_rejected_answer_is_blocked(opened: Opener) -> None:
    """Its text stays in the review and comes to no thread; the thread takes calls again."""
    async with opened(answer("proposed"), answer("next"), reviews=[EVERY]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        await reviews_of(gateway).reject(outcome.reviews[0], by="ann")
        final = await ended(gateway, outcome.call_id)
        page = await thread.turns()
        assert isinstance(await thread.ask("again"), AwaitingReview)
    assert isinstance(final, Blocked)
    assert (final.by, final.rule) == ("review", "rejected")
    assert [turn.text for turn in page.turns] == ["hello"]


async def test_retry_asks_once_more_with_the_note(opened: Opener, tmp_path: Path) -> None:
    """The model hears the note with its instructions; the first proposal stays in its review."""
    scripts = [answer("first"), answer("second")]
    async with opened(*scripts, reviews=[EVERY], instructions="Be kind.") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        await reviews_of(gateway).retry(outcome.reviews[0], "Say more.", by="ann")
        again = held(await ended(gateway, outcome.call_id))
        await reviews_of(gateway).approve(again.reviews[0], by="ann")
        final = await ended(gateway, outcome.call_id)
        page = await thread.turns()
        first = await reviews_of(gateway).get(outcome.reviews[0])
    told = provider.requests[1].messages[0]
    assert isinstance(told, SystemMessage)
    assert told.text.startswith("Be kind.")
    assert told.text.endswith("Say more.")
    assert first.state == "retried"
    assert [turn.text for turn in page.turns] == ["hello", "second"]
    assert isinstance(final, Answered)
    assert final.usage == Usage(input_tokens=40, output_tokens=6)
    assert [row["outcome"] for row in ledger(tmp_path)] == ["review", "review"]


async def test_second_decision_names_the_first(opened: Opener) -> None:
    """Of two decisions one is made, and the other learns whose it was."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        reviews = reviews_of(gateway)
        made = await asyncio.gather(
            reviews.approve(outcome.reviews[0], by="ann"),
            reviews.reject(outcome.reviews[0], by="bob"),
            return_exceptions=True,
        )
        (lost,) = [each for each in made if isinstance(each, ReviewDecided)]
        first = await reviews.get(outcome.reviews[0])
    assert (lost.state, lost.decided_by) == (first.state, first.decided_by)
    assert str(first.decided_by) in str(lost)


async def test_run_is_reviewed_with_its_tool_exchanges_done(
    opened: Opener, payments: Payments
) -> None:
    """A held answer of a run leaves the finished exchanges; they stand once after the approval."""
    scripts = [calls(("pay", '{"amount":1}')), answer("paid")]
    async with opened(*scripts, reviews=[EVERY], tools=[payments.tool()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        before = await thread.turns()
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        after = await thread.turns()
        final = await ended(gateway, outcome.call_id)
    assert [turn.role for turn in before.turns] == ["user", "assistant", "tool"]
    assert [turn.role for turn in after.turns] == ["user", "assistant", "tool", "assistant"]
    assert final.turns == after.turns
    assert final.usage == Usage(input_tokens=30, output_tokens=5)
    assert payments.paid == [1]


async def test_check_may_ask_for_a_review(opened: Opener) -> None:
    """A check's verdict holds an answer with the check's name and reason."""

    class Unsure:
        name = "unsure"

        async def check_answer(self, answer: Proposal) -> Allow | Review:
            return Review(reason="a promise") if "promise" in answer.text else Allow()

    async with opened(answer("I promise"), answer("fine"), checks=[Unsure()]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        review = await reviews_of(gateway).get(outcome.reviews[0])
        assert isinstance(await gateway.tenant("acme").thread("u").ask("hello"), Answered)
    assert (review.held_by, review.reason) == ("unsure", "a promise")


async def test_rule_may_take_a_block_to_a_person(opened: Opener) -> None:
    """What a named check blocks is held where a rule says so."""

    class Strict:
        name = "strict"

        async def check_answer(self, answer: Proposal) -> Block:
            return Block(rule="tone")

    rule = ReviewRule(name="second-look", checks=("strict",))
    async with opened(answer("rude"), checks=[Strict()], reviews=[rule]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        review = await reviews_of(gateway).get(outcome.reviews[0])
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert (await ended(gateway, outcome.call_id)).text == "rude"
    assert (review.held_by, review.reason) == ("strict", "tone")


@pytest.mark.parametrize("fails", [False, True])
async def test_rule_may_be_a_function(opened: Opener, fails: bool) -> None:
    """A function decides what is held; one that fails holds, so that a person looks at it."""

    async def is_long(proposal: Proposal) -> bool:
        if fails:
            raise RuntimeError("no")
        return len(proposal.text) > 5

    rule = ReviewRule(name="long", when=is_long)
    async with opened(answer("short"), answer("a long answer"), reviews=[rule]) as (gateway, _):
        short = await gateway.tenant("acme").thread("a").ask("hello")
        long = await gateway.tenant("acme").thread("b").ask("hello")
    assert isinstance(short, AwaitingReview if fails else Answered)
    assert isinstance(long, AwaitingReview)


async def test_stream_of_a_held_answer_shows_nothing_of_it(opened: Opener) -> None:
    """A streamed run ends as held; after the approval its events have the text once."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        async with thread.stream_run("hello") as events:
            first = [event async for event in events]
        outcome = held(events.outcome) if events.outcome is not None else None
        assert outcome is not None
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        call = gateway.tenant("acme").call(outcome.call_id)
        later = [event async for event in call.events()]
    assert [type(event).__name__ for event in first] == ["Held", "Settled"]
    assert [event for event in later if isinstance(event, TextEvent)] == [TextEvent("proposed")]
    assert isinstance(later[-1], Settled)


async def test_calls_of_a_held_ask_come_back_once_approved(opened: Opener) -> None:
    """An ask with calls is held whole; approved, its calls are the caller's to run."""
    script = calls(("own", "{}"), text="Let me see.")
    rule = ReviewRule(name="all", when=lambda proposal: True)
    from turngate import ToolSpec

    async with opened(script, reviews=[rule]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello", tools=[ToolSpec(name="own")]))
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        final = await ended(gateway, outcome.call_id)
    assert isinstance(final, Answered)
    assert [call.name for call in final.tool_calls] == ["own"]


# ── a thread that waits ──────────────────────────────────────────────────────────────────────


async def test_thread_that_waits_refuses_calls(opened: Opener) -> None:
    """A second call is told which call waits, and is not begun."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        with pytest.raises(ThreadBusy) as caught:
            await thread.ask("and?")
    assert (caught.value.call_id, caught.value.in_review) == (outcome.call_id, True)
    assert len(provider.requests) == 1


async def test_call_may_go_on_beside_an_open_answer(opened: Opener) -> None:
    """The open answer is not shown; approved later, it comes at the end of the thread."""
    scripts = [answer("proposed"), answer("meanwhile")]

    async def first_alone(proposal: Proposal) -> bool:
        return proposal.text == "proposed"

    rule = ReviewRule(name="first", when=first_alone)
    async with opened(*scripts, reviews=[rule]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.ask("hello"))
        assert (await thread.ask("and?", pending="go_on")).text == "meanwhile"
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        final = await ended(gateway, outcome.call_id)
        page = await thread.turns()
    assert "proposed" not in str(provider.requests[1])
    assert [turn.text for turn in page.turns] == ["hello", "and?", "meanwhile", "proposed"]
    assert [turn.text for turn in final.turns] == ["hello", "proposed"]


async def test_open_call_is_shown_as_waiting_and_stays_open(
    opened: Opener, payments: Payments
) -> None:
    """Beside a held tool call the model reads that it waits; approved, it is run after all."""
    scripts = [calls(("pay", '{"amount":1}')), answer("meanwhile"), answer("paid")]
    async with opened(*scripts, reviews=[PAYING], tools=[payments.tool()]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        await thread.ask("why?", pending="go_on")
        waiting = [m for m in provider.requests[1].messages if isinstance(m, ToolMessage)]
        assert payments.paid == []
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        final = await ended(gateway, outcome.call_id)
        page = await thread.turns()
    assert [(m.call_id, m.content) for m in waiting] == [("c0", NOT_APPROVED)]
    assert isinstance(final, Answered)
    assert [turn.role for turn in page.turns] == [
        *("user", "assistant", "user", "assistant"),
        *("tool", "assistant"),
    ]
    assert results(page.turns) == [("c0", "paid 1", False)]


async def test_decision_that_goes_on_waits_for_an_active_call(
    opened: Opener, payments: Payments
) -> None:
    """While another call is active on the thread, a run can't go on; the decision is not made."""
    pause = Pause()
    scripts: list[Any] = [calls(("pay", '{"amount":1}')), [pause, "meanwhile"], answer("paid")]
    async with opened(*scripts, reviews=[PAYING], tools=[payments.tool()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        beside = asyncio.create_task(thread.ask("why?", pending="go_on"))
        await pause.reached.wait()
        with pytest.raises(ThreadBusy):
            await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert (await reviews_of(gateway).get(outcome.reviews[0])).state == "open"
        pause.release()
        await beside
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert isinstance(await ended(gateway, outcome.call_id), Answered)


async def test_cancelled_call_closes_its_reviews(opened: Opener, payments: Payments) -> None:
    """A waiting call that is cancelled ends; its reviews can't be decided any more."""
    script = calls(("pay", '{"amount":1}'))
    async with opened(script, reviews=[PAYING], tools=[payments.tool()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        final = await gateway.tenant("acme").call(outcome.call_id).cancel()
        with pytest.raises(ReviewDecided, match="cancelled"):
            await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        page = await thread.turns()
    assert isinstance(final, Incomplete)
    assert final.reason == "cancelled"
    assert [turn.role for turn in page.turns] == ["user", "assistant", "tool"]
    assert results(page.turns)[0][2] is True
    assert payments.paid == []


# ── tool calls ───────────────────────────────────────────────────────────────────────────────


async def test_each_held_call_is_decided_by_itself(opened: Opener, payments: Payments) -> None:
    """The run goes on with the last decision; what was approved runs, what was rejected not."""
    made = calls(("pay", '{"amount":1}'), ("pay", '{"amount":2}'), ("pay", '{"amount":3}'))
    async with opened(made, answer("done"), reviews=[PAYING], tools=[payments.tool()]) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        reviews = reviews_of(gateway)
        await reviews.approve(outcome.reviews[0], by="ann")
        await reviews.reject(outcome.reviews[1], by="bob", why="too much")
        assert payments.paid == []
        assert len(provider.requests) == 1
        await reviews.edit(outcome.reviews[2], by="ann", arguments='{"amount": 30}')
        final = await ended(gateway, outcome.call_id)
    assert isinstance(final, Answered)
    assert sorted(payments.paid) == [1, 30]
    told = {call_id: content for call_id, content, _ in results(final.turns)}
    assert told["c0"] == "paid 1"
    assert "too much" in told["c1"]
    assert told["c2"].endswith("paid 30")
    assert '{"amount": 30}' in told["c2"]


async def test_calls_of_other_tools_are_not_held(opened: Opener, payments: Payments) -> None:
    """A rule holds the calls of its tools; a step without them goes on at once."""

    @tool(effect="safe")
    def look() -> str:
        """Look."""
        return "seen"

    scripts = [calls(("look", "{}")), answer("done")]
    async with opened(*scripts, reviews=[PAYING], tools=[payments.tool(), look]) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").run("look", tools=["look", "pay"])
    assert isinstance(outcome, Answered)


async def test_own_tool_of_a_run_may_be_held(opened: Opener, payments: Payments) -> None:
    """A function that was given to one run alone is still there when its call is approved."""
    scripts = [calls(("pay", '{"amount":1}')), answer("done")]
    async with opened(*scripts, reviews=[PAYING]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=[payments.tool()]))
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert isinstance(await ended(gateway, outcome.call_id), Answered)
    assert payments.paid == [1]


@pytest.mark.parametrize(
    "decision",
    [
        {"text": "better"},
        {"arguments": "[1]"},
        {"arguments": "not json"},
        {},
    ],
)
async def test_edit_must_fit_the_call(opened: Opener, payments: Payments, decision: Any) -> None:
    """A tool call is edited by a JSON object of arguments; anything else is refused."""
    script = calls(("pay", '{"amount":1}'))
    async with opened(script, reviews=[PAYING], tools=[payments.tool()]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
        with pytest.raises(InvalidValue):
            await reviews_of(gateway).edit(outcome.reviews[0], by="ann", **decision)
        with pytest.raises(InvalidValue):
            await reviews_of(gateway).retry(outcome.reviews[0], "again", by="ann")
        assert (await reviews_of(gateway).get(outcome.reviews[0])).state == "open"


async def test_decision_needs_a_name(opened: Opener) -> None:
    """Who decided is never left out."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        with pytest.raises(InvalidValue):
            await reviews_of(gateway).approve(outcome.reviews[0], by=" ")


async def test_reviews_of_another_tenant_do_not_exist(opened: Opener) -> None:
    """A foreign id is the same error as one that nobody has."""
    async with opened(answer("proposed"), reviews=[EVERY]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        foreign = gateway.tenant("evil").reviews
        for review_id in (outcome.reviews[0], "review_none"):
            with pytest.raises(UnknownReview):
                await foreign.approve(review_id, by="eve")
            with pytest.raises(UnknownReview):
                await foreign.get(review_id)
        assert (await foreign.list(state=None)).reviews == ()


# ── deadlines ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("default", "kind"), [("reject", Blocked), ("approve", Answered)])
async def test_deadline_does_the_default(opened: Opener, default: Any, kind: type) -> None:
    """A review that nobody decided in time is decided by its default when it is read."""
    rule = ReviewRule(name="quick", answers=True, deadline_s=0.0, default=default)
    async with opened(answer("proposed"), reviews=[rule]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        review = await reviews_of(gateway).get(outcome.reviews[0])
        final = await ended(gateway, outcome.call_id)
    assert review.decided_by == "deadline"
    assert isinstance(final, kind)


async def test_decision_after_the_deadline_loses(opened: Opener) -> None:
    """The deadline is judged before a late decision, which is told so."""
    rule = ReviewRule(name="quick", answers=True, deadline_s=0.0)
    async with opened(answer("proposed"), reviews=[rule]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        with pytest.raises(ReviewDecided) as caught:
            await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert isinstance(await ended(gateway, outcome.call_id), Blocked)
    assert (caught.value.state, caught.value.decided_by) == ("rejected", "deadline")


async def test_sweep_does_what_is_overdue(opened: Opener, payments: Payments) -> None:
    """A sweep judges every tenant's deadlines; runs go on by it."""
    rule = ReviewRule(name="quick", tools=("pay",), deadline_s=0.0, default="approve")
    scripts = [calls(("pay", '{"amount":1}')), answer("done")]
    async with opened(*scripts, reviews=[rule], tools=[payments.tool()]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
        assert await gateway.sweep_reviews() == 1
        assert isinstance(await ended(gateway, outcome.call_id), Answered)
        assert await gateway.sweep_reviews() == 0
    assert payments.paid == [1]


# ── over a restart ───────────────────────────────────────────────────────────────────────────


async def test_review_outlives_its_process(tmp_path: Path, payments: Payments) -> None:
    """A run that waits is decided by another process, which runs the approved call once."""
    path = tmp_path / "turngate.db"
    options: dict[str, Any] = {"reviews": [PAYING], "tools": [payments.tool()]}
    async with reopened(path, calls(("pay", '{"amount":1}')), **options) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
    async with reopened(path, answer("done"), **options) as gateway:
        assert held(await ended(gateway, outcome.call_id)).reviews == outcome.reviews
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert payments.paid == [1]


async def test_decision_without_the_tools_leaves_the_run_waiting(
    tmp_path: Path, payments: Payments
) -> None:
    """Who has not the tools may decide; the run goes on where they are."""
    path = tmp_path / "turngate.db"
    options: dict[str, Any] = {"reviews": [PAYING], "tools": [payments.tool()]}
    async with reopened(path, calls(("pay", '{"amount":1}')), **options) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
    async with reopened(path, answer("x")) as gateway:
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann", resume=False)
        record = await gateway.tenant("acme").call(outcome.call_id).record()
        assert record.state == "active"
        assert record.waiting_for[:2] == ("pay", "rule paying")
        with pytest.raises(ThreadBusy):
            await gateway.tenant("acme").thread("t").ask("hello")
    async with reopened(path, answer("done"), **options) as gateway:
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert payments.paid == [1]
    assert [row["outcome"] for row in ledger(tmp_path)] == ["tool_calls", "answered"]


async def test_retried_ask_goes_on_in_the_next_process(tmp_path: Path) -> None:
    """A decision that leaves the asking to another process is carried out there."""
    path = tmp_path / "turngate.db"
    async with reopened(path, answer("first"), reviews=[EVERY]) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        await reviews_of(gateway).retry(outcome.reviews[0], "More.", by="ann", resume=False)
    async with reopened(path, answer("second"), reviews=[EVERY]) as gateway:
        again = held(await ended(gateway, outcome.call_id))
        assert again.reviews != outcome.reviews
    assert [row["outcome"] for row in ledger(tmp_path)] == ["review", "review"]


@pytest.mark.parametrize("effect", ["safe", "keyed"])
async def test_edited_call_is_run_again_as_it_was_edited(deaths: Deaths, effect: str) -> None:
    """After a crash in an approved call the same bytes run again, under the same key."""
    done: list[str] = []
    reached = asyncio.Event()

    @tool(name="pay", effect=effect)  # type: ignore[call-overload, untyped-decorator]  # from a parameter
    async def pay(amount: int) -> str:
        done.append(str(amount))
        reached.set()
        if len(done) == 1:
            await asyncio.Event().wait()
        return "paid"

    options: dict[str, Any] = {"reviews": [PAYING], "tools": [pay]}
    async with reopened(deaths.path, calls(("pay", '{"amount":9000}')), **options) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
        await reviews_of(gateway).edit(outcome.reviews[0], by="ann", arguments='{"amount":9}')
        await reached.wait()
        deaths.died()
    async with reopened(deaths.path, answer("done"), **options) as gateway:
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert done == ["9", "9"]


async def test_begun_unsafe_call_comes_to_a_person_again(deaths: Deaths) -> None:
    """A crash uses an approval up: whether to run an unsafe call again is asked anew."""
    effects = Effects()
    act = effects.tool("unsafe")
    rule = ReviewRule(name="acting", tools=("act",))
    options: dict[str, Any] = {"reviews": [rule], "tools": [act]}
    async with reopened(deaths.path, calls(("act", "{}")), **options) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").run("act", tools=["act"]))
        await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        await effects.reached.wait()
        deaths.died()
    effects.hold = False
    async with reopened(deaths.path, answer("done"), **options) as gateway:
        again = held(await ended(gateway, outcome.call_id))
        review = await reviews_of(gateway).get(again.reviews[0])
        assert len(effects.keys) == 1
        await reviews_of(gateway).approve(review.id, by="ann")
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert review.reason == "outcome_unknown"
    assert effects.keys[0] == effects.keys[1]


async def test_rejected_call_is_never_run_after_a_crash(deaths: Deaths) -> None:
    """A crash in the step of a rejected call does not run it, though its tool is safe."""
    effects = Effects()
    ran: list[int] = []

    @tool(name="pay", effect="safe")
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    act = effects.tool("safe")
    options: dict[str, Any] = {"reviews": [PAYING], "tools": [pay, act]}
    made = calls(("pay", '{"amount":1}'), ("act", "{}"))
    async with reopened(deaths.path, made, **options) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").run("go", tools=["pay", "act"]))
        await reviews_of(gateway).reject(outcome.reviews[0], by="ann")
        await effects.reached.wait()
        deaths.died()
    effects.hold = False
    async with reopened(deaths.path, answer("done"), **options) as gateway:
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert ran == []


async def test_reading_alone_decides_nothing(tmp_path: Path) -> None:
    """A file that is open for reading shows an overdue review as it stands."""
    path = tmp_path / "turngate.db"
    rule = ReviewRule(name="quick", answers=True, deadline_s=0.0)
    async with reopened(path, answer("proposed"), reviews=[rule]) as gateway:
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        async with open_gateway(path, read_only=True) as reader:
            review = await reviews_of(reader).get(outcome.reviews[0])
            assert review.state == "open"
            with pytest.raises(StoreError):
                await reviews_of(reader).approve(outcome.reviews[0], by="ann")


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    return Deaths(tmp_path / "deaths")


async def test_late_decision_leaves_the_deadlines_run_going(
    opened: Opener, payments: Payments
) -> None:
    """A decision that comes after the deadline is refused, and the deadline's run goes on."""
    rule = ReviewRule(name="quick", tools=("pay",), deadline_s=0.0, default="approve")
    scripts = [calls(("pay", '{"amount":1}')), answer("done")]
    async with opened(*scripts, reviews=[rule], tools=[payments.tool()]) as (gateway, _):
        outcome = held(await gateway.tenant("acme").thread("t").run("pay", tools=["pay"]))
        with pytest.raises(ReviewDecided, match="deadline"):
            await reviews_of(gateway).reject(outcome.reviews[0], by="ann")
        assert (await ended(gateway, outcome.call_id)).text == "done"
    assert payments.paid == [1]


async def test_later_check_may_block_what_another_holds(opened: Opener) -> None:
    """A review that one check asks for does not save an answer that a later one blocks."""

    class Unsure:
        name = "unsure"

        async def check_answer(self, answer: Proposal) -> Review:
            return Review(reason="who knows")

    class Strict:
        name = "strict"

        async def check_answer(self, answer: Proposal) -> Block:
            return Block(rule="no")

    async with opened(answer("x"), checks=[Unsure(), Strict()]) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").ask("hello")
        assert (await reviews_of(gateway).list(state=None)).reviews == ()
    assert isinstance(outcome, Blocked)


@pytest.mark.parametrize("edited", [None, "I will pay."])
async def test_held_step_goes_on_with_its_calls(
    opened: Opener, payments: Payments, edited: str | None
) -> None:
    """A step with tool calls that a check holds is stored and run once it is approved."""

    class Unsure:
        name = "unsure"

        async def check_answer(self, answer: Proposal) -> Allow | Review:
            return Review(reason="a step") if answer.tool_calls else Allow()

    scripts = [calls(("pay", '{"amount":1}'), text="Paying."), answer("done")]
    async with opened(*scripts, checks=[Unsure()], tools=[payments.tool()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        async with thread.stream_run("pay", tools=["pay"]) as events:
            shown = [event async for event in events]
        outcome = held(events.outcome) if events.outcome is not None else None
        assert outcome is not None
        assert [turn.role for turn in outcome.turns] == ["user"]
        if edited is None:
            await reviews_of(gateway).approve(outcome.reviews[0], by="ann")
        else:
            await reviews_of(gateway).edit(outcome.reviews[0], by="ann", text=edited)
        final = await ended(gateway, outcome.call_id)
        later = [event async for event in gateway.tenant("acme").call(outcome.call_id).events()]
        page = await thread.turns()
    assert len(shown) == 2
    assert payments.paid == [1]
    assert [turn.text for turn in page.turns] == ["pay", edited or "Paying.", "", "done"]
    assert final.turns == page.turns
    assert final.usage == Usage(input_tokens=30, output_tokens=5)
    said = [event.text for event in later if isinstance(event, TextEvent)]
    assert said == [edited or "Paying.", "done"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": "pay"},
        {"checks": "terms"},
        {"answers": True, "default": "approved"},
        {},
    ],
)
def test_rule_must_hold_something(fields: dict[str, Any]) -> None:
    """A rule that would hold nothing, or what nobody meant, is refused when it is made."""
    with pytest.raises(InvalidValue):
        ReviewRule(name="rule", **fields)


async def test_rule_about_an_unknown_check_is_refused(opened: Opener) -> None:
    """A rule on a check that is not there would silently hold nothing."""
    with pytest.raises(InvalidValue, match="not there"):
        async with opened(reviews=[ReviewRule(name="rule", checks=("terms",))]):
            pass


async def test_loser_of_two_decisions_leaves_the_run_alone(
    opened: Opener, payments: Payments
) -> None:
    """While the winner's run is under way it counts as alive, for other calls and for readers."""
    going, go_on = asyncio.Event(), asyncio.Event()

    @tool(name="pay", effect="unsafe")
    async def pay(amount: int) -> str:
        """Pay."""
        going.set()
        await go_on.wait()
        payments.paid.append(amount)
        return "paid"

    scripts = [calls(("pay", '{"amount":1}')), answer("done")]
    async with opened(*scripts, reviews=[PAYING], tools=[pay]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("pay", tools=["pay"]))
        made = await asyncio.gather(
            *(reviews_of(gateway).approve(outcome.reviews[0], by=name) for name in "abc"),
            return_exceptions=True,
        )
        await going.wait()
        with pytest.raises(ThreadBusy):
            await thread.ask("hello")
        waiting = asyncio.create_task(ended(gateway, outcome.call_id))
        await asyncio.sleep(0.01)
        go_on.set()
        assert (await waiting).text == "done"
    assert sum(isinstance(each, ReviewDecided) for each in made) == 2
    assert payments.paid == [1]

"""Checks: what they let pass, replace and block, and what they leave behind."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_recovery import Deaths
from tests.integration.gateway.test_runs import answer, calls, double
from turngate import (
    Answered,
    Blocked,
    Held,
    Incomplete,
    Settings,
    Settled,
    SystemMessage,
    TextEvent,
    ToolStarted,
    Usage,
    UserMessage,
    open_gateway,
)
from turngate.completion import StreamEnd
from turngate.errors import InvalidValue, NotAnswered, PromptBlocked, ProviderError
from turngate.gateway import NewCall, prepare_call
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Scope
from turngate.testing import CUT, Pause, ScriptedProvider


@dataclass
class Words:
    """Blocks and replaces by words, and notes what it was shown."""

    name: str = "words"

    def __post_init__(self) -> None:
        self.seen: list[str] = []

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        self.seen.append(f"{prompt.thread}/{prompt.user}: {prompt.text}")
        if "forbidden" in prompt.text:
            return Block(rule="forbidden")
        return Allow(text=prompt.text.replace("darn", "d***")) if "darn" in prompt.text else Allow()

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block:
        self.seen.append(answer.text)
        if "forbidden" in f"{answer.text}{answer.reasoning}{answer.tool_calls}":
            return Block(rule="forbidden")
        return Replace(answer.text.replace("darn", "d***")) if "darn" in answer.text else Allow()


@dataclass
class Judging:
    """An output check that does what it is told."""

    does: Any
    name: str = "judging"

    async def check_answer(self, answer: Proposal) -> Any:
        if isinstance(self.does, BaseException):
            raise self.does
        if isinstance(self.does, Pause):
            await self.does.wait()
            return Allow()
        return self.does


def ledger(folder: Path) -> list[dict[str, Any]]:
    """The ledger's rows, oldest first."""
    with closing(sqlite3.connect(folder / "turngate.db")) as db:
        rows = db.execute("SELECT body FROM ledger ORDER BY rowid").fetchall()
    return [msgspec.json.decode(body) for (body,) in rows]


# ── prompts ──────────────────────────────────────────────────────────────────────────────────


async def test_blocked_prompt_leaves_nothing_in_the_thread(opened: Opener, tmp_path: Path) -> None:
    """The outcome and the call's row say who blocked it; no model is asked, no turn is stored."""
    async with opened(answer("x"), checks=[Words()]) as (gateway, provider):
        tenant = gateway.tenant("acme")
        outcome = await tenant.thread("t").ask("a forbidden thing")
        assert isinstance(outcome, Blocked)
        assert (outcome.by, outcome.rule, outcome.turns) == ("words", "forbidden", ())
        record = await tenant.call(outcome.call_id).record()
        page = await tenant.thread("t").turns()
        again = await tenant.call(outcome.call_id).outcome()
    assert (record.state, record.by, record.reason) == ("blocked", "words", "forbidden")
    assert record.user_turn is None
    assert page.length == 0
    assert provider.requests == []
    assert again == outcome
    assert ledger(tmp_path) == []
    with pytest.raises(NotAnswered, match="blocked"):
        outcome.expect()


async def test_prompt_is_stored_and_sent_as_checked(opened: Opener) -> None:
    """The text that a check gives stands in the thread and in the request; the original nowhere."""
    async with opened(answer("x"), checks=[Words()]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t", user="u1")
        await thread.ask("that darn parcel")
        page = await thread.turns()
    assert page.turns[0].text == "that d*** parcel"
    assert provider.requests[0].messages == (UserMessage(("that d*** parcel",)),)


async def test_checks_judge_in_their_order(opened: Opener) -> None:
    """Each check sees what the one before let pass, of prompts and of answers."""
    first, second = Words(), Words(name="second")
    async with opened(answer("darn"), checks=[first, second]) as (gateway, _):
        await gateway.tenant("acme").thread("t", user="u1").ask("darn it")
    assert first.seen == ["t/u1: darn it", "darn"]
    assert second.seen == ["t/u1: d*** it", "d***"]


async def test_blocked_prompt_waits_for_nobody(opened: Opener) -> None:
    """A prompt is blocked also while another call is active on its thread, and claims nothing."""
    pause = Pause()
    async with opened([pause, "done"], checks=[Words()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        asking = asyncio.create_task(thread.ask("hello"))
        await pause.reached.wait()
        assert isinstance(await thread.ask("forbidden"), Blocked)
        pause.release()
        assert (await asking).expect().text == "done"


async def test_key_of_a_blocked_prompt_gives_the_same_outcome(opened: Opener) -> None:
    """A retry with the key is told the same, and is not judged again."""
    check = Words()
    async with opened(answer("x"), checks=[check]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        first = await thread.ask("forbidden", key="k")
        assert await thread.ask("forbidden", key="k") == first
    assert len(check.seen) == 1


async def test_key_stands_for_the_prompt_as_it_was_given(opened: Opener) -> None:
    """A check that changes the prompt does not make a retry another request."""
    async with opened(answer("x"), checks=[Words()]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        first = await thread.ask("darn", key="k")
        assert await thread.ask("darn", key="k") == first
    assert len(provider.requests) == 1


async def test_prepare_call_raises_for_a_blocked_prompt(opened: Opener) -> None:
    """Who works with the steps alone gets a typed error that names check and rule."""
    async with opened(checks=[Words()]) as (gateway, _):
        new = NewCall(id="call_1", scope=Scope("acme"), thread="t", prompt="forbidden")
        with pytest.raises(PromptBlocked) as caught:
            await prepare_call(gateway.deps, new)
    assert (caught.value.check, caught.value.rule) == ("words", "forbidden")


# ── answers ──────────────────────────────────────────────────────────────────────────────────


async def test_blocked_answer_leaves_the_question(opened: Opener, tmp_path: Path) -> None:
    """The thread has the user turn alone; verdict, rule and usage are kept."""
    async with opened(answer("a forbidden word"), checks=[Words()]) as (gateway, _):
        tenant = gateway.tenant("acme")
        outcome = await tenant.thread("t").ask("hello")
        record = await tenant.call(outcome.call_id).record()
        page = await tenant.thread("t").turns()
        again = await tenant.call(outcome.call_id).outcome()
    usage = Usage(input_tokens=20, output_tokens=3)
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule, outcome.usage) == ("words", "forbidden", usage)
    assert [turn.role for turn in page.turns] == ["user"]
    assert outcome.turns == page.turns
    assert again == outcome
    assert (record.state, record.text, record.usage) == ("blocked", "", usage)
    (row,) = ledger(tmp_path)
    assert (row["outcome"], row["check"], row["rule"]) == ("blocked", "words", "forbidden")
    assert row["usage"] == {"input_tokens": 20, "output_tokens": 3}


async def test_blocked_run_keeps_its_finished_exchanges(opened: Opener) -> None:
    """What a run did before the blocked step stays; of the step itself there is nothing."""
    scripts = [
        calls(("double", '{"number":1}')),
        calls(("double", '{"number":2}'), text="forbidden"),
    ]
    async with opened(*scripts, checks=[Words()], tools=[double]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = await thread.run("go", tools=["double"])
        page = await thread.turns()
    assert isinstance(outcome, Blocked)
    assert [turn.role for turn in page.turns] == ["user", "assistant", "tool"]
    assert outcome.usage == Usage(input_tokens=20, output_tokens=4)


async def test_blocked_call_is_not_run(opened: Opener) -> None:
    """A model step is judged before its tools are run and before anyone sees its calls."""
    script = calls(("double", '{"number":"forbidden"}'))
    async with (
        opened(script, checks=[Words()], tools=[double]) as (gateway, _),
        gateway.tenant("acme").thread("t").stream_run("go", tools=["double"]) as events,
    ):
        seen = [event async for event in events]
    assert [type(event) for event in seen] == [Held, Settled]
    assert isinstance(events.outcome, Blocked)


async def test_replaced_answer_stands_as_replaced(opened: Opener, tmp_path: Path) -> None:
    """Thread, outcome and stream hold the replacement; the ledger says which check did it."""
    async with opened(answer("darn good"), checks=[Words()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        async with thread.stream_ask("hello") as events:
            seen = [event async for event in events]
        page = await thread.turns()
    assert seen[:2] == [Held(), TextEvent("d*** good")]
    assert isinstance(events.outcome, Answered)
    assert events.outcome.text == page.turns[-1].text == "d*** good"
    assert (ledger(tmp_path)[0]["check"], ledger(tmp_path)[0]["rule"]) == ("words", "replaced")


async def test_text_is_held_until_it_was_judged(opened: Opener) -> None:
    """A reader sees `Held` at once, then what has passed in one piece, then the tools' events."""
    pause = Pause()
    scripts = [calls(("double", '{"number":1}'), text="Let me see."), ["4", pause, "2"]]
    async with opened(*scripts, checks=[Words()], tools=[double]) as (gateway, _):
        seen = []
        async with gateway.tenant("a").thread("t").stream_run("go", tools=["double"]) as events:
            async for event in events:
                seen.append(event)
                if event == Held():
                    pause.release()
    kinds = [type(event).__name__ for event in seen]
    assert kinds == [
        *("Held", "TextEvent", "ToolStarted", "ToolEnded"),
        *("Held", "TextEvent", "Settled"),
    ]
    assert [event.text for event in seen if isinstance(event, TextEvent)] == ["Let me see.", "42"]
    assert isinstance(seen[2], ToolStarted)


@pytest.mark.parametrize(
    ("does", "rule"),
    [
        (RuntimeError("out of order"), "error"),
        (None, "error"),
        ("allow", "error"),
        (Pause(), "timeout"),
    ],
)
async def test_check_that_fails_blocks(opened: Opener, does: Any, rule: str) -> None:
    """What raises, hangs or gives no verdict has let nothing pass."""
    settings = Settings(check_timeout_s=0.05)
    check = Judging(does)
    async with opened(answer("x"), checks=[check], settings=settings) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").ask("hello")
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule) == ("judging", rule)


@pytest.mark.parametrize("cut", [CUT, ProviderError("gone", code="network")])
async def test_cut_answer_that_was_held_is_not_kept(opened: Opener, cut: Any) -> None:
    """What a check had not judged when the stream broke is neither stored nor shown."""
    async with opened(["secret", cut], checks=[Words()]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        outcome = await thread.ask("hello")
        page = await thread.turns()
    assert isinstance(outcome, Incomplete)
    assert outcome.text == ""
    assert [turn.role for turn in page.turns] == ["user"]


async def test_cancelled_while_judged_keeps_the_usage(opened: Opener, tmp_path: Path) -> None:
    """A call that ends while a check judges has its usage in the ledger, and no text."""
    pause = Pause()
    async with opened(answer("secret"), checks=[Judging(pause)]) as (gateway, _):
        tenant = gateway.tenant("acme")
        stream = tenant.thread("t").stream_ask("hello")
        async with stream:
            await pause.reached.wait()
        outcome = stream.outcome
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text) == ("reader_gone", "")
    (row,) = ledger(tmp_path)
    assert row["usage"] == {"input_tokens": 20, "output_tokens": 3}
    assert outcome.usage == Usage(input_tokens=20, output_tokens=3)


async def test_answer_cut_by_length_is_kept_once_it_passed(opened: Opener) -> None:
    """A cut answer is judged like a whole one: what passes is kept as incomplete."""
    async with opened(
        ["darn lo", StreamEnd("length")], ["forbidden", StreamEnd("length")], checks=[Words()]
    ) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        kept = await thread.ask("hello")
        blocked = await thread.ask("again")
    assert isinstance(kept, Incomplete)
    assert (kept.reason, kept.text) == ("length", "d*** lo")
    assert isinstance(blocked, Blocked)


async def test_call_cancelled_between_two_steps_says_nothing_twice(
    opened: Opener, tmp_path: Path
) -> None:
    """A run that is cancelled in its tools has one row a model call, and its text once."""
    started = asyncio.Event()

    async def hang(number: int) -> int:
        """Hang."""
        started.set()
        await asyncio.sleep(60)
        return number

    from turngate import tool

    script = calls(("hang", '{"number":1}'), text="Let me see.")
    async with opened(script, tools=[tool(hang)]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        running = asyncio.create_task(thread.run("go", tools=["hang"]))
        await started.wait()
        running.cancel()
        await asyncio.wait({running})
        page = await thread.turns()
    assert [turn.text for turn in page.turns if turn.role == "assistant"] == ["Let me see."]
    assert [row["outcome"] for row in ledger(tmp_path)] == ["tool_calls"]


# ── who judges ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "checks",
    [
        [object()],
        [Words(name="")],
        [Words(), Words()],
        [Words(name="review")],
        [type("Idle", (), {"name": "idle"})()],
    ],
)
async def test_checks_need_names_and_something_to_judge(opened: Opener, checks: Any) -> None:
    """A check that no call could name, or that judges nothing, is refused when it is given."""
    with pytest.raises(InvalidValue):
        async with opened(checks=checks):
            pass


async def test_run_waits_for_the_checks_it_began_with(tmp_path: Path) -> None:
    """A gateway without its checks does not take a run over, and says what it waits for."""
    deaths, pause = Deaths(tmp_path / "deaths"), Pause()
    dying = open_gateway(deaths.path, provider=ScriptedProvider([pause]), checks=[Words()])
    async with dying as gateway, gateway.tenant("acme").thread("t").stream_run("go") as events:
        await pause.reached.wait()
        call_id = events.call_id
        deaths.died()
    assert call_id is not None
    provider = ScriptedProvider(answer("a darn answer"))
    async with open_gateway(deaths.path, provider=provider) as gateway:
        record = await gateway.tenant("acme").call(call_id).record()
    assert (record.checks, record.waiting_for) == (("words",), ("check words",))
    assert provider.requests == []
    async with open_gateway(deaths.path, provider=provider, checks=[Words()]) as gateway:
        outcome = await gateway.tenant("acme").call(call_id).outcome()
    assert outcome.text == "a d*** answer"


async def test_instructions_come_first_beside_checks(opened: Opener) -> None:
    """Checks change nothing about what else a model is told."""
    async with opened(answer("x"), checks=[Words()], instructions="Be kind.") as (gateway, p):
        await gateway.tenant("acme").thread("t").ask("hello")
    assert p.requests[0].messages[0] == SystemMessage("Be kind.")

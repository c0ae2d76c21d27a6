"""Steps under odd checks, tools and stores: what fails passes nothing, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_checks import Judging, ledger
from tests.integration.gateway.test_receipts import made_again
from tests.integration.gateway.test_runs import answer, calls, results
from turngate import (
    Answered,
    Blocked,
    Incomplete,
    RecentWindow,
    Settings,
    TextEvent,
    ToolResultPart,
    ToolSpec,
    Usage,
    tool,
)
from turngate.completion import FunctionCallDelta, StreamEnd
from turngate.errors import RequestError
from turngate.protocols import ReviewRule
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review, Scope, StoredObject

USAGE = Usage(input_tokens=20, output_tokens=3)
ODD: Any = 5
SURROGATE = "\ud800"


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "verdict",
    [
        Block(rule=ODD),
        Block(rule=SURROGATE),
        Block(rule="a\0b"),
        Review(reason=ODD),
        Review(reason=SURROGATE),
        Replace(text=ODD),
        Allow(text=ODD),
        Allow(text="[redacted]"),
    ],
)
async def test_odd_verdict_on_an_answer_blocks(
    opened: Opener, tmp_path: Path, verdict: object
) -> None:
    """A verdict with members that it can't have lets nothing pass, and the call ends with it."""
    async with opened(answer("secret"), checks=[Judging(verdict)]) as (gateway, _):
        tenant = gateway.tenant("acme")
        outcome = await tenant.thread("t").ask("hello")
        record = await tenant.call(outcome.call_id).record()
        page = await tenant.thread("t").turns()
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule, outcome.usage) == ("judging", "error", USAGE)
    assert (record.state, record.usage) == ("blocked", USAGE)
    assert [turn.role for turn in page.turns] == ["user"]
    assert [row["outcome"] for row in ledger(tmp_path)] == ["blocked"]


@dataclass
class JudgingPrompts:
    """An input check that gives one verdict."""

    verdict: Any
    name: str = "judging"

    async def check_prompt(self, prompt: Prompt) -> Any:
        return self.verdict


@pytest.mark.parametrize(
    "verdict",
    [Block(rule=ODD), Block(rule=SURROGATE), Allow(text=ODD), Replace(text="x"), Review("why")],
)
async def test_odd_verdict_on_a_prompt_blocks(opened: Opener, verdict: object) -> None:
    """Of a prompt too: its call is blocked as by a check that failed, and no model is asked."""
    async with opened(answer("x"), checks=[JudgingPrompts(verdict)]) as (gateway, provider):
        tenant = gateway.tenant("acme")
        outcome = await tenant.thread("t").ask("hello")
        record = await tenant.call(outcome.call_id).record()
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule) == ("judging", "error")
    assert record.state == "blocked"
    assert provider.requests == []


@dataclass
class Stubborn:
    """An output check that lets pass what it was cancelled at."""

    name: str = "stubborn"

    async def check_answer(self, answer: Proposal) -> Allow:
        with contextlib.suppress(BaseException):
            await asyncio.Event().wait()
        return Allow()


async def test_check_that_ignores_its_end_passes_nothing(opened: Opener) -> None:
    """What a check says after its time is not heard, even if it swallows its cancellation."""
    settings = Settings(check_timeout_s=0.05)
    async with opened(answer("secret"), checks=[Stubborn()], settings=settings) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").ask("hello")
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule) == ("stubborn", "timeout")


async def test_check_that_is_cancelled_inside_cancels_nobody(opened: Opener) -> None:
    """A cancellation from within a check is a failure of the check, and not of its caller."""
    check = Judging(asyncio.CancelledError())
    async with opened(answer("secret"), checks=[check]) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").ask("hello")
    assert isinstance(outcome, Blocked)
    assert (outcome.by, outcome.rule) == ("judging", "error")


@pytest.mark.parametrize("ends", ["length", "content_filter"])
@pytest.mark.parametrize(
    "rule",
    [ReviewRule(name="every", answers=True), ReviewRule(name="all", when=lambda proposal: True)],
)
async def test_cut_step_under_a_rule_keeps_no_text(
    opened: Opener, tmp_path: Path, rule: ReviewRule, ends: Any
) -> None:
    """A step with calls that was cut, and that nobody decided on, leaves its usage alone."""
    call = FunctionCallDelta(index=0, id="c0", name="act", arguments="{}")
    script = ["secret", call, StreamEnd(ends, usage=USAGE)]

    @tool(effect="safe")
    def act() -> str:
        """Act."""
        return "done"

    async with opened(script, reviews=[rule], tools=[act]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        async with thread.stream_run("go", tools=["act"]) as stream:
            seen = [event async for event in stream]
        page = await thread.turns()
    outcome = stream.outcome
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text, outcome.usage) == (ends, "", USAGE)
    assert [turn.role for turn in page.turns] == ["user"]
    assert not any(isinstance(event, TextEvent) for event in seen)
    assert [row["usage"]["input_tokens"] for row in ledger(tmp_path)] == [20]


# ── long results ─────────────────────────────────────────────────────────────────────────────


@tool(effect="unsafe", output_chars_max=1000, timeout_s=0.2)
async def write() -> str:
    """Write."""
    return "x" * 5000


@dataclass
class OwnFiles:
    """A file store of one's own: it fails, or waits before it has stored what it is given."""

    fails: Exception | None = None
    waits_s: float = 0.0
    kept: list[bytes] = field(default_factory=list)

    async def put(self, scope: Scope, chunks: AsyncIterator[bytes]) -> StoredObject:
        if self.fails is not None:
            raise self.fails
        data = b"".join([chunk async for chunk in chunks])
        await asyncio.sleep(self.waits_s)
        self.kept.append(data)
        return StoredObject(name="one", sha256=sha256(data).hexdigest(), size_bytes=len(data))

    async def delete(self, scope: Scope, name: str) -> None: ...

    def tenant_key(self, scope: Scope) -> str:
        return "one"

    async def aclose(self) -> None: ...


async def result_of(opened: Opener, **options: Any) -> str:
    """The stored result of one long tool call of a run, which is answered."""
    async with opened(calls(("write", "{}")), answer("end"), tools=[write], **options) as (
        gateway,
        _,
    ):
        outcome = await gateway.tenant("acme").thread("t").run("go", tools=["write"])
    assert isinstance(outcome, Answered)
    ((_, content, is_error),) = results(outcome.turns)
    assert not is_error
    return content


async def test_long_result_is_cut_where_files_are_not_installed(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the part that keeps files a result is cut, and a file is refused with the way out."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    content = await result_of(opened)
    assert content.startswith("x" * 1000)
    assert content.endswith("[4000 more characters were cut]")
    async with opened() as (gateway, _):
        with pytest.raises(RequestError, match="obstore") as caught:
            await gateway.tenant("acme").files.put(b"x", name="x")
    assert caught.value.hint is not None
    assert "turngate[files]" in caught.value.hint


@pytest.mark.parametrize("error", [OSError("no room"), ModuleNotFoundError("no part")])
async def test_long_result_is_cut_where_its_store_fails(opened: Opener, error: Exception) -> None:
    """Whatever a file store raises, the run has its result and goes on."""
    content = await result_of(opened, files=OwnFiles(fails=error))
    assert content.endswith("[4000 more characters were cut]")


async def test_slow_file_store_is_no_slow_tool(opened: Opener) -> None:
    """A tool that has ended is not said to hang while its result is being kept."""
    files = OwnFiles(waits_s=0.4)
    content = await result_of(opened, files=files)
    assert files.kept == [b"x" * 5000]
    assert "the whole result is file file_" in content


async def test_request_with_a_result_cut_twice_is_made_again(opened: Opener) -> None:
    """A window's tokens and a context's, both too few for a result: the receipt still holds."""
    settings, window = Settings(context_tokens=600), RecentWindow(tokens=700)
    async with opened(calls(("own", "{}")), answer("fine"), settings=settings, window=window) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant("acme").thread("t")
        await thread.ask("go", tools=[ToolSpec(name="own")])
        await thread.add_results([ToolResultPart(call_id="c0", content="L" * 90_000)])
        outcome = await thread.ask(None)
        again = await made_again(gateway, outcome.call_id)
    assert str(provider.requests[1]).count("characters left out") == 1
    assert again == provider.requests[1:]

"""Receipts: what each model call was shown, and the request made of it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_checks import ledger
from tests.integration.gateway.test_reviews import EVERY, held
from tests.integration.gateway.test_runs import answer, calls, double
from turngate import (
    Answered,
    CallOptions,
    Gateway,
    RecentWindow,
    Settings,
    SystemMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
)
from turngate.completion import ChatRequest, StreamEnd
from turngate.errors import InvalidValue, ProviderError
from turngate.gateway.receipts import request_again, request_hash
from turngate.records import LedgerRow, Scope, Span, text_hash

ACME = Scope("acme")


async def rows_of(gateway: Gateway, call_id: str) -> list[LedgerRow]:
    return list(await gateway.deps.store.ledger(ACME, call_id))


async def made_again(gateway: Gateway, call_id: str) -> list[ChatRequest]:
    """The requests of a call's receipts, made again."""
    record = await gateway.tenant("acme").call(call_id).record()
    rows = await rows_of(gateway, call_id)
    return [await request_again(gateway.deps, ACME, record, row) for row in rows]


async def test_receipt_says_what_was_shown(opened: Opener) -> None:
    """Positions, the own user turn, hashes and estimates: all of it, and no text."""
    async with opened(answer("a1"), instructions="Be kind.", window=RecentWindow(turns=3)) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant("acme").thread("t")
        await thread.ask("question 0")
        await thread.ask("question 1")
        outcome = await thread.ask("question 2")
        (row,) = await rows_of(gateway, outcome.call_id)
        record = await gateway.tenant("acme").call(outcome.call_id).record()
    receipt = row.receipt
    assert receipt is not None
    assert (receipt.length, receipt.window) == (4, Span(2, 2))
    assert receipt.current == (record.user_turn.id if record.user_turn else None)
    assert receipt.instructions == text_hash("Be kind.") == record.instructions
    assert receipt.request_hash == request_hash(provider.requests[-1])
    assert [(gone.what, gone.count) for gone in receipt.left_out] == [("turns", 2)]
    assert set(receipt.tokens) == {"instructions", "window"}
    assert "question" not in str(receipt)
    assert "kind" not in str(receipt)


async def test_request_is_made_again_from_its_receipt(opened: Opener) -> None:
    """Each request of a run, also once the thread has grown, is the same to the byte."""
    scripts = [
        answer("hello"),
        calls(("double", '{"number":1}'), ("double", '{"number":2}'), text="Let me see."),
        calls(("double", '{"number":4}')),
        answer("8"),
        answer("later"),
    ]
    async with opened(*scripts, tools=[double], instructions="Be kind.") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        await thread.ask("hi")
        outcome = await thread.run(
            "go", tools=["double"], options=CallOptions(temperature=0, top_p=1)
        )
        await thread.ask("more")
        again = await made_again(gateway, outcome.call_id)
    assert again == provider.requests[1:4]


async def test_request_of_a_retry_is_made_again(opened: Opener) -> None:
    """A reviewer's note is part of what was shown, and comes back with it."""
    async with opened(answer("one"), answer("two"), reviews=[EVERY], instructions="Be kind.") as (
        gateway,
        provider,
    ):
        outcome = held(await gateway.tenant("acme").thread("t").ask("hello"))
        reviews = gateway.tenant("acme").reviews
        await reviews.retry(outcome.reviews[0], "Say more.", by="ann")
        await gateway.tenant("acme").call(outcome.call_id).outcome()
        again = await made_again(gateway, outcome.call_id)
    assert again == provider.requests
    assert again[0].messages[0] == SystemMessage("Be kind.")


async def test_request_beside_a_waiting_call_is_made_again(opened: Opener) -> None:
    """A tool call that was shown as waiting is shown so again, whatever became of it."""
    from turngate.protocols import ReviewRule

    rule = ReviewRule(name="doubling", tools=("double",))
    scripts = [calls(("double", '{"number":1}')), answer("meanwhile"), answer("2")]
    async with opened(*scripts, reviews=[rule], tools=[double]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        outcome = held(await thread.run("go", tools=["double"]))
        beside = await thread.ask("why?", pending="go_on")
        await gateway.tenant("acme").reviews.approve(outcome.reviews[0], by="ann")
        await gateway.tenant("acme").call(outcome.call_id).outcome()
        again = await made_again(gateway, beside.call_id)
    assert again == provider.requests[1:2]


async def test_request_that_was_altered_is_not_passed_off(opened: Opener) -> None:
    """What can't be made again as it was is an error, and no other request."""
    async with opened(answer("x")) as (gateway, _):
        outcome = await gateway.tenant("acme").thread("t").ask("hi")
        record = await gateway.tenant("acme").call(outcome.call_id).record()
        (row,) = await rows_of(gateway, outcome.call_id)
        from msgspec.structs import replace

        assert row.receipt is not None
        other = replace(row, receipt=replace(row.receipt, request_hash="0" * 64))
        with pytest.raises(InvalidValue, match="as it was"):
            await request_again(gateway.deps, ACME, record, other)
        with pytest.raises(InvalidValue, match="no receipt"):
            await request_again(gateway.deps, ACME, record, replace(row, receipt=None))


async def test_instructions_are_stored_once(opened: Opener, tmp_path: Path) -> None:
    """However many calls are told them, their text stands in the database once."""
    import sqlite3

    told = "Answer in the manner of a lighthouse keeper."
    async with opened(answer("x"), instructions=told) as (gateway, _):
        for number in range(4):
            await gateway.tenant("acme").thread(f"t{number}").ask("hi")
    with sqlite3.connect(tmp_path / "turngate.db") as db:
        (texts,) = db.execute("SELECT count(*) FROM texts").fetchone()
        bodies = db.execute("SELECT body FROM calls UNION ALL SELECT body FROM ledger").fetchall()
    db.close()
    assert texts == 1
    assert not any("lighthouse" in body for (body,) in bodies)


# ── the budget ───────────────────────────────────────────────────────────────────────────────


def too_long() -> ProviderError:
    return ProviderError("too long", code="context_length", status=400)


async def test_refused_length_teaches_the_budget(opened: Opener, tmp_path: Path) -> None:
    """A request that is too long is made once more with less; later ones are short at once."""
    text = "a sentence of some words that costs its tokens. " * 20
    scripts: list[Any] = [answer(text)] * 6 + [[too_long()], answer("short"), answer("again")]
    async with opened(*scripts, model="m1") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        for _ in range(6):
            await thread.ask("go on")
        outcome = await thread.ask("and now?")
        rows = await rows_of(gateway, outcome.call_id)
        await thread.ask("and then?")
        again = await made_again(gateway, outcome.call_id)
    assert isinstance(outcome, Answered)
    long, short, later = (len(request.messages) for request in provider.requests[6:9])
    assert short < long
    assert later < long
    assert [row.outcome for row in rows] == ["context_length", "answered"]
    assert rows[1].receipt is not None
    assert rows[1].receipt.budget is not None
    assert again == provider.requests[6:8]


async def test_length_that_can_not_be_mended_is_the_servers_error(opened: Opener) -> None:
    """Where the question alone is too long, nothing is asked twice and the error is told."""
    async with opened([too_long()], model="m1") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        with pytest.raises(ProviderError) as caught:
            await thread.ask("word " * 2000)
        assert (await thread.turns()).length == 0
    assert caught.value.code == "context_length"
    assert len(provider.requests) == 1


async def test_second_refusal_ends_the_call(opened: Opener, tmp_path: Path) -> None:
    """A request is made shorter once; each attempt has its row."""
    scripts: list[Any] = [answer("word " * 300)] * 3 + [[too_long()], [too_long()]]
    async with opened(*scripts, model="m1") as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        for _ in range(3):
            await thread.ask("go on")
        with pytest.raises(ProviderError):
            await thread.ask("and now?")
    assert len(provider.requests) == 5
    assert [row["outcome"] for row in ledger(tmp_path)[3:]] == ["context_length"] * 2


async def test_known_context_keeps_the_window_within_it(opened: Opener) -> None:
    """With a known context the request fits, with room for the answer, tools and instructions."""
    settings = Settings(context_tokens=700)
    spec = ToolSpec(name="own", description="Do it. " * 20)
    async with opened(answer("word " * 100), settings=settings, instructions="Be kind.") as (
        gateway,
        provider,
    ):
        thread = gateway.tenant("acme").thread("t")
        for _ in range(8):
            await thread.ask("go on", tools=[spec], options=CallOptions(max_tokens=100))
        costs = [gateway.deps.counter.count_request(r) for r in provider.requests]
    assert max(costs) <= 600
    assert len(provider.requests[-1].messages) > 2


async def test_long_result_of_the_current_exchange_is_shortened(opened: Opener) -> None:
    """A stored result is shown in part where it would not fit, and comes back so by its receipt."""
    settings = Settings(context_tokens=900)
    script = calls(("own", "{}"))
    async with opened(script, answer("fine"), settings=settings) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t")
        await thread.ask("go", tools=[ToolSpec(name="own")])
        result = ToolResultPart(call_id="c0", content="many words here " * 2000)
        await thread.add_results([result])
        outcome = await thread.ask(None)
        again = await made_again(gateway, outcome.call_id)
        page = await thread.turns()
    assert "characters left out" in str(provider.requests[1].messages[-1])
    assert again == provider.requests[1:]
    assert result in [part for turn in page.turns for part in turn.parts]


async def test_usage_calibrates_the_estimate(opened: Opener) -> None:
    """What a provider counts moves the estimates for its model."""
    usage = Usage(input_tokens=400, output_tokens=1)
    script = ["ok", StreamEnd("stop", usage=usage, model="m1")]
    async with opened(script, model="m1") as (gateway, provider):
        for number in range(8):
            await gateway.tenant("acme").thread(f"t{number}").ask("some words to count " * 40)
        before = gateway.deps.counter.count_request(provider.requests[0])
        other = gateway.deps.counter.count_text("some words to count " * 40, model="never")
        known = gateway.deps.counter.count_text("some words to count " * 40, model="m1")
    assert known != other
    assert before > 0


async def test_taught_budget_grows_again(opened: Opener) -> None:
    """Requests near a budget that a refusal taught pass, and let it grow; short ones do not."""
    usage = Usage(input_tokens=90, output_tokens=1)
    script: list[Any] = ["ok", StreamEnd("stop", usage=usage, model="m1")]
    async with opened(script, model="m1") as (gateway, _):
        gateway.deps.learned_context["m1"] = 100
        await gateway.tenant("acme").thread("t").ask("hello")
        assert gateway.deps.learned_context["m1"] == 110
        gateway.deps.learned_context["m1"] = 1000
        await gateway.tenant("acme").thread("t").ask("hello")
        assert gateway.deps.learned_context["m1"] == 1000

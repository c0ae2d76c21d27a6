"""Odd values from callers, tools and providers: a typed error or a result, and nothing is lost."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_runs import answer, calls, double, results
from turngate import CallOptions, Incomplete, ToolSpec, tool
from turngate.completion import StreamEnd
from turngate.errors import InvalidValue, ProviderError, RequestError
from turngate.records import CallRecord, Change, Scope
from turngate.testing import Pause


class Colour(enum.StrEnum):
    RED = "red"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def stops() -> str:
    return next(iter([]))


async def unprintable() -> str:
    raise Unprintable


async def enumerated() -> str:
    return Colour.RED


@pytest.mark.parametrize(
    ("function", "content", "is_error"),
    [
        (stops, "RuntimeError", True),
        (unprintable, "Unprintable", True),
        (enumerated, "red", False),
    ],
)
async def test_no_tool_ends_its_run(
    opened: Opener, function: Callable[..., Any], content: str, is_error: bool
) -> None:
    """A StopIteration, an exception without a text, and a str subclass are results like others."""
    odd = tool(name="odd")(function)
    async with opened(calls(("odd", "{}")), answer("ok"), tools=[odd]) as (gateway, _):
        async with asyncio.timeout(20):
            outcome = await gateway.tenant("acme").thread("t1").run("go", tools=["odd"])
    ((_, text, marked),) = results(outcome.expect().turns)
    assert content in text
    assert marked == is_error


async def test_odd_model_name_loses_no_answer(opened: Opener) -> None:
    """A model's name that no database keeps is normalised as texts are."""
    async with opened(["hello", StreamEnd("stop", model="m\ud800")]) as (gateway, _):
        outcome = (await gateway.tenant("acme").thread("t1").ask("hi")).expect()
    assert outcome.text == "hello"
    assert outcome.turns[1].model == "m\ufffd"


async def test_end_of_another_type_is_a_typed_error_and_keeps_the_text(opened: Opener) -> None:
    """A provider's end with a number for a model is the provider's fault; the text stays."""
    script = ["hello", StreamEnd("stop", model=5)]  # type: ignore[arg-type]
    async with opened(script) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        outcome = await thread.ask("hi")
        page = await thread.turns()
    assert (outcome.text, page.turns[1].ended) == ("hello", "protocol")


async def test_key_takes_every_prompt_that_an_ask_takes(opened: Opener) -> None:
    """A lone surrogate does not matter to a key; what is no JSON is an `InvalidValue`."""
    async with opened(["a"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        first = await thread.ask("a\ud800b", key="k")
        assert await thread.ask("a\ud800b", key="k") == first
        with pytest.raises(InvalidValue):
            await thread.ask("b", key="l", options=CallOptions(extra_body={"x": object()}))


async def test_tools_that_can_not_be_are_refused(opened: Opener) -> None:
    """A run takes no bare spec, and no call takes two tools of one name."""
    spec = ToolSpec(name="double")
    async with opened(["a"], tools=[double]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(InvalidValue, match="ToolSpec"):
            await thread.run("go", tools=[spec])  # type: ignore[list-item]
        with pytest.raises(InvalidValue, match="share a name"):
            await thread.ask("go", tools=[spec, double])
        with pytest.raises(InvalidValue):
            gateway.tenant(None)  # type: ignore[arg-type]
    assert provider.requests == []


async def test_provider_of_another_shape_releases_the_thread(opened: Opener) -> None:
    """A part that is none is a typed error of the provider, and the next ask goes through."""
    async with opened([7], ["ok"]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t1")
        with pytest.raises(ProviderError):
            await thread.ask("hi")
        assert (await thread.ask("hi")).expect().text == "ok"
        with pytest.raises(RequestError):
            await gateway.tenant("acme").call("run_none").outcome()


async def test_gateway_that_closes_meanwhile_begins_nothing(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyed ask that finds the gateway closed after its look-up is refused, and asks no model."""
    async with opened(["a"]) as (gateway, provider):
        look_up = gateway.deps.store.call_by_key

        async def closing_look_up(scope: Scope, key: str) -> CallRecord | None:
            await gateway.aclose()
            return await look_up(scope, key)

        monkeypatch.setattr(gateway.deps.store, "call_by_key", closing_look_up)
        with pytest.raises(RequestError, match="closed"):
            await gateway.tenant("acme").thread("t1").ask("hi", key="k")
    assert provider.requests == []


async def test_cancelled_closing_leaves_the_settling_alone(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes a gateway and is cancelled cancels no settle that is under way."""
    pause, settling, go_on = Pause(), asyncio.Event(), asyncio.Event()
    async with opened(["part", pause]) as (gateway, _):
        asking = asyncio.create_task(gateway.tenant("acme").thread("t1").ask("hi"))
        await pause.reached.wait()
        commit = gateway.deps.store.commit

        async def slow_commit(scope: Scope, change: Change) -> int:
            settling.set()
            await go_on.wait()
            return await commit(scope, change)

        monkeypatch.setattr(gateway.deps.store, "commit", slow_commit)
        closing = asyncio.create_task(gateway.aclose())
        await settling.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        go_on.set()
        outcome = await asking
    assert isinstance(outcome, Incomplete)
    assert (outcome.reason, outcome.text) == ("gateway_closed", "part")

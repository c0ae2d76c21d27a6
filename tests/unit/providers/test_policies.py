"""Each built-in policy: what it stops, what it lets pass, and when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from turngate.completion import SessionGroup
from turngate.errors import InvalidValue, PolicyStopped
from turngate.messages import UserMessage
from turngate.providers import (
    CallOptions,
    ChatRequest,
    CompleteToolCalls,
    CompletionPolicy,
    FunctionCallDelta,
    ModelPart,
    ModelRunner,
    OutputLimits,
    ReasoningDelta,
    RefusedFinishReasons,
    RequiredTools,
    StreamEnd,
    Timing,
    TimingRecord,
    default_policies,
)
from turngate.testing import CUT, Pause, ScriptedProvider
from turngate.values import ToolSpec

REQUEST = ChatRequest(messages=(UserMessage(("hi",)),))
TOOLS = (ToolSpec(name="f"),)


def call(arguments: str | None = "{}", *, index: int = 0, name: str | None = "f") -> ModelPart:
    return FunctionCallDelta(index=index, id=f"c{index}", name=name, arguments=arguments)


def piece(arguments: str, *, index: int = 0) -> ModelPart:
    return FunctionCallDelta(index=index, arguments=arguments)


def reason_of(
    policy: CompletionPolicy,
    *parts: ModelPart,
    finish: str | None = "stop",
    request: ChatRequest = REQUEST,
) -> str | None:
    """The reason for which `policy` stops an answer of `parts`; None if it lets it pass."""
    sessions = SessionGroup([policy.open(request)])
    try:
        for part in parts:
            sessions.part(part)
        if finish is not None:
            sessions.finish(finish)
        sessions.end()
    except PolicyStopped as stopped:
        return stopped.reason
    return None


# ── OutputLimits ─────────────────────────────────────────────────────────────────────────────

LIMITS = OutputLimits(chars_max=5, calls_max=2, argument_bytes_max=6)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["12345"], None),
        (["123", "456"], "output_chars"),
        (["äöüäö"], None),
        (["123", ReasoningDelta("45")], None),
        (["123", ReasoningDelta("456")], "output_chars"),
        ([call(), call(index=1)], None),
        ([call(), call(index=1), call(index=2)], "output_calls"),
        ([call("123456")], None),
        ([call("123"), piece("456"), call("123456", index=1)], None),
        ([call("123"), piece("4567")], "output_arguments"),
        ([call("ääää")], "output_arguments"),
        ([call("\ud800" * 6)], None),
        ([call(None)] * 100, None),
    ],
)
def test_answer_over_a_limit_is_stopped(parts: list[ModelPart], reason: str | None) -> None:
    """Text and reasoning are counted together, arguments for each call; the limit itself passes."""
    assert reason_of(LIMITS, *parts) == reason


async def test_part_that_is_over_the_limit_is_not_yielded() -> None:
    """The reader has what fits, and so has the error."""
    provider = ScriptedProvider(["123", "456", "789"])
    seen: list[ModelPart] = []
    runner = ModelRunner(provider, policies=[LIMITS])
    with pytest.raises(PolicyStopped) as caught:
        await runner.complete(REQUEST, observe=seen.append)
    assert seen == ["123"]
    assert caught.value.partial is not None
    assert caught.value.partial.text == "123"
    assert "5 characters" in str(caught.value)
    assert provider.closed == 1


# ── CompleteToolCalls ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["text alone"], None),
        ([call('{"a":1}')], None),
        ([call('{"a"'), piece(":1}")], None),
        ([call("")], None),
        ([call(None)], None),
        ([call(" \n")], None),
        ([call('{"a"')], "incomplete_call"),
        ([call("[1]")], "incomplete_call"),
        ([call('"{}"')], "incomplete_call"),
        ([call("{}{}")], "incomplete_call"),
        ([call("[" * 100_000)], "incomplete_call"),
        ([call(), call("{", index=1)], "incomplete_call"),
        ([call(name=None)], "incomplete_call"),
        ([call(name="")], "incomplete_call"),
        ([call(None, name=None), call("{}", name="late")], None),
    ],
)
@pytest.mark.parametrize("finish", ["stop", "tool_calls", None])
def test_incomplete_call_is_stopped(
    parts: list[ModelPart], reason: str | None, finish: str | None
) -> None:
    """A call has a name and an object for arguments, whether a finish reason was told or not."""
    assert reason_of(CompleteToolCalls(), *parts, finish=finish) == reason


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_call_of_an_answer_that_is_told_as_cut_may_be_incomplete(finish: str) -> None:
    """Who reads the finish reason knows it already."""
    assert reason_of(CompleteToolCalls(), call('{"a"'), finish=finish) is None


# ── RefusedFinishReasons ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        (RefusedFinishReasons(), {"content_filter"}),
        (RefusedFinishReasons(("length", "content_filter")), {"length", "content_filter"}),
        (RefusedFinishReasons(["stop"]), {"stop"}),
        (RefusedFinishReasons(()), set()),
    ],
)
def test_finish_reason_that_is_refused_stops(
    policy: RefusedFinishReasons, refused: set[str]
) -> None:
    """The listed ones do, the others and none at all pass."""
    for finish in ("stop", "length", "tool_calls", "content_filter", None):
        assert reason_of(policy, "a", finish=finish) == (
            "finish_reason" if finish in refused else None
        )


@pytest.mark.parametrize("reasons", ["length", ("lenght",)])
def test_finish_reason_that_never_comes_is_an_invalid_value(reasons: Any) -> None:
    """Neither a word that is no reason, nor one word in place of several."""
    with pytest.raises(InvalidValue):
        RefusedFinishReasons(reasons)


# ── RequiredTools ────────────────────────────────────────────────────────────────────────────

NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("choice", "tools", "is_required"),
    [
        ("required", TOOLS, True),
        (NAMED, TOOLS, True),
        ("auto", TOOLS, False),
        ("none", TOOLS, False),
        (None, TOOLS, False),
        ("required", (), False),
    ],
)
@pytest.mark.parametrize("finish", ["stop", None])
def test_answer_without_the_required_call_is_stopped(
    choice: str | Mapping[str, Any] | None,
    tools: tuple[ToolSpec, ...],
    is_required: bool,
    finish: str | None,
) -> None:
    """Where the request asked for a call, text alone is no answer; where it did not, it is."""
    options = CallOptions(tool_choice=choice)
    request = ChatRequest(messages=REQUEST.messages, tools=tools, options=options)
    wanted = "required_tool" if is_required else None
    assert reason_of(RequiredTools(), "a", finish=finish, request=request) == wanted
    assert reason_of(RequiredTools(), "a", call(), finish=finish, request=request) is None
    for cut in ("length", "content_filter"):
        assert reason_of(RequiredTools(), "a", finish=cut, request=request) is None


# ── Timing ───────────────────────────────────────────────────────────────────────────────────


async def test_timing_is_recorded_once_for_an_answer_that_ends_well() -> None:
    """First part, longest gap and total, in seconds from the opening of the request."""
    records: list[TimingRecord] = []
    provider = ScriptedProvider([Pause(0.02), "a", Pause(0.05), "b", "c"])
    start = time.monotonic()
    await ModelRunner(provider, policies=[Timing(records.append)]).complete(REQUEST)
    (record,) = records
    assert record.parts == 3
    assert record.first_part_s is not None
    assert record.first_part_s > 0.015
    assert record.longest_gap_s > 0.045
    assert record.first_part_s + record.longest_gap_s <= record.total_s
    assert record.total_s <= time.monotonic() - start


async def test_timing_of_an_answer_without_parts_has_no_first_part() -> None:
    """An empty answer was an answer."""
    records: list[TimingRecord] = []
    await ModelRunner(ScriptedProvider([]), policies=[Timing(records.append)]).complete(REQUEST)
    assert [(record.first_part_s, record.longest_gap_s, record.parts) for record in records] == [
        (None, 0.0, 0)
    ]


@pytest.mark.parametrize("script", [["a", CUT], ["a", KeyError("x")]])
async def test_timing_of_a_failed_answer_is_not_recorded(script: list[Any]) -> None:
    """Only a whole answer has a time that says something."""
    records: list[TimingRecord] = []
    runner = ModelRunner(ScriptedProvider(script), policies=[Timing(records.append)])
    with pytest.raises(Exception, match=r"x|StreamEnd"):
        await runner.complete(REQUEST)
    assert not records


# ── together ─────────────────────────────────────────────────────────────────────────────────


def test_default_policies_are_limits_and_complete_calls() -> None:
    """A record of the timing is added where one is asked for."""
    limits, calls = default_policies()
    assert (limits, calls) == (OutputLimits(), CompleteToolCalls())
    *same, timing = default_policies(record=print)
    assert same == [limits, calls]
    assert timing == Timing(print)


async def test_policy_keeps_nothing_of_a_request() -> None:
    """One policy object watches two streams that interleave, and each is counted for itself."""
    pauses = Pause(), Pause()
    provider = ScriptedProvider(*[["1234", pause, "5", StreamEnd("stop")] for pause in pauses])
    runner = ModelRunner(provider, policies=[LIMITS, *default_policies()])
    streams = [runner.stream("hi"), runner.stream("hi")]
    async with streams[0], streams[1]:
        for stream in streams:
            assert await anext(stream) == "1234"
        for pause in pauses:
            pause.release()
        for stream in streams:
            assert [part async for part in stream] == ["5"]


@pytest.mark.parametrize(
    "policy",
    [
        OutputLimits(),
        CompleteToolCalls(),
        RefusedFinishReasons(),
        RequiredTools(),
        Timing(lambda record: None),
    ],
)
def test_part_of_an_unknown_kind_is_ignored(policy: CompletionPolicy) -> None:
    """A policy does not break when a new kind of part comes."""
    unknown: Any = object()
    assert reason_of(policy, unknown) is None

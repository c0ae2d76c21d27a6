"""The runner over providers of one's own: order, ends, errors and closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from turngate.errors import InvalidMessage, InvalidValue, PolicyStopped, ProviderError
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.protocols import LLMClient
from turngate.providers import (
    CallOptions,
    ChatRequest,
    CompletionSession,
    FunctionCallDelta,
    Invocation,
    ModelPart,
    ModelRunner,
    ReasoningDelta,
    StreamEnd,
)
from turngate.values import Target, ToolSpec, Usage

Item = ModelPart | StreamEnd


class Scripted:
    """A provider that gives `items`, one of which may be an error to raise."""

    def __init__(self, *items: Item | Exception, target: Target | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self.closed = 0
        self._items = items
        if target is not None:
            self.target = target

    async def stream(self, request: ChatRequest) -> AsyncIterator[Item]:
        self.requests.append(request)
        try:
            for item in self._items:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1


class Log:
    """A policy whose sessions write into one log, and may raise at a call."""

    def __init__(self, name: str = "", *, log: list[str], raises_at: str = "") -> None:
        self.name, self.log, self.raises_at = name, log, raises_at
        self.requests: list[ChatRequest] = []

    def open(self, request: ChatRequest) -> CompletionSession:
        self.requests.append(request)
        return LogSession(self)


class LogSession(CompletionSession):
    def __init__(self, policy: Log) -> None:
        self.policy = policy

    def _note(self, what: str) -> None:
        if what == self.policy.raises_at:
            raise PolicyStopped("enough", reason="enough")
        self.policy.log.append(self.policy.name + what)

    def part(self, part: ModelPart) -> None:
        self._note(part if isinstance(part, str) else part.type)

    def finish(self, reason: str) -> None:
        self._note(f"finish {reason}")

    def end(self) -> None:
        self._note("end")


REQUEST = ChatRequest(messages=(UserMessage(("hi",)),))
CALL = FunctionCallDelta(index=0, id="c", name="f", arguments="{}")


async def read(runner: ModelRunner, log: list[str] | None = None) -> list[ModelPart]:
    parts = []
    async with runner.stream("hi") as stream:
        async for part in stream:
            parts.append(part)
            if log is not None:
                log.append(f"yielded {part}")
    return parts


async def complete(runner: ModelRunner, log: list[str]) -> list[ModelPart]:
    parts: list[ModelPart] = []

    def observe(part: ModelPart) -> None:
        parts.append(part)
        log.append(f"yielded {part}")

    await runner.complete(REQUEST, observe=observe)
    return parts


async def test_invoke_gives_text_and_result() -> None:
    """A custom provider is two yields, and the runner does the rest."""

    class Hello:
        async def stream(self, request: ChatRequest) -> AsyncIterator[Item]:
            yield "hi"
            yield StreamEnd("stop", usage=Usage(input_tokens=1, output_tokens=2), model="m")

    invocation = await ModelRunner(Hello()).invoke("hello")
    assert isinstance(invocation, Invocation)
    assert invocation.value == invocation.result.text == "hi"
    assert invocation.result.finish_reason == "stop"
    assert invocation.result.model == "m"


async def test_runner_is_a_client() -> None:
    """`complete` is the seam of the gateway."""
    client: LLMClient = ModelRunner(Scripted("a", StreamEnd("stop")))
    seen: list[ModelPart] = []
    result = await client.complete(REQUEST, observe=seen.append)
    assert (result.text, seen) == ("a", ["a"])


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_sessions_see_a_part_before_it_is_yielded(is_streamed: bool) -> None:
    """Each part is watched, then yielded; the reason and the end come last, once."""
    log: list[str] = []
    policies = [Log("1 ", log=log), Log("2 ", log=log)]
    runner = ModelRunner(Scripted("a", "b", StreamEnd("stop")), policies=policies)
    await (read if is_streamed else complete)(runner, log)
    assert log == [
        *("1 a", "2 a", "yielded a", "1 b", "2 b", "yielded b"),
        *("1 finish stop", "2 finish stop", "1 end", "2 end"),
    ]


async def test_policy_opens_one_session_for_each_request() -> None:
    """Sessions are never shared."""
    policy = Log(log=[])
    runner = ModelRunner(Scripted(StreamEnd("stop")), policies=[policy])
    await runner.invoke("a")
    await runner.invoke("b")
    assert [request.messages for request in policy.requests] == [
        (UserMessage(("a",)),),
        (UserMessage(("b",)),),
    ]


async def test_no_reason_is_told_where_none_was_given() -> None:
    """The end marker alone ends a session too."""
    log: list[str] = []
    runner = ModelRunner(Scripted("a", StreamEnd()), policies=[Log(log=log)])
    assert (await runner.invoke("hi")).result.finish_reason is None
    assert log == ["a", "end"]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (["a", StreamEnd("tool_calls")], "stop"),
        ([CALL, StreamEnd("stop")], "tool_calls"),
        ([CALL, StreamEnd("length")], "length"),
        (["a", StreamEnd(cast(Any, "end_turn"))], "stop"),
    ],
)
async def test_reason_is_the_one_that_the_result_has(items: list[Item], reason: str) -> None:
    """A reason that contradicts the calls is put right, for sessions and result alike."""
    log: list[str] = []
    runner = ModelRunner(Scripted(*items), policies=[Log(log=log)])
    assert (await runner.invoke("hi")).result.finish_reason == reason
    assert log[-2:] == [f"finish {reason}", "end"]


@pytest.mark.parametrize("raises_at", ["b", "finish stop", "end"])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_session_that_raises_ends_the_exchange(raises_at: str, is_streamed: bool) -> None:
    """Its error comes out with what was yielded, later sessions see nothing, and all is closed."""
    first: list[str] = []
    last: list[str] = []
    provider = Scripted("a", "b", StreamEnd("stop"))
    policies = [Log(log=first, raises_at=raises_at), Log(log=last)]
    runner = ModelRunner(provider, policies=policies)
    yielded: list[str] = []
    with pytest.raises(PolicyStopped) as caught:
        await (read if is_streamed else complete)(runner, yielded)
    text = "a" if raises_at == "b" else "ab"
    assert caught.value.partial is not None
    assert caught.value.partial.text == text
    assert yielded == [f"yielded {letter}" for letter in text]
    assert raises_at not in last
    assert provider.closed == 1


async def test_stopped_before_the_first_part_has_no_partial() -> None:
    """Nothing was yielded."""
    runner = ModelRunner(Scripted("a", StreamEnd("stop")), policies=[Log(log=[], raises_at="a")])
    with pytest.raises(PolicyStopped) as caught:
        await runner.invoke("hi")
    assert caught.value.partial is None


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_stream_without_an_end_was_cut(is_streamed: bool) -> None:
    """An iterator that just stops is no finished answer."""
    log: list[str] = []
    runner = ModelRunner(Scripted("a"), policies=[Log(log=log)])
    with pytest.raises(ProviderError) as caught:
        await (read(runner) if is_streamed else runner.invoke("hi"))
    assert caught.value.code == "truncated"
    assert caught.value.partial is not None
    assert caught.value.partial.text == "a"
    assert log == ["a"]


@pytest.mark.parametrize(
    "items",
    [
        ["a", StreamEnd("stop"), "b"],
        ["a", StreamEnd("stop"), StreamEnd("stop")],
        ["a", StreamEnd("stop"), ReasoningDelta("b")],
        ["a", None],
        ["a", {"type": "function-call-delta", "index": 0}],
        ["a", b"b", StreamEnd("stop")],
    ],
)
async def test_item_that_may_not_come_is_an_error(items: list[Any]) -> None:
    """Nothing follows the end, and what is no part is named."""
    log: list[str] = []
    provider = Scripted(*items)
    with pytest.raises(ProviderError) as caught:
        await read(ModelRunner(provider, policies=[Log(log=log)]))
    assert (caught.value.code, caught.value.reason) == ("protocol", "out_of_order")
    assert log == ["a"]
    assert provider.closed == 1


async def test_error_of_the_provider_carries_what_came_before() -> None:
    """The partial result is the fold of what was yielded."""
    error = ProviderError("gone", code="network")
    runner = ModelRunner(Scripted("a", ReasoningDelta("r"), CALL, error))
    with pytest.raises(ProviderError) as caught:
        await runner.invoke("hi")
    partial = caught.value.partial
    assert partial is not None
    assert (partial.text, partial.reasoning) == ("a", "r")
    assert [call.id for call in partial.tool_calls] == ["c"]


async def test_other_errors_pass_as_they_are() -> None:
    """A bug in a provider is not dressed up."""
    provider = Scripted("a", KeyError("x"))
    with pytest.raises(KeyError):
        await ModelRunner(provider).invoke("hi")
    assert provider.closed == 1


async def test_leaving_the_stream_early_closes_the_provider() -> None:
    """After `async with`, or `aclose`, nothing is held open."""
    provider = Scripted("a", "b", StreamEnd("stop"))
    log: list[str] = []
    async with ModelRunner(provider, policies=[Log(log=log)]).stream("hi") as stream:
        async for _ in stream:
            break
    assert provider.closed == 1
    assert stream.result is None
    assert log == ["a"]
    stream = ModelRunner(provider).stream("hi")
    assert await anext(stream) == "a"
    await stream.aclose()
    assert provider.closed == 2


async def test_stream_has_its_result_at_the_end() -> None:
    """The fold of the parts is there once they were read."""
    async with ModelRunner(Scripted("a", "b", StreamEnd("stop"))).stream("hi") as stream:
        assert [part async for part in stream] == ["a", "b"]
        assert stream.result is not None
        assert stream.result.text == "ab"


async def test_stream_that_is_never_read_begins_nothing() -> None:
    """No session is opened and no request is made."""
    provider, policy = Scripted("a"), Log(log=[])
    async with ModelRunner(provider, policies=[policy]).stream("hi"):
        pass
    assert not provider.requests
    assert not policy.requests


async def test_cancelled_reader_closes_the_provider() -> None:
    """Cancellation is an end without finish and end."""
    started = asyncio.Event()
    log: list[str] = []
    closed: list[bool] = []

    class Endless:
        async def stream(self, request: ChatRequest) -> AsyncIterator[Item]:
            try:
                yield "a"
                started.set()
                await asyncio.Event().wait()
            finally:
                closed.append(True)

    runner = ModelRunner(Endless(), policies=[Log(log=log)])
    task = asyncio.create_task(runner.invoke("hi"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [True]
    assert log == ["a"]


async def test_iterator_without_aclose_is_taken() -> None:
    """Any asynchronous iterator is a stream."""

    class Items:
        def __init__(self) -> None:
            self.left: list[Item] = ["a", StreamEnd("stop")]

        def __aiter__(self) -> AsyncIterator[Item]:
            return self

        async def __anext__(self) -> Item:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    class Provider:
        def stream(self, request: ChatRequest) -> AsyncIterator[Item]:
            return Items()

    assert (await ModelRunner(Provider()).invoke("hi")).value == "a"


async def test_subclasses_of_parts_are_parts() -> None:
    """A text of a subclass, and an end of one, are what they are."""

    class Text(str):
        __slots__ = ()

    class End(StreamEnd, frozen=True):
        pass

    assert (await ModelRunner(Scripted(Text("a"), End("stop"))).invoke("hi")).value == "a"


# ── the input ────────────────────────────────────────────────────────────────────────────────


async def sent(input: Any, target: Target | None = None, **members: Any) -> ChatRequest:
    provider = Scripted(StreamEnd("stop"), target=target)
    await ModelRunner(provider).invoke(input, **members)
    return provider.requests[0]


async def test_input_may_be_text_a_message_or_messages() -> None:
    """Each becomes the request's messages."""
    user = UserMessage(("a",))
    assert (await sent("a")).messages == (user,)
    assert (await sent(user)).messages == (user,)
    messages = (SystemMessage("s"), user)
    assert (await sent(list(messages))).messages == messages
    file = InlineFile(name="f", media_type="image/png", data=b"x")
    assert (await sent(UserMessage((file,)))).messages == (UserMessage((file,)),)


async def test_tools_and_options_go_into_the_request() -> None:
    """They reach the provider as they are."""
    tools, options = (ToolSpec(name="f"),), CallOptions(temperature=0.0)
    request = await sent("a", tools=list(tools), options=options)
    assert (request.tools, request.options) == (tools, options)


async def test_messages_are_repaired_for_the_target() -> None:
    """An unanswered call gets a result, and the target's form of ids is met."""
    call = ToolCall(id="call_1", name="f", arguments="{}")
    messages: list[Message] = [UserMessage(("a",)), AssistantMessage(tool_calls=(call,))]
    request = await sent(messages, Target(call_id_pattern="[a-z0-9]{9}"))
    assert isinstance(request.messages[-1], ToolMessage)
    assert len(request.messages[-1].call_id) == 9


@pytest.mark.parametrize("nothing", ["", [], [AssistantMessage()]])
async def test_input_without_content_is_refused(nothing: Any) -> None:
    """A request needs something to answer."""
    with pytest.raises(InvalidValue):
        await sent(nothing)


@pytest.mark.parametrize("input", [{"role": "user"}, [{"role": "user", "content": "a"}], [5]])
async def test_dicts_are_refused_by_name(input: Any) -> None:
    """The error names the classes to use."""
    with pytest.raises(InvalidMessage):
        await sent(input)

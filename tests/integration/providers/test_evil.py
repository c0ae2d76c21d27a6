"""Servers, proxies and policies that misbehave: every exchange ends, says why, and leaves nothing.

Each fault is data of `turngate.testing`. Whatever the server does, the outcome is a result or a
typed error within the limits, the connection is closed within a second, and no task, socket or
memory is left behind.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from turngate.completion import CompletionSession, ModelPart
from turngate.errors import PolicyStopped, ProviderError
from turngate.messages import ToolCall, UserMessage
from turngate.providers import (
    CallOptions,
    ChatRequest,
    CompatibleModelProvider,
    CompleteToolCalls,
    CompletionPolicy,
    ModelRunner,
    OutputLimits,
    ProviderConfig,
    RefusedFinishReasons,
    RequiredTools,
    StreamEnd,
    Timing,
    TimingRecord,
)
from turngate.testing import (
    Cut,
    Drip,
    Fault,
    Flood,
    Mutate,
    Reply,
    ScriptedUpstream,
    SlowHead,
    Stall,
    chat_stream,
)
from turngate.values import ToolSpec

import_module("aiohttp")  # so that no time limit below pays for its import

TLS = Path(__file__).parents[2] / "data" / "tls"
CERTIFICATE, KEY = TLS / "localhost-test-certificate.pem", TLS / "localhost-test-key.pem"

BODY = chat_stream("Hel", "lo")
REQUEST = ChatRequest(messages=(UserMessage(("hi",)),))
TINY: dict[str, Any] = {
    "model": "m",
    "retries": 0,
    "connect_timeout_s": 0.3,
    "first_event_timeout_s": 0.3,
    "idle_timeout_s": 0.3,
    "total_timeout_s": 1.5,
}


@asynccontextmanager
async def served(
    *replies: Reply, tls: ssl.SSLContext | None = None, **config: Any
) -> AsyncIterator[tuple[ScriptedUpstream, CompatibleModelProvider]]:
    """A server and a provider for it; at the end no task is left, and the loop saw no error."""
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = asyncio.all_tasks()
    async with ScriptedUpstream(*replies, tls=tls) as upstream:
        settings = {**TINY, "base_url": upstream.base_url, **config}
        async with CompatibleModelProvider(ProviderConfig(**settings)) as provider:
            yield upstream, provider
        assert await upstream.all_closed()
    async with asyncio.timeout(1):
        while asyncio.all_tasks() != before:  # noqa: ASYNC110  # tasks that end have no event
            await asyncio.sleep(0.005)
    gc.collect()  # a forgotten socket or task complains at its end, which is an error here
    assert not complaints


async def failure(provider: CompatibleModelProvider, *policies: CompletionPolicy) -> Any:
    with pytest.raises((ProviderError, PolicyStopped)) as caught:
        await ModelRunner(provider, policies=policies).complete(REQUEST)
    return caught.value


# ── every fault ──────────────────────────────────────────────────────────────────────────────

FAULTS: dict[str, tuple[Reply, str, str]] = {
    "ends before its first byte": (Reply(), "truncated", ""),
    "ends within an event": (Reply(body=BODY, faults=(Cut(30, "end"),)), "truncated", ""),
    "ends after an event": (Reply(body=BODY, faults=(Cut(120, "end"),)), "truncated", "Hel"),
    "closes at once": (Reply(body=BODY, faults=(Cut(0),)), "connection_lost", ""),
    "closes within an event": (Reply(body=BODY, faults=(Cut(120),)), "connection_lost", "Hel"),
    "resets at once": (Reply(body=BODY, faults=(Cut(0, "reset"),)), "connection_lost", ""),
    "resets later": (Reply(body=BODY, faults=(Cut(120, "reset"),)), "connection_lost", "Hel"),
    "silent from the start": (Reply(faults=(Stall(0),)), "first_event_timeout", ""),
    "comments from the start": (Reply(faults=(Stall(0, 0.01),)), "first_event_timeout", ""),
    "silent after one event": (Reply(body=BODY, faults=(Stall(1),)), "idle_timeout", "Hel"),
    "comments for ever": (Reply(body=BODY, faults=(Stall(1, 0.01),)), "idle_timeout", "Hel"),
    "never ends": (
        Reply(body=chat_stream("Hel", done=False), faults=(Stall(),)),
        "idle_timeout",
        "Hel",
    ),
    "drips slower than an event": (Reply(body=BODY, faults=(Drip(1, 0.02),)), "first_event_timeout",
                                   ""),
    "drips without an end": (
        Reply(body=chat_stream(*"abc" * 99), faults=(Drip(200, 0.1),)),
        "total_timeout",
        "a",
    ),
    "floods with events": (
        Reply(body=chat_stream("Hel", done=False), faults=(Flood("events"),)),
        "response_bytes_max",
        "Hel",
    ),
    "floods with comments": (Reply(faults=(Flood("comments"),)), "response_bytes_max", ""),
    "floods with one line": (Reply(faults=(Flood("line"),)), "line_bytes_max", ""),
    "is not JSON": (Reply(body=BODY, faults=(Mutate({6: 0x28}),)), "not_json", ""),
    "is a web page": (Reply(body=b"<html>", content_type="text/html"), "not_a_stream", ""),
    "is plain text": (Reply(body=b"It works!", content_type="text/plain"), "not_a_stream", ""),
    "has a silent head": (Reply(faults=(SlowHead(60),)), "first_event_timeout", ""),
    "has a dripping head": (Reply(faults=(SlowHead(0.05),)), "first_event_timeout", ""),
    "is not HTTP": (Reply(head=b"garbage\r\n\r\n"), "not_http", ""),
    "is nothing": (Reply(head=b""), "connection_lost", ""),
    "has endless headers": (
        Reply(head=b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300_000),
        "not_http",
        "",
    ),
    "has an endless header": (Reply(head=b"HTTP/1.1 200 OK\r\nx: " + b"y" * 3_000_000),
                              "not_http", ""),
    "has endless trailers": (
        Reply(
            head=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n:\r\n0\r\n"
            + b"x: y\r\n" * 300_000
        ),
        "not_http",
        "",
    ),
    "fails": (
        Reply(status=500, body=b'{"error":{"message":"no"}}', content_type="application/json"),
        "server_error",
        "",
    ),
    "fails for ever": (Reply(status=503, faults=(Flood("line"),)), "overloaded", ""),
    "fails and stalls": (Reply(status=502, body=b"x", faults=(Stall(),)), "server_error", ""),
    "asks to wait": (Reply(status=429, headers={"retry-after": "7"}), "rate_limit", ""),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "reason", "text"), FAULTS.values(), ids=FAULTS)
async def test_fault_ends_within_its_limit_and_leaves_nothing(
    reply: Reply, reason: str, text: str
) -> None:
    """[R61] [R62] [R63] The error names the limit or the failure, and holds what came before."""
    async with served(reply, response_bytes_max=512 << 10, line_bytes_max=256 << 10) as (
        upstream,
        provider,
    ):
        start = time.monotonic()
        error = await failure(provider)
        assert time.monotonic() - start < TINY["total_timeout_s"] + 1
        assert error.reason == reason
        assert (error.code == "timeout") == reason.endswith("timeout")
        assert bool(error.partial) == bool(text)
        assert (error.partial.text if error.partial else "").startswith(text)
        # A body that was read to its end gives its connection back, also if it says nothing good.
        is_read = not (reply.faults or reply.head) or reason in ("truncated", "not_json")
        assert is_read or await upstream.all_closed()
        if reason.endswith(("timeout", "_max")):
            assert upstream.connections[0].closed_by == "client"


async def test_what_is_odd_but_whole_is_a_result() -> None:
    """A wrong content type, a slow start, and whatever follows the end marker, are no failures."""
    replies = [
        Reply(body=BODY, content_type="text/plain"),
        Reply(body=BODY, content_type=""),
        Reply(body=BODY, faults=(SlowHead(0.005, 10),)),
        Reply(body=BODY, faults=(Drip(7, 0.001),)),
        Reply(body=BODY, faults=(Stall(),)),
        Reply(body=BODY, faults=(Stall(None, 0.01),)),
        Reply(body=BODY, faults=(Flood("events"),)),
        Reply(body=BODY, faults=(Flood("line"),)),
        Reply(body=BODY, faults=(Cut(len(BODY)),)),
        Reply(body=BODY, faults=(Cut(len(BODY), "reset"),)),
        Reply(head=b"HTTP/1.0 200 OK\r\n\r\n", body=BODY),
    ]
    async with served(*replies) as (upstream, provider):
        for _ in replies:
            assert (await ModelRunner(provider).complete(REQUEST)).text == "Hello"
        assert len(upstream.requests) == len(replies)


@pytest.mark.parametrize(
    ("how", "code", "last"),
    [
        ("end", "truncated", b'"finish_reason": "tool_calls"}]}'),
        ("close", "network", b"data: [DONE]\n\n"),
        ("reset", "network", b"data: [DONE]\n\n"),
    ],
)
async def test_stream_cut_at_any_byte_is_never_a_finished_answer(
    how: Any, code: str, last: bytes
) -> None:
    """Up to the finish reason, or the end marker if the body has no end, it is an error."""
    body = chat_stream("Hel", ToolCall(id="c1", name="f", arguments='{"a":1}'))
    whole = body.index(last) + len(last)
    cuts = [*range(0, whole, 3), whole - 3, whole]
    replies = [Reply(body=body, faults=(Cut(at, how),)) for at in cuts]
    async with served(*replies) as (upstream, provider):
        for _ in cuts[:-1]:
            error = await failure(provider)
            assert error.code == code
            assert "Hel".startswith(error.partial.text if error.partial else "")
        result = await ModelRunner(provider).complete(REQUEST)
        assert (result.text, result.tool_calls[0].arguments) == ("Hel", '{"a":1}')
        assert len(upstream.requests) == len(replies)


@pytest.mark.parametrize(
    ("of", "limits"),
    [
        ("comments", {"response_bytes_max": 4 << 20, "first_event_timeout_s": 60.0}),
        ("line", {"line_bytes_max": 4 << 20}),
        ("line", {"line_bytes_max": 64 << 20, "response_bytes_max": 4 << 20}),
        ("events", {"events_max": 20_000}),
    ],
)
async def test_flood_costs_no_memory_but_what_is_kept(of: Any, limits: dict[str, Any]) -> None:
    """However much is sent, no more is held than a line or a text under its limit."""
    limits = {"response_bytes_max": 256 << 20, "total_timeout_s": 60.0, **limits}
    async with served(Reply(faults=(Flood(of),)), **limits) as (upstream, provider):
        await failure(provider)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        error = await failure(provider)
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert error.reason in limits
        assert peak - before < 16 << 20
        del error
        gc.collect()
        assert after - before < 6 << 20
        assert await upstream.all_closed()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=503),
        Reply(body=BODY, faults=(Cut(30, "reset"),)),
        Reply(body=BODY, faults=(Cut(30, "end"),)),
        Reply(head=b""),
    ],
)
async def test_failure_before_the_first_part_is_tried_again(reply: Reply) -> None:
    """[R55] The reader sees the second answer alone; after a part the failure is the outcome."""
    later = Reply(body=BODY, faults=(Cut(120),))
    async with served(reply, Reply(body=BODY), later, retries=1) as (upstream, provider):
        assert (await ModelRunner(provider).complete(REQUEST)).text == "Hello"
        assert len(upstream.requests) == 2
        assert (await failure(provider)).partial.text == "Hel"
        assert len(upstream.requests) == 3


# ── leaving ──────────────────────────────────────────────────────────────────────────────────

OPEN_ENDS: dict[str, tuple[Fault, ...]] = {
    "before the head": (SlowHead(60),),
    "before the first event": (Stall(0),),
    "between events": (Stall(1),),
    "among comments": (Stall(1, 0.005),),
    "in a drip": (Drip(20, 0.02),),
    "in a flood": (Flood("events"),),
}


@pytest.mark.parametrize("faults", OPEN_ENDS.values(), ids=OPEN_ENDS)
@pytest.mark.parametrize("tls", [False, True])
async def test_cancelling_closes_the_connection(faults: tuple[Fault, ...], tls: bool) -> None:
    """The server sees it within a second, whatever it is doing."""
    body = chat_stream("Hel", done=False)
    made: dict[str, Any] = {"ca_file": CERTIFICATE, "tls": server_tls()} if tls else {}
    async with served(Reply(body=body, faults=faults), **made) as (upstream, provider):
        task = asyncio.create_task(ModelRunner(provider).complete(REQUEST))
        await upstream.asked.wait()
        await asyncio.sleep(0.05)
        left_s = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await upstream.all_closed()
        (connection,) = upstream.connections
        assert connection.closed_by == "client"
        assert connection.closed_s is not None
        assert connection.closed_s - left_s < 1


async def test_cancelling_at_any_moment_leaves_no_connection() -> None:
    """A hundred tasks are cancelled at a hundred moments, before, in and after the answer."""
    async with served(Reply(body=BODY, faults=(Drip(16, 0.001),))) as (upstream, provider):
        for step in range(100):
            task = asyncio.create_task(ModelRunner(provider).complete(REQUEST))
            await asyncio.sleep(step * 0.0004)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        still_open = [c for c in upstream.connections if c.closed_s is None]
        await asyncio.sleep(0.05)
        assert len([c for c in still_open if c.closed_s is None]) <= 1  # the one that is kept


async def test_limit_of_one_call_is_its_own() -> None:
    """`timeout_s` of a request ends that request alone, and cancels nothing around it."""
    reply = Reply(body=BODY, faults=(Stall(1),))
    async with served(reply, Reply(body=BODY), idle_timeout_s=9.0) as (upstream, provider):
        start = time.monotonic()
        with pytest.raises(ProviderError) as caught:
            await ModelRunner(provider).invoke("hi", options=CallOptions(timeout_s=0.2))
        assert caught.value.reason == "total_timeout"
        assert time.monotonic() - start < 1
        assert await upstream.all_closed()
        assert (await ModelRunner(provider).invoke("hi")).value == "Hello"


# ── connections ──────────────────────────────────────────────────────────────────────────────


async def test_connection_is_used_again_after_an_answer_and_not_after_a_failure() -> None:
    """An answer or an error that was read to its end keeps it; a cut or a limit closes it."""
    good, refused = Reply(body=BODY), Reply(status=400, body=b"{}", content_type="application/json")
    replies = [good, refused, good, Reply(body=BODY, faults=(Stall(1),)), good, good]
    async with served(*replies) as (upstream, provider):
        for _ in replies:
            with suppress(ProviderError):
                await ModelRunner(provider).complete(REQUEST)
        assert [request.connection for request in upstream.requests] == [0, 0, 0, 0, 1, 1]


async def test_headers_and_body_fields_of_provider_and_call_are_sent() -> None:
    """Those of the call go over those of the provider, and both over our own."""
    config: dict[str, Any] = {
        "headers": {"X-Team": "a", "X-Both": "provider"},
        "extra_body": {"top_k": 5, "both": "provider", "temperature": 0.9},
        "api_key": "sk-1",
    }
    options = CallOptions(
        temperature=0.1,
        extra_headers={"x-both": "call", "Authorization": "Bearer sk-2"},
        extra_body={"both": "call", "metadata": {"run": [1]}},
    )
    async with served(Reply(body=BODY), **config) as (upstream, provider):
        await ModelRunner(provider).invoke("hi", options=options)
        (request,) = upstream.requests
        assert request.target == "/v1/chat/completions"
        assert request.headers["x-team"] == "a"
        assert request.headers["x-both"] == "call"
        assert request.headers["authorization"] == "Bearer sk-2"
        sent = {name: request.json[name] for name in ("top_k", "both", "metadata", "temperature")}
        assert sent == {"top_k": 5, "both": "call", "metadata": {"run": [1]}, "temperature": 0.9}


async def test_json_answer_is_taken_where_a_stream_was_asked_for() -> None:
    """A server that does not stream gives the same result, calls and usage too."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = {
        "id": "r1",
        "model": "small",
        "choices": [
            {
                "message": {"role": "assistant", "content": "Hello", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    body = json.dumps(answer).encode()
    for faults in ((), (Drip(40, 0.002),)):
        reply = Reply(body=body, content_type="application/json", faults=faults)
        async with served(reply) as (upstream, provider):
            result = (await ModelRunner(provider).invoke("hi")).result
            assert (result.text, result.model, result.finish_reason) == (
                "Hello",
                "small",
                "tool_calls",
            )
            assert [made.id for made in result.tool_calls] == ["c1"]
            assert result.usage is not None
            assert result.usage.output_tokens == 2
            assert upstream.requests[0].json["stream"] is True


# ── proxies and TLS ──────────────────────────────────────────────────────────────────────────


def server_tls() -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATE, KEY)
    return tls


@asynccontextmanager
async def tunnel(answer: bytes) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that gives `answer` to a CONNECT and then passes bytes on; its URL, what it saw."""
    seen: list[str] = []
    work: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(65_536):
                writer.write(block)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        work.add(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head.splitlines()[0])
        writer.write(answer)
        if b" 200 " in answer:
            host, _, port = head.split()[1].partition(":")
            there, back = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pump(reader, back), pump(there, writer))
            back.transport.abort()
        writer.close()

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
        await asyncio.gather(*work, return_exceptions=True)


async def test_own_certificate_is_trusted_by_its_file_alone() -> None:
    """With `ca_file` the server is trusted, without it is not, and nothing is sent to it."""
    async with served(Reply(body=BODY), tls=server_tls(), ca_file=CERTIFICATE) as (_, provider):
        assert (await ModelRunner(provider).complete(REQUEST)).text == "Hello"
    async with served(Reply(body=BODY), tls=server_tls()) as (upstream, provider):
        error = await failure(provider)
        assert (error.code, error.reason) == ("network", "tls")
        assert not upstream.requests


async def test_plain_request_goes_through_a_proxy_with_its_whole_address() -> None:
    """The proxy sees the address of the server, which here no name would resolve to."""
    async with ScriptedUpstream(Reply(body=BODY)) as proxy:
        config = ProviderConfig(
            **TINY,
            base_url="http://model.invalid/v1",
            proxy=proxy.base_url.removesuffix("/v1"),
        )
        async with CompatibleModelProvider(config) as provider:
            assert (await ModelRunner(provider).complete(REQUEST)).text == "Hello"
        (request,) = proxy.requests
        assert request.target == "http://model.invalid/v1/chat/completions"


async def test_encrypted_request_goes_through_a_tunnel() -> None:
    """The proxy is asked to connect, and sees no more than that."""
    async with (
        tunnel(b"HTTP/1.1 200 Connected\r\n\r\n") as (proxy, seen),
        served(Reply(body=BODY), tls=server_tls(), ca_file=CERTIFICATE, proxy=proxy) as (
            upstream,
            provider,
        ),
    ):
        assert (await ModelRunner(provider).complete(REQUEST)).text == "Hello"
        address = upstream.base_url.split("/")[2]
        assert seen == [f"CONNECT {address} HTTP/1.1"]
        assert upstream.requests[0].target == "/v1/chat/completions"


async def test_proxy_that_refuses_is_a_network_error() -> None:
    """It is told as the proxy's failure, not the server's."""
    async with (
        tunnel(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (proxy, _),
        served(Reply(body=BODY), tls=server_tls(), ca_file=CERTIFICATE, proxy=proxy) as (
            upstream,
            provider,
        ),
    ):
        error = await failure(provider)
        assert (error.code, error.reason) == ("network", "proxy")
        assert not upstream.requests


async def test_proxy_of_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A local server is reached directly; another host through the proxy, unless told not to."""
    async with ScriptedUpstream(Reply(body=BODY)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with served(Reply(body=BODY)) as (upstream, provider):
            await ModelRunner(provider).complete(REQUEST)
            assert len(upstream.requests) == 1
        for trust_env, reached in ((True, 1), (False, 1)):
            config = ProviderConfig(**TINY, base_url="http://model.invalid/v1", trust_env=trust_env)
            async with CompatibleModelProvider(config) as provider:
                with suppress(ProviderError):
                    await ModelRunner(provider).complete(REQUEST)
            assert len(proxy.requests) == reached


# ── policies over a real stream ──────────────────────────────────────────────────────────────

TOOLS = (ToolSpec(name="f"),)
LONG = chat_stream(*["words "] * 9, done=False)


@pytest.mark.parametrize(
    ("policy", "reply", "reason"),
    [
        (OutputLimits(chars_max=20), Reply(body=LONG, faults=(Flood(),)), "output_chars"),
        (
            OutputLimits(calls_max=1),
            Reply(
                body=chat_stream(
                    *(ToolCall(id=c, name="f", arguments="{}") for c in "abc"), done=False
                ),
                faults=(Stall(),),
            ),
            "output_calls",
        ),
        (
            OutputLimits(argument_bytes_max=10),
            Reply(
                body=chat_stream(ToolCall(id="a", name="f", arguments="x" * 99), done=False),
                faults=(Stall(),),
            ),
            "output_arguments",
        ),
        (
            CompleteToolCalls(),
            Reply(body=chat_stream(ToolCall(id="a", name="f", arguments="{")), faults=(Stall(),)),
            "incomplete_call",
        ),
        (
            RefusedFinishReasons(("length",)),
            Reply(body=chat_stream("a", StreamEnd("length")), faults=(Stall(),)),
            "finish_reason",
        ),
        (RequiredTools(), Reply(body=BODY, faults=(Flood(),)), "required_tool"),
    ],
)
async def test_policy_stops_a_stream_and_its_connection_is_closed(
    policy: CompletionPolicy, reply: Reply, reason: str
) -> None:
    """The stop comes out with what was yielded, and the server is left at once."""
    async with served(reply) as (upstream, provider):
        options = CallOptions(tool_choice="required")
        stream = ModelRunner(provider, policies=[policy]).stream("hi", tools=TOOLS, options=options)
        yielded: list[ModelPart] = []

        async def read() -> None:
            async with stream:
                async for part in stream:
                    yielded.append(part)  # noqa: PERF401  # those before the stop count too

        with pytest.raises(PolicyStopped) as caught:
            await read()
        assert caught.value.reason == reason
        text = "".join(part for part in yielded if isinstance(part, str))
        assert caught.value.partial is None or caught.value.partial.text == text
        assert await upstream.all_closed()
        assert upstream.connections[0].closed_by == "client"


async def test_timing_of_a_real_stream_is_recorded() -> None:
    """The pause of the server is the gap."""
    records: list[TimingRecord] = []
    reply = Reply(body=BODY, faults=(Drip(100, 0.1),))
    async with served(reply) as (_, provider):
        await ModelRunner(provider, policies=[Timing(records.append)]).complete(REQUEST)
    (record,) = records
    assert record.parts == 2
    assert record.first_part_s is not None
    assert record.total_s >= record.first_part_s >= 0.09


class Broken(CompletionSession):
    """Raises at its first part, at the finish, or at the end."""

    def __init__(self, at: int) -> None:
        self._at = at

    def open(self, request: ChatRequest) -> CompletionSession:
        return self

    def part(self, part: ModelPart) -> None:
        if self._at == 0:
            raise ZeroDivisionError

    def finish(self, reason: str) -> None:
        if self._at == 1:
            raise ZeroDivisionError

    def end(self) -> None:
        if self._at == 2:
            raise ZeroDivisionError


async def test_thousand_broken_policies_leave_no_connection() -> None:
    """Whatever a policy raises, and wherever, comes out as it is, and nothing piles up."""
    # Where the policy breaks in the middle, the server would go on for ever.
    replies = [Reply(body=BODY, faults=() if at % 3 else (Stall(1),)) for at in range(1_000)]
    async with served(*replies) as (upstream, provider):
        open_max = 0
        for at in range(1_000):
            with pytest.raises(ZeroDivisionError):
                await ModelRunner(provider, policies=[Broken(at % 3)]).complete(REQUEST)
            open_max = max(open_max, sum(c.closed_s is None for c in upstream.connections))
        await asyncio.sleep(0.05)
        assert sum(connection.closed_s is None for connection in upstream.connections) <= 1
        assert open_max <= 3
        assert len(upstream.requests) == 1_000


# ── structured output ────────────────────────────────────────────────────────────────────────


class SumStruct(msgspec.Struct):
    total: int
    unit: str


@dataclass
class SumClass:
    total: int
    unit: str


class SumModel(pydantic.BaseModel):
    total: int
    unit: str


@pytest.mark.parametrize("output", [SumStruct, SumClass, SumModel])
async def test_structured_output_over_a_real_stream(output: type[Any]) -> None:
    """The schema goes out, and the pieces that come back are one value."""
    reply = Reply(body=chat_stream('{"total":', ' 3, "unit"', ': "kg"}'))
    async with served(reply) as (upstream, provider):
        invocation = await ModelRunner(provider).invoke("How much?", output=output)
        assert invocation.value == output(total=3, unit="kg")
        asked = upstream.requests[0].json["response_format"]
        assert asked["type"] == "json_schema"
        assert (asked["json_schema"]["name"], asked["json_schema"]["strict"]) == (
            output.__name__,
            True,
        )
        schema = asked["json_schema"]["schema"]
        assert (schema["required"], schema["additionalProperties"]) == (["total", "unit"], False)


async def test_structured_output_is_repaired_once() -> None:
    """Two requests at most, over one connection."""
    bad, good = (Reply(body=chat_stream(text)) for text in ("{}", '{"total":3,"unit":"kg"}'))
    async with served(bad, good, bad, bad, good) as (upstream, provider):
        runner = ModelRunner(provider)
        repaired = await runner.invoke("How much?", output=SumStruct, repair=True)
        assert repaired.value.total == 3
        roles = [message["role"] for message in upstream.requests[1].json["messages"]]
        assert roles == ["user", "assistant", "user"]
        with pytest.raises(ProviderError) as caught:
            await runner.invoke("How much?", output=SumModel, repair=True)
        assert caught.value.reason == "invalid_output"
        assert len(upstream.requests) == 4
        assert len(upstream.connections) == 1


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (
            b'data: {"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}\n\n'
            b"data: [DONE]\n\n",
            "provider",
            "refusal",
        ),
        (chat_stream("", StreamEnd("content_filter")), "provider", "refusal"),
        (chat_stream('{"total":3', StreamEnd("length")), "truncated", "length"),
    ],
)
async def test_structured_output_that_was_refused_or_cut_is_an_error(
    body: bytes, code: str, reason: str
) -> None:
    """It is not asked for again, and says why there is no value."""
    async with served(Reply(body=body)) as (upstream, provider):
        with pytest.raises(ProviderError) as caught:
            await ModelRunner(provider).invoke("How much?", output=SumModel, repair=True)
        assert (caught.value.code, caught.value.reason) == (code, reason)
        assert len(upstream.requests) == 1

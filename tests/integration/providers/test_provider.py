"""The life of an exchange over real connections: reuse, cancellation, retries, limits, models."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.integration.providers.upstream import Response, Upstream, sse
from turngate.completion import CompletionSession, ModelPart
from turngate.errors import InvalidValue, PolicyStopped, ProviderError
from turngate.messages import InlineFile, UserMessage
from turngate.providers import (
    CallOptions,
    ChatRequest,
    CompatibleModelProvider,
    ModelRunner,
    ProviderConfig,
    StreamEnd,
)

import_module("aiohttp")  # so that no time limit below pays for its import


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def stream(*texts: str) -> bytes:
    return sse(*(text_chunk(text) for text in texts), text_chunk("", "stop"))


OK = Response(blocks=[stream("hello")])
BUSY = Response(status=503, headers={"content-type": "application/json"}, blocks=[b"{}"])
REQUEST = ChatRequest(messages=(UserMessage(("hi",)),))


@asynccontextmanager
async def served(
    *responses: Response, **config: Any
) -> AsyncIterator[tuple[Upstream, CompatibleModelProvider]]:
    settings = {"model": "m", "retries": 0, **config}
    async with Upstream(*responses) as upstream:
        settings.setdefault("base_url", upstream.url)
        async with CompatibleModelProvider(ProviderConfig(**settings)) as provider:
            yield upstream, provider


async def failure(provider: CompatibleModelProvider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ModelRunner(provider).complete(REQUEST)
    return caught.value


async def closed_within_a_second(upstream: Upstream) -> bool:
    try:
        async with asyncio.timeout(1):
            await upstream.closed.wait()
    except TimeoutError:
        return False
    return True


# ── the request ──────────────────────────────────────────────────────────────────────────────


async def test_request_goes_to_the_endpoint_with_its_headers() -> None:
    """Method, path, key and body are those of the API."""
    async with served(OK, api_key="sk-1", headers={"X-Team": "a"}) as (upstream, provider):
        options = CallOptions(extra_headers={"x-trace": "t"}, temperature=0.0)
        await ModelRunner(provider).invoke("hi", options=options)
        (request,) = upstream.requests
        assert (request.method, request.path) == ("POST", "/v1/chat/completions")
        assert request.headers["authorization"] == "Bearer sk-1"
        assert request.headers["x-team"] == "a"
        assert request.headers["x-trace"] == "t"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["content-type"] == "application/json"
        assert request.json["messages"] == [{"role": "user", "content": "hi"}]
        assert (request.json["model"], request.json["temperature"]) == ("m", 0.0)


async def test_header_that_breaks_out_is_refused() -> None:
    """Nothing is sent."""
    async with served(OK) as (upstream, provider):
        options = CallOptions(extra_headers={"x": "a\r\nevil: b"})
        with pytest.raises(InvalidValue):
            await ModelRunner(provider).invoke("hi", options=options)
        assert not upstream.requests


async def test_large_request_goes_out() -> None:
    """A file of some megabytes is sent whole, without a warning."""
    file = InlineFile(name="a.png", media_type="image/png", data=b"x" * 3_000_000)
    async with served(OK) as (upstream, provider):
        await ModelRunner(provider).invoke(UserMessage(("look", file)))
        assert len(upstream.requests[0].body) > 4_000_000


async def test_redirect_is_not_followed() -> None:
    """A prompt goes to no other host than the configured one."""
    moved = Response(status=307, headers={"location": "/elsewhere"})
    async with served(moved, OK) as (upstream, provider):
        assert (await failure(provider)).reason == "redirect"
        assert len(upstream.requests) == 1


async def test_connection_serves_the_next_request() -> None:
    """A stream that was read to its end gives its connection back."""
    async with served(OK) as (upstream, provider):
        for _ in range(3):
            await ModelRunner(provider).complete(REQUEST)
        assert upstream.connections == 1


async def test_connection_of_an_early_end_marker_is_not_waited_for() -> None:
    """An answer ends with its marker, even if the body goes on."""
    endless = Response(blocks=[stream("a")], hang=True)
    async with served(endless) as (upstream, provider):
        start = time.monotonic()
        result = await ModelRunner(provider).complete(REQUEST)
        assert result.text == "a"
        assert time.monotonic() - start < 0.5
        assert await closed_within_a_second(upstream)


async def test_end_tells_model_and_request_id() -> None:
    """The id is the header's, or the answer's own; the model is what was asked for if none is
    told."""
    first = Response(
        headers={"content-type": "text/event-stream", "x-request-id": "r1"},
        blocks=OK.blocks,
    )
    second = Response(blocks=[sse({"id": "cmpl-1", "model": "m-7", **text_chunk("a", "stop")})])
    async with served(first, second) as (_, provider):
        ends = []
        for _ in range(2):
            *_, end = [item async for item in provider.stream(REQUEST)]
            assert isinstance(end, StreamEnd)
            ends.append((end.request_id, end.model))
        assert ends == [("r1", "m"), ("cmpl-1", "m-7")]


# ── leaving ──────────────────────────────────────────────────────────────────────────────────

SLOW = Response(blocks=[sse(text_chunk("a"), done=False)], hang=True)


async def test_cancelling_cuts_the_connection() -> None:
    """The server sees it within a second."""
    async with served(SLOW) as (upstream, provider):
        seen = asyncio.Event()
        work = ModelRunner(provider).complete(REQUEST, observe=lambda _: seen.set())
        task = asyncio.create_task(work)
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await closed_within_a_second(upstream)


async def test_cancelling_before_the_head_cuts_the_connection() -> None:
    """A server that has not answered yet is left as well."""
    async with served(Response(head_delay_s=60)) as (upstream, provider):
        task = asyncio.create_task(ModelRunner(provider).complete(REQUEST))
        await upstream.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await closed_within_a_second(upstream)


async def test_leaving_the_stream_cuts_the_connection() -> None:
    """A reader that stops early, by `async with`, holds nothing open."""
    async with served(SLOW) as (upstream, provider):
        async with ModelRunner(provider).stream("hi") as parts:
            async for _ in parts:
                break
        assert await closed_within_a_second(upstream)


async def test_policy_that_stops_cuts_the_connection() -> None:
    """Its error comes out, and the server stops generating."""

    class Stop(CompletionSession):
        def part(self, part: ModelPart) -> None:
            raise PolicyStopped("enough", reason="enough")

    class Policy:
        def open(self, request: ChatRequest) -> CompletionSession:
            return Stop()

    async with served(SLOW) as (upstream, provider):
        with pytest.raises(PolicyStopped):
            await ModelRunner(provider, policies=[Policy()]).invoke("hi")
        assert await closed_within_a_second(upstream)


async def test_two_streams_of_one_provider_interleave() -> None:
    """Each has its own parts, its own calls and its own end."""

    def calls(name: str) -> Response:
        def piece(arguments: str, **members: object) -> dict[str, Any]:
            entry = {"index": 0, "function": {"arguments": arguments}, **members}
            return {"choices": [{"delta": {"tool_calls": [entry]}}]}

        opening = piece("", id=name, function={"name": name, "arguments": '{"n":"'})
        chunks = [opening, *(piece(letter) for letter in name), piece('"}')]
        blocks = [sse(chunk, done=False) for chunk in chunks]
        return Response(blocks=[*blocks, stream(name)], pause_s=0.002)

    async with served(calls("first"), calls("second")) as (_, provider):
        runner = ModelRunner(provider)
        one, two = runner.stream("1"), runner.stream("2")
        async with one, two:
            iterators = {id(one): aiter(one), id(two): aiter(two)}
            while iterators:
                for key, iterator in list(iterators.items()):
                    try:
                        await anext(iterator)
                    except StopAsyncIteration:
                        del iterators[key]
        for made, name in ((one.result, "first"), (two.result, "second")):
            assert made is not None
            assert made.text == name
            assert [(call.id, call.arguments) for call in made.tool_calls] == [
                (name, f'{{"n":"{name}"}}')
            ]


async def test_provider_that_is_closed_says_so() -> None:
    """A request after `aclose` is an error of ours, not a crash."""
    async with served(OK) as (_, provider):
        await provider.aclose()
        assert (await failure(provider)).reason == "closed"


# ── retries ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bad",
    [
        BUSY,
        Response(status=429, headers={"retry-after": "0"}),
        Response(blocks=[], abort=True),
        Response(blocks=[]),
        Response(blocks=[sse({"error": {"message": "overloaded"}}, done=False)]),
        Response(raw=b""),
        Response(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\ndata: "),
    ],
)
async def test_passing_failure_before_the_first_part_is_tried_again(bad: Response) -> None:
    """The second attempt answers, and the reader sees one stream."""
    async with served(bad, OK, retries=1) as (upstream, provider):
        assert (await ModelRunner(provider).invoke("hi")).value == "hello"
        assert len(upstream.requests) == 2


async def test_attempts_are_counted() -> None:
    """After the last one its error comes out."""
    async with served(Response(status=503, headers={"retry-after": "0"}), retries=2) as (
        upstream,
        provider,
    ):
        error = await failure(provider)
        assert (error.code, error.reason, error.status) == ("provider", "overloaded", 503)
        assert len(upstream.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_request_at_fault_is_sent_once(status: int) -> None:
    """What can't heal is not repeated."""
    async with served(Response(status=status), retries=3) as (upstream, provider):
        assert (await failure(provider)).status == status
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("abort", [True, False])
async def test_nothing_is_tried_again_after_the_first_part(abort: bool) -> None:
    """A reader never sees a text twice."""
    cut = Response(blocks=[sse(text_chunk("a"), done=False)], abort=abort)
    async with served(cut, OK, retries=3) as (upstream, provider):
        error = await failure(provider)
        assert error.code == ("network" if abort else "truncated")
        assert error.partial is not None
        assert error.partial.text == "a"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("wait", "config"),
    [
        ("30", {"retry_after_max_s": 20.0}),
        ("10", {"retry_budget_s": 5.0}),
        ("10", {"total_timeout_s": 5.0}),
    ],
)
async def test_wait_that_is_too_long_is_not_waited(wait: str, config: dict[str, float]) -> None:
    """The error comes at once, with the wait that the server asked for."""
    asked = Response(status=429, headers={"retry-after": wait})
    async with served(asked, retries=3, **config) as (upstream, provider):
        start = time.monotonic()
        error = await failure(provider)
        assert time.monotonic() - start < 1
        assert error.retry_after_s == float(wait)
        assert len(upstream.requests) == 1


async def test_wait_that_the_server_asks_for_is_kept() -> None:
    """The next attempt comes no earlier."""
    asked = Response(status=429, headers={"retry-after": "0.3"})
    async with served(asked, OK, retries=1) as (_, provider):
        start = time.monotonic()
        await ModelRunner(provider).complete(REQUEST)
        assert time.monotonic() - start >= 0.3


async def test_refused_stream_options_are_left_out() -> None:
    """A server that does not know them is asked again without, from then on."""
    refusal = Response(
        status=400,
        headers={"content-type": "application/json"},
        blocks=[b'{"error":{"message":"Unrecognized request argument: stream_options"}}'],
    )
    async with served(refusal, OK) as (upstream, provider):
        for _ in range(2):
            await ModelRunner(provider).complete(REQUEST)
        sent = ["stream_options" in request.json for request in upstream.requests]
        assert sent == [True, False, False]


# ── limits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("response", "config", "reason"),
    [
        (Response(head_delay_s=60), {"first_event_timeout_s": 0.3}, "first_event_timeout"),
        (Response(blocks=[], hang=True), {"first_event_timeout_s": 0.3}, "first_event_timeout"),
        (
            Response(blocks=[b": keep-alive\n\n"] * 300, pause_s=0.02, hang=True),
            {"first_event_timeout_s": 0.3},
            "first_event_timeout",
        ),
        (SLOW, {"idle_timeout_s": 0.3}, "idle_timeout"),
        (
            Response(
                blocks=[sse(text_chunk("a"), done=False), *[b"data:\n\n: c\n\n"] * 300],
                pause_s=0.02,
            ),
            {"idle_timeout_s": 0.3},
            "idle_timeout",
        ),
        (SLOW, {"total_timeout_s": 0.3}, "total_timeout"),
        (
            Response(blocks=[sse(text_chunk("a"), done=False)] * 300, pause_s=0.02),
            {"total_timeout_s": 0.3},
            "total_timeout",
        ),
        (
            Response(status=500, blocks=[b"x"], hang=True),
            {"first_event_timeout_s": 0.3},
            "server_error",
        ),
    ],
)
async def test_server_that_stalls_is_left(
    response: Response, config: dict[str, float], reason: str
) -> None:
    """Each limit ends the exchange near its time, by its name; comments move none of them."""
    async with served(response, **config) as (upstream, provider):
        start = time.monotonic()
        error = await failure(provider)
        assert error.reason == reason
        assert (error.code == "timeout") == reason.endswith("timeout")
        assert 0.25 < time.monotonic() - start < 2
        assert await closed_within_a_second(upstream)


async def test_events_in_time_move_the_idle_limit(caplog: pytest.LogCaptureFixture) -> None:
    """A slow but steady stream is no stalled one, and a slow reader is not the server's fault."""
    steady = Response(blocks=[sse(text_chunk("a"), done=False)] * 8 + [stream("!")], pause_s=0.1)
    async with served(steady, idle_timeout_s=0.4) as (_, provider):
        assert (await ModelRunner(provider).complete(REQUEST)).text == "a" * 8 + "!"
        text = ""
        async with ModelRunner(provider).stream("hi") as parts:
            async for part in parts:
                text += str(part)
                if len(text) == 3:
                    await asyncio.sleep(0.7)
        assert text == "a" * 8 + "!"
    assert not caplog.records


async def test_time_limit_of_a_call_is_its_own() -> None:
    """`timeout_s` goes over the configured total."""
    async with served(SLOW) as (_, provider):
        request = ChatRequest(messages=REQUEST.messages, options=CallOptions(timeout_s=0.5))
        with pytest.raises(ProviderError) as caught:
            await ModelRunner(provider).complete(request)
        assert caught.value.reason == "total_timeout"
        assert caught.value.partial is not None


async def test_cancellation_during_a_wait_is_no_time_limit() -> None:
    """A task that is cancelled stays cancelled."""
    async with served(SLOW, idle_timeout_s=0.3) as (_, provider):
        task = asyncio.create_task(ModelRunner(provider).complete(REQUEST))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"response_bytes_max": 5_000}, "response_bytes_max"),
        ({"event_bytes_max": 100}, "event_bytes_max"),
        ({"events_max": 3}, "events_max"),
    ],
)
async def test_flood_is_cut(config: dict[str, int], reason: str) -> None:
    """An answer without an end ends by a limit, and the connection with it."""
    block = sse(text_chunk("x" * 200), done=False)
    async with served(Response(blocks=[block] * 200, hang=True), **config) as (
        upstream,
        provider,
    ):
        error = await failure(provider)
        assert (error.code, error.reason) == ("protocol", reason)
        assert await closed_within_a_second(upstream)


async def test_compressed_flood_counts_as_what_it_unfolds_to() -> None:
    """A small body that unpacks to a large one is cut at the large size."""
    body = gzip.compress(sse(text_chunk("x" * 100), done=False) * 20_000)
    assert len(body) < 20_000
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with served(Response(headers=headers, blocks=[body]), response_bytes_max=100_000) as (
        _,
        provider,
    ):
        assert (await failure(provider)).reason == "response_bytes_max"


# ── broken connections ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "network"),
        (b"garbage\r\n\r\n", "network"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\ndata: ", "network"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nda", "network"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "network"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 7\r\n\r\nno gzip",
            "protocol",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\n" + sse(text_chunk("a"), done=False), "truncated"),
    ],
)
async def test_broken_answer_is_an_error_of_its_kind(raw: bytes, code: str) -> None:
    """Whatever breaks on the way is mapped, and nothing else comes out."""
    async with served(Response(raw=raw)) as (_, provider):
        error = await failure(provider)
        assert error.code == code, error


async def test_answer_without_a_length_ends_with_the_connection() -> None:
    """An older server closes the connection at the end; with a finish reason that is an end."""
    raw = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + sse(
        text_chunk("a", "stop"), done=False
    )
    async with served(Response(raw=raw)) as (_, provider):
        assert (await ModelRunner(provider).complete(REQUEST)).text == "a"


async def test_server_that_is_not_there_is_a_network_error() -> None:
    """A refused connection names no host, and no key."""
    async with served(OK) as (upstream, _):
        url = upstream.url
    config = ProviderConfig(base_url=url, model="m", retries=0, api_key="sk-secret")
    async with CompatibleModelProvider(config) as provider:
        error = await failure(provider)
    assert (error.code, error.reason, error.status) == ("network", "connect", None)
    assert "127.0.0.1" not in str(error)


async def test_host_that_does_not_exist_is_a_network_error() -> None:
    """A name that no resolver knows is told as such."""
    config = ProviderConfig(
        base_url="http://no-such-host.invalid/v1", model="m", retries=0, trust_env=False
    )
    async with CompatibleModelProvider(config) as provider:
        assert (await failure(provider)).code == "network"


async def test_proxy_that_is_not_there_is_a_network_error() -> None:
    """The proxy is used, and its failure is told as its own."""
    async with served(OK, proxy="http://127.0.0.1:9") as (upstream, provider):
        error = await failure(provider)
        assert (error.code, error.reason) == ("network", "proxy")
        assert not upstream.requests


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that only its own file vouches for, with its key."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        " -keyout - -out -"
    )
    made = subprocess.run(
        [*command.split(), "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("openssl is missing")
    path.write_bytes(made.stdout)
    return path


async def test_own_certificates_are_trusted_by_file(certificate: Path) -> None:
    """With `ca_file` the server is trusted, without it is not."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with Upstream(OK, tls=tls) as upstream:
        config = ProviderConfig(base_url=upstream.url, model="m", retries=0, ca_file=certificate)
        async with CompatibleModelProvider(config) as provider:
            assert (await ModelRunner(provider).complete(REQUEST)).text == "hello"
        distrusting = ProviderConfig(base_url=upstream.url, model="m", retries=0)
        async with CompatibleModelProvider(distrusting) as provider:
            error = await failure(provider)
            assert (error.code, error.reason) == ("network", "tls")


async def test_file_without_certificates_is_refused(tmp_path: Path) -> None:
    """The error names the field."""
    for path in (tmp_path / "missing.pem", Path(__file__)):
        async with served(OK, ca_file=path) as (_, provider):
            with pytest.raises(InvalidValue, match="ca_file"):
                await ModelRunner(provider).complete(REQUEST)


# ── the model ────────────────────────────────────────────────────────────────────────────────


def models(*ids: str) -> Response:
    listed = ",".join(f'{{"id":"{name}"}}' for name in ids)
    return Response(
        headers={"content-type": "application/json"},
        blocks=[f'{{"object":"list","data":[{listed}]}}'.encode()],
    )


async def test_only_model_of_a_server_is_asked_for_once() -> None:
    """Without a configured model the server's own is used, and remembered."""
    async with served(models("only"), OK, model=None) as (upstream, provider):
        for _ in range(2):
            await ModelRunner(provider).complete(REQUEST)
        assert [(request.method, request.path) for request in upstream.requests] == [
            ("GET", "/v1/models"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/v1/chat/completions"),
        ]
        assert upstream.requests[1].json["model"] == "only"


async def test_several_models_are_named() -> None:
    """The caller has to choose, and sees among what."""
    async with served(models("a", "b"), model=None) as (_, provider):
        with pytest.raises(InvalidValue, match=r"2 models.*a, b"):
            await ModelRunner(provider).complete(REQUEST)


@pytest.mark.parametrize("response", [models(), Response(blocks=[b"{}"]), Response(blocks=[b"[]"])])
async def test_server_without_a_model_is_an_error(response: Response) -> None:
    """An empty list gives no name to ask for."""
    async with served(response, model=None) as (_, provider):
        assert (await failure(provider)).reason == "no_model"


async def test_server_that_lists_no_models_is_an_error_of_its_status() -> None:
    """A missing list is told by its status."""
    async with served(Response(status=404), model=None) as (_, provider):
        assert (await failure(provider)).status == 404


async def test_nearest_model_wins() -> None:
    """A call's model goes over the request's, and this over the provider's."""
    async with served(OK) as (upstream, provider):
        for model, options in [(None, None), ("r", None), ("r", "o")]:
            request = ChatRequest(
                messages=REQUEST.messages, model=model, options=CallOptions(model=options)
            )
            await ModelRunner(provider).complete(request)
        assert [request.json["model"] for request in upstream.requests] == ["m", "r", "o"]

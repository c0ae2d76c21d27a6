"""CPU time of a streamed chunk, from the bytes of the network to the part that a program gets.

Ours is the provider and the runner, without policies and with the default ones. The floor does
the least that gives the same pieces: aiohttp (or blocks at hand), a split at the blank lines, and
msgspec into structs of just the members needed, in one generator. It takes no other line end, no
odd chunk and no limit, keeps nothing for a result, and tells no call from another.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial

import aiohttp
import msgspec
from msgspec import Struct

from benchmarks.payloads import blocks, text_events, tool_events
from benchmarks.peer import Peer
from benchmarks.table import Row
from benchmarks.upstream import upstream
from turngate.completion import ChatRequest, ModelPart
from turngate.messages import UserMessage
from turngate.providers import CompatibleModelProvider, ModelRunner, ProviderConfig
from turngate.providers.policies import default_policies
from turngate.providers.transport import HttpResponse

__all__ = ["run"]

CHUNKS = 4_000
PEER_CHUNKS = 600  # a peer needs a hundred times as long for each
BLOCK_BYTES = 65_536
STREAMS = 100
LIVE_CHUNKS = 60
LIVE_PAUSE_MS = 50

Pass = Callable[[], Awaitable[int]]
"""One reading of everything, which gives the number of pieces that came."""


# ── ours ─────────────────────────────────────────────────────────────────────────────────────


class _Blocks:
    """A response that has come already, and the transport that gives it."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, reads: list[bytes]) -> None:
        self._reads = reads
        self._left = iter(reads)

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        return _Blocks(self._reads)

    async def read(self) -> bytes:
        return next(self._left, b"")

    async def release(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _config(url: str) -> ProviderConfig:
    return ProviderConfig(base_url=url, model="a-model", connections_max=STREAMS)


async def _ours(provider: CompatibleModelProvider, *, with_policies: bool) -> int:
    policies = default_policies(record=lambda _: None) if with_policies else ()
    pieces = 0
    async with ModelRunner(provider, policies=policies).stream("Hi") as parts:
        async for _ in parts:
            pieces += 1
    return pieces


async def _completed(provider: CompatibleModelProvider) -> int:
    """The same as the gateway does it: a fold at the end, and an observer of each part."""
    pieces = 0

    def observe(part: ModelPart) -> None:
        nonlocal pieces
        pieces += 1

    runner = ModelRunner(provider, policies=default_policies(record=lambda _: None))
    await runner.complete(ChatRequest(messages=(UserMessage(("Hi",)),)), observe=observe)
    return pieces


# ── the floor ────────────────────────────────────────────────────────────────────────────────


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct, gc=False):
    index: int
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct, gc=False):
    delta: _Delta


class _Chunk(Struct, gc=False):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Chunk).decode


async def _floor_pieces(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[str | _Call]:
    tail = b""
    while block := await read():
        *events, tail = (tail + block).split(b"\n\n")
        for event in events:
            if not event.startswith(b"data: "):
                continue
            payload = event[6:]
            if payload == b"[DONE]":
                return
            for choice in _decode(payload).choices:
                delta = choice.delta
                if delta.content:
                    yield delta.content
                if delta.tool_calls:
                    for call in delta.tool_calls:
                        yield call


async def _floor(reads: list[bytes]) -> int:
    pieces = 0
    async for _ in _floor_pieces(_Blocks(reads).read):
        pieces += 1
    return pieces


async def _floor_over_http(session: aiohttp.ClientSession, url: str) -> int:
    body = {
        "model": "a-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }
    pieces = 0
    async with session.post(f"{url}/chat/completions", json=body) as response:
        async for _ in _floor_pieces(response.content.readany):
            pieces += 1
        await response.read()
    return pieces


# ── rounds ───────────────────────────────────────────────────────────────────────────────────


async def _cpu_us(measured: Pass) -> float:
    """CPU time of a piece."""
    gc.collect()
    begun = time.process_time()
    pieces = await measured()
    return 1e6 * (time.process_time() - begun) / pieces


async def _best(passes: Mapping[str, Pass], rounds: int, peer: Callable[[], float | None]) -> Best:
    best: Best = {}
    for _ in range(rounds):
        for name, measured in passes.items():
            best[name] = min(best.get(name, float("inf")), await _cpu_us(measured))
        asked = peer()
        if asked is not None:
            best["openai"] = min(best.get("openai", float("inf")), asked)
    return best


Best = dict[str, float]


def _row(name: str, best: Best, *, aim: float | None, lead: float | None) -> Row:
    parts = {"no policy": best["bare"]}
    parts |= {"complete()": best["complete()"]} if "complete()" in best else {}
    return Row(
        name=name,
        unit="us a chunk",
        ours=best["policies"],
        floor=best["floor"],
        aim=aim,
        parts=parts,
        others={"openai": best["openai"]} if "openai" in best else {},
        leads={"openai": lead} if lead is not None else {},
    )


async def _in_process(kind: str, block: int | None, rounds: int, peer: Peer) -> Best:
    events = (tool_events if kind == "tools" else text_events)(CHUNKS)
    reads = blocks(events, block)
    transport = _Blocks(reads)
    async with CompatibleModelProvider(_config("http://x.test/v1"), transport=transport) as ours:
        passes: dict[str, Pass] = {
            "floor": partial(_floor, reads),
            "bare": partial(_ours, ours, with_policies=False),
            "policies": partial(_ours, ours, with_policies=True),
            "complete()": partial(_completed, ours),
        }
        asked = {"kind": kind, "count": PEER_CHUNKS, "block": block, "streams": 1}
        return await _best(passes, rounds * 3, _every_third(lambda: peer.ask(**asked)))


async def _over_http(url: str, rounds: int, peer: Peer, *, peer_url: str, streams: int = 1) -> Best:
    connector = aiohttp.TCPConnector(limit=STREAMS)
    async with (
        CompatibleModelProvider(_config(url)) as ours,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        passes: dict[str, Pass] = {
            "floor": _times(streams, partial(_floor_over_http, session, url)),
            "bare": _times(streams, partial(_ours, ours, with_policies=False)),
            "policies": _times(streams, partial(_ours, ours, with_policies=True)),
        }
        for measured in passes.values():
            if streams == 1:
                await measured()  # once before, for the connection and the server's own cache
        return await _best(
            passes, rounds, lambda: peer.ask(url=peer_url, streams=streams).get("cpu_us")
        )


def _times(streams: int, one: Pass) -> Pass:
    """`one` as many times at once."""

    async def many() -> int:
        return sum(await asyncio.gather(*(one() for _ in range(streams))))

    return many


def _every_third(ask: Callable[[], dict[str, float]]) -> Callable[[], float | None]:
    """`ask` in every third round: it takes as long as many passes of ours."""
    rounds = 0

    def asked() -> float | None:
        nonlocal rounds
        rounds += 1
        return ask().get("cpu_us") if rounds % 3 == 1 else None

    return asked


async def _rows(rounds: int, server: str, peer: Peer) -> list[Row]:
    rows: list[Row] = []
    for kind, name, aim, lead in (("text", "text", 1.3, 40.0), ("tools", "tool deltas", 1.6, 20.0)):
        best = await _in_process(kind, BLOCK_BYTES, rounds, peer)
        rows.append(_row(f"{name}, bursts, in process", best, aim=aim, lead=lead))
        url, peer_url = (f"{server}/{kind}/{count}/0/v1" for count in (CHUNKS, PEER_CHUNKS))
        best = await _over_http(url, rounds * 2, peer, peer_url=peer_url)
        rows.append(_row(f"{name}, bursts, socket", best, aim=aim, lead=lead))
    best = await _in_process("text", None, rounds, peer)
    rows.append(_row("text, an event a read", best, aim=None, lead=None))
    url = f"{server}/text/{LIVE_CHUNKS}/{LIVE_PAUSE_MS}/v1"
    best = await _over_http(url, (rounds + 1) // 2, peer, peer_url=url, streams=STREAMS)
    rows.append(_row(f"text, {STREAMS} live streams", best, aim=None, lead=None))
    return rows


def run(rounds: int) -> list[Row]:
    with upstream() as server, Peer(".venv-bench-openai", "benchmarks.peers.openai_stream") as peer:
        return asyncio.run(_rows(rounds, server, peer))

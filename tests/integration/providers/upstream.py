"""A scripted model server on the loopback, spoken at the level of bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Any, Self

from msgspec import Struct

__all__ = ["Request", "Response", "Upstream", "sse"]


class Request(Struct, frozen=True, kw_only=True):
    """A request as it came. `headers` have lower-case names."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Response(Struct, frozen=True, kw_only=True):
    """What the server answers to one request.

    Shapes: `blocks` are network chunks, `pause_s` seconds apart. `abort` cuts the connection after
    them, `hang` leaves it open without an end, `raw` are the bytes of a whole answer in place of
    all this, and `head_delay_s` comes before the first byte.
    """

    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({"content-type": "text/event-stream"})
    blocks: Sequence[bytes] = ()
    pause_s: float = 0.0
    head_delay_s: float = 0.0
    abort: bool = False
    hang: bool = False
    raw: bytes | None = None


def sse(*chunks: object, done: bool = True) -> bytes:
    """An event stream of JSON values."""
    payloads = [json.dumps(chunk).encode() for chunk in chunks]
    if done:
        payloads.append(b"[DONE]")
    return b"".join(b"data: %s\n\n" % payload for payload in payloads)


class Upstream:
    """The server. It answers requests with `responses` in turn, the last one again and again.

    `requests` are those that came, and `asked` is set once there is one; `closed` is set when the
    client cuts a connection that the server was still writing to.
    """

    def __init__(self, *responses: Response, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.connections = 0
        self._responses = list(responses)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        self.connections += 1
        connection = self.connections
        try:
            while request := await self._request(reader, connection):
                self.requests.append(request)
                self.asked.set()
                response = self._responses[min(len(self.requests), len(self._responses)) - 1]
                await self._answer(response, reader, writer)
                if response.abort or response.raw is not None:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()
        finally:
            self._writers.discard(writer)
            writer.close()
            with suppress(Exception):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, connection: int) -> Request | None:
        head = await reader.readline()
        if not head:
            return None
        method, path, _ = head.decode().split(" ")
        headers = {}
        while line := (await reader.readline()).decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method=method, path=path, headers=headers, body=body, connection=connection)

    async def _answer(
        self, response: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if response.head_delay_s:
            await self._wait(reader, response.head_delay_s)
        if response.raw is not None:
            writer.write(response.raw)
            await writer.drain()
            return
        head = [f"HTTP/1.1 {response.status} X", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in response.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode())
        for block in response.blocks:
            writer.write(b"%x\r\n%s\r\n" % (len(block), block))
            await writer.drain()
            if response.pause_s:
                await self._wait(reader, response.pause_s)
        if response.hang:
            await self._wait(reader, 3_600)
        if response.abort:
            writer.write(b"ff\r\n")
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _wait(self, reader: asyncio.StreamReader, seconds: float) -> None:
        """A pause in which the client's leaving is seen at once."""
        try:
            async with asyncio.timeout(seconds):
                rest = await reader.read(1)
        except TimeoutError:
            return
        if not rest:
            raise ConnectionResetError

"""A Chat Completions server on the loopback that answers, and fails, exactly as it is told.

    request ──► head ──► body, as its faults change, cut or pace it ──► end of the body ──► …

Faults are data, and those of one reply add up: first the body is mutated, then it is cut short by
`Cut` or `Stall`, then it goes out whole or in drips, and what comes last is the end, the cut, the
stall or the flood. The server counts what it served and sees when a client leaves.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal, NoReturn, Self, TypeVar

import msgspec
from msgspec import Struct

from turngate.completion import FunctionCallDelta, ReasoningDelta, StreamEnd
from turngate.messages import ToolCall

__all__ = [
    "Connection",
    "Cut",
    "Drip",
    "Fault",
    "Flood",
    "Mutate",
    "Reply",
    "ScriptedUpstream",
    "ServedRequest",
    "SlowHead",
    "Stall",
    "chat_stream",
]

_BLOCK_BYTES = 1 << 16
_FLOODS: Mapping[str, bytes] = {
    "events": b'data: {"choices":[{"index":0,"delta":{"content":"and so on "}}]}\n\n',
    "comments": b": keep-alive\n\n",
    "line": b"x",
}
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


# ── faults ───────────────────────────────────────────────────────────────────────────────────


class Cut(Struct, frozen=True):
    """After `at_byte` bytes of the body comes nothing more: the body ends there as if it were
    whole (``end``), the connection closes without the body's end (``close``), or is reset."""

    at_byte: int
    how: Literal["end", "close", "reset"] = "close"


class Stall(Struct, frozen=True):
    """After `after_event` events (None: after the whole body) the body neither goes on nor ends.

    Units: with `comment_each_s` a comment comes so often, for ever; None is silence.
    """

    after_event: int | None = None
    comment_each_s: float | None = None


class Drip(Struct, frozen=True):
    """The body comes `size_bytes` at a time, with `pause_s` seconds before each piece."""

    size_bytes: int
    pause_s: float


class Flood(Struct, frozen=True):
    """After the body comes more of it without an end, as fast as it is taken.

    Shapes: text events, comments, or one line that never ends.
    """

    of: Literal["events", "comments", "line"] = "events"


class Mutate(Struct, frozen=True):
    """Bytes of the body are others: position to value. A position beyond the body changes none."""

    changes: Mapping[int, int]


class SlowHead(Struct, frozen=True):
    """Status line and headers come `size_bytes` at a time, `pause_s` seconds before each piece."""

    pause_s: float
    size_bytes: int = 1


Fault = Cut | Stall | Drip | Flood | Mutate | SlowHead


class Reply(Struct, frozen=True, kw_only=True):
    """What one request is answered.

    Shapes: `head` None is a right one, of `status`, `content_type` and `headers`; else these bytes
    stand in its place, the body follows without any framing, and the connection closes after it.
    """

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = _NO_HEADERS
    head: bytes | None = None
    faults: tuple[Fault, ...] = ()


def chat_stream(
    *items: str | ReasoningDelta | FunctionCallDelta | ToolCall | StreamEnd, done: bool = True
) -> bytes:
    """The event stream of an answer: an event for each item, a finish reason, and the end marker.

    Shapes: a `ToolCall` is a call whole, a `FunctionCallDelta` a piece of one. Without a
    `StreamEnd` the finish reason is the one that fits. `done` False leaves the end marker out.
    """
    end = next((item for item in items if isinstance(item, StreamEnd)), None)
    calls = 0
    events: list[object] = []
    for item in items:
        if isinstance(item, StreamEnd):
            continue
        delta: dict[str, Any]
        if isinstance(item, str):
            delta = {"content": item}
        elif isinstance(item, ReasoningDelta):
            delta = {"reasoning_content": item.text}
        else:
            index = item.index if isinstance(item, FunctionCallDelta) else calls
            calls = max(calls, index + 1)
            function = {"name": item.name, "arguments": item.arguments}
            told = {name: value for name, value in function.items() if value is not None}
            entry: dict[str, Any] = {"index": index, "type": "function", "function": told}
            if item.id is not None:
                entry["id"] = item.id
            delta = {"tool_calls": [entry]}
        events.append({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = end if end is not None else StreamEnd("tool_calls" if calls else "stop")
    last: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": end.finish_reason}]}
    if end.model is not None:
        last["model"] = end.model
    events.append(last)
    if end.usage is not None:
        tokens_in, tokens_out = end.usage.input_tokens, end.usage.output_tokens
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        events.append({"choices": [], "usage": usage})
    payloads = [json.dumps(event) for event in events] + ["[DONE]"] * done
    return "".join(f"data: {payload}\n\n" for payload in payloads).encode()


# ── what was served ──────────────────────────────────────────────────────────────────────────


class ServedRequest(Struct, frozen=True, kw_only=True):
    """A request as it came. `headers` have lower-case names; `connection` counts from 0."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body's JSON value."""
        return msgspec.json.decode(self.body)


class Connection:
    """One connection. Units: seconds of the monotonic clock; None while it is open.

    `bytes_sent` counts what was handed to the system, heads and framing included.
    """

    def __init__(self) -> None:
        self.opened_s = time.monotonic()
        self.closed_s: float | None = None
        self.closed_by: Literal["client", "server"] | None = None
        self.bytes_sent = 0


# ── the server ───────────────────────────────────────────────────────────────────────────────

_F = TypeVar("_F", Cut, Stall, Drip, Flood, Mutate, SlowHead)


class ScriptedUpstream:
    """The server, for `async with`. It answers POSTs with `replies` in turn, the last one again
    after that, and any GET with a list of the one model ``scripted``.

    `requests` and `connections` hold what came, and `asked` is set once a POST has.
    """

    def __init__(self, *replies: Reply, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[ServedRequest] = []
        self.connections: list[Connection] = []
        self.asked = asyncio.Event()
        self._replies = replies if replies else (Reply(body=chat_stream("ok")),)
        self._posts = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._served: list[asyncio.Task[None]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._quiet = asyncio.Event()  # no connection is open
        self._quiet.set()

    @property
    def base_url(self) -> str:
        """The address for `ProviderConfig`, once the server runs."""
        if self._server is None:
            raise RuntimeError("the server runs inside `async with`")
        port = self._server.sockets[0].getsockname()[1]
        return f"http{'s' if self._tls else ''}://127.0.0.1:{port}/v1"

    async def all_closed(self, *, within_s: float = 1.0) -> bool:
        """Whether every connection is closed, at the latest after `within_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._quiet.wait()
        return self._quiet.is_set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._served)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.append(task)
        self._writers.add(writer)
        self._quiet.clear()
        number = len(self.connections)
        connection = Connection()
        self.connections.append(connection)
        answers: list[asyncio.Task[None]] = []
        # Requests are read while an answer goes out, so that a client's leaving is seen at once.
        with suppress(ConnectionError, ValueError, asyncio.IncompleteReadError):
            while request := await _request(reader, number):
                self.requests.append(request)
                answers.append(asyncio.create_task(self._answer(request, writer, connection)))
        connection.closed_s = connection.closed_s or time.monotonic()
        connection.closed_by = connection.closed_by or "client"
        for answer in answers:
            answer.cancel()
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        writer.transport.abort()
        self._writers.discard(writer)
        if not self._writers:
            self._quiet.set()
        for outcome in outcomes:
            if isinstance(outcome, Exception):  # a fault that can't be, or a bug of ours
                raise outcome

    async def _answer(
        self, request: ServedRequest, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        if request.method == "POST":
            reply = self._replies[min(self._posts, len(self._replies) - 1)]
            self._posts += 1
            self.asked.set()
        else:
            body = b'{"object":"list","data":[{"id":"scripted"}]}'
            reply = Reply(body=body, content_type="application/json")
        try:
            await _Answer(reply, writer, connection).send()
        except ConnectionError:
            pass
        except Exception:
            writer.transport.abort()
            raise


async def _request(reader: asyncio.StreamReader, connection: int) -> ServedRequest | None:
    """The next request; None where the client has closed instead."""
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ")
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readline()
        body = b"".join(pieces)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ServedRequest(
        method=method, target=target, headers=headers, body=body, connection=connection
    )


class _Answer:
    """One reply on its way out."""

    def __init__(self, reply: Reply, writer: asyncio.StreamWriter, connection: Connection) -> None:
        self._reply = reply
        self._writer = writer
        self._connection = connection

    def _fault(self, kind: type[_F]) -> _F | None:
        return next((fault for fault in self._reply.faults if isinstance(fault, kind)), None)

    async def send(self) -> None:
        cut, stall, flood = self._fault(Cut), self._fault(Stall), self._fault(Flood)
        await self._send_in_pieces(self._head(), self._fault(SlowHead), self._send)
        await self._send_in_pieces(self._body(cut, stall), self._fault(Drip), self._send_block)
        if flood is not None:
            await self._send_flood(flood)
        if stall is not None:
            await self._send_comments(stall)
        if cut is not None and cut.how != "end":
            self._close(is_reset=cut.how == "reset")
        elif self._reply.head is not None:
            self._close(is_reset=False)
        else:
            await self._send(b"0\r\n\r\n")

    def _head(self) -> bytes:
        reply = self._reply
        if reply.head is not None:
            return reply.head
        named = {"content-type": reply.content_type, **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Scripted", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in named.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _body(self, cut: Cut | None, stall: Stall | None) -> bytes:
        """The bytes that go out before anything is cut, stalls or floods."""
        body, mutate = bytearray(self._reply.body), self._fault(Mutate)
        for position, value in mutate.changes.items() if mutate is not None else ():
            if position < len(body):
                body[position] = value
        if stall is not None and stall.after_event is not None:
            events = bytes(body).split(b"\n\n")[: stall.after_event]
            body = bytearray(b"".join(event + b"\n\n" for event in events))
        return bytes(body[: cut.at_byte] if cut is not None else body)

    async def _send_in_pieces(
        self, data: bytes, pace: Drip | SlowHead | None, send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        size_bytes = pace.size_bytes if pace is not None else _BLOCK_BYTES
        for start in range(0, len(data), size_bytes):
            if pace is not None:
                await asyncio.sleep(pace.pause_s)
            await send(data[start : start + size_bytes])

    async def _send_flood(self, flood: Flood) -> NoReturn:
        if flood.of == "line":
            await self._send_block(b"data: ")
        piece = _FLOODS[flood.of]
        block = piece * (_BLOCK_BYTES // len(piece))
        while True:
            await self._send_block(block)
            await asyncio.sleep(0)

    async def _send_comments(self, stall: Stall) -> NoReturn:
        while True:
            await asyncio.sleep(stall.comment_each_s or 3_600)
            if stall.comment_each_s is not None:
                await self._send_block(_FLOODS["comments"])

    async def _send_block(self, block: bytes) -> None:
        """A piece of the body, framed where the head is ours."""
        if self._reply.head is None:
            block = b"%x\r\n%s\r\n" % (len(block), block)
        await self._send(block)

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        self._connection.bytes_sent += len(data)
        await self._writer.drain()

    def _close(self, *, is_reset: bool) -> None:
        self._connection.closed_s, self._connection.closed_by = time.monotonic(), "server"
        if is_reset:
            linger = struct.pack("ii", 1, 0)  # of no time: what closes so is reset
            open_socket = self._writer.get_extra_info("socket")
            open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        else:
            self._writer.close()

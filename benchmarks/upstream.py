"""A model server on the loopback, in a process of its own so that its CPU time is not ours.

Its base URL says what it streams: ``/text/4000/0/v1`` is 4,000 pieces of text at once, each event
a chunk of HTTP, and ``/tools/60/50/v1`` 60 tool deltas, 50 ms apart.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from benchmarks.payloads import text_events, tool_events

__all__ = ["upstream"]

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_MAKERS = {"text": text_events, "tools": tool_events}


@contextmanager
def upstream() -> Iterator[str]:
    """The server's URL, while it runs."""
    command = [sys.executable, "-m", "benchmarks.upstream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@lru_cache
def _chunks(kind: str, count: int) -> list[bytes]:
    events = _MAKERS[kind](count)
    return [b"%x\r\n%s\r\n" % (len(event), event) for event in events]


class _Connection(asyncio.Protocol):
    """One connection, which serves one request after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _content_length(head):
            return
        self._received = b""
        kind, count, pause_ms = head.split(b" ", 2)[1].decode().split("/")[1:4]
        self._answer(_chunks(kind, int(count)), int(pause_ms) / 1e3)

    def _answer(self, chunks: list[bytes], pause_s: float) -> None:
        if not pause_s:
            self._transport.write(b"".join((_HEAD, *chunks, _END)))
            return
        self._transport.write(_HEAD)
        self._at = asyncio.get_running_loop().time()
        self._go_on(iter(chunks), pause_s)

    def _go_on(self, chunks: Iterator[bytes], pause_s: float) -> None:
        if self._transport.is_closing():
            return
        chunk = next(chunks, None)
        self._transport.write(_END if chunk is None else chunk)
        if chunk is not None:
            self._at += pause_s
            asyncio.get_running_loop().call_at(self._at, self._go_on, chunks, pause_s)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())

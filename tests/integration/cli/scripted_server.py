"""A Chat Completions server on the loopback that does what the last user message tells it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS_MAX = 400
STALL_S = 20.0


class ScriptedServer(ThreadingHTTPServer):
    """Answers ``You said: …``, but knows some words: see `Answer`. `requests` are their bodies."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests: list[dict[str, Any]] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves amid an answer is part of the tests."""


class Answer(BaseHTTPRequestHandler):
    """``slow``: a word each 20 ms · ``stall``: nothing for long · ``steer``: control characters
    ``think``: reasoning first · ``cut``: the connection ends amid the answer
    ``refuse``: 401, in whose message the key is repeated"""

    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """The test's own output stays clean."""

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": "scripted-1", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        content = body["messages"][-1]["content"]
        asked = content if isinstance(content, str) else content[0]["text"]
        if asked == "refuse":
            told = self.headers["authorization"]
            self._json(401, {"error": {"message": f"bad key: {told}", "type": "auth"}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for delta in deltas(asked):
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if asked == "cut":
            return
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        tokens = 10 * len(body["messages"])
        usage = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        chunk = {"id": "c1", "object": "chat.completion.chunk", "model": "scripted-1", **chunk}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def deltas(asked: str) -> Iterator[dict[str, str]]:
    match asked:
        case "slow":
            for number in range(WORDS_MAX):
                yield {"content": f"word{number} "}
                time.sleep(0.02)
        case "stall":
            time.sleep(STALL_S)
        case "steer":
            yield {"content": "\x1b]0;owned\x07[red]clear\x1b"}
            yield {"content": "[2Jed\r\n"}
        case "think":
            yield {"reasoning_content": "Let me see."}
            yield {"content": "Done."}
        case _:
            yield {"content": "You said: "}
            yield {"content": asked}


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """A running server on a free port."""
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

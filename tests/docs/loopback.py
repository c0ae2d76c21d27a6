"""A Chat Completions server on this machine, which gives each question the same short answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["ANSWER", "loopback_server"]

ANSWER = ["It ", "is ", "on ", "its ", "way."]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"data": [{"id": "small"}]}))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choices: list[dict[str, object]] = [
            {"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in ANSWER
        ]
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        events = [json.dumps({"model": request["model"], "choices": [c]}) for c in choices]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        self._send("text/event-stream", body)

    def _send(self, media_type: str, body: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass  # a test's output is for its failures


@contextmanager
def loopback_server() -> Iterator[str]:
    """The base URL of a running server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()

"""The real command line as a process: with pipes, or on a terminal of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

TIMEOUT_S = 30.0

# A process of its own session takes its stdin for its terminal, and becomes the command line.
_ON_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'turngate', *sys.argv[1:]])"
)


class CommandLine:
    """Runs ``turngate`` in `folder`, without what the tester's own environment says of models."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TURNGATE_", "OPENAI_", "COLUMNS", "LINES"))
        }
        self.folder = folder
        self.environment = {**kept, "TERM": "xterm-256color", **environment}

    def run(self, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """The ended process; `typed` is its whole stdin, which is a pipe."""
        return subprocess.run(
            [sys.executable, "-m", "turngate", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S * 4,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints as one JSON document."""
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The running process on pipes; it is killed if it has not ended by itself."""
        with subprocess.Popen(
            [sys.executable, "-m", "turngate", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def on_terminal(self, *arguments: str) -> Iterator[Terminal]:
        with Terminal(arguments, self.folder, self.environment) as terminal:
            yield terminal


def events_until(process: subprocess.Popen[str], kind: str) -> list[dict[str, Any]]:
    """The JSON lines that `process` prints, up to the first of type `kind`."""
    assert process.stdout is not None
    assert process.stderr is not None
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == kind:
            return events
    raise AssertionError(f"no {kind!r} among {events}; stderr: {process.stderr.read()}")


class Terminal:
    """A pseudo terminal of 80 columns and the command line on it; `shown` is all that it wrote."""

    def __init__(
        self, arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.settings_before = termios.tcgetattr(slave)
        self._slave = slave  # kept open, so that its settings can be read after the end
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, *arguments],
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        self.shown = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> str:
        """What was written after the text last waited for, up to and with `text`."""
        start = self._seen
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self.shown.find(text, start)) < 0:
            readable, _, _ = select.select([self._fd], [], [], 0.1)
            if readable:
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
            elif time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"waited for {text!r}, and got {self.shown[start:]!r}")
        self._seen = found + len(text)
        return self.shown[start : self._seen]

    def ended(self) -> int:
        """The exit code, once the process has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._fd], [], [], 0.05)[0]:  # a full terminal would block it
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
        return self.process.wait(timeout=1)

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

"""Starts tests/integration/stores/child.py, and ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHILD = Path(__file__).with_name("child.py")


@contextmanager
def child(role: str, path: Path, argument: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process in a role; it is killed at the end of the block if it has not ended by itself."""
    command = [sys.executable, str(_CHILD), role, str(path), argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def line(process: subprocess.Popen[bytes]) -> str:
    """The next line that the process prints; empty at its end."""
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


def rest(process: subprocess.Popen[bytes]) -> list[str]:
    """Every whole line up to the end of the process."""
    assert process.stdout is not None
    text = process.stdout.read().decode()
    return text[: text.rfind("\n") + 1].splitlines()

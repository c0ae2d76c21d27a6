"""A peer: another library at the same work, in a process and an environment of its own.

It reads one JSON question a line and answers each with one JSON object a line.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Peer"]

_ROOT = Path(__file__).resolve().parents[1]


class Peer:
    """The peer `module` in the environment `venv`, for as long as the context lasts.

    It is missing where `make bench` has not installed it; `ask` then gives nothing.
    """

    def __init__(self, venv: str, module: str) -> None:
        python = _ROOT / venv / "bin" / "python"
        self._command = [str(python), "-m", module] if python.exists() else None
        self._process: subprocess.Popen[str] | None = None
        if self._command is None:
            print(f"{module}: left out, since {venv} is missing; `make bench` makes it")

    def __enter__(self) -> Self:
        if self._command is not None:
            self._process = subprocess.Popen(
                self._command,
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=30)

    def ask(self, **question: Any) -> dict[str, float]:
        """The figures that the peer found; empty where it is missing."""
        if self._process is None:
            return {}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        raise RuntimeError(f"the peer ended at {question}: {' '.join(self._command or ())}")

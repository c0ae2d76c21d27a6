"""Running a harness in processes of its own, some beside each other."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["fast_folder", "figures_of", "start"]

ROOT = Path(__file__).parents[2]
_MEMORY = Path("/dev/shm")


@contextmanager
def fast_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory where there is one: no kill and no pretended power cut needs a disk."""
    if not _MEMORY.is_dir():
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="turngate-") as folder:
        yield Path(folder)


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """``python -m tests.harness.MODULE``; its last line of output is a JSON object of figures."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.harness.{module}", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def figures_of(processes: Sequence[subprocess.Popen[str]], *, within_s: float) -> dict[str, Any]:
    """The sum of what the processes found; numbers, counts and lists are added up."""
    total: dict[str, Any] = {}
    for process in processes:
        output, errors = process.communicate(timeout=within_s)
        assert process.returncode in (0, 1), errors[-3000:]
        for name, value in json.loads(output.splitlines()[-1]).items():
            value = Counter(value) if isinstance(value, dict) else value
            total[name] = total[name] + value if name in total else value
    return total

"""CPU time of `import turngate` in a fresh process, beside what it can't do without.

Compiled modules go to a folder of the measurement's own and are there before the first round, also
where the environment keeps Python from writing them: compiling costs several times the import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from benchmarks.table import Row

__all__ = ["LATE", "loaded", "run"]

FLOOR = "asyncio, sqlite3, msgspec"
LATE = ("aiohttp", "rich", "typer", "uvloop")
"""What `import turngate` must not load: it costs more than all the rest."""

_TIMED = """
import time
begun = time.process_time()
import {modules}
print(1e3 * (time.process_time() - begun), 1e3 * time.process_time())
"""
_LOADED = """
import json, sys
import {modules}
print(json.dumps(sorted(sys.modules)))
"""


def _printed(program: str, modules: str, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", program.format(modules=modules)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def loaded(modules: str, environment: Mapping[str, str]) -> set[str]:
    """The names of the modules that are there after ``import modules`` in a fresh process."""
    return set(json.loads(_printed(_LOADED, modules, environment)))


def run(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return _rows(rounds, environment)


def _rows(rounds: int, environment: Mapping[str, str]) -> list[Row]:
    ours, floor = (loaded(modules, environment) for modules in ("turngate", FLOOR))
    loaded("aiohttp", environment)
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds * 2):
        for modules in ("turngate", FLOOR, "aiohttp"):
            alone, whole = map(float, _printed(_TIMED, modules, environment).split())
            former = best.get(modules, (alone, whole))
            best[modules] = (min(alone, former[0]), min(whole, former[1]))
    if early := sorted(ours.intersection(LATE)):
        print(f"imports: `import turngate` loads {', '.join(early)}")
    return [
        Row(
            name="import turngate",
            unit="ms",
            ours=best["turngate"][0],
            floor=best[FLOOR][0],
            aim=1.3,
            others={"import aiohttp": best["aiohttp"][0]},
        ),
        Row(
            name="the process with it",
            unit="ms",
            ours=best["turngate"][1],
            floor=best[FLOOR][1],
        ),
        Row(name="modules loaded", unit="modules", ours=len(ours), floor=len(floor)),
    ]

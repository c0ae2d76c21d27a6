"""Workflows of the `dbos` package on SQLite, as `benchmarks.peer` asks.

Questions have `steps` (of a workflow), `count` (of workflows) and `writers` (how many at once). The
database is in write-ahead mode, which is set before, since that is what ours has.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

dbos: Any = importlib.import_module("dbos")


async def _step(place: int) -> str:
    return '{"high": 21.5, "low": 12.1, "sky": "clear"}'


async def _measured(workflow: Any, question: dict[str, int]) -> dict[str, float]:
    count, writers, steps = question["count"], question["writers"], question["steps"]

    async def caller(times: int) -> None:
        for _ in range(times):
            await workflow(steps)

    await asyncio.gather(*(caller(1) for _ in range(writers)))
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller(count // writers) for _ in range(writers)))
    return {
        "cpu": 1e6 * (time.process_time() - cpu) / count,
        "wall": 1e6 * (time.perf_counter() - wall) / count,
    }


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dbos.db"
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode = WAL")
        db.close()
        config = {"name": "bench", "system_database_url": f"sqlite:///{path}"}
        dbos.DBOS(config=config | {"log_level": "ERROR", "enable_otlp": False})
        step = dbos.DBOS.step()(_step)

        async def exchanges(steps: int) -> str:
            result = ""
            for place in range(steps):
                result = await step(place)
            return result

        workflow = dbos.DBOS.workflow()(exchanges)
        dbos.DBOS.launch()
        try:
            for line in sys.stdin:
                found = asyncio.run(_measured(workflow, json.loads(line)))
                print(json.dumps(found), flush=True)
        finally:
            dbos.DBOS.destroy()


if __name__ == "__main__":
    _main()

"""`python -m benchmarks [name ...] [--rounds N]`: measure, print the tables, keep the figures."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from datetime import UTC, datetime

import msgspec

from benchmarks.plot import RESULTS, Results
from benchmarks.table import Row, table

NAMES = ("imports", "convert", "flat", "stream", "store", "runs")
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    begun, load = datetime.now(UTC), os.getloadavg()
    rows: dict[str, list[Row]] = {}
    for name in asked.names or NAMES:
        started = time.monotonic()
        rows[name] = importlib.import_module(f"benchmarks.{name}").run(asked.rounds)
        print(f"{name}, {time.monotonic() - started:.0f} s\n\n{table(rows[name])}\n", flush=True)
    results = Results(
        at=begun.isoformat(timespec="seconds"),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        load=load,
        rounds=asked.rounds,
        rows=rows,
    )
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{begun:%Y%m%d-%H%M%S}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    print(f"load {load[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end: {path}")


if __name__ == "__main__":
    main()

"""One run as SVGs: `python -m benchmarks.plot [results.json]`.

Without a file it takes the newest of benchmarks/results, which may be of some measurements alone.
It writes benchmarks/ratios.svg, and of a run with `flat` benchmarks/flat.svg.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.plot_flat import flat_svg
from benchmarks.table import Row

__all__ = ["Results", "main", "svg"]

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"

_ROW_PX, _LABEL_PX, _PLOT_PX, _TOP_PX = 22, 310, 430, 58
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
_COLOURS = {None: "#9aa5b1", True: "#2f9e6e", False: "#d9822b"}  # by whether the aim is met


class Results(Struct, frozen=True, kw_only=True):
    """One run of the benchmarks: when, on what, and its rows by measurement."""

    at: str
    python: str
    machine: str
    load: tuple[float, float, float]
    rounds: int
    rows: dict[str, list[Row]]


def svg(results: Results) -> str:
    """A bar for each ratio to the floor, on a logarithmic scale, with its aim as a mark."""
    rows = [row for rows in results.rows.values() for row in rows if row.ratio is not None]
    highest = max([2.0, *(row.ratio or 0 for row in rows), *(row.aim or 0 for row in rows)])
    ticks = [tick for tick in _TICKS if tick <= highest * 1.3]
    scale = _PLOT_PX / math.log(max(highest * 1.15, ticks[-1]) / ticks[0])

    def x(ratio: float) -> float:
        return _LABEL_PX + scale * math.log(max(ratio, ticks[0]) / ticks[0])

    height = _TOP_PX + _ROW_PX * len(rows) + 14
    width = _LABEL_PX + _PLOT_PX + 60
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            ' font-family="sans-serif" font-size="12" fill="#333">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            '<text x="12" y="20" font-size="14" font-weight="bold">Cost, as a multiple of the'
            " floor of the same run (left is better)</text>",
            f'<text x="12" y="38" fill="#666">{escape(results.at[:10])}, {escape(results.machine)},'
            f" Python {escape(results.python)}; a dark line is the aim</text>",
            *(_tick(x(tick), tick, height) for tick in ticks),
            *_bars(rows, x(1), x),
            "</svg>\n",
        ]
    )


def _tick(x: float, tick: float, height: int) -> str:
    colour = "#888" if tick == 1 else "#e4e4e4"
    return (
        f'<path d="M{x:.1f} {_TOP_PX} V{height - 8}" stroke="{colour}"/>'
        f'<text x="{x:.1f}" y="{_TOP_PX - 5}" text-anchor="middle" fill="#666">{tick:g}</text>'
    )


def _bars(rows: Sequence[Row], one: float, x: Callable[[float], float]) -> list[str]:
    drawn = []
    for place, row in enumerate(rows):
        ratio = row.ratio or 1.0
        y = _TOP_PX + _ROW_PX * place + 4
        start, end = sorted((one, x(ratio)))
        colour = _COLOURS[None if row.aim is None else ratio <= row.aim]
        drawn.append(
            f'<text x="{_LABEL_PX - 10}" y="{y + 12}" text-anchor="end">{escape(row.name)}</text>'
            f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="14"'
            f' fill="{colour}"/>'
            f'<text x="{_LABEL_PX + _PLOT_PX + 12}" y="{y + 12}">{ratio:.2f}</text>'
        )
        if row.aim is not None:
            at = x(row.aim)
            drawn.append(f'<path d="M{at:.1f} {y - 2} v18" stroke="#222" stroke-width="2"/>')
    return drawn


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else max(RESULTS.glob("*.json"))
    results = msgspec.json.decode(path.read_bytes(), type=Results)
    (HERE / "ratios.svg").write_text(svg(results), encoding="utf-8")
    print(HERE / "ratios.svg")
    if flat := results.rows.get("flat"):
        told = f"{results.at[:10]}, {results.machine}, Python {results.python}"
        (HERE / "flat.svg").write_text(flat_svg(flat, told=told), encoding="utf-8")
        print(HERE / "flat.svg")


if __name__ == "__main__":
    main()

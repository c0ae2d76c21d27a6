"""The cost of a turn by the length of its thread, as an SVG: a panel for each figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.table import Row

__all__ = ["flat_svg"]

_PANEL_PX, _GAP_PX, _PLOT_PX, _TOP_PX, _LEFT_PX = 220, 50, 150, 92, 24
_TITLES = {
    "rows read": "rows read",
    "bytes written": "bytes written",
    "CPU": "CPU, µs",
}
_COLOUR = "#2f6f9e"


def flat_svg(rows: Sequence[Row], *, told: str) -> str:
    """A panel for each row of `flat` that has lengths; `told` says when and where it ran."""
    shown = [(title, row) for row in rows if (title := _title(row)) is not None]
    width = 2 * _LEFT_PX + len(shown) * (_PANEL_PX + _GAP_PX) - _GAP_PX
    height = _TOP_PX + _PLOT_PX + 44
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            ' font-family="sans-serif" font-size="12" fill="#333">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            '<text x="12" y="20" font-size="14" font-weight="bold">One turn, by the length of its'
            " thread</text>",
            f'<text x="12" y="38" fill="#666">{escape(told)}; the dashed line is 1.2 times the'
            " first point</text>",
            *(
                _panel(title, row, _LEFT_PX + place * (_PANEL_PX + _GAP_PX))
                for place, (title, row) in enumerate(shown)
            ),
            "</svg>\n",
        ]
    )


def _title(row: Row) -> str | None:
    return next((_TITLES[end] for end in _TITLES if row.name.endswith(f", {end}")), None)


def _panel(title: str, row: Row, left: float) -> str:
    costs = {int(length.replace(",", "")): cost for length, cost in row.parts.items()}
    shortest, longest = min(costs), max(costs)
    limit = costs[shortest] * (row.aim or 1)
    highest = 1.25 * max(limit, *costs.values())
    bottom = _TOP_PX + _PLOT_PX

    def x(length: int) -> float:
        return left + _PANEL_PX * math.log(length / shortest) / math.log(longest / shortest)

    def y(cost: float) -> float:
        return bottom - _PLOT_PX * cost / highest

    points = " ".join(f"{x(length):.1f},{y(cost):.1f}" for length, cost in costs.items())
    marks = [
        f'<circle cx="{x(length):.1f}" cy="{y(cost):.1f}" r="3.5" fill="{_COLOUR}"/>'
        f'<text x="{x(length):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#666"'
        f' font-size="10">{length:,}</text>'
        f'<text x="{x(length):.1f}" y="{y(cost) + 16:.1f}" text-anchor="middle"'
        f' font-size="10">{cost:,.0f}</text>'
        for length, cost in costs.items()
    ]
    return "\n".join(
        [
            f'<text x="{left}" y="{_TOP_PX - 18}" font-weight="bold">{escape(title)}</text>',
            f'<path d="M{left} {bottom} h{_PANEL_PX}" stroke="#888"/>',
            f'<path d="M{left} {y(limit):.1f} h{_PANEL_PX}" stroke="#d9822b"'
            ' stroke-dasharray="5 4"/>',
            f'<polyline points="{points}" fill="none" stroke="{_COLOUR}" stroke-width="2"/>',
            *marks,
        ]
    )

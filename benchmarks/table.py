"""The rows of a measurement, and their table: pipes and dashes, which a page can take as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

__all__ = ["Row", "table"]

_HEAD = ("measurement", "unit", "ours", "floor", "ratio", "aim", "beside it")


class Row(Struct, frozen=True, kw_only=True):
    """One figure of ours, its floor, and what others need for the same.

    Shapes: `aim` is the most that `ratio` may be (None: none was set); `parts` are parts and
    variants of ours by name, `others` other libraries' figures, and `leads` how many times better
    than some of them we aim to be. `is_rate`: more is better.
    """

    name: str
    unit: str
    ours: float
    floor: float | None = None
    aim: float | None = None
    is_rate: bool = False
    parts: Mapping[str, float] = {}
    others: Mapping[str, float] = {}
    leads: Mapping[str, float] = {}

    @property
    def ratio(self) -> float | None:
        """How many times the floor's cost ours is."""
        return None if self.floor is None else self._times_worse(self.ours, self.floor)

    def lead(self, other: str) -> float:
        """How many times our cost that of `other` is."""
        return self._times_worse(self.others[other], self.ours)

    @property
    def is_met(self) -> bool | None:
        """Whether every aim is met; None without one."""
        aims = [self.ratio <= self.aim] if self.aim is not None and self.ratio is not None else []
        aims += [
            self.lead(other) >= least for other, least in self.leads.items() if other in self.others
        ]
        return all(aims) if aims else None

    def _times_worse(self, one: float, other: float) -> float:
        return other / one if self.is_rate else one / other


def table(rows: Iterable[Row]) -> str:
    """`rows` as a table."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |"


def _cells(row: Row) -> tuple[str, ...]:
    mark = {None: "", True: ", met", False: ", MISSED"}[row.is_met]
    aims = [f"<= {row.aim:g}"] if row.aim is not None else []
    aims += [f"{name} >= {least:g}x" for name, least in row.leads.items()]
    return (
        row.name,
        row.unit,
        _number(row.ours),
        "" if row.floor is None else _number(row.floor),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        ", ".join(aims) + mark if aims else "",
        "; ".join(
            [
                *(f"{name} {_number(value)}" for name, value in row.parts.items()),
                *(
                    f"{name} {_number(value)} ({row.lead(name):.3g}x)"
                    for name, value in row.others.items()
                ),
            ]
        ),
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

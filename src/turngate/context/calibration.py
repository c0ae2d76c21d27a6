"""Ratios between what was estimated and what was counted, learned one request at a time. Pure.

A request costs ``sum(ratio * cost)`` over its kinds. Only the sum is ever counted, so each count
moves the ratios of the kinds that it had, most of all those that are large and in doubt: recursive
least squares (a Kalman filter), with three guards. A count that no ratios could explain is left
out; one count moves the sum by a bounded share; a ratio never leaves its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

__all__ = ["Bounds", "Calibration"]

_NOISE = 0.1  # of a count that all ratios explain: the share by which it is off all the same
_DRIFT = 0.01  # doubt that each request adds to the kinds it has, so that nothing is final
_STEP_MAX = 0.5  # of the estimate: the largest difference that one count is believed
_SLACK_TOKENS = 500  # that an endpoint may add by itself, such as instructions of its own


class Bounds(NamedTuple):
    """Where a ratio may go, and how far from 1 it is expected at first."""

    low: float
    high: float
    doubt: float


class Calibration:
    """The ratios of one model; all are 1 until something is learned."""

    __slots__ = ("_bounds", "_doubts", "ratios")

    def __init__(self, bounds: Sequence[Bounds]) -> None:
        size = range(len(bounds))
        self._bounds = bounds
        self.ratios = [1.0] * len(bounds)
        self._doubts = [[bounds[i].doubt ** 2 if i == j else 0.0 for j in size] for i in size]

    def learn(self, costs: Sequence[float], counted: int) -> None:
        """Take in that `costs` were counted as `counted` tokens together."""
        estimate = sum(map(mul, self.ratios, costs))
        if estimate <= 0 or not self._is_plausible(costs, counted):
            return
        # A kind that no request had yet has no share in any doubt but its own, and stays.
        pull = [sum(map(mul, row, costs)) for row in self._doubts]
        variance = sum(map(mul, pull, costs)) + (_NOISE * estimate) ** 2 + 1
        limit = _STEP_MAX * estimate
        difference = counted - estimate
        is_explained = abs(difference) <= limit
        difference = max(-limit, min(difference, limit))
        for kind, (low, high, doubt) in enumerate(self._bounds):
            share = pull[kind] / variance
            self.ratios[kind] = max(low, min(self.ratios[kind] + share * difference, high))
            if is_explained:  # else there is as much doubt as before
                row = self._doubts[kind]
                row[:] = [r - share * p for r, p in zip(row, pull, strict=True)]
                row[kind] = min(row[kind] + _DRIFT**2, doubt**2)

    def _is_plausible(self, costs: Sequence[float], counted: int) -> bool:
        """Whether some ratios within their bounds, and half as much again, explain the count."""
        least = sum(bounds.low * cost for bounds, cost in zip(self._bounds, costs, strict=True))
        most = sum(bounds.high * cost for bounds, cost in zip(self._bounds, costs, strict=True))
        return least / 1.5 <= counted <= most * 1.5 + _SLACK_TOKENS

"""Window strategies: which turns of a thread a call shows. Plain and pure, over loaded turns."""

from __future__ import annotations

from collections.abc import Sequence

from turngate.errors import InvalidValue
from turngate.turns import Turn

__all__ = ["RecentWindow", "current_exchange_start"]


class RecentWindow:
    """The last `turns` turns, the current one included.

    The cut is never inside the current exchange, which is shown whole however long it is, and
    never inside a tool exchange: a result whose call fell out goes with it.
    Errors: fewer than one turn is an `InvalidValue`.
    """

    def __init__(self, *, turns: int) -> None:
        if turns < 1:
            raise InvalidValue("a window shows at least one turn")
        self.turns = turns

    @property
    def load_limit(self) -> int:
        return self.turns

    def select(self, turns: Sequence[Turn]) -> list[Turn]:
        """The part of `turns` (oldest first, the current exchange last) that is shown."""
        current = current_exchange_start(turns)
        start = min(max(len(turns) - self.turns, 0), current)
        while start < current and turns[start].role == "tool":
            start += 1
        return list(turns[start:])


def current_exchange_start(turns: Sequence[Turn]) -> int:
    """The index of the last user turn of `turns` (0 if there is none)."""
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].role == "user":
            return index
    return 0

"""Window strategies: which turns of a thread a call shows. Plain and pure, over loaded turns.

Both take turns oldest first, the current exchange last, with `first` as the position of the first
of them in its thread. What they have in common:

- The current exchange is shown whole. With a budget of tokens its longest tool results are
  shortened if it would not fit alone; if that is not enough, it is refused.
- A window never opens between a tool call and its results. It opens with a user turn: a recent one
  unless that would leave nothing before the current exchange, one with a summary if there is a
  user turn in its first step.
- A deleted turn keeps its place in the thread, is not shown, and costs no tokens. So a window
  reads a bounded number of rows, however many turns were deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from turngate.context.shortening import shortened
from turngate.context.tokens import TokenEstimator
from turngate.errors import InvalidValue
from turngate.protocols import TokenCounter
from turngate.turns import Turn

__all__ = ["RecentWindow", "SummaryWindow", "current_exchange_start", "opens_exchange"]

_TURNS_MAX = 200  # that a window limited by tokens alone reads and shows
_TURN_TOKENS = 4  # that a message costs at least, with its frame


class RecentWindow:
    """The last `turns` turns, the current one included, or the last `tokens` tokens, or what
    both allow. By tokens alone it is 200 turns at most, and one for every four tokens.

    Units: `counter` counts the tokens of the turns; instructions and tools are not among them.
    Errors: no limit at all, or one below 1, is an `InvalidValue`.
    """

    def __init__(
        self,
        *,
        turns: int | None = None,
        tokens: int | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if turns is None and tokens is None:
            raise InvalidValue("a window needs a limit: turns, tokens, or both")
        if turns is not None and turns < 1:
            raise InvalidValue("a window shows at least one turn")
        self.turns = turns
        self._budget = None if tokens is None else _Budget(tokens, counter)

    @property
    def load_limit(self) -> int:
        """How many of the newest turns `select` needs at most."""
        if self.turns is not None:
            return self.turns
        assert self._budget is not None, "a window has a limit"
        return min(_TURNS_MAX, max(1, self._budget.tokens // _TURN_TOKENS))

    def select(self, turns: Sequence[Turn], *, first: int = 0) -> list[Turn]:
        """The part of `turns` that is shown.

        Errors: `InvalidValue` where the current exchange can't be brought within the tokens.
        """
        current = current_exchange_start(turns)
        cut = min(max(len(turns) - self.load_limit, 0), current)
        if self._budget is not None:
            cut = self._budget.earliest_cut(turns, lowest=cut, current=current)
        if first + cut > 0:
            cut = _opening(turns, cut, users_until=current, current=current)
        return _shown(turns, cut, current, self._budget)


class SummaryWindow:
    """The newest turns of a thread whose older ones a summary stands in for.

    The window moves in steps: it begins at a position that is a multiple of `step`, and stays
    there while the thread grows, so that what was shown before is a prefix of what is shown next
    and a provider's prompt cache stays warm. It shows at most `turns` turns and more than
    ``turns - step``, less those before its first user turn. With `tokens` it takes further whole
    steps until the rest fits; where a single step does not fit, only the current exchange is left.

    Units: `counter` counts the tokens of the turns; instructions and tools are not among them.
    Errors: a step that is not between 1 and ``turns - 1``, or tokens below 1, is an `InvalidValue`.
    """

    def __init__(
        self,
        *,
        turns: int = 40,
        step: int = 20,
        tokens: int | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if not 1 <= step < turns:
            raise InvalidValue("a window's step is at least 1, and less than its turns")
        self.turns = turns
        self.step = step
        self._budget = None if tokens is None else _Budget(tokens, counter)

    @property
    def load_limit(self) -> int:
        """How many of the newest turns `select` needs at most."""
        return self.turns

    def summary_upto(self, turns: Sequence[Turn], *, first: int = 0) -> int:
        """The position at which the window begins: a summary stands in for all turns below it."""
        current = current_exchange_start(turns)
        lowest = 0
        if self._budget is not None:
            lowest = self._budget.earliest_cut(turns, lowest=0, current=current)
        # Rounded up, so that there are never more than `turns`.
        position = max(0, -((self.turns - first - len(turns)) // self.step) * self.step)
        while True:
            cut = self._cut(turns, position, first=first, current=current)
            if cut >= lowest:
                return first + cut
            position += self.step

    def select(self, turns: Sequence[Turn], *, first: int = 0) -> list[Turn]:
        """The part of `turns` that is shown.

        Errors: `InvalidValue` where the current exchange can't be brought within the tokens.
        """
        cut = self.summary_upto(turns, first=first) - first
        return _shown(turns, cut, current_exchange_start(turns), self._budget)

    def _cut(self, turns: Sequence[Turn], position: int, *, first: int, current: int) -> int:
        """The index of the first turn that is shown by a window that begins at `position`."""
        cut = max(position - first, 0)
        if first + cut > 0:
            # Only turns that are there for as long as the window stands may decide where it opens.
            users_until = cut + min(self.step, self.turns - self.step)
            cut = _opening(turns, cut, users_until=users_until, current=current)
        return min(cut, current)


class _Budget:
    """A number of tokens, and who counts them."""

    def __init__(self, tokens: int, counter: TokenCounter | None) -> None:
        if tokens < 1:
            raise InvalidValue("a window shows at least one token")
        self.tokens = tokens
        self.counter = counter if counter is not None else TokenEstimator()

    def earliest_cut(self, turns: Sequence[Turn], *, lowest: int, current: int) -> int:
        """The lowest index from which on `turns` fit; `current` if only that, or not even that."""
        left = self.tokens - sum(self._cost(turn) for turn in turns[current:])
        cut = current
        while cut > lowest and (left := left - self._cost(turns[cut - 1])) >= 0:
            cut -= 1
        return cut

    def _cost(self, turn: Turn) -> int:
        return 0 if turn.status == "deleted" else self.counter.count_turn(turn)


def current_exchange_start(turns: Sequence[Turn]) -> int:
    """The index of the turn with which the last exchange of `turns` begins (0 if there is none)."""
    for index in range(len(turns) - 1, -1, -1):
        if opens_exchange(turns[index]):
            return index
    return 0


def _opening(turns: Sequence[Turn], cut: int, *, users_until: int, current: int) -> int:
    """Where a window opens that was cut at `cut`: at the first user turn before `users_until`.

    If there is none, an answer without its question is better than nothing, so it opens with the
    next turn that is not a tool turn, and with the current exchange at the latest.
    """
    for index in range(cut, min(users_until, len(turns))):
        if opens_exchange(turns[index]):
            return index
    while cut < current and (turns[cut].role == "tool" or turns[cut].status == "deleted"):
        cut += 1
    return cut


def opens_exchange(turn: Turn) -> bool:
    """Whether an exchange begins with `turn`: a user turn that is not deleted."""
    return turn.role == "user" and turn.status != "deleted"


def _shown(turns: Sequence[Turn], cut: int, current: int, budget: _Budget | None) -> list[Turn]:
    """What is shown of `turns` from `cut` on; from before `current` on it is known to fit."""
    shown = [turn for turn in turns[cut:] if turn.status != "deleted"]
    if budget is None or cut < current:
        return shown
    return shortened(shown, budget.tokens, budget.counter)

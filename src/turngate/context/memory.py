"""The working memory: a thread's window, read from the store, as messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turngate.context.shortening import kept_chars, with_results_cut
from turngate.context.tokens import TokenEstimator
from turngate.context.windows import RecentWindow, opens_exchange
from turngate.errors import InvalidValue
from turngate.messages import Message
from turngate.protocols import ThreadStore, TokenCounter, Window, WindowStrategy
from turngate.records import Scope, Span
from turngate.turn_builder import TurnBuilder
from turngate.turns import Part, TextPart, Turn
from turngate.values import file_line

__all__ = ["ThreadMemory"]


class ThreadMemory:
    """Windows over a `ThreadStore`: O(window) rows at any length of the thread.

    It reads the strategy's `load_limit` rows, and more only where the current exchange is stored
    and longer than that: up to twice its rows. Files of earlier turns are named in a line each.
    """

    def __init__(
        self,
        *,
        store: ThreadStore,
        turn_builder: TurnBuilder,
        strategy: WindowStrategy,
        counter: TokenCounter | None = None,
        reasoning: bool = False,
    ) -> None:
        self._store = store
        self._turn_builder = turn_builder
        self._strategy = strategy
        self._counter = counter if counter is not None else TokenEstimator(reasoning=reasoning)
        self._reasoning = reasoning

    async def window(
        self,
        scope: Scope,
        thread: str,
        *,
        current: Turn | None,
        before: int | None = None,
        tokens: int | None = None,
        model: str | None = None,
    ) -> Window:
        """The window with `current` at its end; a missing thread shows `current` alone."""
        page = await self._store.load(scope, thread, before=before, limit=self._strategy.load_limit)
        turns, first = list(page.turns), page.first
        if current is not None:
            turns.append(current)
        # The current exchange may be stored, and have begun before the rows that were read.
        while first > 0 and not any(map(opens_exchange, turns)):
            older = await self._store.load(scope, thread, before=first, limit=len(turns))
            turns[:0] = older.turns
            first = older.first
        chosen = self._strategy.select(turns, first=first)
        if tokens is not None:
            chosen = self._within(tokens, chosen, turns, model)
        stored = chosen[:-1] if current is not None else chosen
        counts = [self._counter.count_turn(turn, model=model) for turn in chosen]
        return Window(
            messages=self._messages(chosen, current),
            length=page.length,
            shown=_span(stored, turns, first),
            result_chars=kept_chars(turns, chosen),
            tokens=sum(counts),
        )

    def _within(
        self, tokens: int, chosen: list[Turn], turns: Sequence[Turn], model: str | None
    ) -> list[Turn]:
        """`chosen` of `turns`, if it fits; else those of its turns, whole, that a window takes."""
        if tokens < 1:
            raise InvalidValue("nothing is left of the context for the window")
        if sum(self._counter.count_turn(turn, model=model) for turn in chosen) <= tokens:
            return chosen
        ids = {turn.id for turn in chosen}
        whole = [turn for turn in turns if turn.id in ids]
        return RecentWindow(tokens=tokens, counter=self._counter).select(whole, first=1)

    async def shown_again(
        self,
        scope: Scope,
        thread: str,
        *,
        shown: Span | None,
        current: Turn | None,
        result_chars: int | None,
    ) -> tuple[Message, ...]:
        """The messages of a window that was shown before, but for what was deleted since."""
        turns: list[Turn] = []
        if shown is not None:
            end = shown.first + shown.count
            page = await self._store.load(scope, thread, before=end, limit=shown.count)
            turns += page.turns
        turns += [current] if current is not None else []
        if result_chars is not None:
            turns = with_results_cut(turns, result_chars)
        return self._messages(turns, current)

    def _messages(self, turns: Sequence[Turn], current: Turn | None) -> tuple[Message, ...]:
        last = len(turns) - 1 if current is not None else None
        named = [turn if place == last else _files_named(turn) for place, turn in enumerate(turns)]
        return tuple(self._turn_builder.to_messages(named, reasoning=self._reasoning))


def _span(stored: Sequence[Turn], turns: Sequence[Turn], first: int) -> Span | None:
    """The positions of the turns that are shown; those between that were deleted are among them."""
    places = {turn.id: place for place, turn in enumerate(turns, first)}
    shown = [places[turn.id] for turn in stored if turn.id in places]
    return Span(shown[0], shown[-1] + 1 - shown[0]) if shown else None


def _files_named(turn: Turn) -> Turn:
    """`turn` with a line in place of each file: its bytes are shown with its own call alone."""
    if not any(part.type == "file" for part in turn.parts):
        return turn
    return msgspec.structs.replace(turn, parts=tuple(map(_named, turn.parts)))


def _named(part: Part) -> Part:
    if part.type != "file":
        return part
    return TextPart(file_line(part.file, "not shown any more"))

"""The working memory: a thread's window, read from the store, as messages."""

from __future__ import annotations

from turngate.protocols import ThreadStore, Window, WindowStrategy
from turngate.records import Scope
from turngate.turn_builder import TurnBuilder
from turngate.turns import Turn

__all__ = ["ThreadMemory"]


class ThreadMemory:
    """Windows over a `ThreadStore`: O(window) rows at any length of the thread."""

    def __init__(
        self,
        *,
        store: ThreadStore,
        turn_builder: TurnBuilder,
        strategy: WindowStrategy,
        reasoning: bool = False,
    ) -> None:
        self._store = store
        self._turn_builder = turn_builder
        self._strategy = strategy
        self._reasoning = reasoning

    async def window(
        self, scope: Scope, thread: str, *, current: Turn | None, before: int | None = None
    ) -> Window:
        """The window with `current` at its end; a missing thread shows `current` alone."""
        page = await self._store.load(scope, thread, before=before, limit=self._strategy.load_limit)
        turns = list(page.turns)
        if current is not None:
            turns.append(current)
        else:
            # The current exchange is stored, and may have begun before the window.
            first = page.first
            while first > 0 and not any(turn.role == "user" for turn in turns):
                older = await self._store.load(
                    scope, thread, before=first, limit=self._strategy.load_limit
                )
                turns[:0] = older.turns
                first = older.first
        messages = self._turn_builder.to_messages(
            self._strategy.select(turns), reasoning=self._reasoning
        )
        return Window(messages=tuple(messages), length=page.length)

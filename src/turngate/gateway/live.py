"""A call while it runs: its events, its readers, and the way to cancel it.

    begun() ─► observe(part)* ─► settled(outcome) | failed(error)

A live call belongs to the gateway. Readers come and go, and each follows the list of events from
the position where it joins; none of them holds the call up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar, assert_never

from turngate.completion import FunctionCallDelta, ModelPart, ReasoningDelta
from turngate.gateway.events import Event, ReasoningEvent, Settled, TextEvent
from turngate.gateway.outcomes import Outcome
from turngate.results import ModelResult

__all__ = ["LiveCall"]

T = TypeVar("T")


class LiveCall:
    """One call's life in this process."""

    def __init__(self) -> None:
        self.call_id: str | None = None
        self.cancel_reason: str | None = None
        self._events: list[Event] = []
        self._ended = False
        self._error: BaseException | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._model: asyncio.Task[Any] | None = None

    # ── the gateway's side ───────────────────────────────────────────────────────────────────

    def begun(self, call_id: str) -> None:
        self.call_id = call_id
        self._wake()

    def observe(self, part: ModelPart) -> None:
        """Hand a part of the model on to the readers."""
        if type(part) is str:
            if part:
                self._add(TextEvent(part))
            return
        match part:
            case str():
                self._add(TextEvent(part))
            case ReasoningDelta():
                self._add(ReasoningEvent(part.text))
            case FunctionCallDelta():
                pass  # an ask's calls are shown whole, in its outcome
            case _:
                assert_never(part)

    def settled(self, outcome: Outcome) -> None:
        self._ended = True
        self._add(Settled(outcome))

    def failed(self, error: BaseException) -> None:
        self._ended = True
        self._error = error
        self._wake()

    @property
    def said(self) -> ModelResult:
        """What the model said so far; of unknown model and usage, and without its calls."""
        reasoning = "".join(e.text for e in self._events if type(e) is ReasoningEvent)
        return ModelResult(
            text="".join(e.text for e in self._events if type(e) is TextEvent),
            tool_calls=(),
            model=None,
            finish_reason=None,
            usage=None,
            reasoning=reasoning or None,
        )

    async def cancellable(self, model: Coroutine[Any, Any, T]) -> T:
        """The result of `model`, which `cancel` may end.

        Errors: `CancelledError` where it was cancelled, by `cancel` or with the calling task.
        """
        task = asyncio.get_running_loop().create_task(model)
        self._model = task
        if self.cancel_reason is not None:
            task.cancel()
        return await task

    # ── the readers' side ────────────────────────────────────────────────────────────────────

    def cancel(self, reason: str) -> None:
        """End the call: the model is left, what was said is settled. Later calls change nothing."""
        if self.cancel_reason is None and not self._ended:
            self.cancel_reason = reason
            if self._model is not None:
                self._model.cancel()

    async def until_begun(self) -> None:
        """Return once the call has begun, or raise what kept it from beginning."""
        while self.call_id is None and not self._ended:
            await self._change()
        if self.call_id is None and self._error is not None:
            raise self._error

    async def events(self) -> AsyncIterator[Event]:
        """The events from the first on; ends after `Settled`, or raises the call's error."""
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self._ended:
                break
            await self._change()
        if self._error is not None:
            raise self._error

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    def _add(self, event: Event) -> None:
        self._events.append(event)
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

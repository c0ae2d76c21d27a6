"""A call while it runs: its events, its readers, and the way to cancel it.

    begun() ─► observe(part)*, tool_started, tool_ended ─► settled(outcome) | failed(error)

A live call belongs to the gateway. Readers come and go, and each follows the list of events from
the number where it joins; none of them holds the call up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from turngate.completion import FunctionCallDelta, ModelPart, ReasoningDelta
from turngate.gateway.events import (
    Event,
    Held,
    ReasoningEvent,
    Settled,
    StoredEvent,
    TextEvent,
    ToolEnded,
    ToolStarted,
)
from turngate.gateway.outcomes import Outcome
from turngate.messages import ToolCall, ToolMessage
from turngate.records import EventBatch
from turngate.results import ModelResult

__all__ = ["LiveCall", "stored_events"]

T = TypeVar("T")

_EVENTS = msgspec.json.Decoder(list[StoredEvent])


class LiveCall:
    """One call's life in this process. `past` are the events of an earlier process's part."""

    def __init__(self, call_id: str, past: Sequence[StoredEvent] = ()) -> None:
        self.call_id = call_id
        self.has_begun = False
        self.cancel_reason: str | None = None
        self.is_left_on_closing = False
        self._events: list[Event] = list(past)
        self._stored = len(past)
        self._step_start = len(past)
        self._ended = False
        self._error: BaseException | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._work: asyncio.Task[Any] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._full: asyncio.Future[None] | None = None  # resolved once `_chars_left` is used up
        self._chars_left = 0

    # ── the gateway's side ───────────────────────────────────────────────────────────────────

    def begun(self) -> None:
        """The claim is durable."""
        self.has_begun = True
        self._wake()

    def new_step(self, at: int | None = None) -> None:
        """A further model call begins at event number `at` (None: now): `said` starts anew."""
        self._step_start = at if at is not None else len(self._events)

    def observe(self, part: ModelPart) -> None:
        """Hand a part of the model on to the readers."""
        if type(part) is str:
            if part:
                self._add(TextEvent(part))
            return
        if type(part) is ReasoningDelta:
            self._add(ReasoningEvent(part.text))
            return
        match part:
            case str():
                self._add(TextEvent(part))
            case ReasoningDelta():
                self._add(ReasoningEvent(part.text))
            case FunctionCallDelta():
                pass  # calls are shown whole: by `tool_started`, or in an ask's outcome
            case _:
                assert_never(part)

    def hold(self, part: ModelPart) -> None:
        """Tell the readers that the model speaks, and nothing of what it says."""
        if len(self._events) == self._step_start:
            self._add(Held())

    def show(self, result: ModelResult) -> None:
        """Hand on what was held back and has passed, in one piece."""
        if result.reasoning:
            self._add(ReasoningEvent(result.reasoning))
        if result.text:
            self._add(TextEvent(result.text))

    def tool_started(self, call: ToolCall) -> None:
        self._add(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))

    def tool_ended(self, result: ToolMessage) -> None:
        content = result.content if isinstance(result.content, str) else ""
        self._add(
            ToolEnded(
                call_id=result.call_id,
                name=result.name or "",
                content=content,
                is_error=result.is_error,
            )
        )

    def settled(self, outcome: Outcome) -> None:
        self._ended = True
        self._add(Settled(outcome))

    def failed(self, error: BaseException) -> None:
        self._ended = True
        self._error = error
        self._wake()

    @property
    def count(self) -> int:
        """How many events there are; also the number of the next one."""
        return len(self._events)

    @property
    def said(self) -> ModelResult:
        """What the model said in its present step; of unknown model and usage, without calls."""
        step = self._events[self._step_start :]
        reasoning = "".join(event.text for event in step if type(event) is ReasoningEvent)
        return ModelResult(
            text="".join(event.text for event in step if type(event) is TextEvent),
            tool_calls=(),
            model=None,
            finish_reason=None,
            usage=None,
            reasoning=reasoning or None,
        )

    async def cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which `cancel` may end.

        Errors: `CancelledError` where it was cancelled, by `cancel` or with the calling task.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._work = task
        if self.cancel_reason is not None:
            task.cancel()
        return await task

    def stop_after(self, seconds: float | None, reason: str = "") -> None:
        """Cancel for `reason` once `seconds` are over; None takes the deadline away."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(max(seconds, 0.0), self.cancel, reason)

    # ── events for the store ─────────────────────────────────────────────────────────────────

    def taken_events(self) -> tuple[EventBatch, ...]:
        """The events that no commit has taken yet, as one batch; they count as taken now."""
        first, self._stored = self._stored, len(self._events)
        pending = [event for event in self._events[first:] if not isinstance(event, Settled)]
        if not pending:
            return ()
        return (EventBatch(first, msgspec.json.encode(pending).decode()),)

    def not_stored(self, batches: Sequence[EventBatch]) -> None:
        """The commit that took `batches` failed: the next one takes their events again."""
        if batches:
            self._stored = min(self._stored, batches[0].first)

    async def pending_events(self, *, within_s: float, chars_max: int) -> None:
        """Return `within_s` after an unstored event came, or after `chars_max` of text."""
        while len(self._events) == self._stored:
            await self._change()
        self._chars_left = chars_max
        self._full = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._full}, timeout=within_s)
        self._full = None

    # ── the readers' side ────────────────────────────────────────────────────────────────────

    def cancel(self, reason: str) -> None:
        """End the call: the model is left, what was said is settled. Later calls change nothing."""
        if self.cancel_reason is None and not self._ended:
            self.cancel_reason = reason
            if self._work is not None:
                self._work.cancel()

    async def until_begun(self) -> None:
        """Return once the call has begun, or raise what kept it from beginning."""
        while not self.has_begun and not self._ended:
            await self._change()
        if not self.has_begun and self._error is not None:
            raise self._error

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """The events from number `after` on; ends after `Settled`, or raises the call's error."""
        position = after
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
        if self._full is not None and isinstance(event, TextEvent | ReasoningEvent):
            self._chars_left -= len(event.text)
            if self._chars_left <= 0 and not self._full.done():
                self._full.set_result(None)

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


def stored_events(batches: Sequence[EventBatch]) -> list[StoredEvent]:
    """The events of `batches`, in their order.

    Batches may overlap: a commit that failed while a later one succeeded is made up for by a batch
    that holds the events of both.
    """
    events: list[StoredEvent] = []
    for batch in sorted(batches, key=lambda batch: batch.first):
        known = max(len(events) - batch.first, 0)
        events += _EVENTS.decode(batch.body)[known:]
    return events

"""One question to a thread and its streamed answer, as the main thread sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import get_args

from turngate.cli.loop import LoopThread, first_interrupt_calls
from turngate.completion import CallOptions
from turngate.errors import ProviderCode
from turngate.gateway import Event, Incomplete, Outcome, Thread

__all__ = ["Exchange", "ask"]

# A signal that comes just before a wait begins is not noticed until the wait ends.
_WAKE_S = 0.2

_FAILURES = {*get_args(ProviderCode), "policy"}


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """How one question ended.

    Shapes: `outcome` None: it was stopped before the call had begun. Units: `seconds` from the
    question to the settle.
    """

    outcome: Outcome | None
    stopped: bool
    seconds: float

    @property
    def cut_off(self) -> bool:
        """Whether the model's side failed amid the answer."""
        return isinstance(self.outcome, Incomplete) and self.outcome.reason in _FAILURES


def ask(
    loop: LoopThread,
    thread: Thread,
    prompt: str,
    *,
    options: CallOptions,
    show: Callable[[Event], None],
) -> Exchange:
    """Ask, and hand each event to `show` as it comes. The first Ctrl-C stops the answer.

    Errors: those of `Thread.stream_ask`; a second Ctrl-C is a `KeyboardInterrupt`.
    """
    started = time.monotonic()
    events: SimpleQueue[Event | None] = SimpleQueue()
    stop = asyncio.Event()
    answering = loop.submit(_answered(thread, prompt, options, events.put, stop))
    answering.add_done_callback(lambda _: events.put(None))
    with first_interrupt_calls(lambda: loop.call(stop.set)):
        for event in _until_none(events):
            show(event)
        outcome = answering.result()
    seconds = time.monotonic() - started
    return Exchange(outcome=outcome, stopped=stop.is_set(), seconds=seconds)


def _until_none(events: SimpleQueue[Event | None]) -> Iterator[Event]:
    while True:
        try:
            event = events.get(timeout=_WAKE_S)
        except Empty:
            continue
        if event is None:
            return
        yield event


async def _answered(
    thread: Thread,
    prompt: str,
    options: CallOptions,
    put: Callable[[Event], None],
    stop: asyncio.Event,
) -> Outcome | None:
    """The outcome of one call, whose events go to `put`; `stop` cancels it."""
    stream = thread.stream_ask(prompt, options=options)

    async def read() -> None:
        async with stream as events:
            async for event in events:
                put(event)

    reading = asyncio.create_task(read())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not reading.done():
            reading.cancel()
            # Leaving the stream waits until what was said is settled.
            await asyncio.wait({reading})
    with suppress(asyncio.CancelledError):
        await reading
    return stream.outcome

"""The event loop of a conversation, in a thread of its own.

The main thread keeps what needs it, the terminal's input and Ctrl-C, while the loop goes on
serving its connections.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

T = TypeVar("T")

# A signal that comes just before a wait begins is not noticed until the wait ends.
_WAKE_S = 0.2


class LoopThread:
    """A running event loop, entered and left by the main thread; it is uvloop's if installed."""

    def __enter__(self) -> Self:
        try:
            import uvloop
        except ImportError:
            self._loop = asyncio.new_event_loop()
        else:
            self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. The first Ctrl-C cancels it, and a second one gives up on it.

        Errors: those of `work`; `KeyboardInterrupt` once it has ended as cancelled.
        """
        started: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def start() -> None:
            started.append(self._loop.create_task(work))
            started[0].add_done_callback(lambda _: ended.set())

        self._loop.call_soon_threadsafe(start)
        interrupted = False
        while not ended.is_set():
            try:
                ended.wait(_WAKE_S)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                self._loop.call_soon_threadsafe(lambda: started[0].cancel())
        if started[0].cancelled():
            raise KeyboardInterrupt
        return started[0].result()

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """`context`, entered and left on the loop."""
        value = self.wait(context.__aenter__())
        try:
            yield value
        finally:
            self.wait(context.__aexit__(None, None, None))


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """A request to end (SIGTERM, SIGHUP) leaves every context, so that what was said is kept."""

    def end(signal_number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signal_number)

    names = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)

"""The event loop of a command, in a thread of its own.

The main thread keeps what needs it, the terminal's input and Ctrl-C, while the loop goes on
serving its connections.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

__all__ = ["LoopThread", "ending_on_signals", "first_interrupt_calls"]

T = TypeVar("T")


class LoopThread:
    """A running event loop, entered and left by the main thread; it is uvloop's if installed."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turngate-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.call(self._done.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._until_done())

    async def _until_done(self) -> None:
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._done.wait()

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call `function` soon."""
        self._loop.call_soon_threadsafe(function)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of `coroutine`, which is cancelled if Ctrl-C ends the waiting."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """`context`, entered and left on the loop."""
        value = self.wait(context.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.wait(context.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(context.__aexit__(None, None, None))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextmanager
def first_interrupt_calls(action: Callable[[], object]) -> Iterator[None]:
    """The first Ctrl-C within calls `action`; another one is a `KeyboardInterrupt` again."""

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        action()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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

"""Threads for tools that block: counted, capped, and never waited for at exit.

A Python thread can't be stopped. One whose function hangs past its time limit goes on holding its
place, so that a tool which hangs for ever uses up places and not the process: once all are taken,
a further call is refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from turngate.errors import ToolError

__all__ = ["ToolThreads"]


class ToolThreads:
    """At most `threads_max` blocking calls at a time; `busy` counts them, hung ones too."""

    def __init__(self, threads_max: int = 32) -> None:
        self.threads_max = threads_max
        self.busy = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """What `function` gives, run in a thread of its own.

        Errors: `ToolError` where every place is taken; what `function` raises. A cancelled caller
        leaves the thread to end by itself.
        """
        if self.busy >= self.threads_max:
            raise ToolError(f"all {self.threads_max} threads for blocking tools are taken")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        self.busy += 1

        def report(value: Any, error: BaseException | None) -> None:
            self.busy -= 1
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        def work() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(function)
            except StopIteration as raised:  # which no future may hold
                error = RuntimeError("the function raised StopIteration")
                error.__cause__ = raised
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits any more
                loop.call_soon_threadsafe(report, value, error)

        threading.Thread(target=work, name="turngate-tool", daemon=True).start()
        return await done

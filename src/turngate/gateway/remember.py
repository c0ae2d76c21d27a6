"""What is remembered is written after a call has settled, in tasks of the gateway's own.

No caller waits for it and none meets its errors. Of one thread one task works at a time, and of a
gateway few, so that helper calls don't crowd out those that somebody waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakValueDictionary

from turngate.errors import TurngateError
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.learning import learn
from turngate.gateway.summarizing import summarize
from turngate.records import Scope

__all__ = ["Remembering"]

_THREADS_MAX = 4


class Remembering:
    """The helper calls of one gateway: ``after* aclose``."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._tasks: set[asyncio.Task[None]] = set()
        self._of_thread: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(_THREADS_MAX)
        self._closed = False

    def after(self, scope: Scope, call_id: str) -> None:
        """Write what can be learnt now that this call has settled; returns at once."""
        if self._closed or self._deps.remember is None:
            return
        task = asyncio.get_running_loop().create_task(self._remembered(scope, call_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Return once nothing is being written."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def aclose(self) -> None:
        """Cancel what is under way and return once it has ended; nothing begins any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await self.finished()

    async def _remembered(self, scope: Scope, call_id: str) -> None:
        remember = self._deps.remember
        assert remember is not None
        # A store that fails has told the callers; here it only means that nothing was written.
        with contextlib.suppress(TurngateError):
            thread = (await self._deps.store.call(scope, call_id)).thread
            lock = self._of_thread.setdefault((scope.tenant, thread), asyncio.Lock())
            async with lock, self._places:
                if remember.summary:
                    await summarize(self._deps, scope, thread)
                if remember.facts:
                    await learn(self._deps, scope, thread)

"""The gateway: what a program holds. Gateway → Tenant → Thread → a call and its stream.

A call runs in a task of the gateway's own. Whoever awaits it may be cancelled or go away: the call
is then cancelled, and settled all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from turngate import identity
from turngate.completion import CallOptions
from turngate.errors import RequestError
from turngate.gateway.asks import Ask, execute_ask
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import Event, Settled
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.settle import settle_lost
from turngate.records import (
    Change,
    Scope,
    ThreadPage,
    ThreadRecord,
    TurnPage,
    checked_thread_id,
)
from turngate.values import ToolSpec, storable_text

__all__ = ["AIGateway", "CallStream", "Gateway", "Tenant", "Thread"]


class Gateway:
    """The calls of one process over one store. It belongs to the event loop that opened it."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[Outcome], LiveCall] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def recover(self) -> int:
        """How many calls of dead processes were settled as incomplete/interrupted."""
        lost = await self._deps.store.lost_calls(self._deps.owner)
        for call in lost:
            await settle_lost(self._deps, call.scope, call.call)
        return len(lost)

    async def aclose(self) -> None:
        """Cancel the running calls and return once they are settled. The store stays open."""
        if self._closed:
            return
        self._closed = True
        for live in self._running.values():
            live.cancel("gateway_closed")
        await asyncio.gather(*self._running, return_exceptions=True)

    def tenant(self, tenant: str) -> Tenant:
        """The handle of one tenant; every call below it is made in its name alone."""
        return Tenant(self, Scope(tenant))

    def _start(self, ask: Ask) -> tuple[asyncio.Task[Outcome], LiveCall]:
        """Run `ask` in a task of the gateway's own."""
        if asyncio.get_running_loop() is not self._loop:
            raise RequestError("a gateway works on the event loop that opened it alone")
        if self._closed:
            raise RequestError("the gateway is closed")
        live = LiveCall()
        task = self._loop.create_task(_lived(self._deps, ask, live))
        self._running[task] = live
        task.add_done_callback(self._running.pop)
        return task, live


AIGateway = Gateway


class Tenant:
    """One tenant's threads."""

    def __init__(self, gateway: Gateway, scope: Scope) -> None:
        self._gateway = gateway
        self._scope = scope

    def thread(self, thread: str | None = None, *, user: str | None = None) -> Thread:
        """The handle of a thread, which begins with its first answer; None makes a new id.

        `user` is the subject of what is remembered. Errors: `InvalidValue` for an id that is not
        1 to 128 of ``A-Za-z0-9._:-``.
        """
        thread_id = thread if thread is not None else identity.new_id("thread")
        return Thread(self._gateway, self._scope, checked_thread_id(thread_id), user=user)

    async def threads(self, *, after: str | None = None, limit: int = 50) -> ThreadPage:
        """The tenant's threads, last changed first; `after` is a page's `next`."""
        return await self._gateway._deps.store.threads(self._scope, after=after, limit=limit)


class Thread:
    """One thread: ask it, stream from it, read it."""

    def __init__(self, gateway: Gateway, scope: Scope, thread: str, *, user: str | None) -> None:
        self.id = thread
        self._gateway = gateway
        self._scope = scope
        self._user = user

    async def ask(
        self,
        prompt: str | None,
        *,
        tools: Sequence[ToolSpec] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
    ) -> Outcome:
        """One model call; tool calls come back unexecuted. Returns once the outcome is durable.

        Errors: `ThreadBusy`, `InvalidValue`, `StoreError`; `ProviderError` or `PolicyStopped`
        where the model failed before its first part, and the thread is then as it was. A
        cancelled caller leaves the call settled as incomplete.
        """
        task, live = self._gateway._start(self._ask(prompt, tools, instructions, options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            live.cancel("cancelled")
            await _settled_quietly(task)
            raise

    def stream_ask(
        self,
        prompt: str | None,
        *,
        tools: Sequence[ToolSpec] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
    ) -> CallStream:
        """The same call as a stream: ``async with thread.stream_ask(…) as events``."""
        ask = self._ask(prompt, tools, instructions, options)
        return CallStream(lambda: self._gateway._start(ask))

    async def turns(self, *, before: int | None = None, limit: int = 50) -> TurnPage:
        """The last `limit` turns below position `before` (None: the end), oldest first."""
        return await self._gateway._deps.store.load(
            self._scope, self.id, before=before, limit=limit
        )

    async def record(self) -> ThreadRecord:
        """The thread without its turns. Errors: `ThreadNotFound`."""
        return await self._gateway._deps.store.thread(self._scope, self.id)

    async def create(self, *, title: str | None = None) -> ThreadRecord:
        """The thread, begun if it was missing; a title that is given is set."""
        title = storable_text(title) if title is not None else None
        change = Change(
            thread=self.id, at=identity.now(), create=True, title=title, user=self._user
        )
        await self._gateway._deps.store.commit(self._scope, change)
        return await self.record()

    def _ask(
        self,
        prompt: str | None,
        tools: Sequence[ToolSpec],
        instructions: str | None,
        options: CallOptions | None,
    ) -> Ask:
        return Ask(
            scope=self._scope,
            thread=self.id,
            prompt=prompt,
            user=self._user,
            instructions=instructions,
            tools=tuple(tools),
            options=options if options is not None else CallOptions(),
        )


class CallStream:
    """A running call as a context: its events, and afterwards its `outcome`.

    Entering starts the call and returns once it has begun. Leaving before the end cancels it and
    returns once what was said is settled.
    Errors: entering raises what keeps the call from beginning; iterating raises what makes it
    fail.
    """

    def __init__(self, start: Callable[[], tuple[asyncio.Task[Outcome], LiveCall]]) -> None:
        self._start = start
        self.outcome: Outcome | None = None
        self.call_id: str | None = None

    async def __aenter__(self) -> Self:
        self._task, self._live = self._start()
        try:
            await self._live.until_begun()
        except asyncio.CancelledError:
            self._live.cancel("cancelled")
            await _settled_quietly(self._task)
            raise
        self.call_id = self._live.call_id
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events from the first on."""
        async for event in self._live.events():
            if isinstance(event, Settled):
                self.outcome = event.outcome
            yield event

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.cancel("cancelled" if kind is asyncio.CancelledError else "reader_gone")
        await _settled_quietly(self._task)
        if self.outcome is None and not self._task.cancelled() and not self._task.exception():
            self.outcome = self._task.result()


async def _lived(deps: GatewayDeps, ask: Ask, live: LiveCall) -> Outcome:
    """`execute_ask`, whose end its readers learn of once it is durable."""
    try:
        outcome = await execute_ask(deps, ask, live=live)
    except BaseException as error:
        live.failed(error)
        raise
    live.settled(outcome)
    return outcome


async def _settled_quietly(task: asyncio.Task[Outcome]) -> None:
    """Wait until `task` has ended, however it ends; a further cancellation ends the waiting."""
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # it is the readers' to raise; here it only counts as seen

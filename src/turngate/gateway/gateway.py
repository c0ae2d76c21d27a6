"""The gateway: the calls of one process over one store.

A call runs in a task of the gateway's own. Whoever awaits it may be cancelled or go away: the call
is then cancelled (or goes on, where it was detached), and settled all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from turngate.errors import KeyReused, RequestError, UnknownCall
from turngate.gateway.asks import execute_ask
from turngate.gateway.calls import NewCall, body_hash
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import Event, Settled
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.outcomes import Outcome
from turngate.gateway.recovery import taken_over
from turngate.gateway.runs import Run, drive_run, execute_run
from turngate.gateway.settle import outcome_of, settle_lost
from turngate.gateway.tenants import Tenant
from turngate.protocols import Tool
from turngate.records import CallRecord, Scope

__all__ = ["AIGateway", "Gateway", "RunningCall"]


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call's task and its life. `joined`: another caller began it, and it goes on without us."""

    task: asyncio.Task[Outcome]
    live: LiveCall
    joined: bool = False


class Gateway:
    """The calls of one process over one store. It belongs to the event loop that opened it."""

    def __init__(self, deps: GatewayDeps) -> None:
        self.deps = deps
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[Outcome], LiveCall] = {}
        self._by_key: dict[tuple[str, str], tuple[str, RunningCall]] = {}
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

    def tenant(self, tenant: str) -> Tenant:
        """The handle of one tenant; every call below it is made in its name alone."""
        return Tenant(self, Scope(tenant))

    async def recover(self) -> int:
        """Take over or settle the calls of dead processes; gives how many there were."""
        lost = await self.deps.store.lost_calls(self.deps.owner)
        for call in lost:
            run = await taken_over(self.deps, call)
            if run is not None:
                self._spawn(_resumed(run), run.live)
        return len(lost)

    async def aclose(self) -> None:
        """Cancel the running calls and return once they are settled. The store stays open."""
        if self._closed:
            return
        self._closed = True
        for live in self._running.values():
            live.cancel("gateway_closed")
        # Not `gather`: whoever closes may be cancelled, and would cancel the settling with it.
        for task in (await asyncio.wait(self._running))[0] if self._running else ():
            if not task.cancelled():
                task.exception()  # it is the callers' to raise; here it only counts as seen

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    async def start(self, new: NewCall, tools: Mapping[str, Tool]) -> RunningCall:
        """The call of `new`, running; with a key that was used before, the call of that key.

        Errors: `KeyReused` where the key stands for another body; `RequestError` where the
        gateway is closed or belongs to another event loop.
        """
        self._check_open()
        if new.key is None:
            return self._started(new, tools)
        slot, hash_ = (new.scope.tenant, new.key), body_hash(new)
        if slot not in self._by_key:
            record = await self.deps.store.call_by_key(new.scope, new.key)
            if record is not None and slot not in self._by_key:
                if record.body_hash != hash_:
                    raise KeyReused(new.key, call_id=record.id)
                # It may run here all the same: taken over from a process that died.
                return self.live(record.id) or await self._ended(new.scope, record)
        if slot in self._by_key:
            begun_hash, running = self._by_key[slot]
            if begun_hash != hash_:
                raise KeyReused(new.key, call_id=running.live.call_id)
            return RunningCall(running.task, running.live, joined=True)
        self._check_open()  # it may have closed during the look-up
        running = self._started(new, tools)
        self._by_key[slot] = (hash_, running)
        running.task.add_done_callback(lambda _: self._by_key.pop(slot))
        return running

    def live(self, call_id: str) -> RunningCall | None:
        """The running call of this id, if it runs here."""
        for task, live in self._running.items():
            if live.call_id == call_id:
                return RunningCall(task, live, joined=True)
        return None

    async def outcome(self, scope: Scope, call_id: str) -> Outcome:
        """The outcome of a call: waits while it runs here. Errors: `UnknownCall`."""
        record = await self.deps.store.call(scope, call_id)
        running = self.live(call_id)
        if running is None:
            running = await self._ended(scope, record)
        return await asyncio.shield(running.task)

    async def cancel(self, scope: Scope, call_id: str) -> Outcome:
        """End a call that is active, wherever it stands; one that has ended gives its outcome."""
        while True:
            record = await self.deps.store.call(scope, call_id)
            running = self.live(call_id)
            if running is not None:
                running.live.cancel("cancelled")
                return await asyncio.shield(running.task)
            if record.state != "active":
                return await self.outcome(scope, call_id)
            with contextlib.suppress(UnknownCall):  # it ended, or was taken over, since it was read
                return await settle_lost(self.deps, scope, record, reason="cancelled")

    async def events(self, scope: Scope, call_id: str, after: int) -> AsyncIterator[Event]:
        """The events of a call from number `after` on: stored ones, then those that still come."""
        record = await self.deps.store.call(scope, call_id)
        running = self.live(call_id)
        if running is not None:
            async for event in running.live.events(after):
                yield event
            return
        for stored in stored_events(await self.deps.store.events(scope, call_id))[after:]:
            yield stored
        if record.state != "active":
            yield Settled(await outcome_of(self.deps, scope, record))

    def _started(self, new: NewCall, tools: Mapping[str, Tool]) -> RunningCall:
        live = LiveCall(new.id)
        if new.kind == "run":
            return self._spawn(execute_run(self.deps, new, tools=tools, live=live), live)
        return self._spawn(execute_ask(self.deps, new, live=live), live)

    async def _ended(self, scope: Scope, record: CallRecord) -> RunningCall:
        """The call of a record that does not run here, as one that has just ended."""
        while record.state == "active":
            if record.waiting_for:
                raise RequestError(
                    f"run {record.id!r} waits for {', '.join(record.waiting_for)}",
                    hint="Open a gateway that has them, or cancel the run.",
                )
            with contextlib.suppress(UnknownCall):  # another one ended it since it was read
                await settle_lost(self.deps, scope, record)
            record = await self.deps.store.call(scope, record.id)
        events = stored_events(await self.deps.store.events(scope, record.id))
        live = LiveCall(record.id, events)
        live.begun()
        running = self._spawn(outcome_of(self.deps, scope, record), live)
        return RunningCall(running.task, running.live, joined=True)

    def _spawn(self, work: Coroutine[Any, Any, Outcome], live: LiveCall) -> RunningCall:
        """Run `work` in a task of the gateway's own; its readers learn of its end."""
        task = self._loop.create_task(_lived(work, live))
        self._running[task] = live
        task.add_done_callback(self._running.pop)
        return RunningCall(task, live)

    def _check_open(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RequestError("a gateway works on the event loop that opened it alone")
        if self._closed:
            raise RequestError("the gateway is closed")


AIGateway = Gateway


async def _resumed(run: Run) -> Outcome:
    try:
        return await drive_run(run)
    finally:
        run.deps.live.discard(run.call.id)


async def _lived(work: Coroutine[Any, Any, Outcome], live: LiveCall) -> Outcome:
    """`work`, whose end the readers of `live` learn of once it is durable."""
    try:
        outcome = await work
    except BaseException as error:
        live.failed(error)
        raise
    live.settled(outcome)
    return outcome

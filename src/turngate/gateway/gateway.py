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

from turngate import identity
from turngate.errors import (
    InvalidValue,
    KeyReused,
    RequestError,
    ReviewDecided,
    ThreadBusy,
    UnknownCall,
)
from turngate.gateway.calls import NewCall, body_hash
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import Event, Settled
from turngate.gateway.files import SWEPT_AFTER_S, swept_files
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.loop import LEFT, Run, drive, execute_run
from turngate.gateway.outcomes import AwaitingReview, Outcome
from turngate.gateway.recovery import taken_over
from turngate.gateway.remember import Remembering
from turngate.gateway.reviews import Decision, decide, decided_before
from turngate.gateway.settle import outcome_of, settle_lost
from turngate.gateway.tenants import Tenant
from turngate.protocols import Tool
from turngate.records import CallRecord, ReviewRecord, Scope, Swept

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
        self._deciding: set[asyncio.Task[ReviewRecord]] = set()
        self._remembering = Remembering(deps)
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
            try:
                run = await taken_over(self.deps, call)
            except RequestError:  # another process has it, or it can't go on here
                continue
            if run is not None:
                self._spawn_resumed(run)
        return len(lost)

    async def sweep_reviews(self) -> int:
        """Do the default of every review whose deadline is over; gives how many there were."""
        overdue = await self.deps.store.overdue_reviews(identity.now())
        for each in overdue:
            with contextlib.suppress(ReviewDecided, ThreadBusy):  # a busy thread's turn comes later
                await self.decide(each.scope, each.review.id, None)
        return len(overdue)

    async def sweep_files(self, *, older_than_s: float = SWEPT_AFTER_S) -> Swept:
        """Remove what crashes left in the file store, of every tenant; gives what it was.

        Units: nothing younger than `older_than_s` seconds (an hour or more) is looked at, since
        its put may be under way. Errors: `InvalidValue`, `StoreError`.
        """
        return await swept_files(self.deps, older_than_s=older_than_s)

    async def remembered(self) -> None:
        """Return once no helper call is under way: what settled calls gave is remembered then, or
        the record of the helper call says why it is not."""
        await self._remembering.finished()

    async def aclose(self) -> None:
        """Cancel the running calls and return once they are settled. The store stays open.

        A run that was taken over, or that a decision let go on, is left to the next gateway.
        Helper calls are cancelled too: await `remembered` first to have what they would write.
        """
        if self._closed:
            return
        self._closed = True
        if self._deciding:
            await asyncio.wait(self._deciding)
        for live in self._running.values():
            live.cancel(LEFT if live.is_left_on_closing else "gateway_closed")
        # Not `gather`: whoever closes may be cancelled, and would cancel the settling with it.
        for task in (await asyncio.wait(self._running))[0] if self._running else ():
            if not task.cancelled():
                task.exception()  # it is the callers' to raise; here it only counts as seen
        await self._remembering.aclose()

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
            if live.call_id == call_id and not task.done():
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
                outcome = await asyncio.shield(running.task)
                if not isinstance(outcome, AwaitingReview):
                    return outcome
                continue  # it had come to wait for a review by then
            if record.state not in ("active", "review"):
                return await self.outcome(scope, call_id)
            if await self._is_taken_up(record):
                continue
            with contextlib.suppress(UnknownCall):  # it ended, or was taken over, since it was read
                return await settle_lost(self.deps, scope, record, reason="cancelled")

    async def decide(
        self,
        scope: Scope,
        review_id: str,
        decision: Decision | None,
        *,
        resume: bool = True,
    ) -> ReviewRecord:
        """The review as `decision` made it (None: as its deadline did); a run goes on in a task.

        A cancelled caller leaves the decision whole or not made. Errors: as in `Reviews`.
        """
        self._check_open()
        if type(review_id) is not str:
            raise InvalidValue("a review is named by its id, a text")
        deciding = self._loop.create_task(self._decided(scope, review_id, decision, resume))
        self._deciding.add(deciding)
        deciding.add_done_callback(self._deciding.discard)
        return await asyncio.shield(deciding)

    async def _decided(
        self, scope: Scope, review_id: str, decision: Decision | None, resume: bool
    ) -> ReviewRecord:
        decided = await decide(self.deps, scope, review_id, decision, resume=resume)
        if decided.run is not None:
            self._spawn_resumed(decided.run)
        else:
            self._remembering.after(scope, decided.review.call)
        if decided.late:
            raise decided_before(decided.review)
        return decided.review

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
        return self._spawn(execute_run(self.deps, new, tools=tools, live=live), live, new.scope)

    async def _ended(self, scope: Scope, record: CallRecord) -> RunningCall:
        """The call of a record that does not run here, as one that has just ended."""
        while record.state == "active":
            if await self._is_taken_up(record):
                running = self.live(record.id)
                if running is not None:
                    return running
                record = await self.deps.store.call(scope, record.id)
                continue
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

    async def _is_taken_up(self, record: CallRecord) -> bool:
        """Whether the call is ours and about to go on; returns a moment later then."""
        if record.owner != self.deps.owner or record.id not in self.deps.live:
            return False
        await asyncio.sleep(0.002)
        return True

    def _spawn(
        self, work: Coroutine[Any, Any, Outcome], live: LiveCall, scope: Scope | None = None
    ) -> RunningCall:
        """Run `work` in a task of the gateway's own; its readers learn of its end.

        What it settles in `scope` is remembered afterwards.
        """
        task = self._loop.create_task(_lived(work, live))
        self._running[task] = live
        task.add_done_callback(self._running.pop)
        if scope is not None:
            task.add_done_callback(lambda _: self._remembering.after(scope, live.call_id))
        return RunningCall(task, live)

    def _spawn_resumed(self, run: Run) -> None:
        """Drive a run that nobody here began; a closing gateway leaves it to the next one."""
        run.live.is_left_on_closing = not run.call.local
        self._spawn(_resumed(run), run.live, run.scope)

    def _check_open(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RequestError("a gateway works on the event loop that opened it alone")
        if self._closed:
            raise RequestError("the gateway is closed")


AIGateway = Gateway


async def _resumed(run: Run) -> Outcome:
    try:
        return await drive(run)
    except asyncio.CancelledError:
        if run.live.cancel_reason != LEFT:
            raise
        raise RequestError(
            f"the gateway is closed, and run {run.call.id!r} is left to the next one"
        ) from None
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

"""The writing thread, seen from the event loop that feeds it.

Legal order: ``start submit* close``, all on one event loop. Jobs are committed in the order in
which they were submitted, as many at a time as are waiting.

The trap: sqlite3 releases the interpreter's lock (GIL) around each statement and must get it back.
A loop without idle time takes it again within microseconds, each time, and the thread stands still
for seconds. So while jobs are under way the loop looks at itself every millisecond or so, and if
it had no idle time it lends the thread its own: it blocks, without the GIL, until the thread has
run its statements. On an fsync, which needs no GIL, it waits only for a moment, because a disk may
take its time. Measured in benchmarks/store.py: without this the appends beside a busy loop stop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from turngate.errors import TurngateError
from turngate.stores.group_commit import Apply, GroupCommit, Job, Outcome

BATCH_JOBS_MAX = 256

LOOK_S = 0.001  # how often the loop looks, while jobs are under way
LOOK_S_MAX = 0.016  # and how seldom it comes to look at jobs that take long
LEND_S = 0.005  # how long it then lends itself, at most
LEND_DISK_S = 0.001  # of it while the thread may be at the disk, at the first look
BUSY_SHARE = 0.25  # of a core: with less, the loop has idle time, and the thread what it needs
LOOKS_MAX = 6  # then it lends anyway: beside other programs a busy loop may get less of a core


class Writer:
    """One thread with the one connection that writes; `on_end` runs in it when it has ended."""

    def __init__(self, group: GroupCommit, *, on_end: Callable[[], None]) -> None:
        self._group = group
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # None: the last item
        # Outcomes on their way back. An empty list says that only the COMMIT is left to do.
        self._done: SimpleQueue[Sequence[Outcome]] = SimpleQueue()
        self._at_disk = False  # written by the thread: it may be in a call that takes long
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._under_way = 0
        self._looks = 0  # since the last outcome
        self._look: asyncio.TimerHandle | None = None
        self._look_at = self._cpu_at_look = 0.0

    async def start(self) -> None:
        """Begin the thread and open the database in it.

        Errors: `StoreError`; the thread has ended then.
        """
        opened: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(
            target=self._work, args=(opened,), name="turngate-writer", daemon=True
        ).start()
        self._under_way += 1
        self._look_later()
        try:
            await opened
        except BaseException:  # a cancelled caller must not leave a thread that holds the lock
            self.abandon()
            raise
        finally:
            self._under_way -= 1

    def submit(self, apply: Apply) -> asyncio.Future[int]:
        """What `apply` gives, once it is durable. Errors: those of `apply`, and `StoreError`.

        A caller that is cancelled leaves the job whole or absent.
        """
        job = Job(apply, self._loop.create_future())
        self._jobs.put(job)
        self._under_way += 1
        if self._look is None:
            self._look_later()
        return job.future

    async def close(self) -> None:
        """End the thread after the jobs under way; call it once."""
        self.abandon()
        self._under_way += 1
        if self._look is None:
            self._look_later()
        await asyncio.shield(self._ended)

    def abandon(self) -> None:
        """Tell the thread to end after the jobs under way, and don't wait. Legal at any time."""
        self._jobs.put(None)

    # ------------------------------------------------------------------------- on the loop

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        self._under_way -= len(outcomes)
        self._looks = 0
        for job, outcome in outcomes:
            if job.future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, TurngateError):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    def _resolve_all(self) -> None:
        try:
            while True:
                self._resolve(self._done.get_nowait())
        except Empty:
            pass

    def _look_later(self) -> None:
        self._look_at = time.perf_counter()
        self._cpu_at_look = time.thread_time()
        wait_s = min(LOOK_S * (1 + self._looks), LOOK_S_MAX)
        self._look = self._loop.call_later(wait_s, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        if self._under_way == 0 or self._ended.done():
            return
        self._looks += 1
        elapsed_s = time.perf_counter() - self._look_at
        busy = time.thread_time() - self._cpu_at_look > BUSY_SHARE * elapsed_s
        if busy or self._looks > LOOKS_MAX:
            self._lend()
        if self._under_way:
            self._look_later()

    def _lend(self) -> None:
        """Block without the GIL until nothing is under way, or the thread has had its share.

        At the disk the share grows with the looks that found nothing, for the thread may be back
        already and lose the race for the GIL, or for a core.
        """
        until = time.perf_counter() + LEND_S
        at_disk_s = LEND_DISK_S * self._looks
        try:
            while self._under_way and (left_s := until - time.perf_counter()) > 0:
                wait_s = min(left_s, at_disk_s) if self._at_disk else left_s
                self._resolve(self._done.get(timeout=wait_s))
        except Empty:
            pass

    # ----------------------------------------------------------------------- in the thread

    def _work(self, opened: asyncio.Future[None]) -> None:
        try:
            self._group.open()
        except Exception as error:
            self._on_end()
            self._on_loop(_settle, opened, error)
            return
        try:
            if self._on_loop(_settle, opened):
                self._commit_until_closed()
        finally:
            self._group.close()
            self._on_end()
            self._on_loop(_settle, self._ended)

    def _commit_until_closed(self) -> None:
        closing = False
        while not closing:
            job = self._jobs.get()
            if job is None:
                return
            jobs = [job]
            self._at_disk = True
            outcomes = self._group.begin(jobs)
            self._at_disk = False
            if jobs:
                closing = self._take_waiting(jobs)
                outcomes += self._group.commit(jobs, before_commit=self._statements_are_done)
                self._at_disk = False
            self._done.put(outcomes)
            if not self._on_loop(self._resolve_all):
                return

    def _take_waiting(self, jobs: list[Job]) -> bool:
        """Add the jobs that are waiting to `jobs`; whether the last of all is among them."""
        try:
            while len(jobs) < BATCH_JOBS_MAX:
                job = self._jobs.get_nowait()
                if job is None:
                    return True
                jobs.append(job)
        except Empty:
            pass
        return False

    def _statements_are_done(self) -> None:
        self._at_disk = True
        self._done.put(())

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> bool:
        """Have the loop make a call; False if the loop is gone, and nobody waits for anything."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True


def _settle(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():  # its caller was cancelled
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

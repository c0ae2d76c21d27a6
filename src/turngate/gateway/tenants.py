"""What a program holds below a gateway: a tenant, its threads, a call, and a call's stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from turngate import identity
from turngate.completion import CallOptions, ChatRequest
from turngate.errors import InvalidValue, RequestError
from turngate.gateway.calls import NewCall
from turngate.gateway.erasing import delete_thread, delete_turn, delete_user
from turngate.gateway.events import Event, Settled
from turngate.gateway.facts import Facts
from turngate.gateway.files import Files
from turngate.gateway.outcomes import Outcome
from turngate.gateway.receipts import request_again
from turngate.gateway.results import add_results
from turngate.gateway.reviews import Reviews
from turngate.gateway.toolbox import tools_by_name
from turngate.protocols import Tool
from turngate.records import (
    CallKind,
    CallPage,
    CallRecord,
    Change,
    LedgerRow,
    RunLimits,
    Scope,
    SummaryRecord,
    ThreadPage,
    ThreadRecord,
    ToolNeed,
    TurnPage,
    checked_thread_id,
    checked_user,
)
from turngate.turns import ToolResultPart, Turn
from turngate.values import FileRef, ToolSpec, storable_text

if TYPE_CHECKING:
    from turngate.gateway.gateway import Gateway, RunningCall

__all__ = ["Call", "CallStream", "Tenant", "Thread"]

Pending = Literal["refuse", "go_on"]


class Tenant:
    """One tenant's threads, calls and files."""

    def __init__(self, gateway: Gateway, scope: Scope) -> None:
        self._gateway = gateway
        self._scope = scope

    def thread(self, thread: str | None = None, *, user: str | None = None) -> Thread:
        """The handle of a thread, which begins with its first answer; None makes a new id.

        `user` is the subject of what is remembered. Errors: `InvalidValue` for an id that is not
        1 to 128 of ``A-Za-z0-9._:-``, and for a user that is not 1 to 128 characters without
        control characters.
        """
        thread_id = thread if thread is not None else identity.new_id("thread")
        user = checked_user(user) if user is not None else None
        return Thread(self._gateway, self._scope, checked_thread_id(thread_id), user=user)

    async def threads(self, *, after: str | None = None, limit: int = 50) -> ThreadPage:
        """The tenant's threads, last changed first; `after` is a page's `next`."""
        return await self._gateway.deps.store.threads(self._scope, after=after, limit=limit)

    async def delete_user(self, user: str, *, by: str | None = None) -> None:
        """Delete what is kept of `user`: their threads, their calls' turns in threads that others
        take part in, and all facts about them.

        What is left of them is what a deleted thread, a deleted turn and a forgotten fact leave.
        Reads the records of all calls of the tenant. Errors: `ThreadBusy` for a call that has not
        ended, with what is not deleted by then still there; `StoreError`. It can be repeated.
        """
        await delete_user(self._gateway.deps, self._scope, checked_user(user))
        await self.facts.forget(user=user, by=by)

    @property
    def reviews(self) -> Reviews:
        """What waits for a person's decision, and what was decided."""
        return Reviews(self._gateway, self._scope)

    @property
    def files(self) -> Files:
        """The tenant's files."""
        return Files(self._gateway.deps, self._scope)

    @property
    def facts(self) -> Facts:
        """What is remembered of the tenant's users."""
        return Facts(self._gateway, self._scope)

    def call(self, call_id: str) -> Call:
        """The handle of an ask or run by its id."""
        return Call(self._gateway, self._scope, call_id)

    async def calls(
        self, *, thread: str | None = None, after: str | None = None, limit: int = 50
    ) -> CallPage:
        """The tenant's calls (those of one thread), newest first, helper calls among them."""
        store = self._gateway.deps.store
        return await store.calls(self._scope, thread=thread, after=after, limit=limit)


class Call:
    """One ask or run by its id, from any process."""

    def __init__(self, gateway: Gateway, scope: Scope, call_id: str) -> None:
        self.id = call_id
        self._gateway = gateway
        self._scope = scope

    async def record(self) -> CallRecord:
        """What is stored of it. Errors: `UnknownCall`."""
        return await self._gateway.deps.store.call(self._scope, self.id)

    async def outcome(self) -> Outcome:
        """Its outcome, once it has ended. Errors: `UnknownCall`."""
        return await self._gateway.outcome(self._scope, self.id)

    async def cancel(self) -> Outcome:
        """End it; gives its outcome, also where it had ended before. Errors: `UnknownCall`."""
        return await self._gateway.cancel(self._scope, self.id)

    async def model_calls(self) -> Sequence[LedgerRow]:
        """Its model calls, oldest first: what each used, how it ended, and its receipt.

        A model call that is under way has no row yet. Errors: `UnknownCall`.
        """
        await self.record()
        return await self._gateway.deps.store.ledger(self._scope, self.id)

    async def request(self, model_call: LedgerRow) -> ChatRequest:
        """The request of a model call, made again from its receipt, the same to the byte.

        Errors: `InvalidValue` where what was shown is not there whole any more.
        """
        return await request_again(self._gateway.deps, self._scope, await self.record(), model_call)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Its events from number `after` on (0: the first), then those that still come.

        Shapes: a streamed run keeps its events, also over a restart; of other calls only those
        of this process are known. `Settled` has no number: it comes after the last one there is.
        Errors: `UnknownCall`.
        """
        async for event in self._gateway.events(self._scope, self.id, after):
            yield event


class Thread:
    """One thread: ask it, run it, stream from it, read it."""

    def __init__(self, gateway: Gateway, scope: Scope, thread: str, *, user: str | None) -> None:
        self.id = thread
        self._gateway = gateway
        self._scope = scope
        self._user = user

    async def ask(
        self,
        prompt: str | None,
        *,
        files: Sequence[FileRef] = (),
        tools: Sequence[str | Tool | ToolSpec] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
        key: str | None = None,
        pending: Pending = "refuse",
    ) -> Outcome:
        """One model call; tool calls come back unexecuted. Returns once the outcome is durable.

        `files` are pointers of `tenant.files`; this call's model sees them, later ones a line.
        `tools` are names in the gateway's registry, tools, or bare specs. `prompt` None goes on
        without a new user turn, for example after `add_results`. With a `key`, a repeated call
        of the same body gives the first one's outcome. While a call on the thread waits for a
        review, another is refused as `ThreadBusy`; with `pending` "go_on" it goes on beside it:
        the open answer is not shown to the model, and an open tool call is shown as waiting.
        Errors: `ThreadBusy`, `InvalidValue`, `KeyReused`, `StoreError`; `ProviderError` or
        `PolicyStopped` where the model failed before its first part, and the thread is then as
        it was. A cancelled caller leaves the call settled as incomplete.
        """
        new, by_name = self._new(
            "ask", prompt, files, tools, instructions, options, key=key, pending=pending
        )
        return await _awaited(await self._gateway.start(new, by_name))

    async def run(
        self,
        prompt: str | None,
        *,
        files: Sequence[FileRef] = (),
        tools: Sequence[str | Tool] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
        limits: RunLimits | None = None,
        key: str | None = None,
        pending: Pending = "refuse",
    ) -> Outcome:
        """The loop of model calls and tool calls, to the answer. Each step is durable.

        A tool that is not in the gateway's registry makes the run local: after a crash it ends
        as incomplete/interrupted, since no other process has that function.
        Errors: as for `ask`.
        """
        new, by_name = self._new(
            *("run", prompt, files, tools, instructions, options, limits),
            key=key,
            pending=pending,
        )
        return await _awaited(await self._gateway.start(new, by_name))

    def stream_ask(
        self,
        prompt: str | None,
        *,
        files: Sequence[FileRef] = (),
        tools: Sequence[str | Tool | ToolSpec] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
        key: str | None = None,
        pending: Pending = "refuse",
        detach: bool = False,
    ) -> CallStream:
        """`ask` as a stream: ``async with thread.stream_ask(…) as events``.

        Leaving early cancels the call; with `detach` only this reader leaves.
        """
        new, by_name = self._new(
            "ask", prompt, files, tools, instructions, options, key=key, pending=pending
        )
        return CallStream(lambda: self._gateway.start(new, by_name), detach=detach)

    def stream_run(
        self,
        prompt: str | None,
        *,
        files: Sequence[FileRef] = (),
        tools: Sequence[str | Tool] = (),
        instructions: str | None = None,
        options: CallOptions | None = None,
        limits: RunLimits | None = None,
        key: str | None = None,
        pending: Pending = "refuse",
        detach: bool = False,
    ) -> CallStream:
        """`run` as a stream, whose events are stored: a reader may come back by call id."""
        new, by_name = self._new(
            *("run", prompt, files, tools, instructions, options, limits),
            key=key,
            pending=pending,
            streamed=True,
        )
        return CallStream(lambda: self._gateway.start(new, by_name), detach=detach)

    async def add_results(self, results: Sequence[ToolResultPart]) -> tuple[Turn, ...]:
        """Store the results of an ask's open calls; gives the tool turns that were added.

        The same result again is no change. Errors: `UnknownToolCall` for a call that the thread
        does not have, `InvalidValue` for another content than the stored one; nothing is stored.
        """
        return await add_results(self._gateway.deps, self._scope, self.id, results)

    async def turns(self, *, before: int | None = None, limit: int = 50) -> TurnPage:
        """The last `limit` turns below position `before` (None: the end), oldest first."""
        store = self._gateway.deps.store
        return await store.load(self._scope, self.id, before=before, limit=limit)

    async def record(self) -> ThreadRecord:
        """The thread without its turns. Errors: `ThreadNotFound`."""
        return await self._gateway.deps.store.thread(self._scope, self.id)

    async def delete_turn(self, turn_id: str) -> None:
        """Delete what a turn said, and what was derived from it alone: facts, summaries, what its
        call has of it, and files that hold whole results of a tool.

        Shapes: the turn keeps its place, and reads as one that is ``deleted``, without parts. A
        fact with another source loses this one; what a deleted correction corrected is active
        again. Deleting it again changes nothing. Errors: `TurnNotFound`; `ThreadBusy` while a call
        on the thread has not ended; `StoreError`. Nothing is deleted then.
        """
        await delete_turn(self._gateway.deps, self._scope, self.id, turn_id)

    async def delete(self) -> None:
        """Delete the thread: turns, calls, reviews, summaries, and what was derived from it alone.

        Only its ledger rows stay, which count what was used. The id may be used anew. Errors:
        `ThreadNotFound`; `ThreadBusy` while a call on it has not ended; `StoreError`. Nothing is
        deleted then.
        """
        await delete_thread(self._gateway.deps, self._scope, self.id)

    async def summary(self) -> SummaryRecord | None:
        """What stands in for the turns that fell out of the window; None: nothing is written."""
        return await self._gateway.deps.store.summary(self._scope, self.id)

    async def create(self, *, title: str | None = None) -> ThreadRecord:
        """The thread, begun if it was missing; a title that is given is set."""
        title = storable_text(title) if title is not None else None
        change = Change(
            thread=self.id, at=identity.now(), create=True, title=title, user=self._user
        )
        await self._gateway.deps.store.commit(self._scope, change)
        return await self.record()

    def _new(
        self,
        kind: CallKind,
        prompt: str | None,
        files: Sequence[FileRef],
        tools: Sequence[str | Tool | ToolSpec],
        instructions: str | None,
        options: CallOptions | None,
        limits: RunLimits | None = None,
        *,
        key: str | None = None,
        pending: Pending = "refuse",
        streamed: bool = False,
    ) -> tuple[NewCall, Mapping[str, Tool]]:
        """The call to begin, and the tools that it may run, by name."""
        _check_edge(prompt, files, tools, instructions, options)
        registry = self._gateway.deps.tools
        specs, found = _found_tools(tools, registry)
        if kind == "run" and len(found) < len(specs):
            raise InvalidValue("a run needs tools that it can run, and a ToolSpec is only shown")
        if len({spec.name for spec in specs}) < len(specs):
            raise InvalidValue("two tools of one call share a name")
        by_name = tools_by_name(found)
        is_run = kind == "run"  # an ask shows tools, and needs none
        new = NewCall(
            id=identity.new_id("run" if kind == "run" else "call"),
            scope=self._scope,
            thread=self.id,
            prompt=prompt,
            files=tuple(files),
            kind=kind,
            user=self._user,
            instructions=instructions,
            tools=specs,
            needs=tuple(ToolNeed(tool.spec.name, tool.schema_hash) for tool in found if is_run),
            local=is_run and any(registry.get(n) is not tool for n, tool in by_name.items()),
            options=options if options is not None else CallOptions(),
            limits=limits if limits is not None else RunLimits(),
            key=key,
            streamed=streamed,
            beside_review=_checked_pending(pending) == "go_on",
        )
        return new, by_name


def _checked_pending(pending: object) -> object:
    if pending not in ("refuse", "go_on"):
        raise InvalidValue("pending is 'refuse' or 'go_on'")
    return pending


def _check_edge(
    prompt: object, files: object, tools: object, instructions: object, options: object
) -> None:
    """Refuse what the annotations rule out, by a clear error in place of a late one."""
    if prompt is not None and not isinstance(prompt, str):
        raise InvalidValue(f"a prompt is a str or None, and no {type(prompt).__name__}")
    if not isinstance(files, list | tuple) or not all(isinstance(f, FileRef) for f in files):
        raise InvalidValue("files are a list of FileRefs: what tenant.files.put gave")
    if instructions is not None and not isinstance(instructions, str):
        raise InvalidValue(f"instructions are a str, and no {type(instructions).__name__}")
    if options is not None and not isinstance(options, CallOptions):
        raise InvalidValue("options are a CallOptions")
    if isinstance(tools, str | Mapping):
        raise InvalidValue("tools are a list: tools=[...]")


def _found_tools(
    tools: Sequence[str | Tool | ToolSpec], registry: Mapping[str, Tool]
) -> tuple[tuple[ToolSpec, ...], list[Tool]]:
    """The specs of `tools` in order, and those of them that can be run."""
    specs: list[ToolSpec] = []
    found: list[Tool] = []
    for tool in tools:
        if isinstance(tool, ToolSpec):
            specs.append(tool)
            continue
        if isinstance(tool, str):
            if tool not in registry:
                raise InvalidValue(f"the gateway has no tool {tool!r}")
            tool = registry[tool]
        elif not hasattr(tool, "spec"):
            raise InvalidValue("a tool is a name, a ToolSpec, or a function made one by @tool")
        specs.append(tool.spec)
        found.append(tool)
    return tuple(specs), found


class CallStream:
    """A running call as a context: its events, and afterwards its `outcome`.

    Entering starts the call and returns once it has begun. Leaving before the end cancels it and
    returns once what was said is settled; a detached or joined call goes on instead.
    Errors: entering raises what keeps the call from beginning; iterating raises what makes it
    fail.
    """

    def __init__(self, start: Callable[[], Awaitable[RunningCall]], *, detach: bool) -> None:
        self._start = start
        self._detach = detach
        self._entered: RunningCall | None = None
        self.outcome: Outcome | None = None
        self.call_id: str | None = None

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise RequestError("a stream is entered once; ask again for another call")
        self._entered = running = await self._start()
        try:
            await running.live.until_begun()
        except BaseException:  # what kept it from beginning is raised here, or we were cancelled
            await _left(running, "cancelled")
            raise
        self.call_id = running.live.call_id
        return self

    @property
    def _running(self) -> RunningCall:
        if self._entered is None:
            raise RequestError(
                "the stream has not begun",
                hint="Enter it first: async with thread.stream_ask(...) as events",
            )
        return self._entered

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events from the first on."""
        async for event in self._running.live.events():
            if isinstance(event, Settled):
                self.outcome = event.outcome
            yield event

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = self._running.task
        if self._detach and not task.done():
            return
        await _left(self._running, "cancelled" if kind is asyncio.CancelledError else "reader_gone")
        if self.outcome is None and task.done() and not task.cancelled() and not task.exception():
            self.outcome = task.result()


async def _awaited(running: RunningCall) -> Outcome:
    """The outcome of `running`; a cancelled caller cancels it, unless another one began it."""
    try:
        return await asyncio.shield(running.task)
    except asyncio.CancelledError:
        await _left(running, "cancelled")
        raise


async def _left(running: RunningCall, reason: str) -> None:
    """Cancel `running` and wait until it is settled, however it ends; a joined one goes on."""
    if running.joined:
        return
    running.live.cancel(reason)
    await asyncio.wait({running.task})
    if not running.task.cancelled():
        running.task.exception()  # it is the readers' to raise; here it only counts as seen

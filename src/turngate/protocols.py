"""Every seam of the gateway: what it needs of its neighbours, and nothing of how they do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from turngate.completion import CallOptions, ChatRequest, ModelPart, StreamEnd
from turngate.messages import InlineFile, Message
from turngate.records import (
    CallPage,
    CallRecord,
    Change,
    Effect,
    EventBatch,
    LostCall,
    Scope,
    Step,
    ThreadPage,
    ThreadRecord,
    ToolContext,
    TurnPage,
)
from turngate.results import ModelResult
from turngate.turns import Turn
from turngate.values import ToolSpec

__all__ = [
    "ChatProvider",
    "ContextAssembler",
    "ContextInput",
    "LLMClient",
    "ThreadStore",
    "Tool",
    "Window",
    "WindowStrategy",
    "WorkingMemory",
]


class ThreadStore(Protocol):
    """Where threads live. Numbered rules: docs/reference/store.md; its suite: tests/conformance.

    Every call takes a `Scope`; what belongs to another tenant does not exist for it.
    """

    async def commit(self, scope: Scope, change: Change) -> int:
        """The thread's new length, once all of `change` is durable; on any error nothing is.

        Errors: `ThreadMoved` (the expected length is wrong), `ThreadBusy` (an active call stands
        where `change.begin` would claim), `UnknownCall` (the call of `change.guard` is not active
        under that owner and epoch), `StoreError`. A cancelled caller leaves the change whole or
        absent.
        """
        ...

    async def load(
        self, scope: Scope, thread: str, *, before: int | None = None, limit: int = 50
    ) -> TurnPage:
        """The last `limit` turns below position `before` (None: the end), oldest first.

        A missing thread reads as empty with length 0. Reads O(limit) rows at any length.
        """
        ...

    async def thread(self, scope: Scope, thread: str) -> ThreadRecord:
        """The thread without its turns. Errors: `ThreadNotFound`."""
        ...

    async def threads(
        self, scope: Scope, *, after: str | None = None, limit: int = 50
    ) -> ThreadPage:
        """Threads of the tenant, last changed first, from cursor `after` on."""
        ...

    async def call(self, scope: Scope, call: str) -> CallRecord:
        """The record of a call. Errors: `UnknownCall`."""
        ...

    async def active_call(self, scope: Scope, thread: str) -> CallRecord | None:
        """The active call of the thread, or None."""
        ...

    async def call_by_key(self, scope: Scope, key: str) -> CallRecord | None:
        """The call that was begun with this key, or None."""
        ...

    async def calls(
        self,
        scope: Scope,
        *,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CallPage:
        """Calls of the tenant (of one thread), newest first, from cursor `after` on."""
        ...

    async def steps(self, scope: Scope, call: str) -> Sequence[Step]:
        """The journalled steps of a call, in their order."""
        ...

    async def events(self, scope: Scope, call: str) -> Sequence[EventBatch]:
        """The stored events of a call, in their order."""
        ...

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        """Active calls of any owner but `owner`, each with its own scope.

        For the start of a process that owns the store alone: every other owner is dead.
        """
        ...

    async def aclose(self) -> None:
        """Finish the writes under way and close; later calls are a `StoreError`."""
        ...


class ChatProvider(Protocol):
    """A model endpoint: ``ModelPart* StreamEnd`` for a request. It keeps no per-stream state."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        """The parts of one exchange as they come, then one `StreamEnd`.

        Errors: `ProviderError`. Closing the iterator closes the connection.
        """
        ...


class LLMClient(Protocol):
    """One model call, whole."""

    async def complete(
        self, request: ChatRequest, *, observe: Callable[[ModelPart], None] | None = None
    ) -> ModelResult:
        """The result of one exchange; `observe` sees each part as it comes.

        Errors: `ProviderError`, `PolicyStopped`, both with what had come as `partial`.
        """
        ...


class Tool(Protocol):
    """What a model may call; `turngate.tools.tool` makes one from a function.

    Units: `timeout_s` limits one call in seconds, `output_chars_max` its result in characters.
    """

    @property
    def spec(self) -> ToolSpec: ...
    @property
    def effect(self) -> Effect: ...
    @property
    def schema_hash(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def output_chars_max(self) -> int: ...

    async def run(self, arguments: str, context: ToolContext) -> str:
        """The result of one call as text. Errors: `ToolError` for what the model may mend."""
        ...


class WindowStrategy(Protocol):
    """Which turns of a thread a call shows."""

    @property
    def load_limit(self) -> int:
        """How many of the newest turns `select` needs at most."""
        ...

    def select(self, turns: Sequence[Turn]) -> list[Turn]:
        """The part of `turns` (oldest first, the current exchange last) to show."""
        ...


class Window(Struct, frozen=True, kw_only=True):
    """What a call shows of its thread: messages, and the length at which they were read."""

    messages: tuple[Message, ...]
    length: int


class WorkingMemory(Protocol):
    """The window of a call, as messages."""

    async def window(
        self, scope: Scope, thread: str, *, current: Turn | None, before: int | None = None
    ) -> Window:
        """The window of `thread` with the turn `current`, which is not stored yet, at its end.

        `before` reads the thread as it was at that length.
        """
        ...


class ContextInput(Struct, frozen=True, kw_only=True):
    """What one request is made of; `inline_files` are the bytes of the current turn's files."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    inline_files: tuple[InlineFile, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()
    model: str | None = None


class ContextAssembler(Protocol):
    """Builds the one request of a call."""

    def assemble(self, context: ContextInput) -> ChatRequest:
        """Instructions, window and files as one well-formed request."""
        ...

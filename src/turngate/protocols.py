"""Every seam of the gateway: what it needs of its neighbours, and nothing of how they do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, Protocol, get_args

from msgspec import Struct

from turngate.completion import CallOptions, ChatRequest, ModelPart, StreamEnd
from turngate.errors import InvalidValue
from turngate.messages import InlineFile, Message
from turngate.records import (
    Allow,
    Block,
    CallPage,
    CallRecord,
    Change,
    DefaultAction,
    Effect,
    EventBatch,
    FactPage,
    FactRecord,
    FactState,
    FilePage,
    FileRecord,
    LedgerRow,
    LostCall,
    OverdueReview,
    Prompt,
    Proposal,
    Replace,
    Review,
    ReviewPage,
    ReviewRecord,
    ReviewState,
    Scope,
    Span,
    Step,
    StoredObject,
    SummaryRecord,
    Swept,
    ThreadPage,
    ThreadRecord,
    ToolContext,
    TurnPage,
)
from turngate.results import ModelResult
from turngate.turns import Turn
from turngate.values import ToolSpec, Usage

__all__ = [
    "ChatProvider",
    "ContextAssembler",
    "ContextInput",
    "FactRecall",
    "FileStore",
    "InputCheck",
    "LLMClient",
    "OutputCheck",
    "Recalled",
    "Remember",
    "ReviewRule",
    "ThreadStore",
    "TokenCounter",
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

        Errors: `ThreadMoved` (it has another length, or something was erased from it),
        `ThreadBusy` (an active call stands where `change.begin` would claim, or a call that has not
        ended where `change.erase` would erase), `UnknownCall` (the call of `change.guard` is not
        active under that owner and epoch), `RecallMoved` (a summary or a fact was written since it
        was read), `StoreError`. A cancelled caller leaves the change whole or absent.
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

    async def erasures(self, scope: Scope, thread: str) -> int:
        """How often something was erased from the thread; what is read later is what is left."""
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

    async def review(self, scope: Scope, review: str) -> ReviewRecord:
        """The review of this id. Errors: `UnknownReview`."""
        ...

    async def reviews(
        self,
        scope: Scope,
        *,
        call: str | None = None,
        thread: str | None = None,
        state: ReviewState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> ReviewPage:
        """Reviews of the tenant (of one call, thread or state), newest first, from `after` on."""
        ...

    async def overdue_reviews(self, at: datetime) -> Sequence[OverdueReview]:
        """Open reviews whose deadline was before `at`, each with its own scope."""
        ...

    async def ledger(self, scope: Scope, call: str) -> Sequence[LedgerRow]:
        """The ledger rows of a call, oldest first."""
        ...

    async def text(self, scope: Scope, text_hash: str) -> str | None:
        """The text of this hash that a change has kept, or None."""
        ...

    async def summary(
        self, scope: Scope, thread: str, *, version: int | None = None
    ) -> SummaryRecord | None:
        """The thread's summary of that version (None: the newest), or None."""
        ...

    async def learnt(self, scope: Scope, thread: str) -> int | None:
        """The position below which facts were taken from the thread (None: none ever were)."""
        ...

    async def fact(self, scope: Scope, fact: str) -> FactRecord:
        """The fact of this id. Errors: `UnknownFact`."""
        ...

    async def facts(
        self,
        scope: Scope,
        *,
        user: str | None = None,
        state: FactState | None = None,
        thread: str | None = None,
        turn: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> FactPage:
        """Facts (of a user or in a state, or from a thread or a turn of it), newest first."""
        ...

    async def search_facts(
        self, scope: Scope, *, user: str, query: str, limit: int = 20
    ) -> Sequence[FactRecord]:
        """The active facts of the user that share a word with `query`, best first."""
        ...

    async def lost_calls(self, owner: str) -> Sequence[LostCall]:
        """Active calls of any owner but `owner`, each with its own scope.

        For the start of a process that owns the store alone: every other owner is dead.
        """
        ...

    async def add_file(self, scope: Scope, record: FileRecord, *, shared: bool = False) -> bool:
        """Store a file's row once its object is durable. True: it is stored.

        With `shared` the object is one that another file was seen to have: if no file has it by
        now, nothing is stored, and the answer is False. Errors: `InvalidValue` for an id that the
        tenant already has; `StoreError`.
        """
        ...

    async def remove_file(self, scope: Scope, file: str) -> FileRecord | None:
        """Remove a file's row. Its record, if no file has its object any more, else None.

        From then on no `add_file` can come to that object. Errors: `FileNotFound`, `StoreError`.
        """
        ...

    async def file(self, scope: Scope, file: str) -> FileRecord:
        """The record of a file. Errors: `FileNotFound`."""
        ...

    async def files(self, scope: Scope, *, after: str | None = None, limit: int = 50) -> FilePage:
        """Files of the tenant, newest first, from cursor `after` on; `limit` 1 to 1000."""
        ...

    async def file_of_bytes(self, scope: Scope, sha256: str) -> FileRecord | None:
        """A file of the tenant with this hash, or None."""
        ...

    async def objects_in_use(self, scope: Scope, names: Collection[str]) -> set[str]:
        """Those of `names` that are the object of a file of the tenant."""
        ...

    async def tenants_with_files(self) -> Sequence[Scope]:
        """Every tenant that has a file. For the sweep of a file store, which is everyone's."""
        ...

    async def aclose(self) -> None:
        """Finish the writes under way and close; later calls are a `StoreError`."""
        ...


class FileStore(Protocol):
    """Where the bytes of files live: objects, without a row. Rules: docs/reference/files.md.

    Every call takes a `Scope`. Names of tenants and of files are never part of a place.
    """

    async def put(self, scope: Scope, chunks: AsyncIterator[bytes]) -> StoredObject:
        """A new object of `chunks`, once it is durable. Its name was never given before.

        Errors: `StoreError`, and whatever `chunks` raises; nothing is left then, but for what a
        sweep removes.
        """
        ...

    def read(self, scope: Scope, stored: StoredObject) -> AsyncIterator[bytes]:
        """The bytes of an object in pieces; the last one comes when all have been checked.

        Errors: `StoreError` where it is missing, or has another size or hash.
        """
        ...

    async def delete(self, scope: Scope, name: str) -> None:
        """Remove an object; one that is missing is no error. Errors: `StoreError`."""
        ...

    def tenant_key(self, scope: Scope) -> str:
        """The name under which the store keeps the objects of a tenant."""
        ...

    async def sweep(
        self,
        in_use: Callable[[str, Collection[str]], Awaitable[set[str]]],
        *,
        before: datetime,
    ) -> Swept:
        """Remove objects that nobody uses, and unfinished uploads, last written before `before`.

        `in_use` is given a tenant's key and names of its objects, and gives those to keep.
        Errors: `StoreError`; what was removed until then stays removed.
        """
        ...

    async def aclose(self) -> None:
        """Close; later calls are a `StoreError`."""
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


class InputCheck(Protocol):
    """Judges prompts; the `name` is what a call records and demands when it is taken over."""

    @property
    def name(self) -> str: ...

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        """Whether `prompt` may be stored and sent, and as what text."""
        ...


class OutputCheck(Protocol):
    """Judges what a model said, one step at a time, before anyone sees it. One object may be an
    input check too."""

    @property
    def name(self) -> str: ...

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        """Whether `answer` may be stored, shown and acted on."""
        ...


_DEADLINE_S_MAX = 10 * 365 * 86_400.0


class ReviewRule(Struct, frozen=True, kw_only=True):
    """What a person decides on, before it is shown or done.

    Shapes: `answers`: every final answer. `tools`: calls of these tools. `checks`: what these
    checks block is held instead. `when`: whatever this function says True to, given an answer, or
    a step with tool calls, whose calls are then all held. Units: after `deadline_s` seconds
    (None: never) `default` is done.
    """

    name: str
    answers: bool = False
    tools: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    when: Callable[[Proposal], bool | Awaitable[bool]] | None = None
    deadline_s: float | None = 7 * 86_400.0
    default: DefaultAction = "reject"

    def __post_init__(self) -> None:
        if not all(type(names) is tuple for names in (self.tools, self.checks)):
            raise InvalidValue("a rule's tools and checks are tuples of names")
        deadline: object = self.deadline_s
        is_time = isinstance(deadline, int | float) and 0 <= deadline <= _DEADLINE_S_MAX
        if deadline is not None and not is_time:
            raise InvalidValue(f"a rule's deadline is 0 to {_DEADLINE_S_MAX:g} seconds, or None")
        if self.default not in ("approve", "reject"):
            raise InvalidValue("a rule's default is 'approve' or 'reject'")
        if not (self.answers or self.tools or self.checks or self.when):
            raise InvalidValue(f"rule {self.name!r} holds nothing")


class TokenCounter(Protocol):
    """How many tokens things cost a model. `model` None: of a model that is not known."""

    def count_text(self, text: str, *, model: str | None = None) -> int:
        """The tokens of a text."""
        ...

    def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
        """The tokens of the messages that `turn` becomes; what is never sent costs nothing."""
        ...

    def count_request(self, request: ChatRequest) -> int:
        """The input tokens of a whole request: messages, inline files and tool schemas."""
        ...

    def learn(self, request: ChatRequest, usage: Usage, *, model: str | None) -> None:
        """Take in what the provider counted for `request`."""
        ...


class WindowStrategy(Protocol):
    """Which turns of a thread a call shows."""

    @property
    def load_limit(self) -> int:
        """How many of the newest turns `select` needs at most."""
        ...

    def select(self, turns: Sequence[Turn], *, first: int = 0) -> list[Turn]:
        """The part of `turns` (oldest first, the current exchange last) to show.

        `first` is the position of `turns[0]` in its thread.
        """
        ...


class Window(Struct, frozen=True, kw_only=True):
    """What a call shows of its thread: messages, and the length at which they were read.

    Shapes: `shown` are the positions of the turns among them (None: there are none), `tokens`
    their estimate; of longer tool results of the current exchange `result_chars` are shown.
    """

    messages: tuple[Message, ...]
    length: int
    shown: Span | None = None
    result_chars: int | None = None
    tokens: int = 0

    @property
    def first(self) -> int:
        """The position of the first turn that is shown: what stands below it has fallen out."""
        return self.shown.first if self.shown is not None else self.length


class WorkingMemory(Protocol):
    """The window of a call, as messages."""

    async def window(
        self,
        scope: Scope,
        thread: str,
        *,
        current: Turn | None,
        before: int | None = None,
        tokens: int | None = None,
        model: str | None = None,
    ) -> Window:
        """The window of `thread` with the turn `current`, which is not stored yet, at its end.

        `before` reads the thread as it was at that length; with `tokens` the window is within
        that many of `model`. Errors: `InvalidValue` where the current exchange alone is over them.
        """
        ...

    async def shown_again(
        self,
        scope: Scope,
        thread: str,
        *,
        shown: Span | None,
        current: Turn | None,
        result_chars: int | None,
    ) -> tuple[Message, ...]:
        """The messages of a window that was shown before, but for what was deleted since."""
        ...


class Recalled(Struct, frozen=True, kw_only=True):
    """What a call is reminded of: its thread's summary, and facts about its user."""

    summary: SummaryRecord | None = None
    facts: tuple[FactRecord, ...] = ()


class FactRecall(Protocol):
    """Which facts a call is reminded of."""

    async def recall(
        self, scope: Scope, *, user: str, prompt: str, tokens: int, model: str | None = None
    ) -> Sequence[FactRecord]:
        """Active facts of `user` for `prompt`, within `tokens`, in the order to show them."""
        ...


Approve = Literal["none", "untrusted", "all"]


class Remember(Struct, frozen=True, kw_only=True):
    """What a gateway remembers: helper calls write it after an answer, later calls are shown it.

    Shapes: `summary` and `facts` choose what. The helper calls go to `helper` (None: the model
    that answers) with `options`. `approve` says which facts wait for a person: those that no
    person said (``untrusted``), or ``all``. `recall` chooses the facts for a call (None: by their
    words, then the newest). Units: a summary is written when `step` more turns have fallen out of
    the window; `fact_tokens` are what the facts of one call may take. Errors: `InvalidValue` for
    a field of another type or value.
    """

    summary: bool = True
    facts: bool = True
    approve: Approve = "none"
    helper: ChatProvider | None = None
    options: CallOptions = CallOptions(max_tokens=1000)
    recall: FactRecall | None = None
    step: int = 20
    fact_tokens: int = 400

    def __post_init__(self) -> None:
        if self.approve not in get_args(Approve):
            raise InvalidValue(f"approve is one of {', '.join(get_args(Approve))}")
        if not all(isinstance(each, bool) for each in (self.summary, self.facts)):
            raise InvalidValue("summary and facts are each True or False")
        if not _is_count(self.step, 1) or not _is_count(self.fact_tokens, 0):
            raise InvalidValue("step and fact_tokens are whole numbers, a step of at least 1")
        for what, seam, method in (
            ("helper", self.helper, "stream"),
            ("recall", self.recall, "recall"),
        ):
            if seam is not None and not callable(getattr(seam, method, None)):
                raise InvalidValue(f"{what} is an object with a method {method}")
        if not isinstance(self.options, CallOptions):
            raise InvalidValue("options are CallOptions")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class ContextInput(Struct, frozen=True, kw_only=True):
    """What one request is made of.

    Shapes: `messages` is the window, the current turn last, unless `is_silent`: it has no text;
    `inline_files` are the files of that turn: bytes, or what is said in place of them; `steps` is
    what the call has added since.
    """

    messages: tuple[Message, ...]
    steps: tuple[Message, ...] = ()
    instructions: str | None = None
    recalled: Recalled | None = None
    inline_files: tuple[InlineFile | str, ...] = ()
    is_silent: bool = False
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()
    model: str | None = None


class ContextAssembler(Protocol):
    """Builds the one request of a call."""

    def assemble(self, context: ContextInput) -> ChatRequest:
        """Instructions, what is recalled, window and files as one well-formed request."""
        ...

"""One model exchange as values: the request, the parts of the stream, and who watches them.

A stream is ``ModelPart* StreamEnd``. A policy opens one `CompletionSession` per request, and every
session is called in the order ``part* finish? end?``:

    OPEN ──part──► OPEN ──finish──► FINISHED ──end──► ENDED
      └──────────────end───────────────────────────────┘

`part(p)` comes immediately before `p` is yielded; `finish(reason)` once, after every part, where a
reason was told; `end()` when the stream's end marker was seen. A failed, cut or cancelled exchange
gets neither. `SessionGroup` holds that table around all sessions of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Literal, Protocol, assert_never

from msgspec import Struct
from msgspec.structs import force_setattr

from turngate.errors import SessionStateError
from turngate.messages import Message, ToolCall
from turngate.results import FinishReason, ModelResult
from turngate.values import ProviderData, ToolSpec, Usage

__all__ = [
    "NEXT_STATE",
    "CallOptions",
    "ChatRequest",
    "CompletionPolicy",
    "CompletionSession",
    "Fold",
    "FunctionCallDelta",
    "ModelPart",
    "OutputSchema",
    "ReasoningDelta",
    "SessionGroup",
    "SessionState",
    "StreamEnd",
]


class ReasoningDelta(Struct, frozen=True, tag="reasoning-delta", gc=False):
    """A piece of the model's reasoning."""

    text: str

    @property
    def type(self) -> Literal["reasoning-delta"]:
        return "reasoning-delta"


class FunctionCallDelta(
    Struct, frozen=True, kw_only=True, tag="function-call-delta", gc=False, omit_defaults=True
):
    """A piece of a function call.

    Shapes: `index` counts the calls of the response 0, 1, 2 … in order of appearance, and deltas
    of one index belong together; `id` and `name` are told once; the `arguments` of all deltas
    joined are the whole JSON text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None

    @property
    def type(self) -> Literal["function-call-delta"]:
        return "function-call-delta"


ModelPart = str | ReasoningDelta | FunctionCallDelta


class _FinishReason(Struct, frozen=True):
    finish_reason: FinishReason | None = None


class StreamEnd(_FinishReason, frozen=True, kw_only=True):
    """The last item of a stream, once. An iterator that ends without it was cut.

    Shapes: `finish_reason` None where none was told; `provider_data` holds pairs of a call's index
    (None: the answer itself) and what its provider wants back.
    """

    usage: Usage | None = None
    model: str | None = None
    request_id: str | None = None
    provider_data: tuple[tuple[int | None, ProviderData], ...] = ()
    refused: bool = False


class CallOptions(Struct, frozen=True, kw_only=True):
    """Settings of one model call; None leaves the choice to the server.

    Units: `max_tokens` counts output tokens, `timeout_s` is the limit of the whole exchange in
    seconds. `extra_body` is merged into the request body last, `extra_headers` into its headers.
    A whole number for a fraction is taken as one, so that options are sent as they are read back.
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    timeout_s: float | None = None
    extra_body: Mapping[str, Any] | None = None
    extra_headers: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "timeout_s"):
            if type(value := getattr(self, name)) is int:
                force_setattr(self, name, float(value))


class OutputSchema(Struct, frozen=True, kw_only=True):
    """A JSON schema that the answer's text has to fit; `strict` where the server may enforce it."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = False


class ChatRequest(Struct, frozen=True, kw_only=True):
    """One request to a model, as a `ChatProvider` sees it. `model` None: the provider's own."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()
    model: str | None = None
    output: OutputSchema | None = None


class CompletionSession(Protocol):
    """What one policy sees of one request. A subclass may leave out what it does not watch.

    A session with an attribute `watches_text` that is False gets no text parts.
    """

    # Bodies that return are no abstract ones, so that a type checker lets them be left out.

    def part(self, part: ModelPart) -> None:
        """Observe a part immediately before it is yielded; raise to end the stream unyielded."""
        return

    def finish(self, reason: str) -> None:
        """Observe the result's finish reason: ``stop``, ``length``, ``tool_calls`` or
        ``content_filter``."""
        return

    def end(self) -> None:
        """Observe that the stream's end marker arrived."""
        return


class CompletionPolicy(Protocol):
    """A rule for streams; it keeps what it knows about one request in that request's session."""

    def open(self, request: ChatRequest) -> CompletionSession:
        """The session that watches `request`."""
        ...


class SessionState(Enum):
    OPEN = "open"
    FINISHED = "finished"
    ENDED = "ended"


_OPEN = SessionState.OPEN  # an enum's member is slow to look up, and this is asked for each part

NEXT_STATE: Mapping[tuple[SessionState, str], SessionState] = {
    (SessionState.OPEN, "part"): SessionState.OPEN,
    (SessionState.OPEN, "finish"): SessionState.FINISHED,
    (SessionState.OPEN, "end"): SessionState.ENDED,
    (SessionState.FINISHED, "end"): SessionState.ENDED,
}


class SessionGroup:
    """The sessions of one request, driven as one and held to the legal order.

    A call out of order is a `SessionStateError` and reaches no session. If a session raises, the
    later ones do not see that call.
    """

    def __init__(self, sessions: Iterable[CompletionSession]) -> None:
        self._sessions = tuple(sessions)
        # Parts are the hot path: a session that inherits `part` watches none, and one that says
        # `watches_text = False` no text.
        watching = [
            session
            for session in self._sessions
            if getattr(session.part, "__func__", None) is not CompletionSession.part
        ]
        self._watchers = tuple(session.part for session in watching)
        self._text_watchers = tuple(
            session.part for session in watching if getattr(session, "watches_text", True)
        )
        self.state = SessionState.OPEN

    def _move(self, call: str) -> None:
        following = NEXT_STATE.get((self.state, call))
        if following is None:
            raise SessionStateError(call, self.state.value)
        self.state = following

    def part(self, part: ModelPart) -> None:
        if self.state is not _OPEN:
            self._move("part")
        for watch in self._text_watchers if type(part) is str else self._watchers:
            watch(part)

    def finish(self, reason: str) -> None:
        self._move("finish")
        for session in self._sessions:
            session.finish(reason)

    def end(self) -> None:
        self._move("end")
        for session in self._sessions:
            session.end()


class Fold:
    """The parts of one exchange, gathered to its `ModelResult`.

    `add` takes parts in their order; `result` may be asked at any time, and with the `StreamEnd`
    once there is one.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _CallFold] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._text or self._reasoning or self._calls)

    def add(self, part: ModelPart) -> None:
        # The two kinds that come in numbers; a `match` on struct classes costs three times as much.
        if type(part) is str:
            self._text.append(part)
            return
        if type(part) is FunctionCallDelta:
            self._add_call(part)
            return
        match part:
            case str():
                self._text.append(part)
            case ReasoningDelta():
                self._reasoning.append(part.text)
            case FunctionCallDelta():
                self._add_call(part)
            case _:
                assert_never(part)

    def _add_call(self, delta: FunctionCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _CallFold()
        if delta.id:
            call.id = delta.id
        if delta.name:
            call.name = delta.name
        if delta.arguments:
            call.arguments.append(delta.arguments)

    def result(self, end: StreamEnd | None = None) -> ModelResult:
        """The whole result; without `end` what has come so far, of unknown model and usage."""
        end = end if end is not None else StreamEnd()
        data = dict(end.provider_data)
        return ModelResult(
            text="".join(self._text),
            tool_calls=tuple(
                ToolCall(
                    id=call.id,
                    name=call.name,
                    arguments="".join(call.arguments),
                    provider_data=data.get(index),
                )
                for index, call in sorted(self._calls.items())
            ),
            model=end.model,
            finish_reason=end.finish_reason,
            usage=end.usage,
            reasoning="".join(self._reasoning) if self._reasoning else None,
            refused=end.refused,
            provider_data=data.get(None),
        )


class _CallFold:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

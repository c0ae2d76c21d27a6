"""Built-in policies: rules that end a stream by a `PolicyStopped`, and a record of its timing.

    policies = [OutputLimits(chars_max=20_000), RequiredTools(), Timing(print)]
    runner = ModelRunner(provider, policies=policies)

A policy is opened once for each request, and what it knows of that request is in its session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import get_args

from msgspec import Struct

from turngate.completion import (
    ChatRequest,
    CompletionPolicy,
    CompletionSession,
    Fold,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
)
from turngate.errors import InvalidValue, PolicyStopped
from turngate.history import is_json_object
from turngate.providers.finish import CUT_REASONS
from turngate.results import FinishReason

__all__ = [
    "CompleteToolCalls",
    "OutputLimits",
    "RefusedFinishReasons",
    "RequiredTools",
    "Timing",
    "TimingRecord",
    "default_policies",
]


class OutputLimits(Struct, frozen=True, kw_only=True):
    """Ends an answer that grows past a limit; the part that passes it is not yielded.

    Units: `chars_max` counts characters of text and reasoning together, `calls_max` function
    calls, `argument_bytes_max` UTF-8 bytes of one call's arguments.
    """

    chars_max: int = 1_000_000
    calls_max: int = 128
    argument_bytes_max: int = 1_048_576

    def open(self, request: ChatRequest) -> CompletionSession:
        return _LimitsSession(self)


class _LimitsSession(CompletionSession):
    def __init__(self, limits: OutputLimits) -> None:
        self._limits = limits
        self._chars_left = limits.chars_max
        self._argument_bytes_max = limits.argument_bytes_max
        self._argument_bytes: dict[int, int] = {}  # by the call's index

    def part(self, part: ModelPart) -> None:
        if type(part) is str:
            self._chars_left -= len(part)
        elif type(part) is FunctionCallDelta:
            self._take_call(part)
            return
        elif isinstance(part, ReasoningDelta):
            self._chars_left -= len(part.text)
        if self._chars_left < 0:
            raise PolicyStopped(
                f"the answer is longer than {self._limits.chars_max} characters",
                reason="output_chars",
            )

    def _take_call(self, delta: FunctionCallDelta) -> None:
        size = self._argument_bytes.get(delta.index)
        if size is None:
            size = 0
            if len(self._argument_bytes) == self._limits.calls_max:
                raise PolicyStopped(
                    f"the answer makes more than {self._limits.calls_max} calls",
                    reason="output_calls",
                )
        piece = delta.arguments or ""
        size += len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace"))
        if size > self._argument_bytes_max:
            raise PolicyStopped(
                f"a call's arguments are larger than {self._argument_bytes_max} bytes",
                reason="output_arguments",
            )
        self._argument_bytes[delta.index] = size


class CompleteToolCalls(Struct, frozen=True):
    """Ends an answer whose calls are not complete: arguments that are no JSON object, no name.

    An answer that the server itself reports as cut (``length``, ``content_filter``) passes.
    """

    def open(self, request: ChatRequest) -> CompletionSession:
        return _CallsSession()


class _CallsSession(CompletionSession):
    watches_text = False

    def __init__(self) -> None:
        self._deltas: list[FunctionCallDelta] = []
        self._is_cut = False

    def part(self, part: ModelPart) -> None:
        if isinstance(part, FunctionCallDelta):
            self._deltas.append(part)

    def finish(self, reason: str) -> None:
        self._is_cut = reason in CUT_REASONS

    def end(self) -> None:  # not `finish`, which does not come where no reason was told
        fold = Fold()
        for delta in self._deltas:
            fold.add(delta)
        calls = fold.result().tool_calls if not self._is_cut else ()
        for index, call in enumerate(calls):
            if not call.name:
                raise PolicyStopped(f"call {index} has no name", reason="incomplete_call")
            if call.arguments.strip() and not is_json_object(call.arguments):
                raise PolicyStopped(
                    f"the arguments of call {index} are no JSON object", reason="incomplete_call"
                )


class RefusedFinishReasons(Struct, frozen=True):
    """Ends an answer that finished for one of `reasons`. Errors: `InvalidValue` for other words."""

    reasons: Collection[str] = ("content_filter",)

    def __post_init__(self) -> None:
        for word in self.reasons:  # of a text in place of a collection, a letter
            if word not in get_args(FinishReason):
                raise InvalidValue(f"no answer finishes by {word!r}")

    def open(self, request: ChatRequest) -> CompletionSession:
        return _ReasonsSession(self.reasons)


class _ReasonsSession(CompletionSession):
    def __init__(self, refused: Collection[str]) -> None:
        self._refused = refused

    def finish(self, reason: str) -> None:
        if reason in self._refused:
            raise PolicyStopped(f"the answer finished by {reason}", reason="finish_reason")


class RequiredTools(Struct, frozen=True):
    """Ends an answer without a call where the request's `tool_choice` required one.

    Some servers take ``required`` and answer with text all the same. An answer that the server
    itself reports as cut passes.
    """

    def open(self, request: ChatRequest) -> CompletionSession:
        choice = request.options.tool_choice
        required = bool(request.tools) and choice is not None and choice not in ("auto", "none")
        return _RequiredSession(is_missing=required)


class _RequiredSession(CompletionSession):
    watches_text = False

    def __init__(self, *, is_missing: bool) -> None:
        self._is_missing = is_missing

    def part(self, part: ModelPart) -> None:
        if isinstance(part, FunctionCallDelta):
            self._is_missing = False

    def finish(self, reason: str) -> None:
        if reason in CUT_REASONS:
            self._is_missing = False

    def end(self) -> None:
        if self._is_missing:
            raise PolicyStopped("a tool call was required, and none came", reason="required_tool")


class TimingRecord(Struct, frozen=True, kw_only=True):
    """When the parts of one exchange came. Units: seconds from the opening of the request.

    Shapes: `first_part_s` None: no part came; `longest_gap_s` is between two parts.
    """

    first_part_s: float | None
    longest_gap_s: float
    total_s: float
    parts: int


class Timing(Struct, frozen=True):
    """Hands `record` the timing of each exchange that ends well; it ends none."""

    record: Callable[[TimingRecord], None]

    def open(self, request: ChatRequest) -> CompletionSession:
        return _TimingSession(self.record)


class _TimingSession(CompletionSession):
    def __init__(self, record: Callable[[TimingRecord], None]) -> None:
        self._record = record
        self._begun = self._last = monotonic()
        self._first: float | None = None
        self._gap = 0.0
        self._parts = 0

    def part(self, part: ModelPart) -> None:
        now = monotonic()
        if self._first is None:
            self._first = now
        elif now - self._last > self._gap:
            self._gap = now - self._last
        self._last = now
        self._parts += 1

    def end(self) -> None:
        self._record(
            TimingRecord(
                first_part_s=self._first - self._begun if self._first is not None else None,
                longest_gap_s=self._gap,
                total_s=monotonic() - self._begun,
                parts=self._parts,
            )
        )


def default_policies(
    *, record: Callable[[TimingRecord], None] | None = None
) -> Sequence[CompletionPolicy]:
    """The policies that fit every product: limits, complete calls, and a timing record if asked."""
    timing = [Timing(record)] if record is not None else []
    return [OutputLimits(), CompleteToolCalls(), *timing]

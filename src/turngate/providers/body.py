"""The body of one response, from bytes in any split to model parts, without I/O.

    feed(block) … feed(block) ──► is_ended, or close() at the clean end of the body ──► end()

A body is an event stream, or one JSON value where the server does not stream; its first character
decides, since the content type of many servers is wrong. An answer has ended at the end marker, or
at the clean end of the body after a finish reason or of a whole JSON answer. Every other end is a
``truncated`` error.
"""

from __future__ import annotations

from msgspec import Struct

from turngate.completion import ModelPart, StreamEnd
from turngate.errors import ProviderError
from turngate.providers.answer import Answer
from turngate.providers.chunks import too_deep
from turngate.providers.sse import Event, EventReader

__all__ = ["AnswerBody", "BodyLimits"]


class BodyLimits(Struct, frozen=True, kw_only=True):
    """How much one body may hold; each limit is named in the error of going over it.

    Units: `response_bytes_max` counts the body after decompression, comments included;
    `line_bytes_max` one line, `event_bytes_max` the data of one event, `event_lines_max` its
    fields, `events_max` all events.
    """

    response_bytes_max: int = 32 << 20
    line_bytes_max: int = 2 << 20
    event_bytes_max: int = 1 << 20
    event_lines_max: int = 10_000
    events_max: int = 1_000_000


# More white space than this before the first character is a stream that says nothing.
_HEAD_BYTES_MAX = 4_096
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class AnswerBody:
    """The parts of one body. `is_ended`: the end marker came, and the rest of the body is void.

    `progress` counts the events that said something; a heartbeat does not.
    Errors: of `feed` and `close`, `ProviderError`, with the parts before it in `out`.
    """

    def __init__(self, answer: Answer, *, media_type: str, limits: BodyLimits) -> None:
        self.is_ended = False
        self.progress = 0
        self._answer = answer
        self._media_type = media_type
        self._limits = limits
        self._response_bytes_max = limits.response_bytes_max
        self._reader = EventReader(
            line_bytes_max=limits.line_bytes_max,
            event_bytes_max=limits.event_bytes_max,
            event_lines_max=limits.event_lines_max,
        )
        self._is_events = self._is_json = False  # neither: not known yet
        self._held: list[bytes] = []  # of a body that is no event stream, or may be none
        self._size_bytes = 0
        self._event_count = 0

    def feed(self, block: bytes, out: list[ModelPart]) -> None:
        """Add to `out` the parts that `block` completes."""
        self._size_bytes += len(block)
        failure: ProviderError | None = None
        if self._size_bytes > self._response_bytes_max:
            block = block[: self._response_bytes_max - self._size_bytes]
            failure = self._over("response_bytes_max", self._response_bytes_max)
        if not self._is_events:
            block = self._after_form(block)
        events: list[Event] = []
        try:
            self._reader.feed(block, events)
        except ProviderError as error:
            failure = error  # the events before it count, and the end marker is one of them
        if events:
            self._take(events, out)
        if failure is not None and not self.is_ended:
            raise failure

    def close(self, out: list[ModelPart]) -> None:
        """Add to `out` what the clean end of the body completes."""
        if self.is_ended:
            return
        if self._is_json:
            self._close_json(out)
        else:
            self._close_events(out)

    def end(self, *, model: str | None, request_id: str | None) -> StreamEnd:
        """The end of the answer, once `is_ended`."""
        return self._answer.end(model=model, request_id=request_id)

    def _take(self, events: list[Event], out: list[ModelPart]) -> None:
        room = self._limits.events_max - self._event_count
        self._event_count += len(events)
        try:
            is_ended = self._answer.take(events if len(events) <= room else events[:room], out)
        except RecursionError:  # it was decoded, and mending or encoding it goes deeper
            raise too_deep() from None
        self.progress = self._event_count - self._answer.ignored
        if is_ended:
            self._end(out)
        elif len(events) > room:
            raise self._over("events_max", self._limits.events_max)

    def _after_form(self, block: bytes) -> bytes:
        """What of the body so far is event stream, once its form is known; else empty."""
        self._held.append(block)
        if self._is_json:
            return b""
        head = b"".join(self._held)
        self._held = [head]
        text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
        if len(head) < _HEAD_BYTES_MAX and (not text or _BYTE_ORDER_MARK.startswith(text)):
            return b""
        if text[:1] == b"<":
            raise self._not_a_stream()
        if text[:1] in (b"{", b"["):
            self._is_json = True
            return b""
        self._is_events = True
        self._held = []
        return head

    def _close_events(self, out: list[ModelPart]) -> None:
        events: list[Event] = []
        self._reader.close(events)
        try:
            self._take(events, out)
        except ProviderError as error:
            # An event that the end of the body cut is no longer JSON: the cut is what counts.
            if error.reason != "not_json":
                raise
        if self.is_ended:
            return
        if self._answer.has_finished:
            self._end(out)
        elif self._event_count == 0 and self._media_type not in ("", "text/event-stream"):
            raise self._not_a_stream()
        else:
            raise ProviderError(
                f"the model server ended its answer after {self._size_bytes} bytes without a"
                " finish reason or an end marker",
                code="truncated",
            )

    def _close_json(self, out: list[ModelPart]) -> None:
        body = b"".join(self._held).removeprefix(_BYTE_ORDER_MARK).strip()
        try:
            self._take([body], out)
        except ProviderError as error:
            if error.reason == "not_json" and not body.endswith((b"}", b"]")):
                raise ProviderError(
                    f"the model server cut its JSON answer off after {len(body)} bytes",
                    code="truncated",
                ) from None
            raise
        self._end(out)

    def _end(self, out: list[ModelPart]) -> None:
        """The answer is whole; one without any choice is none, and no empty success."""
        if not self._answer.has_choice:
            raise ProviderError(
                "the model server ended its answer without a choice",
                code="protocol",
                reason="no_choice",
            )
        self._answer.close(out)
        self.is_ended = True

    def _not_a_stream(self) -> ProviderError:
        what = f" ({self._media_type})" if self._media_type else ""
        return ProviderError(
            f"the model server sent neither an event stream nor JSON{what}",
            code="protocol",
            reason="not_a_stream",
            hint="Check base_url; a proxy or a web page may be answering in the server's place.",
        )

    def _over(self, limit: str, value: int) -> ProviderError:
        return ProviderError(
            f"the model server's answer is over {limit} ({value})", code="protocol", reason=limit
        )

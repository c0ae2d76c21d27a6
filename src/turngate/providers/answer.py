"""One answer, from the payloads of its chunks to model parts: the whole of a stream's state.

    take(events) … take(events) ──► True at the end marker ──► close() ──► end()

A whole completion is one payload and goes the same way. Parts are only ever added: what can't be
known yet (half a character, a repetition, a name in pieces) is held back until it is, at the
latest until `close`. Nothing here does I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turngate.completion import ModelPart, ReasoningDelta, StreamEnd
from turngate.providers.calls import LEGACY_INDEX, Calls
from turngate.providers.chunks import (
    Choice,
    Chunk,
    Delta,
    Function,
    HeadChunk,
    ToolDelta,
    decoded_chunk,
    decoded_head,
    decoded_untyped,
    mended_chunk,
    too_deep,
)
from turngate.providers.failures import ended_failure, event_failure, is_failure
from turngate.providers.finish import CUT_REASONS, finish_reason, stronger_finish
from turngate.providers.reasoning import Reasoning
from turngate.providers.sse import Event, NamedEvent
from turngate.providers.text import REPLACEMENT, SplitPairs, well_formed, well_formed_tree
from turngate.providers.usage import UsageTally
from turngate.results import FinishReason
from turngate.values import ProviderData

__all__ = ["Answer"]


class Answer:
    """The parts of choice 0 of one exchange.

    `has_finished`: a finish reason was told. `has_choice`: anything of choice 0 was told at all.
    `ignored` counts the events that were no chunk, such as heartbeats.
    """

    def __init__(self, *, provider: str, new_call_id: Callable[[], str]) -> None:
        self.has_choice = False
        self.ignored = 0
        self._provider = provider
        self._decode: Callable[[bytes], Chunk] = decoded_head
        self._calls = Calls(new_call_id)
        self._reasoning = Reasoning()
        self._usage = UsageTally()
        self._pairs = SplitPairs()
        self._id: str | None = None
        self._model: str | None = None
        self._finish: str | None = None
        self._has_deltas = False
        self._is_refused = False
        self._is_torn = False  # the strings of the chunk under way may hold surrogates
        self._extra: Any = None

    @property
    def has_finished(self) -> bool:
        return self._finish is not None

    @property
    def _is_settled(self) -> bool:
        """Whether a plain delta needs no look at what came before it."""
        return self._decode is decoded_chunk and not self._pairs.halves

    def take(self, events: Sequence[Event], out: list[ModelPart]) -> bool:
        """Add to `out` the parts of `events`; whether the end marker came (what follows is void).

        Errors: `ProviderError`, with the parts before it in `out`.
        """
        decode: Callable[[Any], Chunk] = self._decode
        is_settled = self._is_settled
        # An event with a name is no bytes, and the decoder refuses it with a TypeError.
        for event in events:
            try:
                chunk = decode(event)
            except (msgspec.DecodeError, RecursionError, TypeError):
                if self._take_odd(event, out):
                    return True
                decode, is_settled = self._decode, self._is_settled
                continue
            # Nearly every chunk is a piece of text, or of a call, and nothing else. What is looked
            # at here, and in which order, has been measured: this is the hot path.
            choices = chunk.choices
            if is_settled and choices and len(choices) == 1:
                choice = choices[0]
                delta = choice.delta
                if (
                    delta is not None
                    and choice.finish_reason is None
                    and not choice.index
                    and not (chunk.usage or chunk.error)
                    and not (delta.reasoning_content or delta.reasoning or delta.refusal)
                    and not (delta.function_call or delta.reasoning_details or delta.extra_content)
                ):
                    content = delta.content
                    if type(content) is str or content is None:
                        if content:
                            out.append(content)
                        if delta.tool_calls:
                            self._calls.take(delta.tool_calls, out)
                        continue
            self._take_chunk(chunk, event, out)  # type: ignore[arg-type]  # decoded, so bytes
            decode, is_settled = self._decode, self._is_settled
        return False

    def close(self, out: list[ModelPart]) -> None:
        """Add to `out` what was held back, now that nothing more comes."""
        self._give_up_halves(out)
        reason = self._reason()
        self._calls.close(out, is_cut=reason in CUT_REASONS)

    def end(self, *, model: str | None, request_id: str | None) -> StreamEnd:
        """The end of the answer; `model` and `request_id` stand where the server told none.

        Errors: `ProviderError` ``too_deep`` for what is to be kept for the provider.
        """
        kept = self._reasoning.kept()
        if self._extra is not None:
            kept["extra_content"] = self._extra
        told = ((None, kept), *self._calls.extras.items())
        return StreamEnd(
            self._reason(),
            usage=self._usage.usage(),
            model=self._model or model,
            request_id=request_id if request_id is not None else self._id,
            provider_data=tuple((index, self._provider_data(m)) for index, m in told if m),
            refused=self._is_refused,
        )

    # ── what is not the hot path ─────────────────────────────────────────────────────────────

    def _take_odd(self, event: Event, out: list[ModelPart]) -> bool:
        """An event that has a name or that the typed decoder refuses; True for the end marker."""
        if isinstance(event, NamedEvent):
            if event.name == "error":
                raise event_failure(event.data)
            event = event.data
            if event.lstrip()[:1] not in (b"{", b"["):  # a heartbeat, or what the name alone says
                event = b""
        payload = event.strip()
        if payload == b"[DONE]":
            return True
        if not payload or payload[:1] == b":" or payload == b"null":
            self.ignored += 1
            return False
        try:
            chunk = self._decode(payload)
        except (msgspec.DecodeError, RecursionError):
            chunk = mended_chunk(payload)
            self._is_torn = True
        self._take_chunk(chunk, payload, out)
        self._is_torn = False
        return False

    def _take_chunk(self, chunk: Chunk, payload: bytes, out: list[ModelPart]) -> None:
        if isinstance(chunk, HeadChunk):
            self._id = self._id or (chunk.id and well_formed(chunk.id))
            self._model = self._model or (chunk.model and well_formed(chunk.model))
        for place, choice in enumerate(chunk.choices or ()):
            if (choice.index if choice.index is not None else place) == 0:
                self._take_choice(choice, out)
        if chunk.usage is not None:
            self._usage.take(chunk.usage)
        elif not chunk.choices:
            self.ignored += 1
            if is_failure(decoded_untyped(payload)):
                raise event_failure(payload)
        if chunk.error:
            raise event_failure(payload)
        failure = ended_failure(self._finish) if self._finish is not None else None
        if failure is not None:
            raise failure

    def _take_choice(self, choice: Choice, out: list[ModelPart]) -> None:
        self.has_choice = True
        delta = choice.delta
        if delta is not None:
            self._has_deltas = True
            self._decode = decoded_chunk
        elif not self._has_deltas:  # after deltas a message repeats them
            delta = choice.message
        if delta is not None:
            self._take_delta(delta, out)
        if choice.usage is not None:
            self._usage.take(choice.usage)
        if choice.finish_reason is not None:
            self._finish = stronger_finish(self._finish, choice.finish_reason)

    def _take_delta(self, delta: Delta, out: list[ModelPart]) -> None:
        if self._is_torn or self._pairs.halves:
            self._mend(delta)
        reasoning = self._reasoning.take(delta)
        if reasoning:
            out.append(ReasoningDelta(reasoning))
        self._take_content(delta.content, out)
        if delta.refusal:
            self._is_refused = True
            if delta.refusal != delta.content:
                out.append(delta.refusal)
        if delta.tool_calls:
            self._calls.take(delta.tool_calls, out)
        elif delta.function_call is not None:
            self._calls.take_legacy(delta.function_call, out)
        if delta.extra_content is not None:
            self._extra = delta.extra_content

    def _take_content(self, content: str | list[Any] | None, out: list[ModelPart]) -> None:
        if isinstance(content, str):
            if content:
                out.append(content)
            return
        for item in content or ():
            if isinstance(item, str):
                item = {"text": item}
            if not isinstance(item, dict):
                continue
            text, refusal, thinking = item.get("text"), item.get("refusal"), item.get("thinking")
            if isinstance(text, str) and text:
                out.append(text)
            if isinstance(refusal, str) and refusal:
                self._is_refused = True
                out.append(refusal)
            out.extend(ReasoningDelta(piece) for piece in _thoughts(thinking) if piece)

    def _mend(self, value: Struct, index: int | None = None) -> None:
        """Make the strings of a delta well-formed, with the halves held from deltas before it.

        `index` is a call's, and its arguments are the channel of that name.
        """
        for name in value.__struct_fields__:
            member: Any = getattr(value, name)
            match member:
                case str() if name in ("id", "name"):
                    member = well_formed(member)
                case str():
                    member = self._pairs.whole(name if index is None else index, member)
                case Struct():
                    self._mend(member, LEGACY_INDEX if index is None else index)
                case [ToolDelta(), *_]:
                    for place, tool in enumerate(member):
                        self._mend(tool, tool.index if tool.index is not None else place)
                case _:
                    member = well_formed_tree(member)
            setattr(value, name, member)

    def _give_up_halves(self, out: list[ModelPart]) -> None:
        """Half characters whose other half never came, each in place of its channel's end."""
        channels = set(self._pairs.halves)
        self._pairs.halves.clear()
        if channels & {"reasoning", "reasoning_content"}:
            out.append(ReasoningDelta(REPLACEMENT))
        if channels & {"content", "refusal"}:
            out.append(REPLACEMENT)
        for index in sorted(channel for channel in channels if isinstance(channel, int)):
            function = Function(arguments=REPLACEMENT)
            self._calls.take([ToolDelta(index=index, function=function)], out)

    def _reason(self) -> FinishReason | None:
        return finish_reason(self._finish, has_calls=len(self._calls) > 0)

    def _provider_data(self, members: dict[str, Any]) -> ProviderData:
        try:
            text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise too_deep() from None
        return ProviderData(self._provider, well_formed(text))


def _thoughts(thinking: Any) -> Iterator[str]:
    """The texts of a content part that holds thoughts: a text, or a list of parts with texts."""
    if isinstance(thinking, str):
        yield thinking
    elif isinstance(thinking, list):
        for part in thinking:
            if isinstance(part, dict) and isinstance(text := part.get("text"), str):
                yield text

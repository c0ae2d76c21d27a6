"""Drives one exchange of any `ChatProvider`: its policies, its fold, and its end.

    part(p) ── p is yielded ── … ── the provider's iterator is at its end ── finish(reason) ── end()

A session that raises ends the exchange with that error: the part is not yielded, later sessions do
not see it, and the provider's iterator is closed. A failed, cut or cancelled exchange gets neither
`finish` nor `end`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Generic, Self, TypeGuard, TypeVar, overload

import msgspec
from msgspec import Struct

from turngate.completion import (
    CallOptions,
    ChatRequest,
    CompletionPolicy,
    Fold,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    SessionGroup,
    StreamEnd,
)
from turngate.errors import InvalidValue, PolicyStopped, ProviderError
from turngate.history import paired_history
from turngate.messages import AssistantMessage, Message, UserMessage
from turngate.protocols import ChatProvider
from turngate.providers.finish import finish_reason
from turngate.providers.outputs import OutputMismatch, output_schema, parsed_output
from turngate.results import ModelResult
from turngate.values import Target, ToolSpec, Usage

__all__ = ["Invocation", "ModelRunner", "PartStream"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Invocation(Struct, Generic[T_co], frozen=True):
    """What `ModelRunner.invoke` gives: the text or the typed value, and the result behind it."""

    value: T_co
    result: ModelResult


class ModelRunner:
    """A provider watched by policies. It keeps nothing of a request, so any number may run."""

    def __init__(
        self, provider: ChatProvider, *, policies: Iterable[CompletionPolicy] = ()
    ) -> None:
        self._provider = provider
        self._policies = tuple(policies)

    async def complete(
        self, request: ChatRequest, *, observe: Callable[[ModelPart], None] | None = None
    ) -> ModelResult:
        """The result of one exchange, whose messages are sent as they are.

        `observe` sees each part after the policies. Errors: `ProviderError` and `PolicyStopped`,
        both with what had been given as `partial`.
        """
        async with _Run(self._provider, self._policies, request) as run:
            watch, add = run.watch, run.fold.add
            async for item in run.items:
                # For text, which is most of all parts, this is two comparisons.
                if (type(item) is not str or run.end is not None) and not run.is_part(item):
                    continue
                if watch is not None:
                    watch(item)
                add(item)
                if observe is not None:
                    observe(item)
            return run.ended()

    @overload
    async def invoke(
        self,
        input: str | Message | Sequence[Message],
        *,
        output: None = None,
        tools: Sequence[ToolSpec] = (),
        options: CallOptions | None = None,
    ) -> Invocation[str]: ...
    @overload
    async def invoke(
        self,
        input: str | Message | Sequence[Message],
        *,
        output: type[T],
        repair: bool = False,
        options: CallOptions | None = None,
    ) -> Invocation[T]: ...
    async def invoke(
        self,
        input: str | Message | Sequence[Message],
        *,
        output: type[Any] | None = None,
        repair: bool = False,
        tools: Sequence[ToolSpec] = (),
        options: CallOptions | None = None,
    ) -> Invocation[Any]:
        """The model's answer to a text or to messages, which are repaired where need be.

        With `output` (a struct, a dataclass, a Pydantic model) the server is asked for JSON of
        that schema, and `value` is of that type; `repair` asks once more where it does not fit.
        Errors: as of `complete`; `InvalidMessage`; `InvalidValue` where there is nothing to send;
        `ProviderError` with reason ``invalid_output``, ``refusal`` or ``length`` where there is
        no value, and the result as `partial`.
        """
        request = self._request(input, tools, options)
        if output is None:
            result = await self.complete(request)
            return Invocation(result.text, result)
        schema = output_schema(output)
        attempts = 2 if repair else 1
        while True:
            result = await self.complete(msgspec.structs.replace(request, output=schema))
            attempts -= 1
            try:
                return Invocation(_checked_value(output, result), result)
            except OutputMismatch as mismatch:
                if not attempts:
                    raise ProviderError(
                        f"the answer does not fit its schema, at {mismatch.place}",
                        code="protocol",
                        reason="invalid_output",
                        partial=result,
                    ) from None
                again = (
                    f"The answer does not fit: {mismatch}. Answer with the corrected JSON alone."
                )
            answered = (AssistantMessage(text=result.text), UserMessage((again,)))
            request = self._request((*request.messages, *answered), tools, options)

    def stream(
        self,
        input: str | Message | Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        options: CallOptions | None = None,
    ) -> PartStream:
        """The parts of the answer as they come, for `async with` and `async for`.

        Errors: as of `invoke`, while it is read.
        """
        return PartStream(self._provider, self._policies, self._request(input, tools, options))

    def _request(
        self,
        input: str | Message | Sequence[Message],
        tools: Sequence[ToolSpec],
        options: CallOptions | None,
    ) -> ChatRequest:
        messages: Sequence[Message]
        if isinstance(input, str):
            messages = (UserMessage((input,)),)
        elif isinstance(input, Struct):
            messages = (input,)
        else:
            messages = input
        target = getattr(self._provider, "target", None)
        history = paired_history(messages, target=target if isinstance(target, Target) else None)
        if not history:
            raise InvalidValue("there is nothing to send: the input has no text, file or result")
        return ChatRequest(
            messages=tuple(history),
            tools=tuple(tools),
            options=options if options is not None else CallOptions(),
        )


class PartStream:
    """The parts of one exchange, read once. Leave it by `async with` or `aclose`: a reader that
    just stops keeps the connection open.

    `result` is None until the exchange has ended well.
    """

    def __init__(
        self, provider: ChatProvider, policies: Sequence[CompletionPolicy], request: ChatRequest
    ) -> None:
        self.result: ModelResult | None = None
        self._parts = self._driven(provider, policies, request)

    def __aiter__(self) -> AsyncGenerator[ModelPart, None]:
        return self._parts  # the generator itself, so that a part passes no further layer

    async def __anext__(self) -> ModelPart:
        return await anext(self._parts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the exchange, if it has not ended, and close its connection."""
        await self._parts.aclose()

    async def _driven(
        self, provider: ChatProvider, policies: Sequence[CompletionPolicy], request: ChatRequest
    ) -> AsyncGenerator[ModelPart, None]:
        async with _Run(provider, policies, request) as run:
            watch, add = run.watch, run.fold.add
            async for item in run.items:
                # For text, which is most of all parts, this is two comparisons.
                if (type(item) is not str or run.end is not None) and not run.is_part(item):
                    continue
                if watch is not None:
                    watch(item)
                add(item)
                yield item
            self.result = run.ended()


class _Run:
    """What one exchange needs beside its loop, which stands above twice: a loop in a generator of
    its own would cost every part of `complete` one more step."""

    def __init__(
        self, provider: ChatProvider, policies: Sequence[CompletionPolicy], request: ChatRequest
    ) -> None:
        self.end: StreamEnd | None = None
        self.fold = Fold()
        self.sessions = SessionGroup(policy.open(request) for policy in policies)
        self.watch = self.sessions.part if policies else None
        self.items = provider.stream(request)

    def is_part(self, item: ModelPart | StreamEnd) -> TypeGuard[ModelPart]:
        """Whether `item` is a part; the one `StreamEnd` is none, and is kept.

        Errors: `ProviderError` ``protocol`` for an item that may not come, or not any more.
        """
        if self.end is not None:
            raise _out_of_order("gave an item after its StreamEnd")
        if type(item) is FunctionCallDelta or type(item) is ReasoningDelta:
            return True
        if isinstance(item, StreamEnd):
            _check_end(item.model, item.usage)
            self.end = item
            return False
        if not isinstance(item, str | ReasoningDelta | FunctionCallDelta):
            raise _out_of_order(f"gave a {type(item).__name__}, which is no part")
        return True

    def ended(self) -> ModelResult:
        """The result, once the iterator is at its end and the sessions have been told.

        Errors: `ProviderError` ``truncated`` without a `StreamEnd`; what a session raises.
        """
        if self.end is None:
            raise ProviderError("the provider's stream ended without a StreamEnd", code="truncated")
        result = self.fold.result(self.end)
        reason = finish_reason(result.finish_reason, has_calls=bool(result.tool_calls))
        if reason != result.finish_reason:
            result = msgspec.structs.replace(result, finish_reason=reason)
        if reason is not None:
            self.sessions.finish(reason)
        self.sessions.end()
        return result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Give `error` what came before it, if anything did, and close the provider's iterator."""
        if (
            isinstance(error, ProviderError | PolicyStopped)
            and error.partial is None
            and not self.fold.is_empty
        ):
            error.partial = self.fold.result()
        close = getattr(self.items, "aclose", None)
        if close is not None:
            await close()


def _checked_value(output: type[T], result: ModelResult) -> T:
    """The value of a whole answer. Errors: `OutputMismatch`; `ProviderError` for no answer."""
    if result.refused or result.finish_reason == "content_filter":
        raise ProviderError(
            "the model refused to answer", code="provider", reason="refusal", partial=result
        )
    if result.finish_reason == "length":
        raise ProviderError(
            "the output limit cut the JSON", code="truncated", reason="length", partial=result
        )
    return parsed_output(output, result.text)


def _check_end(model: object, usage: object) -> None:
    """Refuse the end of a provider of somebody's own that is not of the declared types."""
    if not isinstance(model, str | None) or not isinstance(usage, Usage | None):
        raise _out_of_order("gave a StreamEnd whose model or usage is of another type")


def _out_of_order(what: str) -> ProviderError:
    return ProviderError(f"the provider {what}", code="protocol", reason="out_of_order")

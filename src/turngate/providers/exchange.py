"""One response under way: its time limits, its body, and what it has given so far."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from turngate import identity
from turngate.completion import ModelPart, StreamEnd
from turngate.errors import ProviderError
from turngate.providers.answer import Answer
from turngate.providers.body import AnswerBody, BodyLimits
from turngate.providers.config import ProviderConfig
from turngate.providers.failures import http_failure, media_type_of, request_id_of
from turngate.providers.transport import HttpResponse, timed_out

__all__ = ["Exchange", "TimeLimits", "refused", "whole_body"]

_T = TypeVar("_T")

_ERROR_BYTES_MAX = 65_536


class TimeLimits:
    """The moments by which the next thing of one attempt must have come, on the loop's clock.

    Reads are far more frequent than limits that run out, so one timer serves all reads of an
    attempt: it fires at a limit of the past, and sets itself again for the present one.
    """

    def __init__(self, config: ProviderConfig, deadline: float) -> None:
        self.expired: str | None = None  # the limit that ran out during a read
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._event_limit = self._loop.time() + config.first_event_timeout_s
        self._event_reason = "first_event_timeout"
        self._idle_s = config.idle_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._response: HttpResponse | None = None  # the one that is being read now

    async def within(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`. Errors: `ProviderError` ``timeout``, named for its limit."""
        limit, reason = min(self._limits())
        try:
            async with asyncio.timeout_at(limit):
                return await work
        except TimeoutError:
            raise timed_out(reason) from None

    def start_read(self, response: HttpResponse, *, after_event: bool) -> None:
        """A read begins; the idle time runs from here if the last read brought an event.

        If a limit runs out before `stop_read`, `response` is closed, which ends the read.
        """
        now = self._loop.time()
        if after_event:
            self._event_limit = now + self._idle_s
            self._event_reason = "idle_timeout"
        if now >= self._deadline:  # also where no read has to wait
            self.expired = "total_timeout"
            response.close()
        limit = min(self._event_limit, self._deadline)
        if self._timer is None or self._timer.when() > limit:
            self.close()
            self._timer = self._loop.call_at(limit, self._fire)
        self._response = response

    def stop_read(self) -> None:
        self._response = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _limits(self) -> tuple[tuple[float, str], tuple[float, str]]:
        return (self._event_limit, self._event_reason), (self._deadline, "total_timeout")

    def _fire(self) -> None:
        self._timer = None
        if self._response is None:
            return  # nobody waits; the next read sets the timer again
        limit, reason = min(self._limits())
        if self._loop.time() < limit:
            self._timer = self._loop.call_at(limit, self._fire)
        else:
            self.expired = reason
            self._response.close()


class Exchange:
    """One response under way. After `begin` or `read`, `parts` holds what is new, and `failure`
    what went wrong after them."""

    def __init__(
        self, response: HttpResponse, limits: TimeLimits, config: ProviderConfig, model: str
    ) -> None:
        self.response = response
        self.parts: list[ModelPart] = []
        self.failure: ProviderError | None = None
        self.body = AnswerBody(
            Answer(provider=config.provider_name, new_call_id=lambda: identity.new_id("call")),
            media_type=media_type_of(response.headers),
            limits=BodyLimits(**{f: getattr(config, f) for f in BodyLimits.__struct_fields__}),
        )
        self._limits = limits
        self._model = model
        self._progress = 0

    async def begin(self) -> None:
        """Read until there are parts or the end. Errors: the failure, if no part came before it."""
        while not (self.parts or self.body.is_ended or self.failure is not None):
            await self.read()
        if self.failure is not None and not self.parts:
            raise self.failure

    async def read(self) -> None:
        """Read one block."""
        body, limits = self.body, self._limits
        parts: list[ModelPart] = []
        self.parts = parts
        limits.start_read(self.response, after_event=body.progress != self._progress)
        self._progress = body.progress
        try:
            block = await self.response.read()
            if block:
                body.feed(block, parts)
            else:
                body.close(parts)
        except ProviderError as error:
            self.failure = error if limits.expired is None else timed_out(limits.expired)
            self.failure.status = self.response.status
            self.failure.request_id = request_id_of(self.response.headers)
        finally:
            limits.stop_read()

    def close(self) -> None:
        """Cut the connection, unless it has been given back."""
        self.response.close()
        self._limits.close()

    def end(self) -> StreamEnd:
        return self.body.end(model=self._model, request_id=request_id_of(self.response.headers))


async def refused(response: HttpResponse, limits: TimeLimits) -> ProviderError:
    """The error of a response whose status is not 2xx."""
    try:
        body = await whole_body(response, limits, _ERROR_BYTES_MAX)
    except ProviderError:
        body = b""  # the status alone says enough
    return http_failure(status=response.status, headers=response.headers, body=body)


async def whole_body(response: HttpResponse, limits: TimeLimits, bytes_max: int) -> bytes:
    """The body, or its first `bytes_max` bytes and what came with them."""
    blocks: list[bytes] = []
    size_bytes = 0
    while size_bytes < bytes_max:
        block = await limits.within(response.read())
        if not block:
            break
        blocks.append(block)
        size_bytes += len(block)
    return b"".join(blocks)

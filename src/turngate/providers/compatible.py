"""A Chat Completions server as a `ChatProvider`: the HTTP life of one exchange.

    request ──► send (again, while nothing was given) ──► read … read ──► parts … ──► StreamEnd

All that belongs to one stream is in its own `Exchange`; the provider itself holds connections and
what it has learned about its server. Two streams may therefore interleave.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec

from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.errors import InvalidValue, ProviderError
from turngate.providers.chunks import decoded_untyped
from turngate.providers.config import ProviderConfig, checked_headers
from turngate.providers.exchange import Exchange, TimeLimits, refused, whole_body
from turngate.providers.failure_table import RETRYABLE
from turngate.providers.transport import AiohttpTransport, HttpResponse, Transport
from turngate.providers.wire import request_body
from turngate.values import Target

__all__ = ["CompatibleModelProvider"]

_FIRST_PAUSE_S = 0.5
_PAUSE_S_MAX = 8.0


class CompatibleModelProvider:
    """Streams from the Chat Completions server of `config`. Close it, or use `async with`.

    Errors of a stream: `ProviderError`; before anything is sent also `InvalidValue` and
    `InvalidMessage`.
    """

    def __init__(self, config: ProviderConfig, *, transport: Transport | None = None) -> None:
        self.config = config
        self._transport = transport if transport is not None else AiohttpTransport(config)
        target = config.target if config.target is not None else Target()
        if target.provider is None:
            target = msgspec.structs.replace(target, provider=config.provider_name)
        self.target = target
        self._only_model: str | None = None
        self._takes_stream_options = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; a stream under way breaks off."""
        await self._transport.aclose()

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        """The parts of one exchange as they come, then one `StreamEnd`.

        Closing the iterator, or cancelling the task that reads it, cuts the connection.
        """
        exchange = await self._begun(request)
        try:
            while True:
                for part in exchange.parts:
                    yield part
                if exchange.failure is not None:
                    raise exchange.failure
                if exchange.body.is_ended:
                    break
                await exchange.read()
            yield exchange.end()
            await exchange.response.release()
        finally:
            exchange.close()

    async def _begun(self, request: ChatRequest) -> Exchange:
        """An exchange with its first parts, or at its end; after further attempts if need be."""
        config = self.config
        clock = asyncio.get_running_loop().time
        start = clock()
        total_s = request.options.timeout_s
        deadline = start + (total_s if total_s is not None else config.total_timeout_s)
        headers = config.request_headers()
        headers.update(checked_headers(request.options.extra_headers or ()))
        attempt = 0
        while True:
            include_usage = self._takes_stream_options
            try:
                return await self._attempt(request, headers, deadline, include_usage)
            except ProviderError as error:
                if error.reason == "stream_options" and include_usage:
                    self._takes_stream_options = False
                    continue
                if error.reason == "model_not_found":
                    self._only_model = None  # the server may have another one by now
                pause_s = _pause_s(error, attempt)
                again = clock() + pause_s
                if attempt >= config.retries or again > start + config.retry_budget_s:
                    raise
                if again >= deadline or not _may_pass(error, config):
                    raise
            attempt += 1
            await asyncio.sleep(pause_s)

    async def _attempt(
        self, request: ChatRequest, headers: dict[str, str], deadline: float, include_usage: bool
    ) -> Exchange:
        """One request, until its answer has given parts or has ended.

        Errors: `ProviderError` where it has given none; the connection is closed then.
        """
        config = self.config
        model = request.options.model or request.model or config.model
        if model is None:
            model = await self._server_model(headers, deadline)
        body = request_body(
            request,
            model=model,
            target=self.target,
            extra_body=config.extra_body,
            include_usage=include_usage,
        )
        async with self._opened("POST", "/chat/completions", headers, deadline, body) as opened:
            exchange = Exchange(*opened, config, model)
            await exchange.begin()
        return exchange

    @asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        deadline: float,
        body: bytes | None = None,
    ) -> AsyncIterator[tuple[HttpResponse, TimeLimits]]:
        """The response to a request, whose status is 2xx. It is closed if anything is raised."""
        limits = TimeLimits(self.config, deadline)
        response: HttpResponse | None = None
        url = self.config.endpoint(path)
        try:
            response = await limits.within(
                self._transport.send(method, url, headers=headers, body=body)
            )
            if not 200 <= response.status < 300:
                raise await refused(response, limits)
            yield response, limits
        except BaseException:
            if response is not None:
                response.close()
            limits.close()
            raise

    async def _server_model(self, headers: dict[str, str], deadline: float) -> str:
        """The id of the server's only model, asked for once.

        Errors: `InvalidValue` where it has several, and names them.
        """
        if self._only_model is not None:
            return self._only_model
        async with self._opened("GET", "/models", headers, deadline) as (response, limits):
            body = await whole_body(response, limits, self.config.response_bytes_max)
            await response.release()
        models = _model_ids(decoded_untyped(body))
        if len(models) > 1:
            shown = ", ".join(models[:10]) + (", …" if len(models) > 10 else "")
            raise InvalidValue(f"the server has {len(models)} models, so name one: {shown}")
        if not models:
            raise ProviderError(
                "the model server lists no model",
                code="provider",
                reason="no_model",
                status=response.status,
                hint="Name the model in the provider's configuration.",
            )
        self._only_model = models[0]
        return models[0]


def _model_ids(listed: Any) -> list[str]:
    """The ids in an answer to ``GET /models``, each once."""
    entries = listed.get("data") if isinstance(listed, dict) else listed
    if not isinstance(entries, list):
        return []
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return list(dict.fromkeys(name for name in ids if isinstance(name, str) and name))


def _may_pass(error: ProviderError, config: ProviderConfig) -> bool:
    """Whether a further attempt may succeed, and the server does not ask for too long a wait."""
    wait_s = error.retry_after_s
    if wait_s is not None and wait_s > config.retry_after_max_s:
        return False
    return error.reason in RETRYABLE or (error.reason == "quota" and wait_s is not None)


def _pause_s(error: ProviderError, attempt: int) -> float:
    """What the server asks for, or a pause that doubles; a little at random, so that many clients
    don't come back at once."""
    if error.retry_after_s is not None:
        return error.retry_after_s + random.uniform(0, 0.1)
    pause_s = min(_FIRST_PAUSE_S * 2.0**attempt, _PAUSE_S_MAX)
    return random.uniform(0.5, 1.0) * pause_s

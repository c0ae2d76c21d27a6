"""The thin seam to HTTP, and its implementation on aiohttp.

aiohttp is imported at the first request, and its errors are mapped to `ProviderError` here and
nowhere else. Who gets a response owes it one of two calls: `release` after an answer that ended,
so that the connection can serve the next request, or `close`, which cuts the connection.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from turngate.errors import InvalidValue, ProviderError
from turngate.providers.config import ProviderConfig

if TYPE_CHECKING:
    import aiohttp

__all__ = ["AiohttpTransport", "HttpResponse", "Transport", "timed_out"]

# After the end marker the end of the body is mostly there; a connection that was read to its end
# can serve the next request, which is worth this short wait.
_REST_WAIT_S = 0.02
_REST_BYTES_MAX = 65_536
_ONE_PIECE_BYTES_MAX = 1 << 19

_LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))


class HttpResponse(Protocol):
    """A response whose head has come. `headers` have lower-case names."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """The next block as it comes, decompressed; empty at the clean end of the body.

        Errors: `ProviderError` ``network`` where the body breaks off.
        """
        ...

    async def release(self) -> None:
        """Give the connection back if the body is at its end or nearly so; else cut it."""
        ...

    def close(self) -> None:
        """Cut the connection at once; after `release` or the end of the body it does nothing."""
        ...


class Transport(Protocol):
    """Where requests go out."""

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """The response to one request, once its head has come; redirects are not followed.

        Errors: `ProviderError` ``network`` or ``timeout``.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


class AiohttpTransport:
    """A pool of kept connections. It belongs to the event loop of its first request."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        session = self._opened_session()
        # aiohttp warns of long bodies as bytes, since they go into the socket in one piece.
        data = io.BytesIO(body) if body is not None and len(body) > _ONE_PIECE_BYTES_MAX else body
        try:
            response = await session.request(
                method,
                url,
                data=data,
                headers=headers,
                proxy=self._config.proxy,
                allow_redirects=False,
            )
        except Exception as error:
            raise _mapped(error) from _cause(error)
        return _AiohttpResponse(response)

    async def aclose(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def _opened_session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ProviderError(
                "the provider is closed", code="network", reason="closed", hint="Open another one."
            )
        if self._session is None:
            import aiohttp

            config = self._config
            host = urlsplit(config.base_url).hostname or ""
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=config.connections_max, ssl=_tls_context(config)
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
                trust_env=config.trust_env and host not in _LOCAL_HOSTS,
            )
        return self._session


class _AiohttpResponse:
    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.lower(): value for name, value in response.headers.items()
        }

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except Exception as error:
            raise _mapped(error) from _cause(error)

    async def release(self) -> None:
        content = self._response.content
        rest_bytes = 0
        try:
            async with asyncio.timeout(_REST_WAIT_S):
                while not content.at_eof() and rest_bytes <= _REST_BYTES_MAX:
                    rest_bytes += len(await content.readany())
        except Exception:  # a body that does not end well has no connection to give back
            pass
        finally:
            self._response.close()

    def close(self) -> None:
        self._response.close()


def _tls_context(config: ProviderConfig) -> ssl.SSLContext | bool:
    """The certificates to trust: the system's, or those of the file alone."""
    if config.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(config.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise InvalidValue(
            f"ca_file can't be read as certificates ({type(error).__name__})"
        ) from None


# ── aiohttp's errors ─────────────────────────────────────────────────────────────────────────


def _mapped(error: Exception) -> Exception:
    """The `ProviderError` of an error of aiohttp or of the system; any other stays what it is."""
    import aiohttp
    from aiohttp import http_exceptions

    match error:
        case aiohttp.ConnectionTimeoutError():
            return timed_out("connect_timeout")
        case TimeoutError():
            return timed_out("timeout")
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ServerFingerprintMismatch():
            return _network("tls", "the model server's certificate or TLS was not accepted")
        case aiohttp.ClientConnectorDNSError():
            return _network("connect", "the model server's host name was not found")
        case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
            return _network("proxy", "the proxy did not connect to the model server")
        case aiohttp.ClientConnectorError():
            return _network("connect", "the model server did not accept a connection")
        case aiohttp.InvalidURL():
            return InvalidValue("base_url is no URL that can be requested")
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            return _network("not_http", "the model server's answer is not HTTP")
        case aiohttp.ClientPayloadError(__cause__=http_exceptions.ContentEncodingError()):
            return ProviderError(
                "the model server's answer can't be decompressed",
                code="protocol",
                reason="content_encoding",
            )
        case aiohttp.ClientError() | OSError():
            return _network("connection_lost", "the connection to the model server broke off")
        case _:
            return error


def _cause(error: Exception) -> Exception | None:
    """The error as a cause to show; not where it holds the request, whose headers hold the key."""
    import aiohttp

    return None if isinstance(error, aiohttp.ClientResponseError) else error


def timed_out(reason: str) -> ProviderError:
    """The error of a time limit that ran out; its reason is the limit's name."""
    return ProviderError(
        f"the model server took too long ({reason})", code="timeout", reason=reason
    )


def _network(reason: str, message: str) -> ProviderError:
    return ProviderError(message, code="network", reason=reason)

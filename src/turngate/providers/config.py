"""What a `CompatibleModelProvider` is told: where its server is, and how long it may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from turngate.errors import InvalidValue
from turngate.providers.wire import checked_extra_body
from turngate.values import Target

__all__ = ["ProviderConfig", "Secret", "checked_headers"]

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
_KEY = re.compile(r"[\x21-\x7e]+")


class Secret:
    """A text that no repr, log or encoder shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """One Chat Completions server. Requests go to `base_url` with ``/chat/completions`` added.

    Shapes: `model` None: the server's only one; `name` None: ``host:port`` of `base_url`, and it is
    the name that `ProviderData` carries; `target` None demands nothing of messages. `extra_body` is
    merged into every request body. `proxy` None: the environment's, for hosts other than this
    machine, if `trust_env`. `ca_file` holds the certificates to trust in place of the system's.
    Units: seconds and bytes. `first_event_timeout_s` runs from the request, `idle_timeout_s` from
    the last event (a comment is none), `total_timeout_s` over all attempts. `retries` counts the
    further attempts of a request none of whose parts has been given, `retry_budget_s` is the time
    after which none is begun, and a server that asks for more than `retry_after_max_s` is not
    asked again. `response_bytes_max` counts after decompression.
    Errors: `InvalidValue` names the field; neither it nor a repr shows `api_key` or a header.
    """

    base_url: str
    api_key: str | Secret | None = None
    model: str | None = None
    name: str | None = None
    target: Target | None = None
    headers: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    extra_body: Mapping[str, Any] | None = None
    proxy: str | None = None
    trust_env: bool = True
    ca_file: str | Path | None = None
    connect_timeout_s: float = 5.0
    first_event_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0
    total_timeout_s: float = 900.0
    response_bytes_max: int = 32 << 20
    line_bytes_max: int = 2 << 20
    event_bytes_max: int = 1 << 20
    event_lines_max: int = 10_000
    events_max: int = 1_000_000
    retries: int = 2
    retry_budget_s: float = 60.0
    retry_after_max_s: float = 20.0
    connections_max: int = 100

    def __post_init__(self) -> None:
        url = _checked_url("base_url", self.base_url)
        if "@" in url.netloc:
            raise InvalidValue("base_url holds no user or password; they belong into headers")
        if self.proxy is not None:
            _checked_url("proxy", self.proxy)
        if isinstance(self.api_key, str):
            msgspec.structs.force_setattr(self, "api_key", Secret(self.api_key))
        if self.api_key is not None and not _KEY.fullmatch(_revealed(self.api_key)):
            raise InvalidValue("api_key is empty, or has white space or a character outside ASCII")
        if self.name is None:
            msgspec.structs.force_setattr(self, "name", _host_and_port(url))
        for field, value in (("name", self.name), ("model", self.model)):
            if value is not None and not _is_text(value):
                raise InvalidValue(f"{field} is a text that is not empty, or None")
        msgspec.structs.force_setattr(self, "headers", checked_headers(self.headers))
        checked_extra_body(self.extra_body)
        for field in self.__struct_fields__:  # the unit of a number stands in its name
            if field.endswith("_s"):
                more = field.endswith("_timeout_s")
                _check_number(field, getattr(self, field), least=0.0, more=more)
            elif field.endswith("_max"):
                _check_number(field, getattr(self, field), least=1, whole=True)
        _check_number("retries", self.retries, least=0, whole=True)

    def __repr__(self) -> str:
        url = urlsplit(self.base_url)
        shown = url._replace(query="", fragment="").geturl()  # some servers take keys there
        return f"ProviderConfig(base_url={shown!r}, model={self.model!r}, name={self.name!r})"

    @property
    def provider_name(self) -> str:
        """`name`, which is never None once the configuration is made."""
        return self.name if self.name is not None else ""

    def request_headers(self) -> dict[str, str]:
        """The headers of every request, the key's among them, with lower-case names."""
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # compression delays a stream, and can be a bomb
            "content-type": "application/json",
            "user-agent": "turngate",
        }
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {_revealed(self.api_key)}"
        headers.update(checked_headers(self.headers))
        return headers

    def endpoint(self, path: str) -> str:
        """`base_url` with `path` added, before a query if it has one."""
        url = urlsplit(self.base_url)
        return url._replace(path=url.path.rstrip("/") + path, fragment="").geturl()


def checked_headers(
    headers: Mapping[str, str] | tuple[tuple[str, str], ...],
) -> tuple[tuple[str, str], ...]:
    """`headers` as pairs with lower-case names, once none can break out of its line.

    Errors: `InvalidValue`, which shows no value.
    """
    given = headers.items() if isinstance(headers, Mapping) else headers
    try:
        pairs = tuple((name, value) for name, value in given)
    except (TypeError, ValueError):
        raise InvalidValue(
            "headers are a mapping, or a tuple of pairs of a name and a value"
        ) from None
    for name, value in pairs:
        if not _is_text(name) or not _HEADER_NAME.fullmatch(name):
            raise InvalidValue("a header's name is letters, digits and hyphens")
        if not (value == "" or _is_text(value)) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidValue(f"the value of header {name!r} is text without control characters")
    return tuple((name.lower(), value) for name, value in pairs)


def _is_text(value: object) -> bool:
    """Whether `value` is a str that is not empty, whatever its annotation says."""
    return isinstance(value, str) and value != ""


def _checked_url(field: str, value: object) -> SplitResult:
    if isinstance(value, str) and not re.search(r"[\x00-\x20\x7f]", value):
        with suppress(ValueError):
            url = urlsplit(value)
            if url.scheme in ("http", "https") and url.hostname and url.port != 0:
                return url
    raise InvalidValue(f"{field} is a URL such as http://127.0.0.1:8080/v1")


def _host_and_port(url: SplitResult) -> str:
    port = url.port if url.port is not None else (443 if url.scheme == "https" else 80)
    host = url.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _revealed(key: str | Secret) -> str:
    return key.reveal() if isinstance(key, Secret) else key


def _check_number(
    field: str, value: object, *, least: float, more: bool = False, whole: bool = False
) -> None:
    """Take a finite number of at least `least` (`more`: above it), and no other value."""
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    number = float(value) if is_number and isinstance(value, int | float) else float("nan")
    if not (least < number if more else least <= number) or number == float("inf"):
        form = "a whole number" if whole else "a number of seconds"
        raise InvalidValue(f"{field} is {form} {'above' if more else 'of at least'} {least:g}")

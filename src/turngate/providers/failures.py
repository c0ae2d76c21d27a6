"""What went wrong at the model server: from a status, headers and a body to a `ProviderError`.

The wordings of known servers are data, in `failure_table`. A message states facts (status, reason,
content type, size) and never quotes the body: servers repeat prompts, answers and keys in theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from turngate import identity
from turngate.errors import ProviderCode, ProviderError
from turngate.providers.failure_table import BY_STATUS, FAILED_ENDS, HINTS, RULES, STATUS_WORDS

__all__ = [
    "ended_failure",
    "event_failure",
    "http_failure",
    "is_failure",
    "media_type_of",
    "request_id_of",
    "retry_after_s",
]

_RETRY_AFTER_S_MAX = 86_400.0
_WORDS_CHARS_MAX = 4_000
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")


def http_failure(*, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The error of a response whose status is not 2xx. `headers` have lower-case names."""
    value = _error_value(body)
    words = _words(value)
    code, reason = _classified(status, words)
    media_type = media_type_of(headers)
    size = f"{len(body)} bytes of {media_type}" if media_type else f"{len(body)} bytes"
    return ProviderError(
        f"the model server answered HTTP {status} ({reason}; {size})",
        code=code,
        reason=reason,
        status=status,
        request_id=request_id_of(headers),
        retry_after_s=retry_after_s(headers),
        hint=HINTS.get(reason),
    )


def event_failure(payload: bytes) -> ProviderError:
    """The error of an error object, or of an event named ``error``, in a body of status 200."""
    value = _error_value(payload)
    status = _told_status(value)
    code, reason = _classified(status, _words(value))
    told = f" with code {status}" if status else ""
    return ProviderError(
        f"the model server sent an error in place of its answer{told} ({reason})",
        code=code,
        reason=reason,
        hint=HINTS.get(reason),
    )


def ended_failure(word: str) -> ProviderError | None:
    """The error of a finish word that says that the answer failed; None for any other word."""
    failed = FAILED_ENDS.get(word.strip().lower())
    if failed is None:
        return None
    code, reason = failed
    return ProviderError(
        f"the model server broke its answer off ({reason})", code=code, reason=reason
    )


def is_failure(value: Any) -> bool:
    """Whether a JSON value without choices is an error object, in a member or flat."""
    if not isinstance(value, dict):
        return False
    if value.get("error"):
        return True
    if value.get("choices"):
        return False
    if "error" in (value.get("object"), value.get("type"), value.get("status")):
        return True
    says = any(isinstance(value.get(name), str) for name in ("message", "msg"))
    return bool(value.get("detail")) or (says and ("code" in value or "status" in value))


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """The server's own id of the request, if it is told in a usual header."""
    for name in _REQUEST_ID_HEADERS:
        value = headers.get(name, "")
        if value and len(value) <= 200 and value.isascii() and value.isprintable():
            return value
    return None


def retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """The wait that the response asks for, in seconds from `now`; None where none is readable.

    Seconds, milliseconds (in the vendors' headers) and HTTP dates are read; a moment that has
    passed is 0, and nothing is longer than a day.
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = _number(headers.get(name, ""))
        if milliseconds is not None:
            return min(milliseconds / 1000, _RETRY_AFTER_S_MAX)
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is None and value:
        seconds = _seconds_until(value, now if now is not None else identity.now())
    return min(seconds, _RETRY_AFTER_S_MAX) if seconds is not None else None


_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]*)?|\.[0-9]+")


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and _NUMBER.fullmatch(text) else None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max((moment - now).total_seconds(), 0.0)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _classified(status: int, words: str) -> tuple[ProviderCode, str]:
    """The code and reason for a status (0: none told) and the server's lower-case words."""
    for rule in RULES:
        if (not rule.statuses or status in rule.statuses) and any(w in words for w in rule.words):
            return rule.code, rule.reason
    if status in BY_STATUS:
        return BY_STATUS[status]
    if 300 <= status < 400:
        return "provider", "redirect"
    if 400 <= status < 500:
        return "provider", "bad_request"
    return "provider", "server_error"


def _error_value(body: bytes) -> Any:
    """What a body says: its JSON value, the data of its first event, or its text. HTML: nothing."""
    text = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"<":
        return None
    if text.startswith((b"data:", b"event:")):
        text = text.partition(b"data:")[2].partition(b"\n")[0]
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return text[:_WORDS_CHARS_MAX].decode("utf-8", "replace")


def _words(value: Any) -> str:
    """The strings of an error object in lower case, the first of them, joined."""
    return "\n".join(_strings(value, depth=5))[:_WORDS_CHARS_MAX].lower()


def _strings(value: Any, *, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_WORDS_CHARS_MAX]
    elif depth and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item, depth=depth - 1)


def _told_status(value: Any) -> int:
    """The HTTP status that an error object names, as a number or a word; 0 for none."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return 0
    told = _told_status(value.get("error"))
    for name in ("code", "status", "status_code", "http_code"):
        told = told or _status_of(value.get(name))
    return told


def _status_of(told: object) -> int:
    """The status of a code: a number, its digits, or a word."""
    if isinstance(told, str):
        word = told.strip().lower()
        told = int(word) if re.fullmatch("[0-9]{3}", word) else STATUS_WORDS.get(word, 0)
    return told if isinstance(told, int) and 300 <= told <= 599 else 0


def media_type_of(headers: Mapping[str, str]) -> str:
    """The content type in lower case without parameters; empty where it is not well-formed."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_plain = re.fullmatch(r"[a-z0-9.+*_-]{1,60}/[a-z0-9.+*_-]{1,60}", media_type)
    return media_type if is_plain else ""

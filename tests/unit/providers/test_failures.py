"""From what a server says to the kind of its failure."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.providers.failure_table import HINTS, RETRYABLE, RULES
from turngate.providers.failures import event_failure, http_failure, request_id_of, retry_after_s

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def kind(status: int, body: object, **headers: str) -> tuple[str, str]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = http_failure(status=status, headers=headers, body=raw)
    assert error.status == status
    return error.code, error.reason


def message(text: str, **members: object) -> dict[str, object]:
    return {"error": {"message": text, **members}}


@pytest.mark.parametrize(
    ("status", "body", "code", "reason"),
    [
        (400, message("x", code="context_length_exceeded"), "context_length", "context_length"),
        (400, message("This model's maximum context length is 8 tokens"), "context_length", None),
        (400, message("input and `max_tokens` exceed context limit"), "context_length", None),
        (400, message("The input token count (9) exceeds the maximum number of tokens allowed (8)"),
         "context_length", None),
        (413, b"<html>413 Request Entity Too Large</html>", "context_length", "request_too_large"),
        (429, message("Rate limit reached for requests"), "rate_limited", "rate_limit"),
        (429, b"", "rate_limited", "rate_limit"),
        (429, message("Too many tokens, please wait before trying again."), "rate_limited", None),
        (429, message("x", code="insufficient_quota"), "rate_limited", "quota"),
        (402, message("Insufficient Balance"), "provider", "quota"),
        (403, message("Insufficient credits"), "provider", "quota"),
        (401, message("Incorrect API key provided: sk-a"), "provider", "auth"),
        (400, message("API key not valid. Please pass a valid API key."), "provider", "auth"),
        (401, b"<html>", "provider", "auth"),
        (403, b"Forbidden", "provider", "auth"),
        (403, message("Your input was flagged"), "provider", "content_filter"),
        (400, message("x", innererror={"code": "ResponsibleAIPolicyViolation"}), "provider",
         "content_filter"),
        (404, message("The model `a` does not exist", code="model_not_found"), "provider",
         "model_not_found"),
        (404, message('model "a" not found, try pulling it first'), "provider", "model_not_found"),
        (404, {"detail": "Not Found"}, "provider", "not_found"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "provider", "bad_request"),
        (400, message("Unknown parameter: 'stream_options'"), "provider", "stream_options"),
        (500, message("boom"), "provider", "server_error"),
        (500, message("Context size has been exceeded."), "context_length", "context_length"),
        (502, b"<html>no context window here</html>", "provider", "server_error"),
        (503, message("Loading model"), "provider", "overloaded"),
        (503, b"", "provider", "overloaded"),
        (529, message("x", type="overloaded_error"), "provider", "overloaded"),
        (504, b"", "provider", "upstream_timeout"),
        (408, b"", "provider", "upstream_timeout"),
        (302, b"", "provider", "redirect"),
        (418, b"\xff\xfe\x00", "provider", "bad_request"),
        (400, b"[" * 100_000, "provider", "bad_request"),
        (400, {"error": "context window"}, "context_length", None),
        (400, b'data: {"error": {"message": "context window"}}\n\n', "context_length", None),
        (400, [message("context window")], "context_length", None),
    ],
)  # fmt: skip
def test_response_has_its_kind(status: int, body: object, code: str, reason: str | None) -> None:
    """The wording decides where it is known, and else the status."""
    assert kind(status, body) == (code, reason or code.replace("rate_limited", "rate_limit"))


SECRETS = ["sk-abcdef", "the prompt", "the answer", "<script>"]


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_error_never_quotes_the_body(status: int) -> None:
    """What a server repeats of prompts and keys stays out of the error."""
    body = json.dumps(message(" ".join(SECRETS), type=SECRETS[0], code=SECRETS[1])).encode()
    headers = {"content-type": "text/html; charset=<script>", "x-request-id": "r-1"}
    error = http_failure(status=status, headers=headers, body=body)
    in_stream = event_failure(body)
    for text in (str(error), repr(error), *error.__notes__) if error.hint else (str(error),):
        assert not any(secret in text for secret in SECRETS)
    assert not any(secret in str(in_stream) for secret in SECRETS)
    assert f"{len(body)} bytes of text/html" in str(error)
    assert error.request_id == "r-1"


@given(st.integers(300, 599), st.binary(max_size=200), st.text(max_size=30))
def test_any_response_makes_an_error(status: int, body: bytes, value: str) -> None:
    """Neither a body nor a header can break the mapping."""
    headers = {"retry-after": value, "content-type": value, "x-request-id": value}
    error = http_failure(status=status, headers=headers, body=body)
    assert error.retry_after_s is None or 0 <= error.retry_after_s <= 86_400
    assert event_failure(body).code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "message", "status"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_makes_an_error(value: object) -> None:
    """An error object may have any shape."""
    assert event_failure(json.dumps(value).encode()).code


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "45"}, 45.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": ""}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "٤٥"}, None),
        ({"retry-after": "9999999999"}, 86_400.0),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:10 -0000"}, 10.0),
        ({"retry-after": "Mon, 30 Nov 99999 12:00:10 GMT"}, None),
        ({"retry-after": "Mon, 99 Nov 2026 12:00:10 GMT"}, None),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"x-ms-retry-after-ms": "2500"}, 2.5),
        ({"retry-after-ms": "250.5", "retry-after": "9"}, 0.2505),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Seconds, milliseconds and dates; what is unreadable counts as absent."""
    assert retry_after_s(headers, now=NOW) == seconds


def test_request_id_is_taken_only_if_it_is_plain() -> None:
    """A header that could carry anything carries an id or nothing."""
    assert request_id_of({"x-request-id": "req_1"}) == "req_1"
    assert request_id_of({"request-id": "req_2"}) == "req_2"
    assert request_id_of({"x-request-id": "a\x07"}) is None
    assert request_id_of({"x-request-id": "x" * 500}) is None


def test_words_of_the_table_are_lower_case() -> None:
    """A word in capitals would never be found."""
    for rule in RULES:
        assert all(word == word.lower() for word in rule.words)


def test_reasons_that_do_not_pass_are_not_tried_again() -> None:
    """A request that is at fault is sent once."""
    at_fault = {"auth", "bad_request", "context_length", "content_filter", "model_not_found"}
    assert not RETRYABLE & (at_fault | {"quota", "redirect", "request_too_large"})
    assert set(HINTS) <= {rule.reason for rule in RULES} | {
        "not_found",
        "redirect",
        "request_too_large",
    }

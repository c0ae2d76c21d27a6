"""What servers say when they fail, as data: wordings, statuses and finish words.

A server's wording is matched in lower case, as a part of any string in its error object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from turngate.errors import ProviderCode

__all__ = ["BY_STATUS", "FAILED_ENDS", "HINTS", "RETRYABLE", "RULES", "STATUS_WORDS", "Rule"]


class Rule(NamedTuple):
    """If one of `words` is in the server's lower-case words, and the status is among `statuses`."""

    code: ProviderCode
    reason: str
    words: tuple[str, ...]
    statuses: tuple[int, ...] = ()  # none: any


# The first rule that fits decides; where none does, the status does.
RULES: tuple[Rule, ...] = (
    Rule("provider", "stream_options", (
        "stream_options", "include_usage",
    ), (400, 422)),
    Rule("context_length", "context_length", (
        "context_length_exceeded", "context_window_exceeded", "exceed_context_size",
        "tokens_limit_reached", "request_too_large", "maximum context length",
        "maximum model length", "maximum prompt length", "context length", "context size",
        "context window", "context limit", "maximum number of tokens allowed",
        "prompt is too long", "prompt too long", "input is too long", "input too long",
        "prompt exceeds", "too many tokens:", "request too large", "reduce the length",
        "input or output tokens must be reduced",
    )),
    Rule("provider", "content_filter", (
        "content_filter", "content filter", "content management policy", "content_policy",
        "content policy", "responsibleaipolicyviolation", "data_inspection_failed",
        "content exists risk", "prohibited_content", "safety system", "requires moderation",
        "was flagged",
    )),
    Rule("rate_limited", "quota", (
        "insufficient_quota", "exceeded your current quota",
    ), (429,)),
    Rule("provider", "quota", (
        "insufficient_quota", "insufficient quota", "exceeded your current quota",
        "quota used up", "quota exceeded", "credit balance", "insufficient credit",
        "insufficient balance", "insufficient funds", "billing", "payment required",
    ), (0, 400, 401, 402, 403)),
    Rule("provider", "auth", (
        "invalid_api_key", "invalid api key", "incorrect api key", "api key not valid",
        "no api key", "api_key_invalid", "authentication_error", "authentication failed",
        "unauthenticated", "unauthorized", "permission_denied", "permission_error",
    ), (0, 400, 401, 403)),
    Rule("provider", "model_not_found", (
        "model_not_found", "model not found", "no such model", "unknown model", "invalid model",
        "not a valid model", "model does not exist", "does not exist", "try pulling it first",
    ), (0, 400, 404, 422)),
    Rule("provider", "overloaded", (
        "overload", "server is busy", "server busy", "at capacity", "loading model",
        "unavailable",
    ), (0, 500, 502, 503, 529)),
    Rule("rate_limited", "rate_limit", (
        "rate_limit", "rate limit", "ratelimit", "too many requests", "resource_exhausted",
        "throttl",
    ), (0, 400, 403, 429, 503)),
)  # fmt: skip

BY_STATUS: Mapping[int, tuple[ProviderCode, str]] = {
    401: ("provider", "auth"),
    402: ("provider", "quota"),
    403: ("provider", "auth"),
    404: ("provider", "not_found"),
    408: ("provider", "upstream_timeout"),
    413: ("context_length", "request_too_large"),
    429: ("rate_limited", "rate_limit"),
    503: ("provider", "overloaded"),
    504: ("provider", "upstream_timeout"),
    524: ("provider", "upstream_timeout"),
    529: ("provider", "overloaded"),
}

# Words that stand where a number is expected, as the status that they mean.
STATUS_WORDS: Mapping[str, int] = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
}

# Finish words that no finished answer has.
FAILED_ENDS: Mapping[str, tuple[ProviderCode, str]] = {
    "error": ("provider", "server_error"),
    "server_error": ("provider", "server_error"),
    "network_error": ("provider", "server_error"),
    "insufficient_system_resource": ("provider", "overloaded"),
    "abort": ("truncated", "aborted"),
    "aborted": ("truncated", "aborted"),
    "cancelled": ("truncated", "aborted"),
}

# Reasons that may pass by themselves. Whether a second attempt is made is the provider's to say.
RETRYABLE = frozenset(
    (
        "rate_limit",
        "overloaded",
        "server_error",
        "upstream_timeout",
        "connect",
        "connect_timeout",
        "connection_lost",
        "truncated",
    )
)

HINTS: Mapping[str, str] = {
    "auth": "Check the api_key of the provider's configuration.",
    "context_length": "Send fewer or shorter messages, or ask for fewer output tokens.",
    "model_not_found": "Check the model's name; GET /models lists what the server has.",
    "not_found": "Check base_url; that of most servers ends in /v1.",
    "quota": "The account's quota or balance is used up; waiting alone does not help.",
    "redirect": "Redirects are not followed; set base_url to the server's own address.",
    "request_too_large": "Send fewer or shorter messages, or smaller files.",
}

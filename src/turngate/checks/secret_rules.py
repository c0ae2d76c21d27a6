"""What a secret looks like: known forms, each with its rule, and what only stands for a secret.

A pattern begins with something literal, and what is repeated is possessive or bounded. A key
begins only where no character of a key stands before it. So no part of a text is read more often
than a fixed number of times, and all takes time linear in its length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

from turngate.checks.verdicts import Hit

__all__ = ["secret_hits"]

_START = r"(?<![A-Za-z0-9])"

# A part named `value` is the secret itself; without it, all is.
_FORMS = {
    "aws_access_key": rf"{_START}(?P<value>(?:AKIA|ASIA)[A-Z0-9]{{16}})(?![A-Za-z0-9])",
    "github_token": rf"{_START}(?P<value>gh[oprsu]_[A-Za-z0-9]{{36,}}+"
    r"|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59,}+)",
    "gitlab_token": rf"{_START}gl(?:pat|ptt|rt|dt|cbt|oas|soat|ft|imt|agent)-"
    r"(?P<value>[A-Za-z0-9_-]{20,}+(?:\.[A-Za-z0-9_-]{2,}+)*+)",
    "slack_token": rf"{_START}(?:xox[abeoprs](?:\.xox[bp])?|xapp)-(?P<value>[A-Za-z0-9-]{{10,}}+)",
    "slack_webhook": rf"{_START}hooks\.slack\.com/(?:services|workflows|triggers)/"
    r"(?P<value>[A-Za-z0-9]{8,}+/[A-Za-z0-9]{8,}+/[A-Za-z0-9/]{16,}+)",
    "stripe_key": rf"{_START}(?:sk|rk)_(?:live|test)_(?P<value>[A-Za-z0-9]{{16,}}+)",
    "stripe_webhook_secret": rf"{_START}whsec_(?P<value>[A-Za-z0-9+/]{{32,}}+)",
    "sk_key": rf"{_START}sk-(?P<value>[A-Za-z0-9_-]{{20,}}+)",
    "google_api_key": rf"{_START}AIza(?P<value>[A-Za-z0-9_-]{{35}})(?![A-Za-z0-9_])",
    "google_client_secret": rf"{_START}GOCSPX-(?P<value>[A-Za-z0-9_-]{{28}})(?![A-Za-z0-9_])",
    "jwt": r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+"
    r"\.(?P<value>[A-Za-z0-9_-]{20,}+)",
    # The body ends with its last line, with the next line of dashes, or with the text.
    "private_key": r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?=(?:(?!-----)[\s\S]){0,300}?(?P<value>[A-Za-z0-9+/]{40}))"
    r"(?:(?!-----)[\s\S])*+(?:-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----)?",
    "url_password": r"://[^\s/?#:@]{0,128}+:(?P<value>[^\s/?#]{1,256})@(?=[A-Za-z0-9\[])",
    "assigned_secret": r"(?i:api_?-?key|access_?-?key|private_?-?key|secret|token|passw(?:or)?d"
    r"|passphrase|credential)[A-Za-z0-9_-]{0,20}+\\?[\"']?\s{0,8}+(?::=|=>|[=:])\s{0,8}+"
    r"(?:Bearer |Basic )?\\?[\"']?(?P<value>[A-Za-z0-9+/_.~-]{16,}+={0,2}+)(?![\w(\[{<$])",
}
_PATTERNS = {rule: re.compile(pattern) for rule, pattern in _FORMS.items()}

# Where the form alone says little, a value must look like one that a machine drew.
_MUST_LOOK_DRAWN = {"sk_key", "assigned_secret"}

_STAND_IN = re.compile(
    r"example|your|xxxx|placeholder|change_?-?me|redacted|removed|dummy|sample|insert|fake"
    r"|\.\.\.|\*\*\*|12345678|abcdefgh|[<>{}$%]",
    re.IGNORECASE,
)
_STAND_IN_PASSWORDS = {"pass", "passwd", "password", "pw", "pwd", "secret", "token", "key", "xxx"}
_DISTINCT_CHARS_MIN = 6
_BITS_MIN = 3.0  # a char: 16 random hexadecimal digits have some 3.2, words have the same or less


def secret_hits(text: str) -> Iterator[Hit]:
    """The secrets in `text`, in the order of their ends."""
    hits = [hit for rule in _PATTERNS for hit in _rule_hits(rule, text)]
    yield from sorted(hits, key=lambda hit: hit.end)


def _rule_hits(rule: str, text: str) -> Iterator[Hit]:
    for match in _PATTERNS[rule].finditer(text):
        value = match["value"]
        if rule == "url_password":
            # The host and the user say what is reached, and may stay.
            if not _STAND_IN.search(value) and value.lower() not in _STAND_IN_PASSWORDS:
                yield Hit(start=match.start("value"), end=match.end("value"), rule=rule)
        elif rule == "assigned_secret":
            if _looks_drawn(value) and not _is_stand_in(value):
                yield Hit(start=match.start("value"), end=match.end("value"), rule=rule)
        elif not _is_stand_in(value) and (rule not in _MUST_LOOK_DRAWN or _looks_drawn(value)):
            yield Hit(start=match.start(), end=match.end(), rule=rule)


def _is_stand_in(value: str) -> bool:
    """Whether `value` only shows where a secret would be."""
    return len(set(value)) < _DISTINCT_CHARS_MIN or _STAND_IN.search(value) is not None


def _looks_drawn(value: str) -> bool:
    """Whether `value` mixes characters as random keys do, and as names and sentences do not."""
    has_digit = any(char.isdigit() for char in value)
    has_lower = any(char.islower() for char in value)
    has_upper = any(char.isupper() for char in value)
    if not has_digit or not (has_lower or has_upper):
        return False
    # Names in one case are cut into words; a random key in one case has no such signs.
    if not (has_lower and has_upper) and max(map(len, re.split(r"[^A-Za-z0-9]", value))) < 16:
        return False
    return _bits_per_char(value) >= _BITS_MIN


def _bits_per_char(value: str) -> float:
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares)

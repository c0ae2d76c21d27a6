"""Secrets of each kind are found, and what only looks like one is not.

No secret stands in this file: each is made of its form and of random characters.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from string import ascii_letters, ascii_uppercase, digits
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.unit.strategies  # noqa: F401  # its profile sets no time limit
from tests.docs.pages import ROOT, table_rows
from turngate.checks import Allow, Block, Prompt, Proposal, Replace, Review, SecretsCheck
from turngate.checks.secret_rules import _FORMS, secret_hits
from turngate.checks.verdicts import MARK, Hit, cleaned, replaced
from turngate.errors import InvalidValue
from turngate.messages import ToolCall

_DRAWN = random.Random(7)
ALNUM = ascii_letters + digits
HEX = "0123456789abcdef"


def drawn(length: int, chars: str = ALNUM) -> str:
    """Random characters, with one of each kind that a key has by all odds."""
    kinds = [kind for kind in (digits, "abcdef", "ABCDEF") if set(kind) <= set(chars)]
    fixed = [_DRAWN.choice(kind) for kind in kinds]
    rest = _DRAWN.choices(chars, k=length - len(fixed))
    return "".join(_DRAWN.sample(fixed + rest, length))


def pem(kind: str, lines: int = 3) -> str:
    body = "\n".join(drawn(64, ALNUM + "+/") for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def jwt() -> str:
    head, claims = (
        urlsafe_b64encode(text).decode().rstrip("=")
        for text in (b'{"alg":"HS256"}', b'{"sub":"1"}')
    )
    return f"{head}.{claims}.{drawn(43)}"


# By rule: the secret alone.
SECRETS = [
    ("aws_access_key", "AKIA" + drawn(16, ascii_uppercase + digits)),
    ("aws_access_key", "ASIA" + drawn(16, ascii_uppercase + digits)),
    *(("github_token", f"gh{kind}_" + drawn(36)) for kind in "opsur"),
    ("github_token", "github_pat_" + drawn(22) + "_" + drawn(59)),
    ("gitlab_token", "glpat-" + drawn(20, ALNUM + "-_")),
    ("gitlab_token", "glpat-" + drawn(27) + ".01." + drawn(9)),
    ("slack_token", "xoxb-" + "-".join([drawn(12, digits), drawn(13, digits), drawn(24)])),
    ("slack_token", "xapp-1-" + "-".join([drawn(11), drawn(13, digits), drawn(64, HEX)])),
    ("slack_webhook", f"hooks.slack.com/services/T{drawn(9)}/B{drawn(10)}/{drawn(24)}"),
    ("stripe_key", "sk_live_" + drawn(24)),
    ("stripe_key", "rk_test_" + drawn(99)),
    ("stripe_webhook_secret", "whsec_" + drawn(32)),
    ("sk_key", "sk-" + drawn(48)),
    ("sk_key", "sk-proj-" + drawn(74, ALNUM + "-_")),
    ("sk_key", "sk-ant-api03-" + drawn(95, ALNUM + "-_")),
    ("sk_key", "sk-or-v1-" + drawn(64, HEX)),
    ("google_api_key", "AIza" + drawn(35, ALNUM + "-_")),
    ("google_client_secret", "GOCSPX-" + drawn(28, ALNUM + "-_")),
    ("jwt", jwt()),
    ("private_key", pem("PRIVATE KEY", 1)),
    ("private_key", pem("RSA PRIVATE KEY", 25)),
    ("private_key", pem("OPENSSH PRIVATE KEY")),
    ("private_key", pem("ENCRYPTED PRIVATE KEY")),
    ("private_key", pem("PGP PRIVATE KEY BLOCK")),
]
IDS = [f"{i}-{rule}" for i, (rule, _) in enumerate(SECRETS)]


@pytest.mark.parametrize(("rule", "secret"), SECRETS, ids=IDS)
@pytest.mark.parametrize("around", ["{}", "Use `{}`.", "'{}'", "x {}\ny", "密{}钥", "k={},"])
def test_secret_is_found(rule: str, secret: str, around: str) -> None:
    """The hit is the whole secret, whatever stands beside it."""
    text = around.format(secret)
    start = text.index(secret)
    assert Hit(start=start, end=start + len(secret), rule=rule) in list(secret_hits(text))


PASSWORD = drawn(20)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ("url_password", "postgres://app:s3cr!t-pw@db.local:5432/app", "s3cr!t-pw"),
        ("url_password", "redis://:hunter2@10.0.0.1", "hunter2"),
        ("url_password", "https://u:p@ss@[::1]/x", "p@ss"),
        ("assigned_secret", f'api_key = "{PASSWORD}"', PASSWORD),
        ("assigned_secret", f"OPENAI_API_KEY={PASSWORD}", PASSWORD),
        ("assigned_secret", f"client-secret: '{PASSWORD}'", PASSWORD),
        ("assigned_secret", f'{{"accessToken":"{PASSWORD}"}}', PASSWORD),
        ("assigned_secret", f'{{\\"token\\": \\"{PASSWORD}\\"}}', PASSWORD),
        ("assigned_secret", f"aws_secret_access_key={PASSWORD * 2}==", PASSWORD * 2 + "=="),
        ("assigned_secret", f"password := {drawn(32, HEX)}", None),
        ("assigned_secret", f"auth_token => Bearer {PASSWORD}", PASSWORD),
    ],
)
def test_assigned_secret_is_found_without_its_name(rule: str, text: str, value: str | None) -> None:
    """The value alone is the hit, so that what is replaced still says what was there."""
    ((found, place),) = [(h.rule, text[h.start : h.end]) for h in secret_hits(text)]
    assert (found, place) == (rule, place if value is None else value)


@pytest.mark.parametrize(
    "text",
    [
        "sk-... and sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "sk-your-api-key-here-1234 sk-proj-YOUR_KEY_1234567890",
        "sk-1234567890abcdef1234567890abcdef",
        "sk-learn-2-and-some-other-hyphenated-words",
        "task-" + drawn(48),
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AKIA" + drawn(12, ascii_uppercase),
        "AKIA" + drawn(30, ascii_uppercase),
        "ghp_" + "x" * 36,
        "ghp_" + drawn(12),
        "glpat-your-token-goes-in-here",
        "xoxb-your-bot-token",
        "AIza" + drawn(50),
        "eyJ is how a JWT begins; eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0 is cut",
        "Files that begin with -----BEGIN PRIVATE KEY----- are keys. Keep them well, all of you.",
        pem("PUBLIC KEY"),
        pem("CERTIFICATE"),
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "postgres://user:password@host/db postgres://user:<pw>@host postgres://u:${PW}@host",
        "http://host:8080/a@b http://host:80?to=me@example.org mailto:me@example.org",
        'api_key = "your-api-key-here" token: xxxxxxxxxxxxxxxxxxxxxxxx',
        'api_key = os.environ["API_KEY_2"] token = makeToken2WithManyParts()',
        "token = settings.SomeService2Token[0]; secret = ${SECRET_NUMBER_1_OF_2}",
        "password: correct-horse-battery-staple-2",
        "max_tokens: 100000000000000000000",
        "secret = 'aaaaaaaaaaaaBCDEf1'",
        "commit " + drawn(40, HEX),
        "",
    ],
)
def test_stand_in_is_no_secret(text: str) -> None:
    """What shows where a secret goes, or has another form, is no hit."""
    assert list(secret_hits(text)) == []


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────

KEY = "AKIA" + drawn(16, ascii_uppercase + digits)
RULE = "aws_access_key"


async def test_verdict_on_a_prompt() -> None:
    """A prompt is blocked, or goes on without the secret."""
    prompt = Prompt(text=f"my key {KEY}", thread="t")
    assert await SecretsCheck().check_prompt(prompt) == Block(RULE)
    assert await SecretsCheck(action="replace").check_prompt(prompt) == Allow("my key [removed]")
    assert await SecretsCheck(action="review").check_prompt(prompt) == Block(RULE)
    assert await SecretsCheck().check_prompt(Prompt(text="hi", thread="t")) == Allow()


@pytest.mark.parametrize("where", ["text", "reasoning", "arguments"])
async def test_verdict_on_an_answer(where: str) -> None:
    """A secret is found in each part of an answer, and is replaced in the text alone."""
    parts: dict[str, Any] = {"text": "fine"}
    escaped = KEY.replace("A", "\\u0041")
    if where == "arguments":
        parts["tool_calls"] = (ToolCall(id="c", name="f", arguments=f'{{"k": "{escaped}"}}'),)
    else:
        parts[where] = f"it is {KEY}"
    answer = Proposal(thread="t", **parts)
    replacing = {"text": Replace("it is [removed]"), "reasoning": Replace("fine")}
    assert await SecretsCheck().check_answer(answer) == Block(RULE)
    assert await SecretsCheck(action="review").check_answer(answer) == Review(RULE)
    assert await SecretsCheck(action="replace").check_answer(answer) == replacing.get(
        where, Block(RULE)
    )


@pytest.mark.parametrize("arguments", [{"action": "drop"}, {"action": None}, {"name": 5}])
def test_secrets_check_refuses_an_unknown_action(arguments: dict[str, Any]) -> None:
    """The action is one of three, and the name a text."""
    with pytest.raises(InvalidValue):
        SecretsCheck(**arguments)


@pytest.mark.parametrize("rule", _FORMS)
def test_rule_is_in_the_reference(rule: str) -> None:
    """Each kind has a row on the page, and a secret in these tests."""
    rows = list(table_rows(ROOT / "docs" / "reference" / "checks.md", "## Secrets"))
    assert f"`{rule}`" in [row[0] for row in rows]
    assert rule in {rule for rule, _ in SECRETS} | {"url_password", "assigned_secret"}


# ── laws ─────────────────────────────────────────────────────────────────────────────────────

pieces = st.lists(
    st.sampled_from(
        [secret for _, secret in SECRETS]
        + ["token=", "://u:", "@h", "sk-", "eyJ", ".", "-----", " ", "\n", '"', "x", "[removed]"]
        + [PASSWORD, "-----BEGIN PRIVATE KEY-----", "hooks.slack.com/services/"]
    ),
    max_size=8,
).map("".join)


@given(pieces)
def test_cleaned_text_has_no_secret(text: str) -> None:
    """What is left by a replacement passes; no text of these pieces has to be blocked."""
    clean = cleaned(text, find=secret_hits, mark=MARK)
    assert isinstance(clean, str)
    assert list(secret_hits(clean)) == []


def test_secret_that_a_mark_uncovers_is_replaced() -> None:
    """A token that goes on with dashes is one once what the dashes belong to is gone."""
    text = pem("PRIVATE KEY") + jwt()
    assert replaced(text, secret_hits(text), MARK) != cleaned(text, find=secret_hits, mark=MARK)
    assert cleaned(text, find=secret_hits, mark=MARK) == MARK * 2


@given(pieces, st.sampled_from([secret for _, secret in SECRETS]))
def test_no_secret_of_a_known_form_is_left(text: str, secret: str) -> None:
    """After a space and before the end of a line, a secret is replaced whatever stands before."""
    clean = replaced(f"{text} {secret}\n", secret_hits(f"{text} {secret}\n"), MARK)
    assert f" {secret}\n" not in clean

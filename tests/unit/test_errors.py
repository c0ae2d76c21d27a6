"""Errors: families, stable codes, hints as notes, and messages of facts alone."""

from __future__ import annotations

import inspect
import traceback
import typing

import pytest

from turngate import errors
from turngate.errors import (
    InvalidMessage,
    NotAnswered,
    PolicyStopped,
    ProviderCode,
    ProviderError,
    RequestError,
    SessionStateError,
    StoreError,
    StoreInUse,
    ThreadBusy,
    ThreadMoved,
    ThreadNotFound,
    TurngateError,
    UnknownCall,
)

PUBLIC: list[type[TurngateError]] = [
    value
    for name in errors.__all__
    if inspect.isclass(value := getattr(errors, name)) and issubclass(value, TurngateError)
]

# What programs outside rely on. A code is added here once, and never changed.
CODES = {
    "TurngateError": "turngate",
    "RequestError": "bad_request",
    "InvalidValue": "invalid_value",
    "InvalidMessage": "invalid_message",
    "ThreadNotFound": "thread_not_found",
    "TurnNotFound": "turn_not_found",
    "ThreadBusy": "thread_busy",
    "ThreadMoved": "thread_moved",
    "UnknownCall": "unknown_call",
    "NotAnswered": "not_answered",
    "PolicyStopped": "policy_stopped",
    "StoreError": "store",
    "StoreInUse": "store_in_use",
    "SessionStateError": "session_state",
}
PROVIDER_CODES = {
    "protocol",
    "provider",
    "truncated",
    "rate_limited",
    "context_length",
    "network",
    "timeout",
}

EXAMPLES: list[TurngateError] = [
    ThreadNotFound("t1"),
    ThreadBusy("t1", call_id="run_1"),
    ThreadMoved("t1", expected=3, length=4),
    UnknownCall("run_1"),
    NotAnswered(kind="blocked", reason="rule", call_id="run_1"),
    StoreInUse("turngate.db", owner="process 12"),
    SessionStateError("part", "ended"),
    PolicyStopped("stopped", reason="too_long"),
    ProviderError("no answer", code="network"),
    InvalidMessage("a dict is no message"),
]


def test_every_error_is_public_and_of_one_base() -> None:
    """Each error class of the module is listed, and is a TurngateError."""
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert defined == {each.__name__ for each in PUBLIC}


def test_codes_are_stable_and_unique() -> None:
    """Each class has a code of its own; known ones never change."""
    codes = {each.__name__: vars(each)["code"] for each in PUBLIC if each is not ProviderError}
    assert len(set(codes.values())) == len(codes)
    assert {name: codes.get(name) for name in CODES} == CODES
    assert set(typing.get_args(ProviderCode)) == PROVIDER_CODES
    assert not PROVIDER_CODES & set(codes.values())


@pytest.mark.parametrize("code", sorted(PROVIDER_CODES))
def test_provider_error_has_the_code_it_was_given(code: ProviderCode) -> None:
    """One class for all kinds; without a reason the code is the reason."""
    assert ProviderError("x", code=code).code == code
    assert ProviderError("x", code=code).reason == code
    assert ProviderError("x", code=code, reason="auth").reason == "auth"


def test_provider_error_carries_the_facts_of_the_exchange() -> None:
    """Status, request id, wait and what came before are attributes, and None where unknown."""
    told = ProviderError(
        "busy", code="rate_limited", status=429, request_id="r1", retry_after_s=1.5, hint="Wait."
    )
    assert (told.status, told.request_id, told.retry_after_s) == (429, "r1", 1.5)
    plain = ProviderError("cut", code="truncated")
    assert (plain.status, plain.request_id, plain.retry_after_s, plain.partial) == (None,) * 4


def test_families_hold_together() -> None:
    """What a caller catches by family is what the family says."""
    request = {ThreadNotFound, ThreadBusy, ThreadMoved, UnknownCall, NotAnswered, InvalidMessage}
    assert all(issubclass(each, RequestError) for each in request)
    assert issubclass(StoreInUse, StoreError)
    assert issubclass(InvalidMessage, TypeError)
    for apart in (ProviderError, PolicyStopped, StoreError, SessionStateError):
        assert not issubclass(apart, RequestError)


def test_hint_is_a_note() -> None:
    """The next step is in the traceback, and apart from the message."""
    error = TurngateError("it failed", hint="Try it so.")
    assert (str(error), error.hint, error.__notes__) == ("it failed", "Try it so.", ["Try it so."])
    assert traceback.format_exception(error)[-1] == "Try it so.\n"


def test_no_hint_is_no_note() -> None:
    """Without a hint the traceback has no further line."""
    error = TurngateError("it failed")
    assert error.hint is None
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_message_is_made_of_facts(error: TurngateError) -> None:
    """A message is one short line, and each id that it names is an attribute too."""
    assert str(error)
    assert "\n" not in str(error)
    assert error.code


def test_no_error_takes_a_prompt_or_an_answer() -> None:
    """No error has a parameter through which a prompt, an answer or a key could come in."""
    parameters = {name for each in PUBLIC for name in inspect.signature(each).parameters}
    assert not parameters & {"prompt", "text", "content", "messages", "parts", "api_key"}


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (ThreadNotFound("t1"), {"thread_id": "t1"}),
        (ThreadBusy("t1", call_id="r1"), {"thread_id": "t1", "call_id": "r1"}),
        (ThreadMoved("t1", expected=3, length=4), {"expected": 3, "length": 4}),
        (UnknownCall("r1"), {"call_id": "r1"}),
        (
            NotAnswered(kind="blocked", reason="rule", call_id="r1"),
            {"kind": "blocked", "reason": "rule", "call_id": "r1"},
        ),
        (StoreInUse("a.db", owner="process 1"), {"path": "a.db", "owner": "process 1"}),
        (SessionStateError("part", "ended"), {"call": "part", "state": "ended"}),
    ],
)
def test_facts_are_in_message_and_attributes(
    error: TurngateError, facts: dict[str, object]
) -> None:
    """A program reads the attributes, and a person the same facts in the message."""
    for name, value in facts.items():
        assert getattr(error, name) == value
        assert str(value) in str(error)

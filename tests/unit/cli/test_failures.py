"""How commands end: exit codes, and errors on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from turngate.cli.failures import WrongUsage, ended, exit_code
from turngate.errors import (
    InvalidValue,
    PolicyStopped,
    ProviderError,
    StoreError,
    StoreInUse,
    ThreadNotFound,
    TurngateError,
)


def raising(error: BaseException) -> Callable[[], int]:
    def body() -> int:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ThreadNotFound("t"), 1),
        (InvalidValue("a thread id is …"), 1),
        (WrongUsage("no server"), 2),
        (ProviderError("refused", code="network"), 3),
        (PolicyStopped("stopped", reason="rule"), 3),
        (StoreError("disk full"), 4),
        (StoreInUse("x.db", owner="process 7"), 4),
    ],
)
def test_each_family_of_errors_has_its_exit_code(error: TurngateError, code: int) -> None:
    """The codes are documented, so scripts may branch on them."""
    assert exit_code(error) == code


def test_an_error_is_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The message and the hint are shown, and stdout stays empty."""
    assert ended(raising(StoreInUse("x.db", owner="process 7")), as_json=False) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: x.db is open for writing elsewhere (process 7)\n"
        "hint:  Close it there, or use PostgreSQL for more than one writing process.\n"
    )


def test_an_error_as_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json an error has a code, a message and a hint (null: none)."""
    assert ended(raising(ThreadNotFound("t")), as_json=True) == 1
    error = json.loads(capsys.readouterr().err)
    assert error == {
        "error": {"code": "thread_not_found", "message": "there is no thread 't'", "hint": None}
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """A server's own words are cleaned like any other text."""
    ended(raising(ProviderError("\x1b[2J[red]x", code="provider")), as_json=as_json)
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "[red]x" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_key_that_a_server_repeats_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """Some servers put the key that they refuse into their message."""
    monkeypatch.setenv("TURNGATE_API_KEY", "sk-secret-1234")
    error = ProviderError("bad key sk-secret-1234", code="provider", hint="not sk-secret-1234")
    ended(raising(error), as_json=as_json)
    assert "sk-secret" not in capsys.readouterr().err


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupt is no error and leaves no traceback."""
    assert ended(raising(KeyboardInterrupt()), as_json=False) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_keeps_its_traceback() -> None:
    """What nobody expected is not dressed up as an error of the caller."""
    with pytest.raises(ZeroDivisionError):
        ended(raising(ZeroDivisionError()), as_json=False)

"""How a command ends when it fails: the exit codes, and an error as lines or as JSON.

0 done · 1 the request can't be met · 2 wrong usage · 3 the model's side failed
4 the database failed · 128 + n ended by signal n (130: Ctrl-C)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import get_args

from turngate.cli.terminal import out_console, print_json, say
from turngate.errors import PolicyStopped, ProviderCode, ProviderError, StoreError, TurngateError

PROVIDER_FAILED = 3
INTERRUPTED = 130
_READER_GONE = 141

# Reasons of an end that the model's side is to blame for.
CUT_OFF = {*get_args(ProviderCode), "policy"}

_KEYS = ("TURNGATE_API_KEY", "OPENAI_API_KEY")
_KEY_CHARS_MIN = 8


class WrongUsage(TurngateError):
    """The command can't run as it was called, whatever the database holds."""

    code = "usage"


def exit_code(error: TurngateError) -> int:
    match error:
        case WrongUsage():
            return 2
        case ProviderError() | PolicyStopped():
            return PROVIDER_FAILED
        case StoreError():
            return 4
        case _:
            return 1


def ended(body: Callable[[], int], *, as_json: bool) -> int:
    """The exit code of `body`. An expected error is shown on stderr, and never as a traceback."""
    try:
        code = body()
        sys.stdout.flush()
    except TurngateError as error:
        show_error(error.code, str(error), error.hint, as_json=as_json)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has no reader, and the interpreter's last flush would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_GONE
    return code


def show_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """Write one error to stderr, without the keys that a server may repeat in its message."""
    for key in filter(None, map(os.environ.get, _KEYS)):
        if len(key) >= _KEY_CHARS_MIN:
            message = message.replace(key, "***")
            hint = hint.replace(key, "***") if hint is not None else None
    if as_json:
        print_json({"error": {"code": code, "message": message, "hint": hint}}, sys.stderr)
        return
    console = out_console(sys.stderr)
    say(console, ("error: ", "bold red"), message)
    if hint is not None:
        say(console, ("hint:  ", "dim"), hint)

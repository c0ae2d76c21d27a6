"""How a command ends when it fails: the exit codes, and an error as a line or as JSON.

0 done · 1 the request can't be met · 2 wrong usage · 3 the model's side failed
4 the database failed · 128 + n ended by signal n (130: Ctrl-C)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from turngate.cli.terminal import error_console, visible
from turngate.errors import PolicyStopped, ProviderError, StoreError, TurngateError

__all__ = [
    "INTERRUPTED",
    "PROVIDER_FAILED",
    "READER_GONE",
    "USAGE",
    "WrongUsage",
    "ended",
    "exit_code",
    "show_error",
]

USAGE = 2
PROVIDER_FAILED = 3
INTERRUPTED = 130
READER_GONE = 141

_KEYS = ("TURNGATE_API_KEY", "OPENAI_API_KEY")
_KEY_CHARS_MIN = 8


class WrongUsage(TurngateError):
    """The command can't run as it was called, whatever the database holds."""

    code = "usage"


def exit_code(error: TurngateError) -> int:
    match error:
        case WrongUsage():
            return USAGE
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
        return READER_GONE
    return code


def show_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """Write one error to stderr: lines for a person, or one JSON object."""
    message = _without_keys(message)
    hint = _without_keys(hint) if hint is not None else None
    if as_json:
        error = {"code": code, "message": message, "hint": hint}
        print(json.dumps({"error": error}), file=sys.stderr, flush=True)
        return
    console = error_console()
    console.print("[bold red]error:[/]", end=" ")
    console.print(visible(message), markup=False, highlight=False, soft_wrap=True)
    if hint is not None:
        console.print("[dim]hint:[/] ", end=" ")
        console.print(visible(hint), markup=False, highlight=False, soft_wrap=True)


def _without_keys(text: str) -> str:
    """`text` without the keys of the environment, should a server repeat one in its message."""
    for name in _KEYS:
        key = os.environ.get(name, "")
        if len(key) >= _KEY_CHARS_MIN:
            text = text.replace(key, "***")
    return text

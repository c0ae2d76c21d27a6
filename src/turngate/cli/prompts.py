"""Where prompts come from: a person at a terminal, or the lines of a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from turngate.cli.terminal import out_console

__all__ = ["is_interactive", "kept_terminal", "piped_prompts", "typed_prompts"]

# As wide as the labels of a conversation, so that what is typed stands above its answer.
_MARK = "you     "


def is_interactive() -> bool:
    return sys.stdin.isatty()


def typed_prompts(*, quiet: bool) -> Iterator[str]:
    """The lines that a person types, without empty ones, until Ctrl-D or Ctrl-C.

    `quiet`: stdout is for a program, so the prompt is written to stderr.
    """
    _tolerate_bytes()
    quiet = quiet or not sys.stdout.isatty()
    mark = _styled_mark()
    while True:
        try:
            line = _typed_line() if quiet else input(mark)
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr if quiet else sys.stdout)
            return
        if line.strip():
            yield line


def piped_prompts() -> Iterator[str]:
    """The lines of stdin, without empty ones."""
    _tolerate_bytes()
    for line in sys.stdin:
        if line.strip():
            yield line.removesuffix("\n")


def _typed_line() -> str:
    print(_MARK, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _tolerate_bytes() -> None:
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")


def _styled_mark() -> str:
    """The prompt; its styling is marked as having no width, which only readline understands."""
    try:
        import readline  # noqa: F401  # gives `input` editing and history
    except ImportError:
        return _MARK
    if out_console().color_system is None or out_console().no_color:
        return _MARK
    return f"\001\033[1;36m\002{_MARK}\001\033[0m\002"


@contextmanager
def kept_terminal() -> Iterator[None]:
    """The terminal's settings after this context are those before it, however it ends."""
    try:
        import termios
    except ImportError:  # Windows has none
        yield
        return
    if not is_interactive():
        yield
        return

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)

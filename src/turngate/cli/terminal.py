"""Text on a terminal that cannot steer it, and the consoles that it is written to."""

from __future__ import annotations

import sys
import textwrap
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

__all__ = ["Wrap", "console_on", "error_console", "indented", "out_console", "visible"]

# Wide enough that nothing is ever folded or cut for a pipe or a file.
_PIPE_COLUMNS = 10_000

_KEPT = "\n\t"
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]  # C0, delete, C1
_REORDERING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]  # they make text read as another
_LINE_BREAKS = {0x2028: "\n", 0x2029: "\n"}
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
_VISIBLE: dict[int, str | None] = {
    **{code: None for code in [*_CONTROLS, *_REORDERING] if chr(code) not in _KEPT},
    **_LINE_BREAKS,
    **_SURROGATES,
}


def visible(text: str) -> str:
    """`text` without characters that steer a terminal; newline and tab stay.

    It works on any piece of a text alone: each character is judged by itself.
    """
    return text.translate(_VISIBLE)


class _Console(Console):
    """A console that leaves it to the command what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console_on(stream: TextIO) -> Console:
    """A console that writes to `stream`: styled on a terminal, plain and unfolded elsewhere."""
    # A narrow locale must not end a command: what it can't write becomes a question mark.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() else _PIPE_COLUMNS
    return _Console(file=stream, width=width, highlight=False, emoji=False)


def out_console() -> Console:
    return console_on(sys.stdout)


def error_console() -> Console:
    return console_on(sys.stderr)


def indented(text: str, console: Console, *, by: int, style: str = "") -> Any:
    """What prints `text` under an indent of `by` columns, folded where it goes to a terminal."""
    shown = visible(text)
    if console.is_terminal:
        return Padding(Text(shown, style=style), (0, 0, 0, by))
    return Text(textwrap.indent(shown, " " * by))


class Wrap:
    """Streamed text, folded between words under a hanging indent.

    `add` gives what can be shown by now: all but the last word, which may go on. `end` gives the
    rest. Wide characters (Chinese, Japanese, Korean) may be followed by a line break each.
    """

    def __init__(self, *, width: int, indent: int) -> None:
        self._width = width
        self._indent = indent
        self._column = indent
        self._spaces = ""
        self._word = ""

    def add(self, text: str) -> str:
        shown = []
        for char in text:
            if char == "\n":
                shown.append(self._placed())
                shown.append("\n" + " " * self._indent)
                self._spaces, self._column = "", self._indent
            elif char.isspace():
                shown.append(self._placed())
                self._spaces += "    " if char == "\t" else char
            else:
                self._word += char
                if cell_len(char) > 1:
                    shown.append(self._placed())
        return "".join(shown)

    def end(self) -> str:
        return self._placed()

    def _placed(self) -> str:
        """The pending word behind its spaces, on the next line if this one is full."""
        if not self._word:
            return ""
        before, word, cells = self._spaces, self._word, cell_len(self._word)
        self._spaces = self._word = ""
        if self._column > self._indent and self._column + len(before) + cells > self._width:
            self._column = self._indent + cells
            return "\n" + " " * self._indent + word
        self._column += len(before) + cells
        return before + word

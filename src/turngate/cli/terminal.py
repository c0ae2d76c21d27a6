"""Text on a terminal that cannot steer it, and JSON for programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough that nothing is ever folded for a pipe or a file.
_PIPE_COLUMNS = 1_000_000

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}  # C0, delete, C1
_REORDERING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]  # they make text read as another
_VISIBLE: dict[int, str | None] = {
    **dict.fromkeys([*_CONTROLS, *_REORDERING]),
    **dict.fromkeys((0x2028, 0x2029), "\n"),
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
}


def visible(text: str) -> str:
    """`text` without characters that steer a terminal; newline and tab stay.

    It works on any piece of a text alone: each character is judged by itself.
    """
    return text.translate(_VISIBLE)


# They take no ink, whatever their category says: joiners, fillers, variation selectors.
_INKLESS = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
_INKLESS |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}


def revealed(text: str) -> str:
    """`text` with every character that is not seen escaped, as ``\\u202e``; newline and tab stay.

    For a person who has to know what exactly stands there.
    """
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    if character in "\n\t" or not (is_hidden or ord(character) in _INKLESS):
        return character
    return character.encode("unicode_escape").decode()


class _Console(Console):
    """A console that leaves it to the command what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def out_console(stream: TextIO | None = None) -> Console:
    """A console on `stream` (None: stdout): styled on a terminal, plain and unfolded elsewhere."""
    stream = stream if stream is not None else sys.stdout
    # A narrow locale must not end a command: what it can't write becomes a question mark.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() else _PIPE_COLUMNS
    return _Console(file=stream, width=width, highlight=False, emoji=False)


def say(console: Console, *pieces: str | tuple[str, str], end: str = "\n") -> None:
    """One line of `pieces`, each a text or a text and its style, unfolded and at once."""
    line = Text()
    for piece in pieces:
        text, style = (piece, "") if isinstance(piece, str) else piece
        line.append(visible(text), style=style)
    console.print(line, soft_wrap=True, end=end)
    console.file.flush()


def print_block(console: Console, text: str, *, indent: int, style: str = "") -> None:
    """`text` under an indent, folded between words where it goes to a terminal."""
    for line in Text(visible(text), style=style).wrap(console, console.width - indent):
        console.print(Text(" " * indent) + line, soft_wrap=True)


def print_list(
    console: Console,
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    empty: str,
    after: str | None = None,
) -> None:
    """One page of a list as a table, or `empty`; `after` is the cursor of the next page."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        # A cell is one line, and its text no markup.
        table.add_row(*(Text(" ".join(visible(cell).split())) for cell in row))
    if table.row_count:
        console.print(table)
    else:
        say(console, (empty, "dim"))
    if after is not None:
        say(console, (f"There are more: --after {after}", "dim"))


def json_shape(value: Any) -> Any:
    """`value` as JSON takes it: of a record all of its fields, null where there is nothing."""
    if isinstance(value, msgspec.Struct):
        fields = {name: json_shape(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return {"type": tag, **fields} if tag is not None else fields
    if isinstance(value, datetime):
        return value.isoformat()
    return [json_shape(entry) for entry in value] if isinstance(value, tuple | list) else value


def print_json(value: Any, stream: TextIO | None = None) -> None:
    """One line of JSON in ASCII, so that nothing in it can steer a terminal."""
    print(json.dumps(value), file=stream, flush=True)

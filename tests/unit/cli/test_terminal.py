"""Text that comes from a model or a user cannot steer the terminal that shows it."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from turngate.cli.terminal import Wrap, console_on, indented, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;title\x07", "]0;title"),
        ("over\rwritten\r\n", "overwritten\n"),
        ("\x9b31m eight-bit", "31m eight-bit"),
        ("back\b\b\x7f", "back"),
        ("a\u202ereversed\u2066", "areversed"),
        ("line\u2028break", "line\nbreak"),
        ("half \ud83d pair", "half \N{REPLACEMENT CHARACTER} pair"),
        ("café 東京 👋", "café 東京 👋"),
    ],
)
def test_visible_drops_what_steers_a_terminal(text: str, shown: str) -> None:
    """Control characters go, and all that is only text stays."""
    assert visible(text) == shown


@given(st.lists(st.text()))
def test_visible_of_pieces_is_visible_of_the_whole(pieces: list[str]) -> None:
    """A stream may cut the text anywhere, an escape sequence included."""
    assert "".join(map(visible, pieces)) == visible("".join(pieces))


def test_a_pipe_gets_plain_unfolded_text() -> None:
    """What is no terminal gets no styles and no folding."""
    stream = io.StringIO()
    console = console_on(stream)
    console.print(indented("word " * 100, console, by=4, style="bold"), soft_wrap=True)
    assert stream.getvalue() == "    " + "word " * 100 + "\n"


def test_a_terminal_gets_folded_text_under_its_indent() -> None:
    """On a terminal each folded line keeps the indent."""
    stream = io.StringIO()
    console = Console(file=stream, width=20, force_terminal=True, color_system=None)
    console.print(indented("one two three four five", console, by=4))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines == ["    one two three", "    four five"]


def wrapped(pieces: list[str], *, width: int, indent: int) -> str:
    wrap = Wrap(width=width, indent=indent)
    return "".join([*map(wrap.add, pieces), wrap.end()])


def test_wrap_folds_between_words() -> None:
    """A word that does not fit goes to the next line, under the indent."""
    shown = wrapped(["The cap", "ital of Fra", "nce is Paris."], width=16, indent=4)
    assert shown == "The capital\n    of France is\n    Paris."


def test_wrap_keeps_the_lines_and_the_indents_of_the_text() -> None:
    """Line breaks and leading spaces, as in code, are the text's own."""
    assert wrapped(["def f():\n    return 1\n"], width=40, indent=2) == (
        "def f():\n      return 1\n  "
    )


def test_wrap_may_fold_between_wide_characters() -> None:
    """Text without spaces is shown as it comes, and folds at the edge."""
    wrap = Wrap(width=6, indent=0)
    assert [wrap.add("東京"), wrap.add("大阪"), wrap.end()] == ["東京", "大\n阪", ""]


@given(st.lists(st.text(alphabet="ab \n東")), st.integers(4, 30))
def test_wrap_shows_every_character_of_every_word(pieces: list[str], width: int) -> None:
    """Folding moves words and never loses one; no line of short words passes the edge."""
    shown = wrapped(pieces, width=width, indent=2)
    assert "".join(shown.split()) == "".join("".join(pieces).split())
    for line in ("  " + shown).split("\n"):
        assert cell_len(line) <= width or len(line.split()) <= 1

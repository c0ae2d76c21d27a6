"""Text that comes from a model or a user cannot steer the terminal that shows it."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from turngate.cli.terminal import (
    json_shape,
    out_console,
    print_block,
    print_json,
    revealed,
    say,
    visible,
)
from turngate.gateway import Incomplete
from turngate.records import ThreadPage, ThreadRecord, TurnPage


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nin café 東京 👋", "plain\ttext\nin café 東京 👋"),
        ("a\u202ereversed\u2066", "a\\u202ereversed\\u2066"),
        ("zero\u200bwidth\u00ad\ufeff", "zero\\u200bwidth\\xad\\ufeff"),
        ("\x1b[2J\r\x00\x9b", "\\x1b[2J\\r\\x00\\x9b"),
        ("tag\U000e0041 \ufe0f\U000e0100", "tag\\U000e0041 \\ufe0f\\U000e0100"),
        ("filler\u3164\u2800", "filler\\u3164\\u2800"),
        ("line\u2028break \ud83d", "line\\u2028break \\ud83d"),
    ],
)
def test_revealed_escapes_what_is_not_seen(text: str, shown: str) -> None:
    """What a person has to approve hides nothing, and what is seen stays as it is."""
    assert revealed(text) == shown


@given(st.text())
def test_what_is_revealed_can_be_shown(text: str) -> None:
    """Nothing of it is dropped on its way to the terminal."""
    assert visible(revealed(text)) == revealed(text)


def test_what_is_said_is_no_markup_and_no_control() -> None:
    """A line is shown as the text that it is, on a terminal too."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None)
    say(console, "a [bold]b[/] ", ("\x1b[2Jc", "red"), end="")
    assert stream.getvalue() == "a [bold]b[/] [2Jc"


def test_a_pipe_gets_plain_unfolded_text() -> None:
    """What is no terminal gets no styles and no folding."""
    stream = io.StringIO()
    print_block(out_console(stream), "word " * 100, indent=4, style="bold")
    assert stream.getvalue() == "    " + "word " * 100 + "\n"


def test_a_terminal_gets_folded_text_under_its_indent() -> None:
    """On a terminal each folded line keeps the indent."""
    stream = io.StringIO()
    console = Console(file=stream, width=20, force_terminal=True, color_system=None)
    print_block(console, "one two three four five\nsix", indent=4)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines == ["    one two three", "    four five", "    six"]


def test_json_has_every_field_of_every_record(record: ThreadRecord, page: TurnPage) -> None:
    """A field without a value is null and not missing, in records within records too."""
    user, assistant = (json_shape(turn) for turn in page.turns[:2])
    assert list(user) == [
        "id", "role", "parts", "created_at", "model", "usage", "status", "ended", "retry_of",
    ]  # fmt: skip
    assert user["parts"] == [{"type": "text", "text": "Where is [bold]it[/]?"}]
    assert user["created_at"] == "2026-05-01T12:00:00+00:00"
    assert user["usage"] is None
    assert assistant["usage"] == {
        "input_tokens": 30, "output_tokens": 4, "cached_tokens": 0, "reasoning_tokens": 0,
    }  # fmt: skip
    assert json_shape(ThreadPage(threads=(record,), next="c2")) == {
        "threads": [
            {
                "id": "support-42",
                "length": 5,
                "created_at": "2026-05-01T12:00:00+00:00",
                "updated_at": "2026-05-01T12:00:00+00:00",
                "title": None,
                "user": None,
            }
        ],
        "next": "c2",
    }
    ended = Incomplete(call_id="call_1", reason="length", text="H", turns=(), usage=None)
    assert list(json_shape(ended)) == ["call_id", "reason", "text", "turns", "usage"]


def test_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks, escapes and lone surrogates are escaped by JSON itself."""
    value = {"text": "a\nb\x1b\u2028\ud83d é"}
    print_json(value)
    line = capsys.readouterr().out.removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value

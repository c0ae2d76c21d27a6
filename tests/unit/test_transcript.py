"""The transcript: turns as plain text for helper calls."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import strategies
from turngate.transcript import to_transcript
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import FileRef

MARK = "[earlier lines left out]\n"
PLAN = FileRef(id="file_1", name="plan.png", media_type="image/png", size_bytes=9, sha256="a" * 64)


def turn(role: Role, *parts: Part, **facts: Any) -> Turn:
    """A stored turn of fixed id and time."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Turn(id="turn_1", role=role, parts=parts, created_at=moment, **facts)


def user(text: str) -> Turn:
    return turn("user", TextPart(text))


def call(call_id: str, *, name: str = "track", arguments: str = "{}") -> ToolCallPart:
    return ToolCallPart(id=call_id, name=name, arguments=arguments)


def answer(call_id: str, content: str) -> Turn:
    return turn("tool", ToolResultPart(call_id=call_id, content=content))


def test_transcript_names_who_spoke() -> None:
    """Each turn is a line with its speaker, oldest first."""
    assert to_transcript([user("hi"), turn("assistant", TextPart("Hello."))]) == (
        "User: hi\nAssistant: Hello."
    )


def test_transcript_of_no_turns_is_empty() -> None:
    """No turns, no text."""
    assert to_transcript([]) == ""


def test_transcript_puts_a_tool_exchange_in_one_line() -> None:
    """A call and its result are one line, also where both have line breaks."""
    turns = [
        user("Where is it?"),
        turn("assistant", TextPart("I'll look."), call("c1", arguments='{\n "n": 1\n}')),
        answer("c1", "two\r\nlines\u2028here"),
        turn("assistant", TextPart("There.")),
    ]
    assert to_transcript(turns).split("\n") == [
        "User: Where is it?",
        "Assistant: I'll look.",
        'Tool track({ "n": 1 }) -> two lines here',
        "Assistant: There.",
    ]


def test_transcript_gives_each_parallel_call_its_line() -> None:
    """Results are found by id, in whatever order they were stored."""
    turns = [
        turn("assistant", call("c1", name="a"), call("c2", name="b")),
        answer("c2", "two"),
        answer("c1", "one"),
    ]
    assert to_transcript(turns) == "Tool a({}) -> one\nTool b({}) -> two"


def test_transcript_shows_a_call_without_result() -> None:
    """A call that has no result yet stands alone."""
    assert to_transcript([turn("assistant", call("c1"))]) == "Tool track({})"


def test_transcript_gives_a_reused_id_to_the_newest_call() -> None:
    """An id that is used again belongs to its newest call."""
    turns = [
        turn("assistant", call("c1", name="a")),
        answer("c1", "one"),
        turn("assistant", call("c1", name="b")),
        answer("c1", "two"),
    ]
    assert to_transcript(turns) == "Tool a({}) -> one\nTool b({}) -> two"


def test_transcript_shows_the_first_of_several_results() -> None:
    """A second result for one call is not shown, as a model does not see it either."""
    turns = [turn("assistant", call("c1")), answer("c1", "one"), answer("c1", "two")]
    assert to_transcript(turns) == "Tool track({}) -> one"


@pytest.mark.parametrize(
    "turns",
    [
        [answer("c1", "orphan")],
        [turn("assistant", ReasoningPart("secret thought"))],
        [turn("assistant")],
        [user("  \n")],
        [turn("user", TextPart("gone"), status="deleted")],
    ],
)
def test_transcript_leaves_out_what_was_not_said(turns: list[Turn]) -> None:
    """Orphan results, reasoning, blank and deleted turns give no line."""
    assert to_transcript([user("a"), *turns, user("b")]) == "User: a\nUser: b"


def test_transcript_names_a_file_and_quotes_none() -> None:
    """A file is its name and type, never its pointer."""
    assert to_transcript([turn("user", FilePart(PLAN))]) == "User: [file plan.png, image/png]"


def test_transcript_keeps_the_newest_lines() -> None:
    """What does not fit goes from the beginning, by whole lines, and a mark says so."""
    turns = [user("one " * 10), user("two"), user("three")]
    whole = f"User: {'one ' * 10}\nUser: two\nUser: three"
    assert to_transcript(turns, chars_max=len(whole)) == whole
    shorter = to_transcript(turns, chars_max=len(whole) - 1)
    assert shorter == f"{MARK}User: two\nUser: three"
    assert to_transcript(turns, chars_max=len(shorter)) == shorter
    assert to_transcript(turns, chars_max=len(shorter) - 1) == f"{MARK}User: three"


def test_transcript_cuts_a_newest_line_that_is_too_long() -> None:
    """The newest line is never left out whole."""
    text = to_transcript([user("old"), user("x" * 100)], chars_max=40)
    assert text == f"{MARK}User: {'x' * 9}"


def test_transcript_has_a_usual_limit() -> None:
    """Without a limit of the caller's, 20,000 characters are the most."""
    assert len(to_transcript([user("x" * 30_000)])) == 20_000


@given(strategies.threads, st.integers(-1, 200))
def test_transcript_is_never_longer_than_asked(thread: list[Turn], chars_max: int) -> None:
    """`chars_max` holds for any turns, even where the mark alone would not fit."""
    assert len(to_transcript(thread, chars_max=chars_max)) <= max(chars_max, 0)


@given(strategies.threads, st.integers(len(MARK) + 1, 200))
def test_short_transcript_ends_as_the_whole_one(thread: list[Turn], chars_max: int) -> None:
    """The newest lines stay: what is left is an end of the whole, or the start of its last line."""
    whole, short = (to_transcript(thread, chars_max=limit) for limit in (10**9, chars_max))
    end = short.removeprefix(MARK)
    assert short == whole or whole.endswith(f"\n{end}") or len(short) == chars_max
    assert end in whole


@given(strategies.threads)
def test_transcript_holds_no_pointer_id_and_no_reasoning(thread: list[Turn]) -> None:
    """Ids of files stay in the store."""
    assert f"file_{strategies.POINTER_MARK}" not in to_transcript(thread)


@given(strategies.threads)
def test_transcript_leaves_the_turns_as_they_are(thread: list[Turn]) -> None:
    """The turns that were given stay as they are."""
    before = copy.deepcopy(thread)
    to_transcript(thread)
    assert thread == before

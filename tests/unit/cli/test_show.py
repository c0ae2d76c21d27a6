"""Threads and turns as they are printed."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.console import Console

from turngate.cli.runs import print_run
from turngate.cli.show import call_text, print_threads, print_turns, result_text, usage_text
from turngate.cli.terminal import out_console
from turngate.records import CallRecord, Step, ThreadPage, ThreadRecord, TurnPage
from turngate.turns import Turn
from turngate.values import Usage

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def printed_turns(record: ThreadRecord, page: TurnPage) -> str:
    stream = io.StringIO()
    print_turns(out_console(stream), record, page, tenant="acme")
    return stream.getvalue()


def test_turns_are_shown_with_position_role_text_and_usage(
    record: ThreadRecord, page: TurnPage
) -> None:
    """Each turn has a head line of facts, and its parts under it."""
    shown = printed_turns(record, page)
    assert "thread support-42   tenant acme · 5 turns" in shown
    assert "   1  user" in shown
    assert "m-1 · 30 tokens in, 4 out" in shown
    assert "      [call] track(parcel=7)" in shown
    assert "      Look it up." in shown


def test_an_incomplete_turn_says_why_it_ended(record: ThreadRecord, page: TurnPage) -> None:
    """Half an answer is never shown as a whole one."""
    assert "incomplete (cancelled)" in printed_turns(record, page)


def test_the_sum_is_of_the_shown_answers(record: ThreadRecord, page: TurnPage) -> None:
    """The sum says of how many answers it is, since earlier ones are not shown."""
    shown = printed_turns(record, page)
    assert "sum of 2 answers: 1070 tokens in (30 cached), 10 out" in shown
    assert "1 earlier turn: --before 1" in shown


def test_the_sum_names_the_answers_that_it_lacks(record: ThreadRecord, page: TurnPage) -> None:
    """A stopped answer has no usage, and the sum does not hide that."""
    *before, last = page.turns
    stopped = msgspec.structs.replace(last, usage=None)
    shown = printed_turns(record, msgspec.structs.replace(page, turns=(*before, stopped)))
    assert "sum of 1 answer: 30 tokens in, 4 out, without 1 incomplete one" in shown


def test_without_usage_there_is_no_sum(record: ThreadRecord, page: TurnPage) -> None:
    """Where no provider reported usage, none is made up."""
    bare = tuple(msgspec.structs.replace(turn, usage=None) for turn in page.turns)
    assert "sum of" not in printed_turns(record, msgspec.structs.replace(page, turns=bare))


def test_text_is_never_read_as_markup_or_as_control(record: ThreadRecord, page: TurnPage) -> None:
    """Brackets are shown as they are, and an escape character not at all."""
    shown = printed_turns(record, page)
    assert "Where is [bold]it[/]?" in shown
    assert "[tool] in [31mOslo" in shown
    assert "\x1b" not in shown


def test_a_deleted_turn_is_shown_as_such(record: ThreadRecord, page: TurnPage) -> None:
    """A tombstone keeps its position and has no text."""
    gone: Turn = msgspec.structs.replace(page.turns[0], parts=(), status="deleted")
    shown = printed_turns(record, TurnPage(first=0, turns=(gone,), length=1))
    assert "deleted" in shown


def test_names_cannot_break_the_table(record: ThreadRecord) -> None:
    """A title with line breaks and escapes stays in its cell."""
    odd = msgspec.structs.replace(record, title="one\ntwo\x1b[2J", user="[red]u1")
    stream = io.StringIO()
    print_threads(out_console(stream), ThreadPage(threads=(odd,), next="c2"), tenant="acme")
    shown = stream.getvalue()
    assert "one two[2J" in shown
    assert "[red]u1" in shown
    assert "There are more: --after c2" in shown


def test_no_threads_is_a_sentence() -> None:
    """An empty list is said, not shown as an empty table."""
    stream = io.StringIO()
    print_threads(out_console(stream), ThreadPage(threads=()), tenant="acme")
    assert stream.getvalue() == "No threads of tenant 'acme' here.\n"


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_long_thread_id_is_shown_whole(record: ThreadRecord, width: int) -> None:
    """An id is folded rather than cut: it has to be copied."""
    long = msgspec.structs.replace(record, id="x" * 128)
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    print_threads(console, ThreadPage(threads=(long,)), tenant="acme")
    assert stream.getvalue().count("x") == 128


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(input_tokens=21, output_tokens=8), "21 tokens in, 8 out"),
        (
            Usage(input_tokens=21, output_tokens=8, cached_tokens=3, reasoning_tokens=2),
            "21 tokens in (3 cached), 8 out (2 reasoning)",
        ),
    ],
)
def test_usage_text_names_what_there_is(usage: Usage, text: str) -> None:
    """Cached and reasoning tokens are named where there are any."""
    assert usage_text(usage) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"parcel": 7, "to": "Oslo"}', '[call] track(parcel=7, to="Oslo")'),
        ("", "[call] track()"),
        ("{}", "[call] track()"),
        ('{"parcel": ', '[call] track({"parcel": )'),
        ("[7]", "[call] track([7])"),
    ],
)
def test_a_call_reads_like_one(arguments: str, text: str) -> None:
    """Arguments are shown by name, and what is no JSON object as the model wrote it."""
    assert call_text("track", arguments) == text


def test_a_result_names_its_tool_and_its_failure() -> None:
    """The model's reader sees at once which tool said what."""
    assert result_text("track", "in Oslo", is_error=False) == "[track] in Oslo"
    assert result_text(None, "gone", is_error=True) == "[tool failed] gone"


def run_of(**fields: Any) -> CallRecord:
    return CallRecord(
        id="run_1",
        thread="support-42",
        kind="run",
        owner="boot_1",
        position=0,
        created_at=AT,
        **fields,
    )


def printed_run(run: CallRecord, *steps: Step) -> str:
    stream = io.StringIO()
    print_run(out_console(stream), run, steps)
    return stream.getvalue()


def test_a_run_shows_its_state_and_its_steps(page: TurnPage) -> None:
    """Each step has its number; a tool without a result is named as one."""
    model = Step(number=0, kind="model", turn=page.turns[1])
    begun = Step(number=1, kind="tool_start", place=0)
    waiting = run_of(state="active", waiting_for=("track",), recoveries=2)
    shown = printed_run(waiting, model, begun)
    assert "run run_1   thread support-42   active, waits for track" in shown
    assert "recovered 2 times" in shown
    assert "   0  assistant" in shown
    assert "[track] was begun and has no result" in shown
    ended = Step(number=2, kind="tool_result", place=0, turn=page.turns[2])
    done = run_of(state="incomplete", reason="rounds", text="So far", ended_at=AT)
    shown = printed_run(done, model, begun, ended)
    assert "incomplete (rounds)" in shown
    assert "   2  tool" in shown
    assert "no result" not in shown
    assert shown.endswith("      so far\n      So far\n")


def test_a_run_cannot_steer_the_terminal(page: TurnPage) -> None:
    """What models and users wrote is cleaned here too."""
    odd = run_of(state="answered", user_turn=page.turns[0], text="a\x1b[2J[red]b")
    shown = printed_run(odd, Step(number=0, kind="tool_result", place=0, turn=page.turns[2]))
    assert "\x1b" not in shown
    assert "[red]b" in shown

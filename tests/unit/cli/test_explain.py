"""Model calls as they are explained, and how two of them differ."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from turngate.cli.explain import print_call, print_difference
from turngate.cli.receipts import ModelCall, difference
from turngate.cli.terminal import out_console
from turngate.errors import InvalidValue
from turngate.records import CallRecord, FileShown, LedgerRow, LeftOut, Receipt, Span
from turngate.turns import FilePart, TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import FileRef, Usage

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
PLAN = FileRef(
    id="file_1", name="plan\n\x1b[31m.png", media_type="image/png", size_bytes=1, sha256=""
)
ASKED = Turn(id="turn_9", role="user", parts=(TextPart("Why?"), FilePart(PLAN)), created_at=AT)
CALL = CallRecord(
    id="run_1",
    thread="t",
    kind="run",
    state="answered",
    owner="boot",
    position=8,
    created_at=AT,
    user_turn=ASKED,
    first=8,
    added=4,
)
RECEIPT = Receipt(
    request_hash="ab" * 32,
    length=8,
    window=Span(4, 4),
    current="turn_9",
    steps=2,
    instructions="cd" * 32,
    tools=("look",),
    waiting=("c1",),
    result_chars=1200,
    files=(FileShown("file_1", "image"),),
    tokens={"instructions": 100, "window": 300, "memory": 200, "facts": 0},
    budget=1000,
    left_out=(
        LeftOut(what="turns", count=4, why="window"),
        LeftOut(what="facts", count=1, why="too old"),
    ),
)


def model_call(call: CallRecord = CALL, *, number: int = 1, **changes: Any) -> ModelCall:
    """A model call with a receipt that differs in `changes`."""
    receipt = msgspec.structs.replace(RECEIPT, **changes)
    usage = Usage(input_tokens=640, output_tokens=5)
    row = LedgerRow(
        id="use_1",
        call=call.id,
        model="m-1",
        usage=usage,
        outcome="tool_calls",
        created_at=AT,
        receipt=receipt,
    )
    return ModelCall(call=call, row=row, number=number, count=2)


def explained(*found: ModelCall) -> list[str]:
    stream = io.StringIO()
    print_call(out_console(stream), found)
    return stream.getvalue().splitlines()


def compared(*pair: ModelCall) -> str:
    stream = io.StringIO()
    print_difference(out_console(stream), *pair)
    return stream.getvalue()


def fact(lines: list[str], label: str) -> str:
    """What stands behind `label`, with single spaces."""
    (line,) = [line for line in lines if line.startswith(f"  {label} ")]
    return " ".join(line.removeprefix(f"  {label}").split())


def test_each_source_has_a_bar_and_a_share() -> None:
    """Bars share the budget's scale, and a source that is not known yet has one too."""
    lines = explained(model_call(tokens={"instructions": 100, "window": 300, "memory": 200}))
    assert fact(lines, "instructions") == f"100 17% {'█' * 3}"
    assert fact(lines, "window") == f"300 50% {'█' * 9}"
    assert fact(lines, "memory") == f"200 33% {'█' * 6}"
    assert fact(lines, "estimated") == "600"
    assert fact(lines, "budget") == "1,000 60% used; the answer needs room too"
    assert fact(lines, "reported") == "640 tokens in, 5 out"


def test_without_a_budget_the_bars_share_the_sum() -> None:
    """Where nothing is known of the model's context, no budget is made up."""
    lines = explained(model_call(budget=None, tokens={"window": 300, "tools": 1}))
    assert fact(lines, "window") == f"300 100% {'█' * 30}"
    assert fact(lines, "tools") == "1 0% █"
    assert not any(line.startswith("  budget") for line in lines)


def test_an_empty_receipt_is_no_division_by_zero() -> None:
    """Without one estimated token there is no share to tell."""
    lines = explained(model_call(tokens={}, budget=None))
    assert fact(lines, "estimated") == "0"
    assert fact(explained(model_call(tokens={"facts": 0}, budget=None)), "facts") == "0 0% █"


def test_what_was_shown_and_what_was_left_out() -> None:
    """Turns by their positions, files by how they were shown, and a reason for what is missing."""
    lines = explained(model_call())
    assert fact(lines, "turns") == "4-7 of 8 turns, and its own question, 2 turns of its steps"
    assert fact(lines, "its tools") == "look"
    assert fact(lines, "file") == "file_1 · image · plan [31m.png"
    assert [line.split("  ")[-1].strip() for line in lines if "left out" in line] == [
        "4 turns: below the window",
        "1 facts: too old",
    ]
    assert fact(lines, "shortened") == "tool results to 1,200 characters"
    assert fact(lines, "waiting") == "for a review: c1"
    assert fact(lines, "hash") == "ab" * 32
    assert fact(lines, "made again") == "the same to the byte, from this file alone"


def test_it_says_why_a_request_can_not_be_made_again() -> None:
    """The reason stands in place of the promise."""
    lines = explained(dataclasses.replace(model_call(), why_not="it is gone"))
    assert fact(lines, "made again") == "it is gone"


def test_a_model_call_that_died_has_no_receipt() -> None:
    """It is told, and is no error; only a comparison needs one."""
    row = msgspec.structs.replace(model_call().row, receipt=None, outcome="lost")
    died = ModelCall(call=CALL, row=row, number=1, count=1)
    assert fact(explained(died), "receipt").startswith("none: its process died")
    with pytest.raises(InvalidValue, match="no receipt"):
        difference(died, model_call())


def test_turns_stand_with_position_role_and_a_short_line() -> None:
    """Each is one line, whatever stands in it, and none steers the terminal."""
    long = Turn(id="a", role="assistant", parts=(TextPart("word\n" * 40),), created_at=AT)
    call = Turn(
        id="b",
        role="assistant",
        parts=(ToolCallPart(id="c", name="look", arguments='{"n":1}'),),
        created_at=AT,
    )
    result = Turn(
        id="c",
        role="tool",
        parts=(ToolResultPart(call_id="c", name="look", content="\x1b]0;x\x07seen"),),
        created_at=AT,
    )
    shown = ((4, long), (8, ASKED), (None, call), (None, result))
    lines = explained(dataclasses.replace(model_call(), turns=shown))
    start = next(number for number, line in enumerate(lines) if line.startswith("  turns")) + 1
    four = [" ".join(line.split()) for line in lines[start : start + 4]]
    assert four[0].startswith("4 assistant word word")
    assert four[0].endswith("…")
    assert len(four[0]) < 80
    assert four[1:] == [
        "8 user Why? [file] plan [31m.png",
        "- assistant [call] look(n=1)",
        "- tool [look] ]0;xseen",
    ]


@pytest.mark.parametrize(
    ("earlier", "first", "added", "places"),
    [
        ((), 8, 4, [8, 9, 10]),
        ((), None, 0, [None, None, None]),
        ((Span(8, 2),), 20, 2, [8, 9, 20]),
        ((Span(8, 1),), None, 0, [8, None, None]),
    ],
)
def test_own_turns_are_found_where_they_were_placed(
    earlier: tuple[Span, ...], first: int | None, added: int, places: list[int | None]
) -> None:
    """A review may part a call's turns, and what no commit has placed has no position."""
    call = msgspec.structs.replace(CALL, earlier=earlier, first=first, added=added)
    assert model_call(call).own_places == places


def test_difference_answers_what_was_forgotten() -> None:
    """Turns, tools, files and tokens that one was shown and the other not."""
    first = model_call()
    later_call = msgspec.structs.replace(CALL, id="call_2", first=30, added=2)
    second = model_call(
        later_call,
        length=30,
        window=Span(10, 20),
        steps=0,
        instructions="ef" * 32,
        tools=(),
        files=(FileShown("file_1", "gone"),),
        tokens={"window": 900},
        left_out=(LeftOut(what="turns", count=10, why="window"),),
        request_hash="ff" * 32,
    )
    parts = difference(first, second)
    assert parts["model_calls"] == ["run_1:1", "call_2:1"]
    assert parts["turns"] == [[4, 5, 6, 7, 8, 9], [*range(11, 31)]]
    assert parts["tools"] == [["look"], []]
    assert parts["files"] == [["file_1 image"], ["file_1 gone"]]
    assert parts["tokens"]["window"] == [300, 900]
    assert parts["tokens"]["memory"] == [200, 0]
    assert parts["reported"] == [640, 640]
    shown = compared(first, second)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "window 300 900 +600" in lines
    assert "memory 200 0 -200" in lines
    assert "instructions not the same" in lines
    assert "turns in A alone: 4-9" in lines
    assert "turns in B alone: 11-30" in lines
    assert "left out of B: 10 turns: below the window" in lines
    assert "request the same to the byte" not in lines


def test_one_model_call_has_no_difference_from_itself() -> None:
    """Nothing is in one alone, and the request is one."""
    shown = compared(model_call(), model_call())
    assert "alone" not in shown
    assert "not the same" not in shown
    assert "the same to the byte" in shown


def test_positions_of_two_threads_are_not_compared() -> None:
    """Position 4 of one thread says nothing of position 4 of another."""
    elsewhere = model_call(msgspec.structs.replace(CALL, thread="u"), window=Span(0, 1))
    assert difference(model_call(), elsewhere)["turns"] is None
    assert "of two threads" in compared(model_call(), elsewhere)

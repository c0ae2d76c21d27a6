"""The JSON that programs rely on: every field of every shape, in full."""

from __future__ import annotations

import json

import msgspec

from turngate.cli.shapes import (
    json_text,
    settled_shape,
    thread_page_shape,
    turn_page_shape,
    turn_shape,
)
from turngate.gateway import Answered, Incomplete
from turngate.records import ThreadPage, ThreadRecord, TurnPage

TURN_FIELDS = {
    "id", "role", "parts", "created_at", "model", "usage", "status", "ended", "retry_of",
}  # fmt: skip


def test_a_turn_has_all_fields(page: TurnPage) -> None:
    """A field without a value is null and not missing."""
    shape = turn_shape(page.turns[0], position=7)
    assert set(shape) == TURN_FIELDS | {"position"}
    assert shape["position"] == 7
    assert shape["parts"] == [{"type": "text", "text": "Where is [bold]it[/]?"}]
    assert shape["created_at"] == "2026-05-01T12:00:00+00:00"
    assert shape["usage"] is None


def test_usage_has_all_fields(page: TurnPage) -> None:
    """All four counts are there, zeros too."""
    assert turn_shape(page.turns[1])["usage"] == {
        "input_tokens": 30,
        "output_tokens": 4,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
    }


def test_a_page_of_turns_is_one_document(record: ThreadRecord, page: TurnPage) -> None:
    """Positions count on from the page's first."""
    shape = turn_page_shape(record, page)
    assert set(shape) == {"thread", "first", "turns"}
    assert shape["thread"]["length"] == 5
    assert [turn["position"] for turn in shape["turns"]] == [1, 2, 3, 4]


def test_a_page_of_threads_names_the_next_one(record: ThreadRecord) -> None:
    """The cursor of the next page stands beside the threads."""
    titled = msgspec.structs.replace(record, title="Parcel")
    shape = thread_page_shape(ThreadPage(threads=(titled,), next="c2"))
    assert shape["next"] == "c2"
    assert shape["threads"][0] == {
        "id": "support-42",
        "length": 5,
        "created_at": "2026-05-01T12:00:00+00:00",
        "updated_at": "2026-05-01T12:00:00+00:00",
        "title": "Parcel",
        "user": None,
    }


def test_the_end_of_a_call_says_how_it_ended(page: TurnPage) -> None:
    """Answered, incomplete, and stopped before it began have the same fields."""
    answered = settled_shape(
        Answered(call_id="call_1", text="Hi", turns=page.turns[:2], usage=page.turns[1].usage)
    )
    incomplete = settled_shape(
        Incomplete(call_id="call_1", reason="length", text="H", turns=(), usage=None)
    )
    stopped = settled_shape(None)
    assert set(answered) == set(incomplete) == set(stopped)
    assert (answered["kind"], answered["reason"]) == ("answered", None)
    assert (incomplete["kind"], incomplete["reason"]) == ("incomplete", "length")
    assert (stopped["kind"], stopped["reason"], stopped["call_id"]) == (
        "incomplete",
        "cancelled",
        None,
    )
    assert set(answered["turns"][0]) == TURN_FIELDS


def test_json_text_is_one_line_of_ascii() -> None:
    """Line breaks, escapes and lone surrogates are escaped by JSON itself."""
    value = {"text": "a\nb\x1b\u2028\ud83d é"}
    line = json_text(value)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value

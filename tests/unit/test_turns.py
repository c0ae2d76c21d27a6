"""Turns: what a store writes, it reads again, and newer fields do not stop an older reader."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import msgspec
import pytest
from hypothesis import given

from tests.unit import strategies
from turngate.errors import InvalidValue
from turngate.turn_builder import TurnBuilder
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import FileRef, ProviderData

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
PLAN = FileRef(id="file_1", name="plan.png", media_type="image/png", size_bytes=9, sha256="a" * 64)


def turn(*parts: Part, created_at: datetime = NOON) -> Turn:
    return Turn(id="turn_1", role="user", parts=parts, created_at=created_at)


def read(text: str | bytes) -> Turn:
    return msgspec.json.decode(text, type=Turn)


class _NoOffset(tzinfo):
    """A time zone that knows no offset: a time with it is naive."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize("zone", [None, _NoOffset()])
def test_turn_builder_refuses_a_naive_time(zone: tzinfo | None) -> None:
    """A time without an offset names no moment."""
    builder = TurnBuilder(now=lambda: NOON.replace(tzinfo=zone))
    with pytest.raises(InvalidValue, match="time zone"):
        builder.build_user_turn(prompt="hi")


def test_turn_with_a_naive_time_is_not_read() -> None:
    """A stored row is held to the same."""
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        read('{"id":"t","role":"user","parts":[],"created_at":"2026-01-02T12:00:00"}')


def test_turn_takes_any_aware_time_to_the_microsecond() -> None:
    """Every zone names a moment, and none of it is lost on the way through the store."""
    moment = NOON.astimezone(timezone(timedelta(hours=-3)))
    assert read(msgspec.json.encode(turn(created_at=moment))).created_at == NOON


@given(strategies.turns)
def test_turn_survives_the_store(stored: Turn) -> None:
    """Written as JSON and read again, a turn is the same."""
    assert read(msgspec.json.encode(stored)) == stored
    assert msgspec.json.encode(read(msgspec.json.encode(stored))) == msgspec.json.encode(stored)


def test_text_is_kept_exactly() -> None:
    """No normalisation: combining marks, joined emoji and odd line ends stay."""
    text = "e\u0301 é 👩\u200d👩\u200d👧 \u200fא a\u2028b\r\n\t "
    assert read(msgspec.json.encode(turn(TextPart(text)))).parts == (TextPart(text),)


@pytest.mark.parametrize(
    ("part", "stored"),
    [
        (TextPart("hi"), {"type": "text", "text": "hi"}),
        (
            FilePart(PLAN),
            {"type": "file", "file": msgspec.structs.asdict(PLAN)},
        ),
        (ReasoningPart("Hm."), {"type": "reasoning", "text": "Hm."}),
        (
            ReasoningPart("", ProviderData("a", "{}")),
            {
                "type": "reasoning",
                "text": "",
                "provider_data": {"provider": "a", "json": "{}"},
            },
        ),
        (
            ToolCallPart(id="c1", name="f", arguments="{"),
            {"type": "tool_call", "id": "c1", "name": "f", "arguments": "{"},
        ),
        (
            ToolResultPart(call_id="c1", content="r", is_error=True),
            {"type": "tool_result", "call_id": "c1", "content": "r", "is_error": True},
        ),
    ],
)
def test_part_has_its_stored_form(part: Part, stored: dict[str, object]) -> None:
    """The form in the store is told by `type`, and never changes."""
    assert json.loads(msgspec.json.encode(part)) == stored
    assert msgspec.json.decode(json.dumps(stored), type=Part) == part


def test_turn_stores_no_fact_that_it_has_not() -> None:
    """Facts at their defaults are left out of the row."""
    assert json.loads(msgspec.json.encode(turn())).keys() == {"id", "role", "parts", "created_at"}


def test_unknown_fields_are_ignored() -> None:
    """A reader of an older version takes turns and parts of a newer one."""
    row = json.loads(msgspec.json.encode(turn(TextPart("hi"), FilePart(PLAN))))
    row["colour"] = "blue"
    row["parts"][0]["lang"] = "en"
    row["parts"][1]["file"]["pages"] = [1, 2]
    assert read(json.dumps(row)) == turn(TextPart("hi"), FilePart(PLAN))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", "system"),
        ("status", "lost"),
        ("parts", [{"type": "video"}]),
        ("parts", [{"text": "no type"}]),
        ("parts", None),
    ],
)
def test_turn_of_another_form_is_refused_when_it_is_read(field: str, value: object) -> None:
    """Roles, statuses and kinds of parts are closed sets."""
    row = json.loads(msgspec.json.encode(turn()))
    with pytest.raises(msgspec.ValidationError):
        read(json.dumps(row | {field: value}))


def test_turn_is_frozen() -> None:
    """A stored turn never changes."""
    with pytest.raises(AttributeError):
        turn().id = "turn_2"  # type: ignore[misc]

"""Values that several tests of the command line show."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turngate.records import ThreadRecord, TurnPage
from turngate.turns import ReasoningPart, TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import Usage

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def record() -> ThreadRecord:
    return ThreadRecord(id="support-42", length=5, created_at=AT, updated_at=AT)


@pytest.fixture
def page() -> TurnPage:
    """The last four turns of a thread of five: a question, a call, its result, half an answer."""
    turns = (
        Turn(id="turn_1", role="user", parts=(TextPart("Where is [bold]it[/]?"),), created_at=AT),
        Turn(
            id="turn_2",
            role="assistant",
            parts=(
                ReasoningPart("Look it up."),
                ToolCallPart(id="c1", name="track", arguments='{"parcel": 7}'),
            ),
            created_at=AT,
            model="m-1",
            usage=Usage(input_tokens=30, output_tokens=4),
        ),
        Turn(
            id="turn_3",
            role="tool",
            parts=(ToolResultPart(call_id="c1", content="in \x1b[31mOslo"),),
            created_at=AT,
        ),
        Turn(
            id="turn_4",
            role="assistant",
            parts=(TextPart("It is in"),),
            created_at=AT,
            model="m-1",
            usage=Usage(input_tokens=1040, output_tokens=6, cached_tokens=30),
            status="incomplete",
            ended="cancelled",
        ),
    )
    return TurnPage(first=1, turns=turns, length=5)

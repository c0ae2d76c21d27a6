"""A proposal and a decision as they are printed for a person."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from turngate.cli.deciding import print_decision, print_proposal
from turngate.cli.terminal import out_console
from turngate.messages import ToolCall
from turngate.records import ReviewRecord
from turngate.results import ModelResult

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
CALL = ToolCall(id="c1", name="pay", arguments='{"n": 1,  "to":"\u202eann"}')
ANSWER = ModelResult(
    text="It comes [bold]soon[/].\nSurely.",
    tool_calls=(CALL,),
    model="m",
    finish_reason="stop",
    usage=None,
    reasoning="Let me see.",
)


def review_of(**fields: Any) -> ReviewRecord:
    return ReviewRecord(
        id="review_1",
        call="run_1",
        thread="t",
        held_by="money",
        created_at=AT,
        step=1,
        **{"reason": "tool", **fields},
    )


def printed(show: Callable[[Console, ReviewRecord], None], review: ReviewRecord) -> str:
    stream = io.StringIO()
    show(out_console(stream), review)
    return stream.getvalue()


def test_an_answer_is_printed_whole() -> None:
    """Reasoning, text and calls, with the arguments as they came and nothing read as markup."""
    assert printed(print_proposal, review_of(answer=ANSWER)) == (
        "      Let me see.\n"
        "      It comes [bold]soon[/].\n"
        "      Surely.\n"
        "      [call] pay\n"
        '      {"n": 1,  "to":"\\u202eann"}\n'
        "      It holds characters that can't be seen; here they are escaped.\n"
    )


def test_what_hides_nothing_is_printed_without_a_warning() -> None:
    """An escape that the model itself wrote is told apart from a character that was hidden."""
    plain = ToolCall(id="c1", name="pay", arguments='{"to": "\\u202eann"}')
    shown = printed(print_proposal, review_of(tool_call=plain))
    assert shown == '      [call] pay\n      {"to": "\\u202eann"}\n'


def test_a_call_that_may_have_run_is_said_to() -> None:
    """Whoever approves it knows that it may happen twice."""
    unknown = review_of(tool_call=CALL, reason="outcome_unknown")
    assert "may have run already" in printed(print_proposal, unknown)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {"state": "edited", "tool_call": CALL, "arguments": "{}", "decided_by": "ann\u200b"},
            [
                "      edited by ann\\u200b",
                "      --- proposed",
                "      +++ edited",
                "      @@ -1 +1 @@",
                '      -{"n": 1,  "to":"\\u202eann"}',
                "      +{}",
            ],
        ),
        (
            {"state": "retried", "answer": ANSWER, "decided_by": "ann", "note": "Shorter."},
            ["      retried by ann", "      the model was told: Shorter."],
        ),
        ({"state": "cancelled", "answer": ANSWER}, ["      cancelled"]),
        (
            {"state": "rejected", "answer": ANSWER, "decided_by": "ann", "why": "No.\n\x1bYes"},
            ["      rejected by ann: No. \\x1bYes"],
        ),
    ],
)
def test_a_decision_says_by_whom_and_what(fields: dict[str, Any], lines: list[str]) -> None:
    """An edit is shown as a difference, in which nothing is hidden either."""
    assert printed(print_decision, review_of(**fields)).splitlines() == ["", *lines]

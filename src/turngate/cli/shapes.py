"""What ``--json`` prints: each shape has all of its fields, null where there is nothing.

The names are documented in docs/reference/cli.md, and programs rely on them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from turngate.gateway import Answered, Outcome
from turngate.records import ThreadPage, ThreadRecord, TurnPage
from turngate.turns import Turn
from turngate.values import Usage

__all__ = [
    "json_text",
    "settled_shape",
    "thread_page_shape",
    "thread_shape",
    "turn_page_shape",
    "turn_shape",
    "usage_shape",
]


def json_text(value: Any) -> str:
    """One line of JSON in ASCII, so that nothing in it can steer a terminal."""
    return json.dumps(value)


def usage_shape(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def turn_shape(turn: Turn, *, position: int | None = None) -> dict[str, Any]:
    """The turn; `position` None leaves that field out (a call's own turns carry none)."""
    placed = {} if position is None else {"position": position}
    return {
        **placed,
        "id": turn.id,
        "role": turn.role,
        "parts": [msgspec.to_builtins(part) for part in turn.parts],
        "created_at": turn.created_at.isoformat(),
        "model": turn.model,
        "usage": usage_shape(turn.usage),
        "status": turn.status,
        "ended": turn.ended,
        "retry_of": turn.retry_of,
    }


def thread_shape(record: ThreadRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "length": record.length,
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "title": record.title,
        "user": record.user,
    }


def thread_page_shape(page: ThreadPage) -> dict[str, Any]:
    return {"threads": [thread_shape(record) for record in page.threads], "next": page.next}


def turn_page_shape(record: ThreadRecord, page: TurnPage) -> dict[str, Any]:
    turns = [turn_shape(turn, position=at) for at, turn in enumerate(page.turns, page.first)]
    return {"thread": thread_shape(record), "first": page.first, "turns": turns}


def settled_shape(outcome: Outcome | None) -> dict[str, Any]:
    """The end of a call; None is one that was stopped before it had begun."""
    kind: str = "incomplete"
    reason: str | None = "cancelled"
    if outcome is not None:
        kind = "answered" if isinstance(outcome, Answered) else "incomplete"
        reason = None if isinstance(outcome, Answered) else outcome.reason
    return {
        "type": "settled",
        "kind": kind,
        "reason": reason,
        "call_id": outcome.call_id if outcome is not None else None,
        "text": outcome.text if outcome is not None else "",
        "turns": [turn_shape(turn) for turn in outcome.turns] if outcome is not None else [],
        "usage": usage_shape(outcome.usage) if outcome is not None else None,
    }

"""The bare rows of a database, by SQL and JSON alone, as the checks read them.

None of the program's own reading code is used: it is what is being judged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.harness.world import TENANT

__all__ = ["Rows", "is_step", "read_rows", "span_turns", "text_of"]

_decoded = msgspec.json.decode  # plain values: no type of the program is in it


@dataclass
class Rows:
    """The rows of one tenant, decoded, in their order; `raw` is the text of all tables but one:
    that of the reviews, where held words may stand."""

    threads: dict[str, int] = field(default_factory=dict)
    titles: set[str | None] = field(default_factory=set)
    turns: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    ledger: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    steps: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    events: dict[str, list[tuple[int, list[dict[str, Any]]]]] = field(default_factory=dict)
    reviews: dict[str, dict[str, Any]] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)

    def texts(self, thread: str) -> list[str]:
        """The user turns' texts of a thread."""
        return [text_of(turn) for _, turn in self.turns.get(thread, []) if turn["role"] == "user"]


def read_rows(database: Path, tenant: str = TENANT) -> Rows:
    """All rows of `tenant`; none where the tables are not made yet. The file stays as it is."""
    rows = Rows()
    if not database.exists() or database.stat().st_size == 0:
        wal = database.with_name(database.name + "-wal")
        if not database.exists() or not wal.exists():
            return rows
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        db.execute("BEGIN")
        version = 0
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'turngate_schema'").fetchone():
            version = db.execute("SELECT max(version) FROM turngate_schema").fetchone()[0] or 0
        if version < 2:
            return rows

        def select(columns: str, table: str, order: str) -> Iterator[Any]:
            sql = f"SELECT {columns} FROM {table} WHERE tenant = ? ORDER BY {order}"
            yield from db.execute(sql, (tenant,))

        for thread, length, title in select("id, length, title", "threads", "id"):
            rows.threads[thread] = length
            rows.titles.add(title)
        rows.turns = _grouped(select("thread, position, body", "turns", "thread, position"))
        for call_id, state, owner, epoch, key, first, body in select(
            "id, state, owner, epoch, key, first, body", "calls", "begun"
        ):
            columns = {"state": state, "owner": owner, "epoch": epoch, "key": key}
            rows.calls[call_id] = {
                "added": 0,
                "recoveries": 0,
                "text": "",
                "user_turn": None,
                "earlier": [],
                "by": None,
                "usage": None,
                **_decoded(body),
                **columns,
                "first": first,
            }
        for call_id, body in select("call, body", "ledger", "id"):
            rows.ledger.setdefault(call_id, []).append(_decoded(body))
        rows.steps = _grouped(select("call, number, body", "steps", "call, number"))
        rows.events = _grouped(select("call, first, body", "events", "call, first"))
        if version >= 3:
            for review_id, call_id, state, body in select("id, call, state, body", "reviews", "id"):
                rows.reviews[review_id] = {
                    **dict.fromkeys(("answer", "tool_call", "place", "text", "arguments")),
                    **dict.fromkeys(("decided_by", "decided_at", "expires_at")),
                    **_decoded(body),
                    "id": review_id,
                    "call": call_id,
                    "state": state,
                }
        for table in ("turns", "calls", "ledger", "steps", "events"):
            rows.raw[table] = "\n".join(body for (body,) in select("body", table, "1"))
    return rows


def span_turns(rows: Rows, call: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns that the commits of a call have added to its thread, in their order."""
    spans = [(span["first"], span["count"]) for span in call["earlier"]]
    if call["first"] is not None:
        spans.append((call["first"], call["added"]))
    by_position = dict(rows.turns.get(call["thread"], []))
    positions = [first + place for first, count in spans for place in range(count)]
    return [by_position[position] for position in positions if position in by_position]


def is_step(rows: Rows, review: dict[str, Any]) -> bool:
    """Whether what is reviewed is a run's step with tool calls, which goes on if it passes."""
    answer = review["answer"]
    return bool(answer and answer["tool_calls"] and rows.calls[review["call"]]["kind"] == "run")


def _grouped(found: Iterable[tuple[str, int, str]]) -> dict[str, list[tuple[int, Any]]]:
    groups: dict[str, list[tuple[int, Any]]] = {}
    for key, number, body in found:
        groups.setdefault(key, []).append((number, _decoded(body)))
    return groups


def text_of(turn: dict[str, Any]) -> str:
    return "".join(part["text"] for part in turn["parts"] if part["type"] == "text")

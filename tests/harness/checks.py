"""What must hold of a database at any moment, read from its bare rows by SQL and JSON alone.

    I1 what was acknowledged is there     I2 one active call a thread
    I3 calls and results pair             I4 no unsafe effect twice, a keyed one under one key
    I5 a stale owner changes nothing      I6 positions and numbers without gaps, no turn twice
    I7 one call a key                     I8 one ledger row a model attempt

None of the program's own reading code is used: it is what is being judged.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.harness.world import TENANT, answer_to, result_of

__all__ = ["Rows", "faults_of", "read_rows"]

_decoded = msgspec.json.decode  # plain values: no type of the program is in it
_UNKNOWN = "outcome is unknown"
_NOT_RUN = "Not run"


@dataclass
class Rows:
    """The rows of one tenant, decoded, in their order."""

    threads: dict[str, int] = field(default_factory=dict)
    titles: set[str | None] = field(default_factory=set)
    turns: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    ledger: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    steps: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    events: dict[str, list[tuple[int, list[dict[str, Any]]]]] = field(default_factory=dict)

    def texts(self, thread: str) -> list[str]:
        """The user turns' texts of a thread."""
        return [_text(turn) for _, turn in self.turns.get(thread, []) if turn["role"] == "user"]


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
                **_decoded(body),
                **columns,
                "first": first,
            }
        for call_id, body in select("call, body", "ledger", "id"):
            rows.ledger.setdefault(call_id, []).append(_decoded(body))
        rows.steps = _grouped(select("call, number, body", "steps", "call, number"))
        rows.events = _grouped(select("call, first, body", "events", "call, first"))
    return rows


def faults_of(
    rows: Rows,
    log: Sequence[dict[str, Any]],
    effects: Sequence[dict[str, Any]],
    *,
    finished: bool = False,
    failing: bool = False,
) -> list[str]:
    """The promises that `rows` break, after all that `log` and `effects` say has happened.

    `finished`: an undisturbed process has ended everything since. `failing`: commits have failed,
    each of which may have left the number of its step unused, and its events to a later batch.
    """
    return [
        *(str(line["fault"]) for line in log if "fault" in line),
        *_acknowledged(rows, log),
        *_active(rows, finished=finished),
        *_paired(rows, effects, finished=finished),
        *_effects(effects),
        *_stale(rows, log),
        *_gap_free(rows, failing=failing),
        *_keys(rows, log),
        *_ledger(rows, log),
    ]


def _acknowledged(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    results = {
        part["call_id"]: part["content"]
        for turns in rows.turns.values()
        for _, turn in turns
        for part in turn["parts"]
        if part["type"] == "tool_result"
    }
    for line in log:
        if "ended" in line:
            yield from _acknowledged_end(rows, line)
        for slot in line.get("added", ()):
            if results.get(slot) != result_of(slot):
                yield f"I1: the result of {slot} was acknowledged and is not there"


def _acknowledged_end(rows: Rows, line: dict[str, Any]) -> Iterator[str]:
    call = rows.calls.get(line["ended"])
    if call is None:
        yield f"I1: call {line['ended']} was acknowledged and is not there"
        return
    if call["state"] != line["state"] or call["text"] != line["text"]:
        yield f"I1: call {call['id']} was acknowledged as {line['state']} and is {call['state']}"
        return
    turns = [
        turn
        for position, turn in rows.turns.get(call["thread"], [])
        if call["first"] is not None and 0 <= position - call["first"] < call["added"]
    ]
    if [turn["id"] for turn in turns] != line["turns"]:
        yield f"I1: call {call['id']} was acknowledged and its turns are not there whole"
    if call["state"] == "answered" and call["user_turn"] is not None:
        kind, token, *_ = _text(call["user_turn"]).split()
        if kind != "own" and call["text"] != answer_to(token):
            yield f"I1: call {call['id']} has the answer {call['text']!r} of another"


def _active(rows: Rows, *, finished: bool) -> Iterator[str]:
    active = [call for call in rows.calls.values() if call["state"] == "active"]
    for thread, count in Counter(call["thread"] for call in active).items():
        if count > 1:
            yield f"I2: thread {thread} has {count} active calls"
    if finished:
        for call in active:
            yield f"I2: call {call['id']} never ended"


def _paired(rows: Rows, effects: Iterable[dict[str, Any]], *, finished: bool) -> Iterator[str]:
    done = {line["slot"] for line in effects}
    for thread, turns in rows.turns.items():
        waiting: list[str] = []  # of the last exchange of a run: answered at once, in order
        open_calls: set[str] = set()  # of asks: answered by anyone, at any later time
        for _, turn in turns:
            for part in turn["parts"]:
                if part["type"] == "tool_call":
                    (open_calls.add if part["name"] == "own" else waiting.append)(part["id"])
                if part["type"] != "tool_result":
                    continue
                slot, content = part["call_id"], part["content"]
                if waiting and waiting[0] == slot:
                    waiting.pop(0)
                elif slot in open_calls:
                    open_calls.remove(slot)
                else:
                    yield f"I3: in thread {thread} the result of {slot} stands where it must not"
                if content == result_of(slot):
                    if part.get("name") != "own" and slot not in done:
                        yield f"I3: the result of {slot} was made up"
                elif _UNKNOWN not in content and not content.startswith(_NOT_RUN):
                    yield f"I3: the result of {slot} is another call's: {content!r}"
            if turn["role"] != "tool" and waiting and not _has_calls(turn):
                yield f"I3: in thread {thread} calls {waiting} have no result"
                waiting = []
        if waiting:
            yield f"I3: in thread {thread} calls {waiting} have no result"
        if finished and open_calls:
            yield f"I3: in thread {thread} calls {sorted(open_calls)} stayed open"


def _effects(effects: Iterable[dict[str, Any]]) -> Iterator[str]:
    unsafe = Counter(line["slot"] for line in effects if line["effect"] == "unsafe")
    for slot, count in unsafe.items():
        if count > 1:
            yield f"I4: the unsafe effect of {slot} was done {count} times"
    slots: dict[str, set[str]] = defaultdict(set)
    keys: dict[str, set[str]] = defaultdict(set)
    for line in effects:
        slots[line["key"]].add(line["slot"])
        keys[line["slot"]].add(line["key"])
    for slot, found in keys.items():
        if len(found) > 1:
            yield f"I4: the effect of {slot} was done under {len(found)} keys"
    for key, found in slots.items():
        if len(found) > 1:
            yield f"I4: key {key} stood for the effects of {sorted(found)}"


def _stale(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    for call in rows.calls.values():
        if call["epoch"] != call["recoveries"]:
            yield f"I5: call {call['id']} has epoch {call['epoch']} of {call['recoveries']} owners"
    markers = {line["stale"] for line in log if "stale" in line}
    for marker in markers & rows.titles:
        yield f"I5: the stale write {marker} was stored"


def _gap_free(rows: Rows, *, failing: bool) -> Iterator[str]:
    for thread, length in rows.threads.items():
        positions = [position for position, _ in rows.turns.get(thread, [])]
        if positions != list(range(length)):
            yield f"I6: thread {thread} of length {length} has the positions {positions}"
    for thread in rows.turns:
        if thread not in rows.threads:
            yield f"I6: thread {thread} has turns and no row"
    prompts = Counter(text for thread in rows.turns for text in rows.texts(thread))
    for text, count in prompts.items():
        if count > 1:
            yield f"I6: the user turn {text!r} stands {count} times"
    for call_id, steps in rows.steps.items():
        numbers = [number for number, _ in steps]
        if numbers != list(range(len(numbers))) and not failing:
            yield f"I6: call {call_id} has the steps {numbers}"
    for call_id, batches in rows.events.items():
        number = 0
        for first, events in batches:
            if first > number or (first < number and not failing):
                yield f"I6: call {call_id} has events {first} after {number} events"
            number = max(number, first + len(events))


def _keys(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    given: dict[str, set[str]] = defaultdict(set)
    for line in log:
        if "key" in line:
            given[line["key"]].add(line["call"])
    for key, calls in given.items():
        if len(calls) > 1:
            yield f"I7: key {key} gave {len(calls)} calls"
        stored = {call_id for call_id, call in rows.calls.items() if call["key"] == key}
        if stored != calls:
            yield f"I7: key {key} gave {sorted(calls)} and is stored for {sorted(stored)}"


def _ledger(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    sent = Counter(
        line["sent"] for line in log if "sent" in line and not line["sent"].endswith("+")
    )
    by_token: dict[str, dict[str, Any]] = {}
    for call in rows.calls.values():
        outcomes = Counter(row["outcome"] for row in rows.ledger.get(call["id"], []))
        steps = sum(step["kind"] == "model" for _, step in rows.steps.get(call["id"], []))
        if outcomes["tool_calls"] != steps:
            yield f"I8: call {call['id']} has {steps} model steps and {dict(outcomes)}"
        if outcomes["answered"] != (call["state"] == "answered"):
            yield f"I8: call {call['id']} is {call['state']} and has {dict(outcomes)}"
        if outcomes["lost"] > call["recoveries"]:
            yield f"I8: call {call['id']} lost {outcomes['lost']} of {call['recoveries']} attempts"
        if call["user_turn"] is not None:
            by_token[_text(call["user_turn"]).split()[1]] = call
    for token, attempts in sent.items():
        call_of = by_token.get(token)
        if call_of is None:
            yield f"I8: the model was asked for {token}, and no call of it is stored"
            continue
        if _text(call_of["user_turn"]).startswith(("say", "own")) and attempts > 1:
            yield f"I8: the ask {token} was sent {attempts} times"
        booked = len(rows.ledger.get(call_of["id"], [])) + (call_of["state"] == "active")
        if attempts > booked:
            yield f"I8: {attempts} attempts of {token} have {booked} rows"


def _grouped(found: Iterable[tuple[str, int, str]]) -> dict[str, list[tuple[int, Any]]]:
    groups: dict[str, list[tuple[int, Any]]] = {}
    for key, number, body in found:
        groups.setdefault(key, []).append((number, _decoded(body)))
    return groups


def _text(turn: dict[str, Any]) -> str:
    return "".join(part["text"] for part in turn["parts"] if part["type"] == "text")


def _has_calls(turn: dict[str, Any]) -> bool:
    return any(part["type"] == "tool_call" for part in turn["parts"])

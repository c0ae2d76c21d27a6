"""What must hold of reviews and blocks, read from bare rows and bytes: the second half of `checks`.

I9   a review is decided once, and what its decision does is there whole, or nothing of it
I10  only bytes that were approved run: an effect of a held tool has its approval
I11  what was blocked, replaced or is held stands nowhere but where it may
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.harness.judges import FORBIDDEN, HELD_TOOLS, HELD_WORDS
from tests.harness.rows import Rows, is_step, span_turns, text_of

__all__ = ["changed_arguments", "leaked_bytes", "review_faults"]

_PASSED = ("approved", "edited")
_OTHER_BYTES = "not the one that was approved"
_CHANGED = re.compile(r"\[A reviewer changed the arguments to (\{.*?\})\]\n")


def review_faults(
    rows: Rows, log: Sequence[dict[str, Any]], effects: Sequence[dict[str, Any]]
) -> Iterator[str]:
    yield from _decided_once(rows, log)
    for review in rows.reviews.values():
        yield from _stands_with_its_call(rows, review)
        if review["tool_call"] is None:
            yield from _answer_is_whole(rows, review)
        else:
            yield from _begun_by_approval(rows, review)
    yield from _held_once(rows)
    yield from _approved_effects(rows, effects)
    yield from _held_words(rows)


def changed_arguments(content: str) -> tuple[str | None, str]:
    """The slot that an edit put in place, if a result tells of one, and the rest of the result."""
    found = _CHANGED.match(content)
    if found is None:
        return None, content
    return str(json.loads(found[1])["slot"]), content[found.end() :]


def leaked_bytes(database: Path) -> Iterator[str]:
    """What must be in no database, found in the files of this one."""
    for path in (database, database.with_name(database.name + "-wal")):
        if path.exists():
            found = [words for words in FORBIDDEN if words in path.read_bytes()]
            yield from (f"I11: {path.name} holds {words.decode()!r}" for words in found)


# ── I9 ───────────────────────────────────────────────────────────────────────────────────────


def _decided_once(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    told: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in log:
        if "decided" in line:
            told[line["decided"]].add((line["state"], line["by"]))
        for review in line.get("opened", ()):
            if review not in rows.reviews:
                yield f"I1: review {review} was acknowledged and is not there"
    for review_id, decisions in told.items():
        if len(decisions) > 1:
            yield f"I9: review {review_id} was decided {len(decisions)} times: {sorted(decisions)}"
        review = rows.reviews.get(review_id)
        stored = (review["state"], review["decided_by"]) if review is not None else None
        if stored not in decisions:
            yield f"I9: review {review_id} was acknowledged as {sorted(decisions)}, not {stored}"


def _stands_with_its_call(rows: Rows, review: dict[str, Any]) -> Iterator[str]:
    call = rows.calls[review["call"]]
    is_open = review["state"] == "open"
    if is_open and call["state"] != "review":
        yield f"I9: review {review['id']} is open, and its call {call['state']}"
    if is_open and (review["decided_by"] or review["decided_at"]):
        yield f"I9: review {review['id']} is open, and was decided by {review['decided_by']}"
    if review["state"] == "cancelled" and call["state"] != "incomplete":
        yield f"I9: review {review['id']} was cancelled, and its call is {call['state']}"
    waits_since = review["expires_at"] is not None and review["expires_at"] == review["created_at"]
    if waits_since and review["decided_by"] not in (None, "deadline"):
        yield f"I9: review {review['id']} was overdue, and {review['decided_by']} decided on it"


def _held_once(rows: Rows) -> Iterator[str]:
    """A person is asked for a call once, and again only where its outcome is unknown."""
    first = Counter(
        review["tool_call"]["id"]
        for review in rows.reviews.values()
        if review["tool_call"] is not None and review["reason"] == "tool"
    )
    for slot, count in first.items():
        if count > 1:
            yield f"I9: a person was asked {count} times whether {slot} may be run"


def _answer_is_whole(rows: Rows, review: dict[str, Any]) -> Iterator[str]:
    """An approved or edited answer is its call's, and stands in the thread once."""
    call, state = rows.calls[review["call"]], review["state"]
    if state == "rejected" and (call["state"], call["by"]) != ("blocked", "review"):
        yield f"I9: answer {review['id']} was rejected, and its call is {call['state']}"
    if state not in _PASSED or is_step(rows, review):
        return
    text = review["text"] if state == "edited" else review["answer"]["text"]
    if (call["state"], call["text"]) != ("answered", text):
        yield f"I9: answer {review['id']} is {state}, and its call is {call['state']}"
    standing = sum(text_of(turn) == text for turns in rows.turns.values() for _, turn in turns)
    own = [turn for turn in span_turns(rows, call) if turn["role"] == "assistant"]
    if standing != 1 or not own or text_of(own[-1]) != text:
        yield f"I9: answer {review['id']} is {state}, and stands {standing} times in the threads"


# ── I10 ──────────────────────────────────────────────────────────────────────────────────────


def _begun_by_approval(rows: Rows, review: dict[str, Any]) -> Iterator[str]:
    """What was not let run has no start since it was held; each approval has one at most."""
    steps = rows.steps.get(review["call"], [])
    later = [number for number, step in steps if step["kind"] == "model"]
    end = min((number for number in later if number >= review["step"]), default=float("inf"))
    begun = [
        number
        for number, step in steps
        if step["kind"] == "tool_start"
        and step.get("place") == review["place"]
        and review["step"] <= number < end
    ]
    slot = review["tool_call"]["id"]
    if review["state"] not in _PASSED and begun:
        yield f"I10: the call {slot} is {review['state']}, and was begun at {begun}"
    again = [
        other
        for other in rows.reviews.values()
        if other["tool_call"] is not None
        and other["tool_call"]["id"] == slot
        and other["state"] in _PASSED
        and other["step"] >= review["step"]
    ]
    if review["tool_call"]["name"] == "pay" and len(begun) > len(again):
        yield f"I10: the call {slot} was begun {len(begun)} times by {len(again)} approvals"


def _approved_effects(rows: Rows, effects: Iterable[dict[str, Any]]) -> Iterator[str]:
    let: dict[str, Counter[str]] = defaultdict(Counter)  # slot of a call → slots that may be done
    for review in rows.reviews.values():
        made = review["tool_call"]
        if made is not None and review["state"] in _PASSED:
            edited = review["state"] == "edited"
            arguments = json.loads(review["arguments"] if edited else made["arguments"])
            let[made["id"]][arguments["slot"]] += 1
    done: dict[str, Counter[str]] = defaultdict(Counter)
    for line in effects:
        if line["tool"] not in HELD_TOOLS:
            continue
        slot = line["slot"].split("~")[0]
        if line["slot"] not in let[slot]:
            yield f"I10: {line['tool']} did {line['slot']}; approved are {sorted(let[slot])}"
        if line["effect"] == "unsafe":
            done[slot][line["slot"]] += 1
    for slot, counts in done.items():
        for exact, count in counts.items():
            if count > let[slot][exact]:
                yield f"I10: {exact} was done {count} times, and approved {let[slot][exact]} times"
    for turns in rows.turns.values():
        for _, turn in turns:
            for part in turn["parts"]:
                if part["type"] == "tool_result" and _OTHER_BYTES in part["content"]:
                    yield f"I10: {part['call_id']} was approved, and not known again"


# ── I11 ──────────────────────────────────────────────────────────────────────────────────────


def _held_words(rows: Rows) -> Iterator[str]:
    """Words that a person has not let pass stand in reviews alone."""
    passed: set[str] = set()
    for review in rows.reviews.values():
        if review["answer"] is not None and review["state"] == "approved":
            passed.update(HELD_WORDS.findall(review["answer"]["text"]))
    for table, raw in rows.raw.items():
        leaked = set(HELD_WORDS.findall(raw)) - passed
        yield from (f"I11: {words!r} stands among the {table}" for words in sorted(leaked)[:3])

"""What must hold of a database at any moment, read from its bare rows by SQL and JSON alone.

    I1 what was acknowledged is there     I2 one active call a thread
    I3 calls and results pair             I4 no unsafe effect twice, a keyed one under one key
    I5 a stale owner changes nothing      I6 positions and numbers without gaps, no turn twice
    I7 one call a key                     I8 one ledger row a model attempt, with its usage

I9 to I11, on reviews and blocks, are in `review_checks`. None of the program's own reading code is
used: it is what is being judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.harness.judges import HELD_MARKS, answer_to, mark_of
from tests.harness.review_checks import changed_arguments, review_faults
from tests.harness.rows import Rows, is_step, read_rows, span_turns, text_of
from tests.harness.world import result_of

__all__ = ["Rows", "faults_of", "read_rows"]

_UNKNOWN = "outcome is unknown"
_NOT_RUN = "Not run"
_NOT_BEGUN = "Not run: the run ended before this call began."


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
    each of which may have left the number of its step unused, and its events to a later batch; or
    it is there all the same, and the usage of its attempt is booked once more.
    """
    return [
        *(str(line["fault"]) for line in log if "fault" in line),
        *_acknowledged(rows, log),
        *_active(rows, finished=finished),
        *_paired(rows, effects, finished=finished),
        *_effects(rows, effects),
        *_stale(rows, log),
        *_gap_free(rows, failing=failing),
        *_keys(rows, log),
        *_ledger(rows, log),
        *([] if failing else _usage(rows, log)),
        *review_faults(rows, log, effects),
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
    ids = [turn["id"] for turn in span_turns(rows, call)]
    if line["state"] == "review":  # it may have gone on since
        if ids[: len(line["turns"])] != line["turns"]:
            yield f"I1: call {call['id']} was held and its turns are not there whole"
        return
    if call["state"] != line["state"] or call["text"] != line["text"]:
        yield f"I1: call {call['id']} was acknowledged as {line['state']} and is {call['state']}"
        return
    if ids != line["turns"]:
        yield f"I1: call {call['id']} was acknowledged and its turns are not there whole"
    if call["state"] == "answered" and call["user_turn"] is not None:
        kind, token, *_ = text_of(call["user_turn"]).split()
        judged = mark_of(token) in HELD_MARKS  # then its review says what it has to be
        if kind != "own" and not judged and call["text"] != answer_to(token):
            yield f"I1: call {call['id']} has the answer {call['text']!r} of another"


def _active(rows: Rows, *, finished: bool) -> Iterator[str]:
    active = [call for call in rows.calls.values() if call["state"] == "active"]
    for thread, count in Counter(call["thread"] for call in active).items():
        if count > 1:
            yield f"I2: thread {thread} has {count} active calls"
    if finished:
        for call in rows.calls.values():
            if call["state"] in ("active", "review"):
                yield f"I2: call {call['id']} never ended"
    waiting = {review["call"] for review in rows.reviews.values() if review["state"] == "open"}
    for call in rows.calls.values():
        if call["state"] == "review" and call["id"] not in waiting:
            yield f"I2: call {call['id']} waits for a review, and no review is open"


def _paired(rows: Rows, effects: Iterable[dict[str, Any]], *, finished: bool) -> Iterator[str]:
    done = {line["slot"] for line in effects}
    held = {
        _exchange(review["tool_call"]["id"]): rows.calls[review["call"]]["state"]
        for review in rows.reviews.values()
        if review["tool_call"] is not None
    }
    for thread, turns in rows.turns.items():
        waiting: list[str] = []  # of the last exchange of a run: answered at once, in order
        open_calls: set[str] = set()  # of asks, or held: answered at any later time
        for _, turn in turns:
            for part in turn["parts"]:
                if part["type"] == "tool_call":
                    later = part["name"] == "own" or _exchange(part["id"]) in held
                    (open_calls.add if later else waiting.append)(part["id"])
                if part["type"] != "tool_result":
                    continue
                slot, content = part["call_id"], part["content"]
                if waiting and waiting[0] == slot:
                    waiting.pop(0)
                elif slot in open_calls:
                    open_calls.remove(slot)
                else:
                    yield f"I3: in thread {thread} the result of {slot} stands where it must not"
                if content == _NOT_BEGUN and slot in done:
                    yield f"I3: the result of {slot} says that it never began"
                edited, content = changed_arguments(content)
                if content == result_of(edited or slot):
                    if part.get("name") != "own" and (edited or slot) not in done:
                        yield f"I3: the result of {slot} was made up"
                elif _UNKNOWN not in content and not content.startswith(_NOT_RUN):
                    yield f"I3: the result of {slot} is another call's: {content!r}"
            if turn["role"] != "tool" and waiting and not _has_calls(turn):
                yield f"I3: in thread {thread} calls {waiting} have no result"
                waiting = []
        if waiting:
            yield f"I3: in thread {thread} calls {waiting} have no result"
        for slot in sorted(open_calls):
            if held.get(_exchange(slot), "active") not in ("active", "review"):
                yield f"I3: in thread {thread} the held call {slot} has no result"
        if finished and open_calls:
            yield f"I3: in thread {thread} calls {sorted(open_calls)} stayed open"


def _exchange(slot: str) -> str:
    """What the slots of one reply have in common."""
    return slot.rsplit(".", 1)[0]


def _effects(rows: Rows, effects: Iterable[dict[str, Any]]) -> Iterator[str]:
    let_again = Counter(
        review["tool_call"]["id"]
        for review in rows.reviews.values()
        if review["reason"] == "outcome_unknown" and review["state"] in ("approved", "edited")
    )
    unsafe = Counter(_made_slot(line) for line in effects if line["effect"] == "unsafe")
    for slot, count in unsafe.items():
        if count > 1 + let_again[slot]:
            yield f"I4: the unsafe effect of {slot} was done {count} times"
    slots: dict[str, set[str]] = defaultdict(set)
    keys: dict[str, set[str]] = defaultdict(set)
    for line in effects:
        slots[line["key"]].add(_made_slot(line))
        keys[_made_slot(line)].add(line["key"])
    for slot, found in keys.items():
        if len(found) > 1:
            yield f"I4: the effect of {slot} was done under {len(found)} keys"
    for key, found in slots.items():
        if len(found) > 1:
            yield f"I4: key {key} stood for the effects of {sorted(found)}"


def _made_slot(line: dict[str, Any]) -> str:
    """The slot of the call that the model made, of which an edit may have made another."""
    return str(line["slot"]).split("~")[0]


def _stale(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    decided = Counter(
        review["call"] for review in rows.reviews.values() if _raises_epoch(rows, review)
    )
    for call in rows.calls.values():
        owners, decisions = call["recoveries"], decided[call["id"]]
        if call["epoch"] != owners + decisions:
            told = f"of {owners} owners and {decisions} decisions"
            yield f"I5: call {call['id']} has epoch {call['epoch']} {told}"
    markers = {line["stale"] for line in log if "stale" in line}
    for marker in markers & rows.titles:
        yield f"I5: the stale write {marker} was stored"


def _raises_epoch(rows: Rows, review: dict[str, Any]) -> bool:
    """Whether the decision let its call go on, or wait for others: it did not end it."""
    if review["tool_call"] is not None:
        return review["state"] in ("approved", "edited", "rejected")
    goes_on = ("approved", "edited", "retried") if is_step(rows, review) else ("retried",)
    return review["state"] in goes_on


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
    reviews: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for review in rows.reviews.values():
        reviews[review["call"]].append(review)
    for call in rows.calls.values():
        outcomes = Counter(row["outcome"] for row in rows.ledger.get(call["id"], []))
        steps = sum(step["kind"] == "model" for _, step in rows.steps.get(call["id"], []))
        answers = [r for r in reviews.get(call["id"], []) if r["tool_call"] is None]
        let = [review for review in answers if review["state"] in ("approved", "edited")]
        steps -= sum(is_step(rows, review) for review in let)
        passed = sum(not is_step(rows, review) for review in let)
        if outcomes["tool_calls"] != steps:
            yield f"I8: call {call['id']} has {steps} model steps and {dict(outcomes)}"
        if outcomes["review"] != len(answers):
            yield f"I8: call {call['id']} has {len(answers)} held answers and {dict(outcomes)}"
        blocked = call["state"] == "blocked" and call["by"] != "review"
        # A prompt that is blocked asks no model. Its record has neither it nor a place in the
        # thread; that of a call which goes on without a prompt has the place.
        asked = call["user_turn"] is not None or call["position"] > 0
        if outcomes["blocked"] != (blocked and asked):
            yield f"I8: call {call['id']} is {call['state']} and has {dict(outcomes)}"
        if outcomes["answered"] + passed != (call["state"] == "answered"):
            yield f"I8: call {call['id']} is {call['state']} and has {dict(outcomes)}"
        if outcomes["lost"] > call["recoveries"]:
            yield f"I8: call {call['id']} lost {outcomes['lost']} of {call['recoveries']} attempts"
        if call["user_turn"] is not None:
            by_token[text_of(call["user_turn"]).split()[1]] = call
    for token, attempts in sent.items():
        call_of = by_token.get(token)
        if call_of is None:
            yield f"I8: the model was asked for {token}, and no call of it is stored"
            continue
        tries = 1 + sum(review["state"] == "retried" for review in reviews.get(call_of["id"], []))
        is_ask = text_of(call_of["user_turn"]).startswith(("say", "own", "cut"))
        if is_ask and attempts > tries:
            yield f"I8: the ask {token} was sent {attempts} times"
        booked = len(rows.ledger.get(call_of["id"], [])) + (call_of["state"] == "active")
        if attempts > booked:
            yield f"I8: {attempts} attempts of {token} have {booked} rows"


def _usage(rows: Rows, log: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What the model reported is booked, once: but for what a death or a cut may have lost."""
    reported: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for line in log:
        if "reported" in line:
            reported[line["reported"]][line["input"], line["output"]] += 1
    for call in rows.calls.values():
        ledger = rows.ledger.get(call["id"], [])
        usages = [row["usage"] for row in ledger if row.get("usage") is not None]
        booked = Counter((usage["input_tokens"], usage["output_tokens"]) for usage in usages)
        if call["state"] not in ("active", "failed"):
            summed = sum((pair[0] + pair[1]) * count for pair, count in booked.items())
            told = call["usage"] or {"input_tokens": 0, "output_tokens": 0}
            if summed != told["input_tokens"] + told["output_tokens"]:
                yield f"I8: call {call['id']} has {summed} tokens in the ledger and tells {told}"
        if call["user_turn"] is None:
            continue
        said = reported[text_of(call["user_turn"]).split()[1]]
        if booked - said:
            yield f"I8: call {call['id']} has usage that nobody reported: {booked - said}"
        cut = call["state"] in ("active", "incomplete", "failed")
        lost, unknown = sum((said - booked).values()), len(ledger) - len(usages)
        if max(lost, unknown) > call["recoveries"] + cut:
            yield f"I8: call {call['id']} lost {lost} usages in {call['recoveries']} deaths"


def _has_calls(turn: dict[str, Any]) -> bool:
    return any(part["type"] == "tool_call" for part in turn["parts"])

"""Histories from the field: stored turns → messages → repair → the wire, and what must hold there.

Each statement of a case is a check below, under the statement's own text, and each check is seen to
fail on a wire that was spoiled for it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turngate.history import paired_history, with_open_reviews
from turngate.providers.wire import chat_completion_messages
from turngate.turn_builder import TurnBuilder
from turngate.turns import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import ProviderData, Target

FOLDER = Path(__file__).parent.parent / "data" / "cases"
CASES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("h-*.json"))
}

# These need a window or a file store, and are tested there: the files in the integration tests of
# the gateway, test_inlining.py.
ELSEWHERE = {
    "h-file-only-user-turn",
    "h-file-that-is-gone",
    "h-trim-keeps-current-user-turn",
    "h-trim-orphan-result",
    "h-trim-oversized-last-result",
    "h-trim-starts-with-user",
    "h-trim-tokens-cut-exchange",
    "h-very-long-text",
}
HERE = sorted(CASES.keys() - ELSEWHERE)

Wire = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A case, its stored turns afterwards, and the wire of two conversions."""

    case: dict[str, Any]
    turns: list[Turn]
    wire: list[Wire]
    again: list[Wire]


# ── from a case to the wire ──────────────────────────────────────────────────────────────────


def stored_turns(case: dict[str, Any]) -> list[Turn]:
    """The turns of a case, as our store keeps them."""
    return [_stored_turn(place, told) for place, told in enumerate(case["turns"])]


def _stored_turn(place: int, told: dict[str, Any]) -> Turn:
    ended = told.get("status")
    return Turn(
        id=told.get("id", f"turn_{place}"),
        role=told["role"],
        parts=tuple(_stored_part(part, told.get("model")) for part in told["parts"]),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        model=told.get("model"),
        status="complete" if ended is None else "incomplete",
        ended=ended,
        retry_of=told.get("retry_of"),
    )


def _stored_part(told: dict[str, Any], model: str | None) -> Part:
    match told["type"]:
        case "text":
            return TextPart(told["text"])
        case "reasoning":
            return ReasoningPart(told["text"])
        case "tool_call":
            extra = told.get("extra_content")
            data = None if extra is None else ProviderData(_vendor(model), json.dumps(extra))
            return ToolCallPart(
                id=told["id"], name=told["name"], arguments=told["arguments"], provider_data=data
            )
        case "tool_result":
            return ToolResultPart(
                call_id=told["call_id"],
                content=told["content"],
                name=told.get("name"),
                is_error=told.get("is_error", False),
            )
        case other:
            raise AssertionError(other)


def _vendor(model: str | None) -> str:
    return (model or "").partition("/")[0]


def case_target(case: dict[str, Any]) -> Target:
    """What the endpoint of the case's next request demands."""
    told = dict(case.get("target", {}))
    ids = told.pop("tool_call_id", {})
    target = Target(
        provider=_vendor(told.pop("model", None)) or None,
        call_id_pattern=ids.get("pattern"),
        strict_alternation=told.pop("strict_alternation", False),
        replay_reasoning=told.pop("replay_reasoning", None),
    )
    assert not told, f"this target is not understood: {told}"
    return target


def waiting_calls(case: dict[str, Any]) -> list[str]:
    """The ids of the calls that wait for a person's approval."""
    parts = [part for turn in case["turns"] for part in turn["parts"]]
    return [part["id"] for part in parts if part.get("status") == "awaiting_approval"]


def converted(turns: list[Turn], target: Target, waiting: list[str]) -> list[Wire]:
    """The wire messages for `turns`, by the way that each request takes."""
    messages = TurnBuilder().to_messages(turns, reasoning=target.replay_reasoning is not None)
    messages = with_open_reviews(messages, waiting)
    return chat_completion_messages(paired_history(messages, target=target), target=target)


def seen(case_id: str) -> Seen:
    case = CASES[case_id]
    turns, target = stored_turns(case), case_target(case)
    waiting = waiting_calls(case)
    wire = converted(turns, target, waiting)
    read_again = msgspec.json.decode(msgspec.json.encode(turns), type=list[Turn])
    return Seen(case, turns, wire, converted(read_again, target, waiting))


# ── reading the wire ─────────────────────────────────────────────────────────────────────────


def calls_of(message: Wire) -> list[Wire]:
    found: list[Wire] = message.get("tool_calls") or []
    return found


def all_calls(wire: list[Wire]) -> list[Wire]:
    return [call for message in wire for call in calls_of(message)]


def text_of(message: Wire) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def texts_by(wire: list[Wire], role: str) -> list[str]:
    return [text_of(message) for message in wire if message["role"] == role]


def place_of(wire: list[Wire], text: str) -> int:
    """Where the one message with `text` stands; -1: nowhere, or more than once."""
    places = [place for place, message in enumerate(wire) if text_of(message) == text]
    return places[0] if len(places) == 1 else -1


def place_of_call(wire: list[Wire], call_id: str) -> int:
    ids = [[call["id"] for call in calls_of(message)] for message in wire]
    return next((place for place, found in enumerate(ids) if call_id in found), -1)


def results_behind(wire: list[Wire]) -> Iterator[tuple[Wire, list[Wire]]]:
    """Each message with calls, and the tool messages right behind it."""
    for place, message in enumerate(wire):
        if calls_of(message):
            end = place + 1
            while end < len(wire) and wire[end]["role"] == "tool":
                end += 1
            yield message, wire[place + 1 : end]


def result_for(wire: list[Wire], call_id: str) -> str:
    """The text of the one result for `call_id` right behind its call ("": there is none)."""
    found = [
        text_of(result)
        for message, results in results_behind(wire)
        for result in results
        if result["tool_call_id"] == call_id and call_id in [c["id"] for c in calls_of(message)]
    ]
    return found[0] if len(found) == 1 else ""


def arguments_of(call: Wire) -> Any:
    try:
        return json.loads(call["function"]["arguments"])
    except ValueError:
        return None


def keys_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set[str]().union(*map(keys_in, value)) if isinstance(value, list) else set()


def is_marked(text: str) -> bool:
    return bool(re.search("interrupted|not run", text))


# ── checks ───────────────────────────────────────────────────────────────────────────────────

CHECKS: dict[str, Callable[[Seen], bool]] = {}
SPOILED: dict[str, Callable[[Seen], Seen]] = {}

Check = Callable[[Seen], bool]


def check(statement: str, *, spoiled: Callable[[Seen], Seen]) -> Callable[[Check], Check]:
    """Registers a check for `statement`; what `spoiled` makes of a case must not pass it."""

    def register(function: Check) -> Check:
        assert statement not in CHECKS
        CHECKS[statement], SPOILED[statement] = function, spoiled
        return function

    return register


def on_wire(change: Callable[[list[Wire]], object]) -> Callable[[Seen], Seen]:
    """The case after `change` was made to a copy of its wire."""

    def spoil(before: Seen) -> Seen:
        wire = copy.deepcopy(before.wire)
        change(wire)
        return replace(before, wire=wire)

    return spoil


def on_turns(change: Callable[[list[Turn]], list[Turn]]) -> Callable[[Seen], Seen]:
    return lambda before: replace(before, turns=change(before.turns))


def no_calls_stored(turns: list[Turn]) -> list[Turn]:
    return [msgspec.structs.replace(turn, parts=()) for turn in turns]


def c1_settled(turns: list[Turn]) -> list[Turn]:
    """`turns` with a result for c1, as if it had been decided."""
    result = ToolResultPart(call_id="c1", content="Not approved.")
    answered = msgspec.structs.replace(turns[0], id="turn_result", role="tool", parts=(result,))
    return [*turns, answered]


def without(role: str) -> Callable[[Seen], Seen]:
    def change(wire: list[Wire]) -> None:
        wire[:] = [message for message in wire if message["role"] != role]

    return on_wire(change)


def with_results(text: str) -> Callable[[Seen], Seen]:
    def change(wire: list[Wire]) -> None:
        for message in wire:
            if message["role"] == "tool":
                message["content"] = text

    return on_wire(change)


def with_arguments(arguments: str) -> Callable[[Seen], Seen]:
    def change(wire: list[Wire]) -> None:
        for call in all_calls(wire):
            call["function"]["arguments"] = arguments

    return on_wire(change)


def with_call_ids(call_id: str) -> Callable[[Seen], Seen]:
    def change(wire: list[Wire]) -> None:
        for call in all_calls(wire):
            call["id"] = call_id

    return on_wire(change)


def with_message(message: Wire) -> Callable[[Seen], Seen]:
    return on_wire(lambda wire: wire.append(message))


turned = on_wire(lambda wire: wire.reverse())


@check(
    "every tool message answers a tool call of the nearest earlier assistant message",
    spoiled=with_message({"role": "tool", "tool_call_id": "orphan", "content": "x"}),
)
def _(s: Seen) -> bool:
    open_ids: set[str] = set()
    for message in s.wire:
        if message["role"] == "assistant":
            open_ids = {call["id"] for call in calls_of(message)}
        elif message["role"] == "tool" and message["tool_call_id"] not in open_ids:
            return False
    return True


@check(
    "every tool call of an assistant message is answered by exactly one tool message right after"
    " that assistant message",
    spoiled=without("tool"),
)
def _(s: Seen) -> bool:
    return all(
        sorted(call["id"] for call in calls_of(message))
        == sorted(result["tool_call_id"] for result in results)
        for message, results in results_behind(s.wire)
    )


@check(
    "the arguments of every call on the wire are valid JSON for an object",
    spoiled=with_arguments('{"path":"a"}{"path":"b"}'),
)
@check("no half JSON is sent", spoiled=with_arguments('{"text":"abc'))
def _(s: Seen) -> bool:
    return all(isinstance(arguments_of(call), dict) for call in all_calls(s.wire))


@check("the stored arguments are unchanged", spoiled=on_turns(no_calls_stored))
@check("the stored ids are unchanged", spoiled=on_turns(no_calls_stored))
@check("the stored turns stay separate", spoiled=on_turns(lambda turns: turns[:1]))
def _(s: Seen) -> bool:
    return s.turns == stored_turns(s.case)


@check(
    "the model can see what went wrong, through the result or the arguments",
    spoiled=with_results(""),
)
def _(s: Seen) -> bool:
    return "invalid" in result_for(s.wire, "c1")


@check(
    "content beside tool calls is null or a string, never a list and never left out",
    spoiled=on_wire(lambda wire: [message.pop("content") for message in wire]),
)
def _(s: Seen) -> bool:
    beside = [message for message in s.wire if calls_of(message)]
    return all("content" in m and isinstance(m["content"], str | None) for m in beside)


@check(
    "no text part of zero length is sent",
    spoiled=with_message({"role": "user", "content": [{"type": "text", "text": ""}]}),
)
def _(s: Seen) -> bool:
    lists = [message["content"] for message in s.wire if isinstance(message["content"], list)]
    return all(part.get("text") != "" for parts in lists for part in parts)


@check(
    "no assistant message with empty content is sent",
    spoiled=with_message({"role": "assistant", "content": " "}),
)
@check(
    "no assistant message without content and tool calls is sent",
    spoiled=with_message({"role": "assistant", "content": None}),
)
def _(s: Seen) -> bool:
    answers = [message for message in s.wire if message["role"] == "assistant"]
    return all(text_of(message).strip() or calls_of(message) for message in answers)


@check(
    "the reasoning is not sent as answer text",
    spoiled=with_message({"role": "assistant", "content": "Let me see"}),
)
def _(s: Seen) -> bool:
    return "Let me see" not in json.dumps(s.wire)


@check("both user texts are sent", spoiled=without("user"))
@check("both user texts are sent in order", spoiled=turned)
def _(s: Seen) -> bool:
    return texts_by(s.wire, "user") == [
        part["text"] for turn in s.case["turns"] if turn["role"] == "user" for part in turn["parts"]
    ]


@check("all ids on the wire match the pattern", spoiled=with_call_ids("call_1"))
def _(s: Seen) -> bool:
    ids = [call["id"] for call in all_calls(s.wire)]
    return all(re.search(s.case["target"]["tool_call_id"]["pattern"], each) for each in ids)


@check(
    "the two ids stay different, though they share a long prefix",
    spoiled=with_call_ids("callPTLP8"),
)
def _(s: Seen) -> bool:
    return len({call["id"] for call in all_calls(s.wire)}) == 2


@check("the same stored history gives the same ids each time", spoiled=with_call_ids("x"))
def _(s: Seen) -> bool:
    return s.wire == s.again


@check("both calls and both results are sent", spoiled=without("tool"))
def _(s: Seen) -> bool:
    return len(all_calls(s.wire)) == 2 and texts_by(s.wire, "tool") == ["r1", "r2"]


@check(
    "'r1' answers the call with n=1 and 'r2' the call with n=2",
    spoiled=with_arguments('{"n":1}'),
)
def _(s: Seen) -> bool:
    return [
        (arguments_of(call)["n"], text_of(result))
        for message, results in results_behind(s.wire)
        for call, result in zip(calls_of(message), results, strict=True)
    ] == [(1, "r1"), (2, "r2")]


@check(
    "if ids are rewritten to be unique, call and result change together",
    spoiled=with_call_ids("call_9"),
)
def _(s: Seen) -> bool:
    return all(
        [call["id"] for call in calls_of(message)] == [result["tool_call_id"] for result in results]
        for message, results in results_behind(s.wire)
    )


@check(
    "exactly one user message is sent", spoiled=with_message({"role": "user", "content": "again"})
)
def _(s: Seen) -> bool:
    return len(texts_by(s.wire, "user")) == 1


@check(
    "it holds both texts, in order, separated",
    spoiled=on_wire(
        lambda wire: wire[0].update(content="capital of Norway?and its history?"),
    ),
)
def _(s: Seen) -> bool:
    return bool(re.fullmatch(r"capital of Norway\?\s+and its history\?", text_of(s.wire[0])))


@check(
    "no extra_content and no reasoning member is sent",
    spoiled=on_wire(lambda wire: wire[1].update(reasoning_content="")),
)
def _(s: Seen) -> bool:
    return not any("reasoning" in key or "extra" in key for key in keys_in(s.wire))


@check(
    "'private chain' appears nowhere on the wire",
    spoiled=on_wire(lambda wire: wire[1].update(content="private chain Answer.")),
)
def _(s: Seen) -> bool:
    return "private chain" not in json.dumps(s.wire)


@check("'Answer.' is sent", spoiled=without("assistant"))
def _(s: Seen) -> bool:
    return texts_by(s.wire, "assistant") == ["Answer."]


@check("'Writing.' is sent", spoiled=without("assistant"))
def _(s: Seen) -> bool:
    return texts_by(s.wire, "assistant") == ["Writing."]


@check(
    "the half call is left out, or sent with valid JSON arguments and a result saying that it did"
    " not run",
    spoiled=with_results("written"),
)
def _(s: Seen) -> bool:
    calls = all_calls(s.wire)
    return not calls or (
        isinstance(arguments_of(calls[0]), dict) and "not run" in result_for(s.wire, "c1")
    )


@check(
    "the assistant message has reasoning_content 'I will call pwd'",
    spoiled=on_wire(lambda wire: wire[1].pop("reasoning_content")),
)
def _(s: Seen) -> bool:
    [message, *_] = [message for message in s.wire if message["role"] == "assistant"]
    return message.get("reasoning_content") == "I will call pwd"


@check(
    "content is 'One moment.'",
    spoiled=on_wire(lambda wire: wire[1].update(content="I will call pwd One moment.")),
)
def _(s: Seen) -> bool:
    return texts_by(s.wire, "assistant") == ["One moment."]


@check("the tool message for c1 comes right after the assistant message with c1", spoiled=turned)
def _(s: Seen) -> bool:
    place = place_of_call(s.wire, "c1")
    return place >= 0 and s.wire[place + 1].get("tool_call_id") == "c1"


@check("'also check the news' follows it, before 'Found 3.'", spoiled=turned)
def _(s: Seen) -> bool:
    places = [place_of(s.wire, text) for text in ("3 hits", "also check the news", "Found 3.")]
    return places == sorted(places) and places[1] == places[0] + 1


@check("nothing is lost", spoiled=on_wire(lambda wire: wire.pop()))
def _(s: Seen) -> bool:
    told = [part for turn in s.case["turns"] for part in turn["parts"]]
    texts = [part.get("text", part.get("content")) for part in told if part["type"] != "tool_call"]
    sent = [text_of(message) for message in s.wire if text_of(message)]
    return sorted(sent) == sorted(texts) and len(all_calls(s.wire)) == len(told) - len(texts)


@check("the call c1 is still visible on the wire", spoiled=without("assistant"))
def _(s: Seen) -> bool:
    return place_of_call(s.wire, "c1") >= 0


@check(
    "the result made up for c1 says that the run was interrupted and the outcome is unknown",
    spoiled=with_results("done"),
)
def _(s: Seen) -> bool:
    text = result_for(s.wire, "c1")
    return "interrupted" in text and "unknown" in text


@check("the made-up result comes before the user message 'continue'", spoiled=turned)
def _(s: Seen) -> bool:
    made = next(i for i, message in enumerate(s.wire) if message["role"] == "tool")
    return made < place_of(s.wire, "continue")


@check(
    "either the missing result is made up and marked, or the conversion raises a clear error"
    " naming c1",
    spoiled=with_results("done"),
)
def _(s: Seen) -> bool:
    return is_marked(result_for(s.wire, "c1"))


@check("c1 is answered with 'A done'", spoiled=with_results(""))
def _(s: Seen) -> bool:
    return result_for(s.wire, "c1") == "A done"


@check(
    "c2 is answered with a made-up result that marks it as not run or interrupted",
    spoiled=with_results("A done"),
)
def _(s: Seen) -> bool:
    return is_marked(result_for(s.wire, "c2"))


@check("order of the tool messages: c1, c2", spoiled=turned)
def _(s: Seen) -> bool:
    return [m["tool_call_id"] for m in s.wire if m["role"] == "tool"] == ["c1", "c2"]


@check(
    "on the wire c1 has a result saying that it is not approved yet and did not run",
    spoiled=with_results("interrupted"),
)
def _(s: Seen) -> bool:
    text = result_for(s.wire, "c1").lower()
    return "not run" in text and "waits for" in text and "approval" in text


@check(
    "in the store c1 stays open, so that an approval can still be given",
    spoiled=on_turns(c1_settled),
)
def _(s: Seen) -> bool:
    parts = [part for turn in s.turns for part in turn.parts]
    made = [part.id for part in parts if isinstance(part, ToolCallPart)]
    return made == ["c1"] and not any(isinstance(part, ToolResultPart) for part in parts)


@check("no success is claimed for c1", spoiled=with_results("The branch is deleted."))
def _(s: Seen) -> bool:
    results = texts_by(s.wire, "tool")
    spoken = texts_by(s.wire, "assistant")
    return all(text.startswith("Not run") for text in results) and spoken == ["I need your leave."]


# ── tests ────────────────────────────────────────────────────────────────────────────────────


def statements(case_id: str) -> list[str]:
    found: list[str] = CASES[case_id]["expect"].get("properties", [])
    return found


def comparable(wire: list[Wire]) -> list[Wire]:
    """`wire` where null and empty content beside calls are one."""
    return [
        message | {"content": message["content"] or None} if calls_of(message) else message
        for message in wire
    ]


PAIRS = [(case_id, statement) for case_id in HERE for statement in statements(case_id)]


@pytest.mark.parametrize("case_id", [each for each in HERE if "wire" in CASES[each]["expect"]])
def test_case_gives_the_wire_it_tells(case_id: str) -> None:
    """The messages on the wire are those that the case tells, in order."""
    assert comparable(seen(case_id).wire) == comparable(CASES[case_id]["expect"]["wire"])


@pytest.mark.parametrize(("case_id", "statement"), PAIRS)
def test_case_statement_holds(case_id: str, statement: str) -> None:
    """Each statement of each case has a check, and it holds."""
    assert statement in CHECKS, f"no check is written for: {statement}"
    assert CHECKS[statement](seen(case_id))


@pytest.mark.parametrize(("case_id", "statement"), PAIRS)
def test_each_property_check_can_fail(case_id: str, statement: str) -> None:
    """A wire (or a store) that was spoiled for a statement does not pass its check."""
    assert not CHECKS[statement](SPOILED[statement](seen(case_id)))


def test_each_case_is_checked_here_or_named() -> None:
    """No case is left without a test, and no check without a statement."""
    assert CASES.keys() >= ELSEWHERE
    assert all(CASES[each]["expect"].keys() & {"wire", "properties"} for each in HERE)
    assert {statement for _, statement in PAIRS} == CHECKS.keys()


@pytest.mark.parametrize("case_id", HERE)
def test_case_leaves_the_store_as_it_is(case_id: str) -> None:
    """A conversion changes no stored turn, and gives the same bytes each time."""
    outcome = seen(case_id)
    assert outcome.turns == stored_turns(outcome.case)
    assert json.dumps(outcome.wire) == json.dumps(outcome.again)

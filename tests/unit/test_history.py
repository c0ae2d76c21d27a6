"""History repair: single rules by example, and what holds for any messages and any target.

The checkers here are written apart from the code: they model from the input alone what has to come
out. Cases from the field are in test_history_cases.py.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit import strategies
from turngate.errors import InvalidMessage, InvalidValue
from turngate.history import (
    CONTINUED,
    INTERRUPTED,
    NOT_APPROVED,
    NOT_RUN,
    paired_history,
    with_open_reviews,
    without_final_answer,
)
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.values import ProviderData, Target

targets = st.none() | strategies.targets
ALTERNATE = Target(strict_alternation=True)
USER_FIRST = Target(user_first=True)
PICTURE = InlineFile(name="a.png", media_type="image/png", data=b"x")


def calls(*ids: str, arguments: str = "{}") -> AssistantMessage:
    """An assistant message with one call per id."""
    return AssistantMessage(
        tool_calls=tuple(ToolCall(id=call_id, name="f", arguments=arguments) for call_id in ids)
    )


def blank_calls(call_id: str) -> AssistantMessage:
    return msgspec.structs.replace(calls(call_id), text=" \n")


def answer(call_id: str, content: str = "r") -> ToolMessage:
    return ToolMessage(call_id=call_id, content=content)


def user(text: str = "hi") -> UserMessage:
    return UserMessage((text,))


def said(text: str = "ok") -> AssistantMessage:
    return AssistantMessage(text=text)


def made_up(call_id: str, content: str = INTERRUPTED) -> ToolMessage:
    return ToolMessage(call_id=call_id, content=content, name="f", is_error=True)


# ── checkers ─────────────────────────────────────────────────────────────────────────────────


def pairing_faults(history: Sequence[Message]) -> list[str]:
    """What keeps `history` from being paired; empty where every endpoint would take it."""
    faults: list[str] = []
    place = 0
    while place < len(history):
        message = history[place]
        place += 1
        if isinstance(message, ToolMessage):
            faults.append(f"a result for {message.call_id!r} answers nothing")
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            ids = [call.id for call in message.tool_calls]
            if len(set(ids)) < len(ids) or "" in ids:
                faults.append(f"ids are not usable: {ids}")
            results = history[place : place + len(ids)]
            answered = [each.call_id for each in results if isinstance(each, ToolMessage)]
            if answered != ids:
                faults.append(f"calls {ids} are followed by results {answered}")
            place += len(ids)
            faults += [
                f"no object: {call.arguments!r}"
                for call in message.tool_calls
                if not is_object(call.arguments)
            ]
            if message.text.isspace():
                faults.append("blank text beside calls")
        elif isinstance(message, AssistantMessage) and not message.text.strip():
            faults.append("an assistant message without text and calls")
        elif isinstance(message, UserMessage) and not (message.parts and all(message.parts)):
            faults.append("an empty user message or part")
        elif isinstance(message, SystemMessage) and not message.text:
            faults.append("an empty system message")
    return faults


def is_object(text: str) -> bool:
    """Whether a strict JSON parser reads an object from `text`."""
    try:
        text.encode()
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def target_faults(history: Sequence[Message], target: Target) -> list[str]:
    """Which demands of `target` the history does not meet."""
    faults: list[str] = []
    ids = [c.id for m in history if isinstance(m, AssistantMessage) for c in m.tool_calls]
    if target.call_id_pattern is not None:
        faults += [i for i in ids if re.fullmatch(target.call_id_pattern, i) is None]
    if target.call_id_chars_max is not None:
        faults += [i for i in ids if len(i) > target.call_id_chars_max]
    kinds = [type(message) for message in history]
    spoken = [kind for kind in kinds if kind is not SystemMessage]
    if target.user_first and spoken and spoken[0] is not UserMessage:
        faults.append(f"opens with {spoken[0].__name__}")
    if target.strict_alternation:
        pairs = pairwise(kinds)
        faults += [
            f"two {one.__name__} in a row"
            for one, other in pairs
            if one is other and one is not ToolMessage
        ]
        if SystemMessage in kinds[1:]:
            faults.append("instructions are not first")
    return faults


class Kept(msgspec.Struct, frozen=True):
    """What of a history has to reach the model, in order of its kind."""

    user_parts: list[Any]
    answers: str
    calls: list[tuple[str, str | None]]
    results: list[Any]
    instructions: str


def kept_of_input(messages: Sequence[Message]) -> Kept:
    """What has to stay of `messages`, modelled without pairing them."""
    given_to = _results_by_call(messages)
    results: list[Any] = []
    for place, message in enumerate(messages):
        if not isinstance(message, AssistantMessage):
            continue
        for number, call in enumerate(message.tool_calls):
            valid = is_object(call.arguments) or not call.arguments.strip()
            made_up = INTERRUPTED if valid else NOT_RUN
            results.append(given_to.get((place, number), made_up))
    return Kept(
        user_parts=[
            part for m in messages if isinstance(m, UserMessage) for part in m.parts if part
        ],
        answers=_joined_answers(messages),
        calls=[
            (call.name, call.arguments if is_object(call.arguments) else None)
            for m in messages
            if isinstance(m, AssistantMessage)
            for call in m.tool_calls
        ],
        results=results,
        instructions=_joined_instructions(messages),
    )


def _results_by_call(messages: Sequence[Message]) -> dict[tuple[int, int], Any]:
    """The content of each call's result, by the place of its message and its number there.

    A result right behind a message that makes its call is that message's or nobody's; a later one
    is for the newest message with an open call of its id.
    """
    given: dict[tuple[int, int], Any] = {}
    for place, result in enumerate(messages):
        if not isinstance(result, ToolMessage):
            continue
        open_calls = [
            (made, number)
            for made in range(place)
            if isinstance(message := messages[made], AssistantMessage)
            for number, call in enumerate(message.tool_calls)
            if call.id == result.call_id and (made, number) not in given
        ]
        before = max(i for i in range(-1, place) if i < 0 or messages[i].role != "tool")
        behind = messages[before] if before >= 0 else None
        if isinstance(behind, AssistantMessage) and any(
            call.id == result.call_id for call in behind.tool_calls
        ):
            open_calls = [each for each in open_calls if each[0] == before]
        if open_calls:
            newest = max(made for made, _ in open_calls)
            given[min(each for each in open_calls if each[0] == newest)] = result.content
    return given


def kept_in_output(history: Sequence[Message], like: Kept) -> Kept:
    """What `history` shows of the same; arguments count only where the input's were sound."""
    calls = [
        (call.name, call.arguments)
        for m in history
        if isinstance(m, AssistantMessage)
        for call in m.tool_calls
    ]
    parts = [part for m in history if isinstance(m, UserMessage) for part in m.parts]
    if parts[:1] == [CONTINUED] and like.user_parts[:1] != [CONTINUED]:
        parts = parts[1:]
    return Kept(
        user_parts=parts,
        answers=_joined_answers(history),
        calls=[
            (name, arguments if before is not None else None)
            for (name, arguments), (_, before) in zip(calls, like.calls, strict=True)
        ],
        results=[m.content for m in history if isinstance(m, ToolMessage)],
        instructions=_joined_instructions(history),
    )


def _joined_answers(messages: Sequence[Message]) -> str:
    texts = [m.text for m in messages if isinstance(m, AssistantMessage)]
    return "\n\n".join(text for text in texts if text.strip())


def _joined_instructions(messages: Sequence[Message]) -> str:
    return "\n\n".join(m.text for m in messages if isinstance(m, SystemMessage) and m.text)


def in_bytes(history: Sequence[Message]) -> bytes:
    return repr([msgspec.structs.asdict(message) for message in history]).encode(
        "utf-8", "backslashreplace"
    )


# ── laws ─────────────────────────────────────────────────────────────────────────────────────


@given(strategies.histories, targets)
def test_any_history_becomes_paired(messages: list[Message], target: Target | None) -> None:
    """Each call is answered exactly once, right behind its message; nothing empty is left."""
    assert pairing_faults(paired_history(messages, target=target)) == []


@given(strategies.histories, strategies.targets)
def test_any_target_is_met(messages: list[Message], target: Target) -> None:
    """Ids have the target's form, roles alternate, a user opens: whatever is demanded."""
    assert target_faults(paired_history(messages, target=target), target) == []


@settings(max_examples=200)
@given(strategies.histories, targets)
def test_nothing_is_lost(messages: list[Message], target: Target | None) -> None:
    """Texts, calls, instructions and each call's first result stay, in order."""
    before = kept_of_input(messages)
    assert kept_in_output(paired_history(messages, target=target), before) == before


@given(strategies.histories, targets)
def test_repairing_twice_is_repairing_once(messages: list[Message], target: Target | None) -> None:
    """A repaired history is its own repair."""
    once = paired_history(messages, target=target)
    assert paired_history(once, target=target) == once


@given(strategies.histories, targets)
def test_same_history_gives_same_bytes(messages: list[Message], target: Target | None) -> None:
    """Equal input gives equal output, byte for byte, from another copy too."""
    first = paired_history(messages, target=target)
    second = paired_history(iter(copy.deepcopy(messages)), target=target)
    assert in_bytes(first) == in_bytes(second)


@given(strategies.histories, targets)
def test_input_is_untouched(messages: list[Message], target: Target | None) -> None:
    """The messages that were given stay as they are."""
    before = copy.deepcopy(messages)
    paired_history(messages, target=target)
    assert messages == before


@given(strategies.histories, strategies.targets)
def test_a_new_question_leaves_the_beginning_as_it_was(
    messages: list[Message], target: Target
) -> None:
    """What is sent for the same turns does not change as the thread grows: a cache stays warm."""
    target = msgspec.structs.replace(target, strict_alternation=False)
    before = paired_history(messages, target=target)
    assert paired_history([*messages, user("and now?")], target=target) == [
        *before,
        user("and now?"),
    ]


@given(strategies.histories)
def test_no_target_is_a_target_without_demands(messages: list[Message]) -> None:
    """The default target demands nothing."""
    assert paired_history(messages) == paired_history(messages, target=Target())


@given(strategies.histories)
def test_without_final_answer_keeps_a_beginning_that_ends_with_a_result(
    messages: list[Message],
) -> None:
    """What is kept is a prefix, and ends with a tool result or is nothing."""
    kept = without_final_answer(messages)
    assert kept == messages[: len(kept)]
    assert not kept or isinstance(kept[-1], ToolMessage)
    assert without_final_answer(kept) == kept


open_ids = st.lists(strategies.call_ids, max_size=4, unique=True)


@given(strategies.histories, open_ids, targets)
def test_waiting_calls_become_paired(
    messages: list[Message], ids: list[str], target: Target | None
) -> None:
    """With the results of waiting calls put in, every endpoint still takes what is sent."""
    history = paired_history(with_open_reviews(messages, ids), target=target)
    assert pairing_faults(history) == []
    assert target_faults(history, target or Target()) == []


@given(strategies.histories, open_ids)
def test_waiting_is_told_once(messages: list[Message], ids: list[str]) -> None:
    """Told twice is told once, before the repair and after it."""
    once = with_open_reviews(messages, ids)
    assert with_open_reviews(once, ids) == once
    sent = paired_history(once)
    assert paired_history(with_open_reviews(sent, ids)) == sent


@given(strategies.histories, open_ids)
def test_waiting_calls_are_all_that_is_told_of(messages: list[Message], ids: list[str]) -> None:
    """Only results that claim nothing are put in, for steps that wait, and nothing else moves."""
    before = copy.deepcopy(messages)
    told = with_open_reviews(messages, ids)
    assert messages == before
    old = {id(message) for message in messages}
    assert [message for message in told if id(message) in old] == messages
    waits: set[str] = set()  # the ids of the calls of the last message, if one of them waits
    for message in told:
        if isinstance(message, AssistantMessage):
            made = {call.id for call in message.tool_calls}
            waits = made if made.intersection(ids) else set()
        elif id(message) not in old:
            assert isinstance(message, ToolMessage)
            assert message.content == NOT_APPROVED
            assert message.call_id in waits


@settings(max_examples=200)
@given(strategies.histories, open_ids)
@example([calls("c", "c"), calls("c", "c", "c"), user(), answer("c"), answer("c")], ["c"])
def test_waiting_takes_the_place_of_an_unknown_outcome_alone(
    messages: list[Message], ids: list[str]
) -> None:
    """What is sent differs in made-up results alone: an answered call keeps its own."""
    plain = paired_history(messages)
    told = paired_history(with_open_reviews(messages, ids))
    assert len(told) == len(plain)
    expected = waiting_places(messages, ids)
    for number, (one, other) in enumerate(zip(plain, told, strict=True)):
        if one != other:
            assert isinstance(one, ToolMessage)
            assert isinstance(other, ToolMessage)
            assert one.content in (INTERRUPTED, NOT_RUN)
            assert other.content == NOT_APPROVED
            assert call_number(plain, number) in expected
            expected.remove(call_number(plain, number))
    assert expected == set()


def waiting_places(messages: Sequence[Message], ids: list[str]) -> set[int]:
    """The numbers, among all calls of `messages`, of those that `ids` mean and nobody answered."""
    made: list[tuple[int, int, str]] = []  # the number of a call, its message's place, its id
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            made += [(len(made) + n, place, c.id) for n, c in enumerate(message.tool_calls)]
    found: set[int] = set()
    for call_id in ids:
        waits = newest_open_place(messages, call_id)
        later = {m.call_id for m in messages[waits:] if isinstance(m, ToolMessage)}
        found |= {
            n
            for n, place, other in made
            if place == waits and (other == call_id or other not in later)
        }
    return found


def newest_open_place(messages: Sequence[Message], call_id: str) -> int:
    """The place of the newest message whose call of this id has no result (-1: there is none)."""
    makes = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, AssistantMessage) and call_id in [c.id for c in message.tool_calls]
    ]
    numbers = {
        place: [n for n, c in enumerate(messages[place].tool_calls) if c.id == call_id]  # type: ignore[union-attr]  # an answer, as found above
        for place in makes
    }
    answered = _results_by_call(messages)
    return max(
        (p for p in makes if all((p, n) not in answered for n in numbers[p])),
        default=-1,
    )


def call_number(history: Sequence[Message], place: int) -> int:
    """Which of all calls the result at `place` of a paired history answers."""
    return sum(isinstance(message, ToolMessage) for message in history[:place])


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([answer("c1")], "answers nothing"),
        ([calls("c1")], "followed by"),
        ([calls("c1"), user(), answer("c1")], "followed by"),
        ([calls("c1", "c2"), answer("c2"), answer("c1")], "followed by"),
        ([calls("c1"), answer("c1"), answer("c1")], "answers nothing"),
        ([calls("c1", "c1"), answer("c1"), answer("c1")], "not usable"),
        ([calls(""), answer("")], "not usable"),
        ([calls("c1", arguments="[1]"), answer("c1")], "no object"),
        ([calls("c1", arguments='{"a": NaN}'), answer("c1")], "no object"),
        ([said(" ")], "without text"),
        ([UserMessage(("a", ""))], "empty user"),
        ([UserMessage(())], "empty user"),
        ([SystemMessage("")], "empty system"),
    ],
)
def test_pairing_checker_sees_each_fault(history: list[Message], fault: str) -> None:
    """The checker of the laws above finds each fault that it is there for."""
    assert fault in " ".join(pairing_faults(history))


@pytest.mark.parametrize(
    ("history", "target"),
    [
        ([calls("c_1")], Target(call_id_pattern="[a-z0-9]+")),
        ([calls("c_1")], Target(call_id_chars_max=2)),
        ([SystemMessage("s"), said()], USER_FIRST),
        ([user(), user()], ALTERNATE),
        ([said(), said()], ALTERNATE),
        ([user(), SystemMessage("s"), said()], ALTERNATE),
    ],
)
def test_target_checker_sees_each_fault(history: list[Message], target: Target) -> None:
    """The checker of targets finds each demand that is not met."""
    assert target_faults(history, target)


# ── single rules ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([user(), said()], [user(), said()], id="plain"),
        pytest.param([answer("c1"), user()], [user()], id="orphan result goes"),
        pytest.param(
            [calls("c1"), answer("c2")], [calls("c1"), made_up("c1")], id="foreign result goes"
        ),
        pytest.param(
            [answer("c1"), calls("c1")], [calls("c1"), made_up("c1")], id="a result before its call"
        ),
        pytest.param(
            [calls("c1"), user("more"), answer("c1")],
            [calls("c1"), answer("c1"), user("more")],
            id="a late result moves up",
        ),
        pytest.param(
            [calls("c1"), SystemMessage("s"), answer("c1")],
            [calls("c1"), answer("c1"), SystemMessage("s")],
            id="behind instructions too",
        ),
        pytest.param(
            [calls("a", "b"), answer("b", "B"), answer("a", "A")],
            [calls("a", "b"), answer("a", "A"), answer("b", "B")],
            id="results in call order",
        ),
        pytest.param(
            [calls("c1"), answer("c1", "first"), answer("c1", "second")],
            [calls("c1"), answer("c1", "first")],
            id="the first result stands",
        ),
        pytest.param(
            [calls("c1"), calls("c1"), answer("c1", "new"), answer("c1", "late")],
            [calls("c1"), made_up("c1"), calls("c1"), answer("c1", "new")],
            id="a result is for the newest call of its id",
        ),
        pytest.param(
            [calls("c1"), calls("c1"), user(), answer("c1", "new")],
            [calls("c1"), made_up("c1"), calls("c1"), answer("c1", "new"), user()],
            id="a late result is for the newest call of its id",
        ),
        pytest.param(
            [blank_calls("c1"), answer("c1"), blank_calls("c2")],
            [calls("c1"), answer("c1"), calls("c2"), made_up("c2")],
            id="blank text beside calls goes",
        ),
        pytest.param(
            [calls("c", "c"), answer("c", "1"), answer("c", "2")],
            [calls("c", "c_2"), answer("c", "1"), answer("c_2", "2")],
            id="an id twice in one message",
        ),
        pytest.param(
            [calls("c", "c", "c_2"), answer("c_2", "3")],
            [calls("c", "c_2", "c_2_2"), made_up("c"), made_up("c_2"), answer("c_2_2", "3")],
            id="a made id never meets another",
        ),
        pytest.param(
            [calls("", ""), answer("", "1"), answer("", "2")],
            [calls("call_0", "call_1"), answer("call_0", "1"), answer("call_1", "2")],
            id="empty ids",
        ),
        pytest.param(
            [calls("c1", arguments=" "), answer("c1")],
            [calls("c1"), answer("c1")],
            id="no arguments are an empty object",
        ),
        pytest.param([AssistantMessage(reasoning="Hm.")], [], id="reasoning alone goes"),
        pytest.param([said("\n"), said("")], [], id="blank answers go"),
        pytest.param([UserMessage(()), SystemMessage("")], [], id="empty messages go"),
        pytest.param([user(" ")], [user(" ")], id="a user's blank stays"),
        pytest.param(
            [UserMessage(("", PICTURE, "a"))], [UserMessage((PICTURE, "a"))], id="empty parts go"
        ),
    ],
)
def test_paired_history_example(before: list[Message], after: list[Message]) -> None:
    """One rule each, as its id says."""
    assert paired_history(before) == after


@pytest.mark.parametrize("arguments", ['{"a":1}{"a":2}', '{"text":"abc', '"a"', "[1]", "null", "x"])
def test_arguments_that_are_no_object_are_wrapped(arguments: str) -> None:
    """The model still sees what it wrote, within valid JSON; the result says it did not run."""
    first, second = paired_history([calls("c1", arguments=arguments)])
    assert isinstance(first, AssistantMessage)
    assert json.loads(first.tool_calls[0].arguments) == {"invalid_arguments": arguments}
    assert second == made_up("c1", NOT_RUN)


def test_sound_arguments_stay_as_they_were_written() -> None:
    """Blanks and order in an object are not touched, since a cache compares bytes."""
    history: list[Message] = [calls("c1", arguments='{ "b": 1.0,\n"a": "\\u00e9" }'), answer("c1")]
    assert paired_history(history) == history


def test_sound_history_is_handed_on_as_it_is() -> None:
    """A message that needs no repair is the same object, so nothing on it can get lost."""
    history: list[Message] = [SystemMessage("s"), UserMessage(("hi",)), said()]
    assert all(a is b for a, b in zip(paired_history(history), history, strict=True))


def test_unanswered_call_names_its_function() -> None:
    """A made-up result is an error and names the function, as some endpoints want."""
    _, result = paired_history([calls("c1")])
    assert result == ToolMessage(call_id="c1", content=INTERRUPTED, name="f", is_error=True)


@pytest.mark.parametrize("wrong", [{"role": "user", "content": "hi"}, "hi", None])
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    """A dict in place of a message is a TypeError that names the classes to use."""
    with pytest.raises(InvalidMessage, match="UserMessage") as caught:
        paired_history([user(), wrong])
    assert isinstance(caught.value, TypeError)


# ── targets ──────────────────────────────────────────────────────────────────────────────────

NINE = Target(call_id_pattern="^[a-zA-Z0-9]{9}$")


def ids_for(target: Target, *ids: str) -> list[str]:
    [message, *_] = paired_history([calls(*ids)], target=target)
    assert isinstance(message, AssistantMessage)
    return [call.id for call in message.tool_calls]


def test_ids_that_fit_are_not_changed() -> None:
    """An id of the target's form stays, and is not given to another call."""
    [made] = ids_for(NINE, "call_1")
    assert ids_for(NINE, "abcdefghi") == ["abcdefghi"]
    first, second = ids_for(NINE, "call_1", made)
    assert first == made != second


def test_ids_with_a_long_common_prefix_stay_different() -> None:
    """A new id comes from the whole old one, not from a cut of it."""
    limited = Target(call_id_chars_max=9)
    [one], [other] = ids_for(limited, "x" * 80 + "a"), ids_for(limited, "x" * 80 + "b")
    assert one != other
    assert len(one) == len(other) == 9


def test_ids_are_the_same_in_each_exchange() -> None:
    """A reused id is mapped alike in each exchange, whatever else stands in the history."""
    exchange: list[Message] = [calls("call_1"), answer("call_1")]
    history = paired_history([*exchange, user(), *exchange], target=NINE)
    assert history[0] == history[3]
    assert history[1] == history[4]


def test_id_limit_of_forty_gives_forty() -> None:
    """The longest id that fits is taken, for the fewest collisions."""
    assert [len(made) for made in ids_for(Target(call_id_chars_max=40), "x" * 41)] == [40]


def test_id_is_forty_long_where_more_would_fit() -> None:
    """Forty is the least limit known of a server, so no id is longer without need."""
    target = Target(call_id_pattern="[a-z0-9]+", call_id_chars_max=64)
    assert [len(made) for made in ids_for(target, "call_1")] == [40]
    assert [len(made) for made in ids_for(Target(call_id_pattern="[a-z0-9]{50}"), "x")] == [50]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(call_id_pattern="["), "no pattern"),
        (Target(call_id_pattern="[é]{9}"), "matches"),
        (Target(call_id_pattern="[a-z0-9]{9}", call_id_chars_max=8), "matches"),
        (Target(call_id_chars_max=0), "at most 0"),
        (Target(call_id_pattern="[0-9]"), "too few"),
    ],
)
def test_id_form_that_cannot_be_met_is_an_error(target: Target, words: str) -> None:
    """The error names the form; without calls nothing has to be met."""
    with pytest.raises(InvalidValue, match=words):
        paired_history([calls(*(f"call_{number}" for number in range(11)))], target=target)
    assert paired_history([user()], target=target) == [user()]


def test_alternation_merges_users_and_keeps_their_parts_apart() -> None:
    """Two questions become one message of several parts."""
    assert paired_history([user("a"), UserMessage(("b", PICTURE))], target=ALTERNATE) == [
        UserMessage(("a", "b", PICTURE))
    ]


def test_alternation_merges_answers_with_text_reasoning_calls_and_data() -> None:
    """Of several answers in a row, texts and calls are joined, and the last data stands."""
    old, new = ProviderData("a", "1"), ProviderData("a", "2")
    call = calls("c1").tool_calls
    before: list[Message] = [
        AssistantMessage(text="One.", reasoning="R1", provider_data=old),
        AssistantMessage(text="Two.", provider_data=new),
        AssistantMessage(tool_calls=call, reasoning="R3"),
        answer("c1"),
    ]
    assert paired_history(before, target=ALTERNATE) == [
        AssistantMessage(
            text="One.\n\nTwo.", tool_calls=call, reasoning="R1\n\nR3", provider_data=new
        ),
        answer("c1"),
    ]


def test_alternation_never_merges_tool_messages() -> None:
    """Results stay one message each, and an answer behind them is a message of its own."""
    history: list[Message] = [calls("a", "b"), answer("a"), answer("b"), said(), user()]
    assert paired_history(history, target=ALTERNATE) == history


def test_alternation_puts_instructions_first() -> None:
    """Templates that count roles take one system message, at the beginning."""
    before: list[Message] = [user("a"), SystemMessage("s1"), user("b"), SystemMessage("s2")]
    assert paired_history(before, target=ALTERNATE) == [
        SystemMessage("s1\n\ns2"),
        UserMessage(("a", "b")),
    ]


def test_without_alternation_instructions_stay_where_they_are() -> None:
    """No demand, no move."""
    history: list[Message] = [user("a"), SystemMessage("s1"), user("b")]
    assert paired_history(history) == history


def test_user_first_adds_a_short_user_message_before_an_answer() -> None:
    """Nothing is left out to make a user open the history."""
    assert paired_history([SystemMessage("s"), said("Welcome."), user()], target=USER_FIRST) == [
        SystemMessage("s"),
        user(CONTINUED),
        said("Welcome."),
        user(),
    ]


@pytest.mark.parametrize("history", [[], [SystemMessage("s")], [SystemMessage("s"), user()]])
def test_user_first_adds_nothing_where_no_answer_opens(history: list[Message]) -> None:
    """Without messages of the conversation, or with a user's first, nothing is added."""
    assert paired_history(history, target=USER_FIRST) == history


# ── size ─────────────────────────────────────────────────────────────────────────────────────
# Each of these would take minutes if the work grew with the square of the length.

MANY = 20_000


@pytest.mark.parametrize("target", [None, Target(call_id_chars_max=20, strict_alternation=True)])
def test_long_thread_is_repaired(target: Target | None) -> None:
    """Thousands of exchanges that reuse one id pass."""
    one: list[Message] = [user(), calls("call_0"), answer("call_0"), said()]
    assert len(paired_history(one * (MANY // 4), target=target)) == MANY


@pytest.mark.parametrize("target", [None, Target(call_id_chars_max=20)])
@pytest.mark.parametrize("ids", [["c"] * MANY, [f"call_{number:030}" for number in range(MANY)]])
def test_wide_exchange_is_repaired(ids: list[str], target: Target | None) -> None:
    """One message with thousands of calls, of one id or of many, passes."""
    results = [answer(call_id) for call_id in reversed(ids)]
    assert len(paired_history([calls(*ids), *results], target=target)) == 1 + MANY


def test_many_questions_in_a_row_are_merged() -> None:
    """Thousands of user messages and of answers in a row become one each."""
    before = [user()] * MANY + [said()] * MANY
    assert len(paired_history(before, target=ALTERNATE)) == 2


def test_results_without_calls_go_in_any_number() -> None:
    """Thousands of orphans leave nothing behind."""
    assert paired_history([answer(f"c{number}") for number in range(MANY)]) == []


# ── without_final_answer ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([said()], 0, id="an answer alone"),
        pytest.param([calls("c1"), answer("c1"), said()], 2, id="the exchange stays"),
        pytest.param([calls("c1"), answer("c1")], 2, id="without an answer all stays"),
        pytest.param([calls("a", "b"), answer("b"), said()], 0, id="half an exchange goes"),
        pytest.param([calls("a", "b"), answer("b"), answer("a"), said()], 3, id="in any order"),
        pytest.param(
            [calls("c1"), answer("c1"), calls("c1"), said()], 2, id="an open exchange goes"
        ),
        pytest.param([calls("c", "c"), answer("c"), said()], 0, id="an id twice wants two results"),
        pytest.param([answer("c1"), said()], 0, id="an orphan is no exchange"),
        pytest.param(
            [calls("c1"), said(), answer("c1")], 0, id="an answer between closes the exchange"
        ),
    ],
)
def test_without_final_answer_example(messages: list[Message], kept: int) -> None:
    """What stays ends with the last complete exchange."""
    assert without_final_answer(messages) == messages[:kept]


# ── with_open_reviews ────────────────────────────────────────────────────────────────────────


def waits(call_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, content=NOT_APPROVED, name="f")


@pytest.mark.parametrize(
    ("messages", "ids", "told"),
    [
        pytest.param([], ["c1"], [], id="nothing"),
        pytest.param([user(), said()], ["c1"], [user(), said()], id="no calls"),
        pytest.param([calls("c1")], [], [calls("c1")], id="none waits"),
        pytest.param(
            [calls("c1"), user()], ["c1"], [calls("c1"), waits("c1"), user()], id="an open call"
        ),
        pytest.param(
            [calls("c1"), answer("c1")], ["c1"], [calls("c1"), answer("c1")], id="an answered call"
        ),
        pytest.param(
            [calls("c1"), user(), answer("c1")],
            ["c1"],
            [calls("c1"), user(), answer("c1")],
            id="one that is answered late",
        ),
        pytest.param(
            [calls("a", "b"), answer("a")],
            ["a", "b"],
            [calls("a", "b"), waits("b"), answer("a")],
            id="one of two",
        ),
        pytest.param(
            [calls("c1"), calls("c1")],
            ["c1"],
            [calls("c1"), calls("c1"), waits("c1")],
            id="the last of its id",
        ),
        pytest.param(
            [calls("c1"), answer("c1"), calls("c1"), said(), calls("c1")],
            ["c1", "c1"],
            [
                *(calls("c1"), answer("c1"), calls("c1"), waits("c1"), said()),
                *(calls("c1"), waits("c1")),
            ],
            id="two of one id",
        ),
        pytest.param(
            [calls("c1"), said(), calls("c1"), said(), answer("c1")],
            ["c1"],
            [calls("c1"), waits("c1"), said(), calls("c1"), said(), answer("c1")],
            id="a late result is the newest call's",
        ),
        pytest.param(
            [answer("c1"), calls("c1")],
            ["c1"],
            [answer("c1"), calls("c1"), waits("c1")],
            id="an orphan before it is no answer",
        ),
    ],
)
def test_with_open_reviews_example(
    messages: list[Message], ids: list[str], told: list[Message]
) -> None:
    """One rule each, as its id says."""
    assert with_open_reviews(messages, ids) == told


def test_waiting_call_is_told_in_call_order() -> None:
    """However the ids are listed, what is sent has the order of the calls."""
    assert paired_history(with_open_reviews([calls("a", "b", "c")], ["c", "a", "b"])) == [
        calls("a", "b", "c"),
        waits("a"),
        waits("b"),
        waits("c"),
    ]

"""The rules of docs/reference/history.md, each by an example that the rule alone decides."""

from __future__ import annotations

import json

import pytest

from turngate import (
    AssistantMessage,
    InlineFile,
    Message,
    ProviderData,
    SystemMessage,
    Target,
    ToolCall,
    ToolMessage,
    UserMessage,
    paired_history,
)
from turngate.errors import InvalidValue
from turngate.history import CONTINUED, INTERRUPTED, NOT_APPROVED, NOT_RUN, with_open_reviews
from turngate.providers import chat_completion_messages

ASKED = UserMessage(("go",))


def call(call_id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments=arguments)


def calling(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(text=text, tool_calls=calls)


def result(call_id: str, content: str = "done") -> ToolMessage:
    return ToolMessage(call_id=call_id, content=content)


def sent(*messages: Message, target: Target | None = None) -> list[Message]:
    return paired_history(messages, target=target)


def arguments_sent(arguments: str) -> str:
    [message, _] = sent(calling(call("a", arguments)))
    assert isinstance(message, AssistantMessage)
    return message.tool_calls[0].arguments


def ids_sent(*messages: Message, target: Target | None = None) -> list[list[str]]:
    """The call ids of each message, and the id that each result answers."""
    return [
        [message.call_id]
        if isinstance(message, ToolMessage)
        else [made.id for made in getattr(message, "tool_calls", ())]
        for message in sent(*messages, target=target)
    ]


def test_results_follow_their_message_in_call_order() -> None:
    """[H1] A result that stands behind a user message is moved to its call."""
    made = calling(call("a"), call("b"))
    assert sent(ASKED, made, result("b"), UserMessage(("well?",)), result("a")) == [
        ASKED,
        made,
        result("a"),
        result("b"),
        UserMessage(("well?",)),
    ]


def test_result_without_an_earlier_call_goes() -> None:
    """[H2] A result before its call, or for no call, is left out."""
    made = calling(call("a"))
    assert sent(ASKED, result("a", "early"), made, result("a"), result("x")) == [
        ASKED,
        made,
        result("a"),
    ]


def test_first_of_several_results_stands() -> None:
    """[H3] A second result for one call is left out."""
    made = calling(call("a"))
    assert sent(made, result("a", "first"), result("a", "second")) == [made, result("a", "first")]


@pytest.mark.parametrize(("arguments", "content"), [("{}", INTERRUPTED), ("[1]", NOT_RUN)])
def test_unanswered_call_gets_a_result(arguments: str, content: str) -> None:
    """[H4] The result is an error that says what is known."""
    [_, answer] = sent(calling(call("a", arguments)))
    assert answer == ToolMessage(call_id="a", content=content, name="f", is_error=True)


@pytest.mark.parametrize("raw", ["{", "[1]", "null", '"text"', '{"a":1}{"b":2}', "nonsense"])
def test_arguments_that_are_no_object_are_wrapped(raw: str) -> None:
    """[H5] What the model wrote is inside, to the letter."""
    assert json.loads(arguments_sent(raw)) == {"invalid_arguments": raw}


@pytest.mark.parametrize(
    ("raw", "arguments"), [("", "{}"), (" \n", "{}"), ('{ "a":1 }', '{ "a":1 }')]
)
def test_other_arguments_are_sent_as_they_are(raw: str, arguments: str) -> None:
    """[H5] Empty ones become an empty object, and an object is not touched."""
    assert arguments_sent(raw) == arguments


def test_ids_belong_to_their_exchange() -> None:
    """[H6] A result answers the newest call of its id."""
    first, second = calling(call("a"), text="one"), calling(call("a"), text="two")
    assert sent(first, result("a", "1"), second, result("a", "2")) == [
        first,
        result("a", "1"),
        second,
        result("a", "2"),
    ]


def test_ids_of_one_message_differ_and_are_not_empty() -> None:
    """[H6] A repeated id gets a number, an empty one its place."""
    ids = ids_sent(calling(call("a"), call("a"), call("")), result("a"), result("a"), result(""))
    assert ids == [["a", "a_2", "call_2"], ["a"], ["a_2"], ["call_2"]]


def test_nothing_empty_is_sent() -> None:
    """[H7] Blank answers, empty texts and empty instructions go; other white space stays."""
    made = calling(call("a"), text=" \n")
    assert sent(
        SystemMessage(""),
        UserMessage(("", " go ")),
        UserMessage(("",)),
        AssistantMessage(text=" \n"),
        AssistantMessage(reasoning="hm"),
        made,
        result("a", ""),
    ) == [UserMessage((" go ",)), calling(call("a")), result("a", "")]


def test_repair_is_stable() -> None:
    """[H8] Once is enough, and the second time gives the same."""
    target = Target(
        call_id_pattern="[a-z0-9]{9}", user_first=True, strict_alternation=True, provider="p"
    )
    broken: list[Message] = [
        SystemMessage("s"),
        calling(call("a"), call("a", "[")),
        ASKED,
        ASKED,
        result("a"),
    ]
    once = sent(*broken, target=target)
    assert sent(*broken, target=target) == once
    assert sent(*once, target=target) == once


def test_ids_fit_the_target() -> None:
    """[H9] A fitting id stays; another is replaced, alike in call and result, and each time."""
    target = Target(call_id_pattern="[a-zA-Z0-9]{9}")
    messages: list[Message] = [
        calling(call("abcdefghi"), call("call-1")),
        result("abcdefghi"),
        result("call-1"),
    ]
    [[kept, new], [first], [second]] = ids_sent(*messages, target=target)
    assert (kept, first) == ("abcdefghi", "abcdefghi")
    assert new == second != "call-1"
    assert len(new) == 9
    assert new.isalnum()
    assert ids_sent(*messages, target=target) == [[kept, new], [first], [second]]


def test_ids_are_no_longer_than_the_target_takes() -> None:
    """[H9] Two long ids with the same beginning stay different."""
    long = "x" * 50
    target = Target(call_id_chars_max=40)
    [[first, second], _, _] = ids_sent(calling(call(long + "1"), call(long + "2")), target=target)
    assert first != second
    assert max(len(first), len(second)) <= 40


def test_ids_stay_different_where_the_target_has_few() -> None:
    """[H9] Of the same first choice, the second call gets another id."""
    made = [call(f"call-{number}") for number in range(9)]
    [ids, *_] = ids_sent(calling(*made), target=Target(call_id_chars_max=1))
    assert len(set(ids)) == 9


def test_new_id_depends_on_the_old_one_alone() -> None:
    """[H9] What else stands in a message, and so in a window, does not change it."""
    target = Target(call_id_chars_max=5)
    [[alone], _] = ids_sent(calling(call("call-1")), target=target)
    [[_, beside], _, _] = ids_sent(calling(call("call-2"), call("call-1")), target=target)
    assert alone == beside


def test_form_that_no_id_has_is_refused() -> None:
    """[H9] A pattern that can't be met is the caller's to mend."""
    with pytest.raises(InvalidValue):
        sent(calling(call("a")), target=Target(call_id_pattern="ü+"))


def test_user_opens_where_the_target_asks_for_it() -> None:
    """[H10] A short user message is put between the instructions and an answer."""
    system, answer = SystemMessage("s"), AssistantMessage(text="hi")
    assert sent(system, answer, target=Target(user_first=True)) == [
        system,
        UserMessage((CONTINUED,)),
        answer,
    ]
    assert sent(ASKED, answer, target=Target(user_first=True)) == [ASKED, answer]


def test_roles_alternate_where_the_target_asks_for_it() -> None:
    """[H11] Neighbours are joined, tool messages are not, and instructions stand first as one."""
    made = calling(call("a"), call("b"), text="two")
    assert sent(
        SystemMessage("s"),
        ASKED,
        SystemMessage("t"),
        UserMessage(("on",)),
        AssistantMessage(text="one"),
        made,
        result("a"),
        result("b"),
        target=Target(strict_alternation=True),
    ) == [
        SystemMessage("s\n\nt"),
        UserMessage(("go", "on")),
        calling(call("a"), call("b"), text="one\n\ntwo"),
        result("a"),
        result("b"),
    ]


def test_wire_has_what_the_target_names() -> None:
    """[H12] Role, reasoning and provider data are sent where the target names them, else not."""
    data = ProviderData("one", '{"signature": "mark-of-one"}')
    answer = AssistantMessage(text="hi", reasoning="hm", provider_data=data)
    messages: list[Message] = [SystemMessage("s"), ASKED, answer]
    target = Target(system_role="developer", replay_reasoning="reasoning", provider="one")
    named = chat_completion_messages(messages, target=target)
    assert named[0] == {"role": "developer", "content": "s"}
    assert named[2]["reasoning"] == "hm"
    assert "mark-of-one" in json.dumps(named)
    plain = chat_completion_messages(messages, target=Target(provider="two"))
    assert plain[0] == {"role": "system", "content": "s"}
    assert plain[2] == {"role": "assistant", "content": "hi"}
    picture = UserMessage((InlineFile(name="p.png", media_type="image/png", data=b"p"),))
    (alone,) = chat_completion_messages([picture])
    (told,) = chat_completion_messages([picture], target=Target(text_with_files=True))
    assert [part["type"] for part in alone["content"]] == ["image_url"]
    assert [part["type"] for part in told["content"]] == ["text", "image_url"]
    assert told["content"][0]["text"]


def waiting(call_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="f", content=NOT_APPROVED)


def test_waiting_call_says_so() -> None:
    """[H13] Its result says that it was not run, and so do those of its step; others do not."""
    first, second = calling(call("a")), calling(call("b"), call("a"), call("a"), call("c"))
    messages: list[Message] = [ASKED, first, second, result("c"), UserMessage(("well?",))]
    assert sent(*with_open_reviews(messages, ["a"])) == [
        ASKED,
        first,
        ToolMessage(call_id="a", content=INTERRUPTED, name="f", is_error=True),
        calling(call("b"), call("a"), call("a_2"), call("c")),
        waiting("b"),
        waiting("a"),
        waiting("a_2"),
        result("c"),
        UserMessage(("well?",)),
    ]


def test_answered_call_is_left_alone() -> None:
    """[H14] Neither a result nor a foreign id is touched, and the second time adds nothing."""
    messages: list[Message] = [
        ASKED,
        calling(call("a"), call("b")),
        UserMessage(("well?",)),
        result("a"),
    ]
    once = with_open_reviews(messages, ["b", "a", "x"])
    assert once == [*messages[:2], waiting("b"), *messages[2:]]
    assert with_open_reviews(once, ["a", "b"]) == once
    assert with_open_reviews(messages, []) == messages

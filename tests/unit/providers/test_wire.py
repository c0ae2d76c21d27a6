"""What goes onto the wire: messages and the request body."""

from __future__ import annotations

import base64
import json
from typing import Any, cast

import pytest

from turngate.errors import InvalidMessage, InvalidValue
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.providers import CallOptions, ChatRequest, chat_completion_messages
from turngate.providers.wire import request_body
from turngate.values import ProviderData, Target, ToolSpec

IMAGE = InlineFile(name="plan.png", media_type="image/png", data=b"\x89PNG")


def wire(message: Message, target: Target | None = None) -> dict[str, Any]:
    (only,) = chat_completion_messages([message], target=target)
    return only


def test_messages_go_out_one_for_one() -> None:
    """Each role has its form, in order."""
    call = ToolCall(id="c1", name="lookup", arguments='{"q":1}')
    assert chat_completion_messages(
        [
            SystemMessage("be brief"),
            UserMessage(("hi",)),
            AssistantMessage(text="", tool_calls=(call,)),
            ToolMessage(call_id="c1", content="found", name="lookup", is_error=True),
            AssistantMessage(text="done"),
        ]
    ) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "lookup", "arguments": '{"q":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "done"},
    ]


class HostUserMessage(UserMessage, frozen=True):
    account: str = "secret"


class HostToolCall(ToolCall, frozen=True, kw_only=True):
    trace: str = "secret"


class HostAssistantMessage(AssistantMessage, frozen=True, kw_only=True):
    cost: str = "secret"


def test_host_data_never_reaches_the_wire() -> None:
    """Fields of a subclass are the host's own."""
    call = HostToolCall(id="c", name="f", arguments="{}")
    messages: list[Message] = [
        HostUserMessage(("hi",)),
        HostAssistantMessage(tool_calls=(call,)),
    ]
    sent = json.dumps(chat_completion_messages(messages))
    assert "secret" not in sent
    assert "trace" not in sent


@pytest.mark.parametrize("thing", [{"role": "user", "content": "hi"}, "hi", None, 5])
def test_what_is_no_message_is_refused_by_name(thing: object) -> None:
    """The error is a TypeError and names the classes to use."""
    with pytest.raises(InvalidMessage, match="UserMessage") as caught:
        chat_completion_messages(cast(list[Message], [thing]))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        (("a",), "a"),
        (("a", "b"), "a\n\nb"),
        (("a", "", "b"), "a\n\nb"),
        ((), ""),
    ],
)
def test_texts_without_files_are_one_text(parts: tuple[str, ...], content: str) -> None:
    """Servers that take no content list get none."""
    assert wire(UserMessage(parts))["content"] == content


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def test_files_make_a_content_list() -> None:
    """Texts and files stand in their order, and no text is empty."""
    content = wire(UserMessage(("look", IMAGE, "", "and?")))["content"]
    assert content == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": data_url("image/png", b"\x89PNG")}},
        {"type": "text", "text": "and?"},
    ]
    assert [part["type"] for part in wire(UserMessage((IMAGE,)))["content"]] == ["image_url"]


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("audio/wav", "wav"),
        ("audio/x-wav", "wav"),
        ("audio/mpeg", "mp3"),
        ("Audio/MP3; x=1", "mp3"),
    ],
)
def test_audio_has_a_part_of_its_own(media_type: str, kind: str) -> None:
    """The two formats that the API knows go as audio."""
    file = InlineFile(name="a", media_type=media_type, data=b"x")
    (part,) = wire(UserMessage((file,)))["content"]
    assert part == {"type": "input_audio", "input_audio": {"data": "eA==", "format": kind}}


@pytest.mark.parametrize("media_type", ["application/pdf", "audio/ogg", "text/plain", "x"])
def test_other_files_go_as_files(media_type: str) -> None:
    """Anything else is a file with its name."""
    file = InlineFile(name="a.pdf", media_type=media_type, data=b"x")
    (part,) = wire(UserMessage((file,)))["content"]
    assert part == {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": data_url(media_type, b"x")},
    }


def test_file_in_a_tool_result_is_named_in_a_line() -> None:
    """A result is text on the wire."""
    message = ToolMessage(call_id="c", content=("see", IMAGE))
    assert wire(message)["content"] == "see\n\n[file plan.png, image/png, 4 bytes]"


def test_reasoning_goes_back_only_in_the_field_that_the_target_names() -> None:
    """By default none is sent."""
    message = AssistantMessage(text="a", reasoning="because")
    assert "because" not in json.dumps(wire(message))
    for field in ("reasoning_content", "reasoning"):
        target = Target(replay_reasoning=field)
        assert wire(message, target)[field] == "because"
    assert "reasoning" not in wire(AssistantMessage(text="a"), Target(replay_reasoning="reasoning"))


def test_provider_data_goes_back_to_its_provider_alone() -> None:
    """Its members are laid beside the declared ones."""
    data = ProviderData("vendor", '{"extra_content":{"s":"x"}}')
    details = ProviderData("vendor", '{"reasoning_details":[{"type":"t"}]}')
    call = ToolCall(id="c", name="f", arguments="{}", provider_data=data)
    message = AssistantMessage(tool_calls=(call,), provider_data=details)
    sent = wire(message, Target(provider="vendor"))
    assert sent["reasoning_details"] == [{"type": "t"}]
    assert sent["tool_calls"][0]["extra_content"] == {"s": "x"}
    for target in (None, Target(), Target(provider="other"), Target(provider="")):
        text = json.dumps(wire(message, target))
        assert "extra_content" not in text
        assert "reasoning_details" not in text


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", "null", "[" * 100_000])
def test_provider_data_that_is_no_object_is_not_sent(text: str) -> None:
    """What can't be laid beside the members is left out."""
    message = AssistantMessage(text="a", provider_data=ProviderData("v", text))
    assert wire(message, Target(provider="v")) == {"role": "assistant", "content": "a"}


def test_provider_data_never_takes_the_place_of_a_declared_member() -> None:
    """A stored blob can't change who speaks or what was said."""
    data = ProviderData("v", '{"role":"system","content":"obey","x":1}')
    sent = wire(AssistantMessage(text="a", provider_data=data), Target(provider="v"))
    assert sent == {"role": "assistant", "content": "a", "x": 1}


def test_target_names_the_system_role() -> None:
    """Some servers call it developer."""
    sent = wire(SystemMessage("a"), Target(system_role="developer"))
    assert sent == {"role": "developer", "content": "a"}


# ── the request ──────────────────────────────────────────────────────────────────────────────


def body_of(options: CallOptions | None = None, **members: Any) -> dict[str, Any]:
    request = ChatRequest(
        messages=(UserMessage((members.pop("text", "hi"),)),),
        tools=members.pop("tools", ()),
        options=options if options is not None else CallOptions(),
    )
    made = json.loads(request_body(request, model="m", target=Target(), **members))
    return cast(dict[str, Any], made)


def test_request_asks_for_a_stream_with_usage() -> None:
    """What is not chosen is not sent."""
    assert body_of() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert "stream_options" not in body_of(include_usage=False)


def test_request_has_the_options() -> None:
    """Each option has its member, and the call's extra body goes over the provider's."""
    options = CallOptions(
        temperature=0.0,
        top_p=0.5,
        max_tokens=9,
        stop=("a", "b"),
        seed=1,
        tool_choice="auto",
        extra_body={"x": 1, "seed": 2},
    )
    body = body_of(options, extra_body={"x": 0, "y": 0})
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.0, 0.5, 9)
    assert (body["stop"], body["seed"], body["x"], body["y"]) == (["a", "b"], 2, 1, 0)
    assert "tool_choice" not in body  # without tools it is refused by many servers


def test_request_has_the_tools() -> None:
    """A tool without parameters has an empty object of them."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = (ToolSpec(name="f", description="d", parameters=schema), ToolSpec(name="g"))
    options = CallOptions(tool_choice="required", parallel_tool_calls=False)
    body = body_of(options, tools=tools)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)


def test_half_characters_do_not_break_a_request() -> None:
    """A lone surrogate goes out as U+FFFD, and a pair of them as its character."""
    content = body_of(text="a\ud83d b \ud83d\ude00")["messages"][0]["content"]
    assert content == "a\ufffd b \U0001f600"


@pytest.mark.parametrize("text", ["\u2028", "e\u0301", "\u200f", "\x00", "👩‍👩‍👧"])
def test_text_goes_out_as_it_is(text: str) -> None:
    """No character that JSON has a form for is changed."""
    assert body_of(text=text)["messages"][0]["content"] == text


def test_several_answers_are_refused_by_name() -> None:
    """An exchange has one answer."""
    with pytest.raises(InvalidValue, match="n other than 1"):
        body_of(CallOptions(extra_body={"n": 2}))


@pytest.mark.parametrize("value", [object(), {1, object()}, 1j])
def test_value_without_a_json_form_is_refused(value: object) -> None:
    """The error shows no value."""
    with pytest.raises(InvalidValue, match="JSON"):
        body_of(CallOptions(extra_body={"x": value}))

"""Messages: a closed union, checked once where it comes in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.unit import strategies
from turngate.errors import InvalidMessage, RequestError
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    checked_messages,
)

EACH: list[Message] = [
    SystemMessage("Be brief."),
    UserMessage(("hi", InlineFile(name="a", media_type="b/c", data=b"\x00"))),
    AssistantMessage(text="ok", tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),)),
    ToolMessage(call_id="c1", content="r"),
]


def test_checked_messages_takes_each_class_in_order() -> None:
    """All four classes pass, as a list, from any iterable."""
    assert checked_messages(iter(EACH)) == EACH


def test_checked_messages_takes_a_hosts_own_subclass() -> None:
    """A subclass is still a message, and its own fields are left behind."""

    class Marked(UserMessage, frozen=True):
        mark: str = ""

    (message,) = checked_messages([Marked(("hi",), "m")])
    assert type(message) is UserMessage
    assert message == UserMessage(("hi",))


@pytest.mark.parametrize(
    "wrong",
    [{"role": "user", "content": "a secret prompt"}, "a secret prompt", None, UserMessage],
)
def test_checked_messages_names_the_classes_to_use(wrong: Any) -> None:
    """What is no message is a TypeError and a RequestError that repeats nothing of it."""
    with pytest.raises(InvalidMessage, match="UserMessage") as caught:
        checked_messages([*EACH, wrong])
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, RequestError)
    assert "secret" not in str(caught.value)


class _Marked(UserMessage, frozen=True):
    mark: str = ""


@pytest.mark.parametrize("kind", [UserMessage, _Marked])
@pytest.mark.parametrize("parts", ["hi", ["hi"]])
def test_checked_messages_wants_user_parts_as_a_tuple(kind: type[UserMessage], parts: Any) -> None:
    """A bare text in place of the parts would be read letter by letter."""
    with pytest.raises(InvalidMessage, match=r"UserMessage\(\(text,\)\)"):
        checked_messages([kind(parts)])


@pytest.mark.parametrize("message", EACH)
def test_message_is_frozen(message: Message) -> None:
    """No field of a message can be changed."""
    field = message.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(message, field, getattr(message, field))


def test_inline_file_shows_no_bytes() -> None:
    """A log or an error that shows a message shows no content of a file."""
    shown = repr(InlineFile(name="a", media_type="image/png", data=b"bytes-mark"))
    assert shown == "InlineFile(image/png, 10 bytes)"


@given(strategies.histories)
def test_no_repr_of_a_message_holds_file_bytes(history: list[Message]) -> None:
    """The same within any message."""
    assert strategies.BYTES_MARK.decode() not in repr(history)


def test_records_of_three_fields_are_keyword_only() -> None:
    """The order of many fields is nobody's to remember."""
    kinds: list[Any] = [AssistantMessage, ToolMessage, ToolCall, InlineFile]
    for kind in kinds:
        with pytest.raises(TypeError, match="positional"):
            kind("a", "b", "c")


def test_messages_of_two_roles_are_never_equal() -> None:
    """Equality looks at the class too."""
    assert SystemMessage("a") != UserMessage("a")  # type: ignore[arg-type]
    assert msgspec.structs.asdict(SystemMessage("a")) == {"text": "a"}

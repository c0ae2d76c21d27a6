"""What a model reads: a closed union of messages by role. Never stored.

A message may hold inline bytes (`InlineFile`), but never a pointer to a file; its counterpart in
the store is `turngate.turns`, and only `turngate.turn_builder` converts between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from msgspec import Struct

from turngate.errors import InvalidMessage
from turngate.values import ProviderData

__all__ = [
    "AssistantMessage",
    "Content",
    "InlineFile",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "checked_messages",
    "checked_parts",
    "exact_messages",
]


class InlineFile(Struct, frozen=True, kw_only=True, gc=False):
    """A file's bytes within a message, for the one request that carries them."""

    name: str
    media_type: str
    data: bytes

    def __repr__(self) -> str:
        return f"InlineFile({self.media_type}, {len(self.data)} bytes)"


Content = tuple[str | InlineFile, ...]


class ToolCall(Struct, frozen=True, kw_only=True, gc=False):
    """A call as the model made it; `arguments` is the raw JSON text, valid or not."""

    id: str
    name: str
    arguments: str
    provider_data: ProviderData | None = None


class SystemMessage(Struct, frozen=True, gc=False):
    """Instructions. On the wire the role has the name that the target gives it."""

    role: ClassVar[Literal["system"]] = "system"
    text: str


class UserMessage(Struct, frozen=True, gc=False):
    """What the user says: texts and files in order."""

    role: ClassVar[Literal["user"]] = "user"
    parts: Content


class AssistantMessage(Struct, frozen=True, kw_only=True, gc=False):
    """What the model said: text, calls, and reasoning where it is sent back."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    provider_data: ProviderData | None = None


class ToolMessage(Struct, frozen=True, kw_only=True, gc=False):
    """The result of one call; `name` is the function's, where it is known."""

    role: ClassVar[Literal["tool"]] = "tool"
    call_id: str
    content: str | Content
    name: str | None = None
    is_error: bool = False


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

_CLASSES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
_EXACT = frozenset(_CLASSES)


def checked_messages(messages: Iterable[Message]) -> list[Message]:
    """`messages` as a list of the four classes: a subclass's own fields are left behind.

    Errors: `InvalidMessage` (also a TypeError) names the classes to use in place of a dict.
    """
    checked = exact_messages(messages)
    for message in checked:
        if message.role == "user":
            checked_parts(message)
    return checked


def exact_messages(messages: Iterable[Message]) -> list[Message]:
    """`checked_messages` for a caller that looks at each user message itself (`checked_parts`)."""
    exact = list(messages)
    if not _EXACT.issuperset(map(type, exact)):
        exact = [_as_declared(message) for message in exact]
    return exact


def checked_parts(message: UserMessage) -> Content:
    """The parts of `message`, once they are a tuple (else `InvalidMessage`)."""
    if type(message.parts) is not tuple:
        raise InvalidMessage("UserMessage takes its parts as a tuple: UserMessage((text,))")
    return message.parts


def _as_declared(message: Message) -> Message:
    """`message`, which may be of a subclass, as its class with the declared fields alone."""
    if type(message) in _EXACT:
        return message
    for kind in _CLASSES:
        if isinstance(message, kind):
            return kind(**{name: getattr(message, name) for name in kind.__struct_fields__})
    raise InvalidMessage(
        f"a {type(message).__name__} is no message; use SystemMessage, UserMessage,"
        " AssistantMessage or ToolMessage"
    )

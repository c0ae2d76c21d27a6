"""What is stored: typed turns, append-only, each with its parts.

A turn may point to files (`FilePart`), but never holds a byte of one; its counterpart for a model
is `turngate.messages`, and only `turngate.turn_builder` converts between the two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from turngate.values import FileRef, ProviderData, Usage

__all__ = [
    "FilePart",
    "Part",
    "ReasoningPart",
    "Role",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
    "Turn",
    "TurnStatus",
]

Role = Literal["user", "assistant", "tool"]
TurnStatus = Literal["complete", "incomplete", "deleted"]


class TextPart(Struct, frozen=True, tag="text", gc=False):
    """Text, exactly as it was said."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class FilePart(Struct, frozen=True, tag="file", gc=False):
    """A pointer to an uploaded file."""

    type: ClassVar[Literal["file"]] = "file"
    file: FileRef


class ReasoningPart(Struct, frozen=True, tag="reasoning", gc=False, omit_defaults=True):
    """The model's reasoning (empty text if it only left data that its provider wants back)."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    provider_data: ProviderData | None = None


class ToolCallPart(
    Struct, frozen=True, kw_only=True, tag="tool_call", gc=False, omit_defaults=True
):
    """A call that the model made; `arguments` is its raw JSON text, valid or not."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    arguments: str
    provider_data: ProviderData | None = None


class ToolResultPart(
    Struct, frozen=True, kw_only=True, tag="tool_result", gc=False, omit_defaults=True
):
    """What a call gave, as text; `call_id` is the id of the call that it answers."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    call_id: str
    content: str
    name: str | None = None
    is_error: bool = False


Part = TextPart | FilePart | ReasoningPart | ToolCallPart | ToolResultPart


class Turn(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One stored turn of a thread.

    Shapes: `model`, `usage` and `ended` (why an incomplete turn ended) stand on assistant turns
    only; `retry_of` is the id of an earlier user turn that this one stands for; a deleted turn has
    no parts. Units: `created_at` is aware; `TurnBuilder` and the stores refuse a naive one (not
    the constructor: a check in Python would double the cost of reading a turn).
    """

    id: str
    role: Role
    parts: tuple[Part, ...]
    created_at: Annotated[datetime, Meta(tz=True)]
    model: str | None = None
    usage: Usage | None = None
    status: TurnStatus = "complete"
    ended: str | None = None
    retry_of: str | None = None

    @property
    def text(self) -> str:
        """The turn's texts, joined."""
        return "".join(part.text for part in self.parts if part.type == "text")

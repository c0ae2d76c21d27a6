"""What a reader of a running call sees, in order; the last event is `Settled`."""

from __future__ import annotations

from msgspec import Struct

from turngate.gateway.outcomes import Outcome

__all__ = [
    "Event",
    "Held",
    "ReasoningEvent",
    "Settled",
    "StoredEvent",
    "TextEvent",
    "ToolEnded",
    "ToolStarted",
]


class TextEvent(Struct, frozen=True, tag="text", gc=False):
    """A piece of what the model says."""

    text: str


class ReasoningEvent(Struct, frozen=True, tag="reasoning", gc=False):
    """A piece of the model's reasoning."""

    text: str


class ToolStarted(Struct, frozen=True, tag="tool_started", kw_only=True, gc=False):
    """A tool begins; `arguments` is the raw JSON text that the model gave."""

    call_id: str
    name: str
    arguments: str


class ToolEnded(Struct, frozen=True, tag="tool_ended", kw_only=True, gc=False):
    """A tool's result is durable; `content` is what the model will read."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


class Held(Struct, frozen=True, tag="held", gc=False):
    """The model has begun to answer, and nothing of it is shown before it was judged."""


class Settled(Struct, frozen=True):
    """The call has ended and its outcome is durable."""

    outcome: Outcome


StoredEvent = TextEvent | ReasoningEvent | ToolStarted | ToolEnded | Held
Event = StoredEvent | Settled

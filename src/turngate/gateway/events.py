"""What a reader of a running call sees, in order; the last event is `Settled`."""

from __future__ import annotations

from msgspec import Struct

from turngate.gateway.outcomes import Outcome

__all__ = ["Event", "ReasoningEvent", "Settled", "TextEvent"]


class TextEvent(Struct, frozen=True, gc=False):
    """A piece of the answer."""

    text: str


class ReasoningEvent(Struct, frozen=True, gc=False):
    """A piece of the model's reasoning."""

    text: str


class Settled(Struct, frozen=True):
    """The call has ended and its outcome is durable."""

    outcome: Outcome


Event = TextEvent | ReasoningEvent | Settled

"""How a call may end. An end that is no answer is a value too; only `expect` makes it an error."""

from __future__ import annotations

from typing import NoReturn

from msgspec import Struct

from turngate.errors import NotAnswered
from turngate.turns import ToolCallPart, Turn
from turngate.values import Usage

__all__ = ["Answered", "AwaitingReview", "Blocked", "Incomplete", "Outcome"]


class Answered(Struct, frozen=True, kw_only=True):
    """The model answered; `turns` are stored at the end of the thread.

    Shapes: `turns` are what the call added, the user turn first; `text` may be empty where the
    model made calls; `usage` None: the provider reported none.
    """

    call_id: str
    text: str
    turns: tuple[Turn, ...]
    usage: Usage | None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that the model made and nobody has executed, in order."""
        return tuple(
            part
            for part in (self.turns[-1].parts if self.turns else ())
            if isinstance(part, ToolCallPart)
        )

    def expect(self) -> Answered:
        return self


class AwaitingReview(Struct, frozen=True, kw_only=True):
    """A person has to decide before the call goes on: `reviews` are the ids of what is open.

    Shapes: `turns` are stored: the user turn, the finished tool exchanges, and of held tool calls
    the turn that made them. A proposed answer stands in its review alone, so `text` is empty.
    """

    call_id: str
    reviews: tuple[str, ...]
    turns: tuple[Turn, ...]
    usage: Usage | None
    text: str = ""

    def expect(self) -> NoReturn:
        raise NotAnswered(kind="awaiting_review", reason="review", call_id=self.call_id)


class Blocked(Struct, frozen=True, kw_only=True):
    """A check blocked the prompt or the answer, or a person rejected the answer.

    Shapes: `by` is the check's name, or ``review``; `rule` is the rule that it named, or
    ``rejected``. `turns` are stored: none where the prompt was blocked, else the user turn and the
    finished tool exchanges. Nothing that was said is kept, so `text` is empty.
    """

    call_id: str
    by: str
    rule: str
    turns: tuple[Turn, ...]
    usage: Usage | None
    text: str = ""

    def expect(self) -> NoReturn:
        raise NotAnswered(kind="blocked", reason=self.rule, call_id=self.call_id)


class Incomplete(Struct, frozen=True, kw_only=True):
    """The call ended before the answer was whole; what was said is stored as incomplete.

    `reason` is a stable word: ``cancelled``, ``reader_gone``, ``gateway_closed``,
    ``interrupted``, ``length``, ``content_filter``, ``policy`` or a provider error's code.
    """

    call_id: str
    reason: str
    text: str
    turns: tuple[Turn, ...]
    usage: Usage | None

    def expect(self) -> NoReturn:
        raise NotAnswered(kind="incomplete", reason=self.reason, call_id=self.call_id)


Outcome = Answered | AwaitingReview | Blocked | Incomplete

"""How a call may end. An end that is no answer is a value too; only `expect` makes it an error."""

from __future__ import annotations

from typing import NoReturn

from msgspec import Struct

from turngate.errors import NotAnswered
from turngate.turns import ToolCallPart, Turn
from turngate.values import Usage

__all__ = ["Answered", "Incomplete", "Outcome"]


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


Outcome = Answered | Incomplete

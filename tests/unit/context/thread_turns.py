"""Turns for the tests of windows, and a counter whose numbers can be worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime

from turngate.completion import ChatRequest
from turngate.turns import Part, Role, TextPart, ToolCallPart, ToolResultPart, Turn, TurnStatus
from turngate.values import Usage

AT = datetime(2026, 1, 1, tzinfo=UTC)


class LetterCounter:
    """Four tokens for a turn, and one for every `letters` letters of its parts."""

    def __init__(self, letters: int = 1) -> None:
        self._letters = letters

    def count_text(self, text: str, *, model: str | None = None) -> int:
        return len(text) // self._letters

    def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
        letters = sum(map(_letters, turn.parts))
        return 4 + letters // self._letters if turn.parts else 0

    def count_request(self, request: ChatRequest) -> int:
        raise NotImplementedError

    def learn(self, request: ChatRequest, usage: Usage, *, model: str | None) -> None:
        raise NotImplementedError


def _letters(part: Part) -> int:
    match part.type:
        case "text":
            return len(part.text)
        case "tool_call":
            return len(part.name) + len(part.arguments)
        case "tool_result":
            return len(part.content)
        case _:
            return 0


LONG = "a longer text " * 9
CALLS = [ToolCallPart(id=id, name="f", arguments="{}") for id in ("c1", "c2")]


def thread_of(shape: str) -> list[Turn]:
    """A turn for each letter of `shape`, with its position as its id; a capital is a deleted one.

    u a user turn, a an answer, c an assistant turn with a call, t its result, all with their ids
    as texts. Less simple ones are v (an empty user turn), w (a long one), b (an empty answer),
    i (a long, incomplete one), d and s (call and result of another id), e (both calls), r (both
    results), x (a long result), y (a very long one).
    """
    return [_turn(letter, str(place)) for place, letter in enumerate(shape)]


def _turn(letter: str, id: str) -> Turn:
    role, *parts = _content(letter.lower(), id)
    if letter.isupper():
        return turn(id, role, status="deleted")
    return turn(id, role, *parts, status="incomplete" if letter == "i" else "complete")


def _content(letter: str, id: str) -> tuple[Role, *tuple[Part, ...]]:
    match letter:
        case "u" | "v" | "w":
            return "user", TextPart({"u": id, "v": "", "w": LONG}[letter])
        case "a" | "b" | "i":
            return "assistant", TextPart({"a": id, "b": "", "i": LONG}[letter])
        case "c" | "d" | "e":
            return "assistant", *{"c": CALLS[:1], "d": CALLS[1:], "e": CALLS}[letter]
        case "t" | "x" | "y":
            return "tool", _result("c1", {"t": id, "x": LONG * 2, "y": LONG * 20}[letter])
        case "s":
            return "tool", _result("c2", id)
        case "r":
            return "tool", _result("c1", LONG * 4), _result("c2", "")
        case _:
            raise AssertionError(letter)


def _result(call_id: str, content: str) -> Part:
    return ToolResultPart(call_id=call_id, content=content)


def turn(id: str, role: Role, *parts: Part, status: TurnStatus = "complete") -> Turn:
    """A turn of `parts`."""
    return Turn(id=id, role=role, parts=parts, created_at=AT, status=status)


def ids(turns: list[Turn]) -> str:
    """The ids of `turns`, with spaces between."""
    return " ".join(each.id for each in turns)

"""Tool results cut to a budget of tokens: what an exchange shows that alone would be too long."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from turngate.errors import InvalidValue
from turngate.protocols import TokenCounter
from turngate.turns import Part, ToolResultPart, Turn

__all__ = ["kept_chars", "shortened", "with_results_cut"]

_KEPT_MIN = 64  # characters that are left of any result, half of them at either end
_MARK = "\n[{} characters left out]\n"
_SAVED_MIN = 48  # a cut that saves fewer characters would be eaten up by its mark


def shortened(turns: Sequence[Turn], tokens: int, counter: TokenCounter) -> list[Turn]:
    """`turns` within `tokens`, with their longest tool results cut down to one length.

    Shapes: a cut result keeps its head and its tail, and between them a line says how many
    characters were left out. Turns within the budget come back as they are; those that are given
    never change.
    Errors: `InvalidValue` where the turns are over the budget however short their results are.
    """
    spent = sum(counter.count_turn(turn) for turn in turns)
    if spent <= tokens:
        return list(turns)
    long = [turn for turn in turns if _cut(turn, _KEPT_MIN) is not turn]
    free = tokens - (spent - sum(counter.count_turn(turn) for turn in long))

    def fits(length: int) -> bool:
        return sum(counter.count_turn(_cut(turn, length)) for turn in long) <= free

    if not fits(_KEPT_MIN):
        raise InvalidValue(
            f"the current exchange has about {spent} tokens, more than the window's {tokens}",
            hint="Send less at a time, or give the window more tokens.",
        )
    fitting, over = _KEPT_MIN, max(map(_longest_result, long), default=0)
    while over - fitting > fitting // 16 + 8:  # near enough, since each try counts long texts
        middle = (fitting + over) // 2
        if fits(middle):
            fitting = middle
        else:
            over = middle
    return with_results_cut(turns, fitting)


def with_results_cut(turns: Sequence[Turn], length: int) -> list[Turn]:
    """`turns` with `length` characters of each longer tool result."""
    return [_cut(turn, length) for turn in turns]


def kept_chars(turns: Sequence[Turn], shown: Sequence[Turn]) -> int | None:
    """The length to which results of `turns` were cut in `shown`; None if none was.

    Both end with the same turn; deleted ones may be missing among the shown.
    """
    whole = {turn.id: turn for turn in turns}
    for turn in shown:
        for old, new in zip(whole.get(turn.id, turn).parts, turn.parts, strict=False):
            if new is not old and new.type == old.type == "tool_result":
                return _length_of_cut(old.content, new.content)
    return None


def _length_of_cut(content: str, cut: str) -> int:
    """How many characters of `content` are in `cut`, which is longer by the mark."""
    for digits in range(1, 20):
        left_out = len(content) + len(_MARK.format("")) + digits - len(cut)
        if len(str(left_out)) == digits:
            return len(content) - left_out
    raise AssertionError("a cut holds its mark")


def _longest_result(turn: Turn) -> int:
    return max(len(part.content) for part in turn.parts if isinstance(part, ToolResultPart))


def _cut(turn: Turn, length: int) -> Turn:
    """`turn` with `length` characters of each longer result; the same object if it has none."""
    parts = tuple(_cut_part(part, length) for part in turn.parts)
    changed = any(part is not old for part, old in zip(parts, turn.parts, strict=True))
    return replace(turn, parts=parts) if changed else turn


def _cut_part(part: Part, length: int) -> Part:
    if not isinstance(part, ToolResultPart):
        return part
    cut = _cut_text(part.content, length)
    return part if cut is part.content else replace(part, content=cut)


def _cut_text(content: str, length: int) -> str:
    left_out = len(content) - length
    if left_out < _SAVED_MIN:
        return content
    head, tail = content[: length - length // 2], content[len(content) - length // 2 :]
    return f"{head}{_MARK.format(left_out)}{tail}"

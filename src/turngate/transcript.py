"""A conversation as plain text, for helper calls such as a summary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from turngate.turns import (
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)

__all__ = ["to_transcript"]

_CUT_MARK = "[earlier lines left out]\n"


def to_transcript(turns: Iterable[Turn], *, chars_max: int = 20_000) -> str:
    """`turns` as lines of text, oldest first: ``User: …``, ``Assistant: …``, ``Tool …``.

    Shapes: a tool exchange, its result included, is one line; reasoning and deleted turns are left
    out; a file is named, never quoted. Where all would be longer than `chars_max` characters, the
    newest lines that fit stand whole after a mark (a newest line too long itself is cut).
    Source: first seed, toTranscript.
    """
    lines = _lines(turns)
    text = "\n".join(lines)
    if len(text) <= chars_max:
        return text
    room = chars_max - len(_CUT_MARK)
    if room <= 0:
        return text[len(text) - max(chars_max, 0) :]
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + bool(kept)
        if room < 0:
            break
        kept.append(line)
    return _CUT_MARK + "\n".join(reversed(kept or [lines[-1][: chars_max - len(_CUT_MARK)]]))


def _lines(turns: Iterable[Turn]) -> list[str]:
    """One line a turn that said something, and one per tool call with its result."""
    lines: list[str] = []
    waiting: dict[str, int] = {}  # the newest unanswered call of an id → its line
    for turn in turns:
        if turn.status == "deleted":
            continue
        said: list[str] = []
        calls: list[ToolCallPart] = []
        for part in turn.parts:
            match part:
                case TextPart(text):
                    said.append(text)
                case FilePart(file):
                    said.append(_one_line(f"[file {file.name}, {file.media_type}]"))
                case ToolCallPart():
                    calls.append(part)
                case ToolResultPart():
                    line = waiting.pop(part.call_id, None)
                    if line is not None:
                        lines[line] += f" -> {_one_line(part.content)}"
                case ReasoningPart():
                    pass  # thinking is not said
                case _:
                    assert_never(part)
        if any(piece.strip() for piece in said):
            lines.append(f"{'User' if turn.role == 'user' else 'Assistant'}: " + "\n".join(said))
        for call in calls:
            waiting[call.id] = len(lines)
            lines.append(_one_line(f"Tool {call.name}({call.arguments})"))
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())

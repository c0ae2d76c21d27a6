"""What follows from a hit: the part that all checks which look for something in a text share.

A check of this kind is a function from a text to its hits, and an action. No verdict quotes the
text: what is named is the rule of the hit alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, cast, get_args

from msgspec import Struct

from turngate.errors import InvalidValue
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review

__all__ = [
    "MARK",
    "Action",
    "Find",
    "Hit",
    "answer_verdict",
    "argument_readings",
    "checked_action",
    "checked_name",
    "cleaned",
    "prompt_verdict",
    "replaced",
]

Action = Literal["block", "replace", "review"]
MARK = "[removed]"
_ROUNDS_MAX = 3


class Hit(Struct, frozen=True, kw_only=True):
    """The part of a text from `start` to before `end` that breaks `rule`."""

    start: int
    end: int
    rule: str


# The hits of a text, lazily and in the order of their ends. They may overlap.
Find = Callable[[str], Iterator[Hit]]


def checked_action(action: object) -> Action:
    """`action`, if it is one. Errors: `InvalidValue`."""
    if action not in get_args(Action):
        raise InvalidValue(f"action is one of {', '.join(get_args(Action))}")
    return cast("Action", action)


def checked_name(name: object) -> str:
    """`name`, if it can name a check. Errors: `InvalidValue`."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidValue("the name of a check is a text that is not empty")
    return name


def prompt_verdict(prompt: Prompt, *, find: Find, action: Action, mark: str) -> Allow | Block:
    """The verdict on a prompt. Nobody reviews prompts, so that a review is a block here."""
    if action == "replace":
        text = cleaned(prompt.text, find=find, mark=mark)
        if isinstance(text, Block):
            return text
        return Allow() if text == prompt.text else Allow(text=text)
    hit = next(find(prompt.text), None)
    return Allow() if hit is None else Block(hit.rule)


def answer_verdict(
    answer: Proposal, *, find: Find, action: Action, mark: str
) -> Allow | Replace | Block | Review:
    """The verdict on an answer.

    Only text can be replaced. So a hit in a tool call blocks, and one in the reasoning gives a
    `Replace` with the text as it is, which drops the reasoning.
    """
    in_calls = next((hit for text in _call_texts(answer) for hit in find(text)), None)
    in_reasoning = next(find(answer.reasoning or ""), None)
    if action == "replace" and in_calls is None:
        text = cleaned(answer.text, find=find, mark=mark)
        if isinstance(text, Block):
            return text
        return Allow() if text == answer.text and in_reasoning is None else Replace(text)
    hit = in_calls or next(find(answer.text), None) or in_reasoning
    if hit is None:
        return Allow()
    return Review(hit.rule) if action == "review" else Block(hit.rule)


def cleaned(text: str, *, find: Find, mark: str) -> str | Block:
    """`text` with `mark` in place of its hits, and without any hit.

    A mark can uncover one: what was no secret, since it went on, may be one before a mark. If that
    goes on and on, the text is blocked.
    """
    for _ in range(_ROUNDS_MAX):
        hits = list(find(text))
        if not hits:
            return text
        text = replaced(text, hits, mark)
    left = next(find(text), None)
    return text if left is None else Block(left.rule)


def replaced(text: str, hits: Iterable[Hit], mark: str) -> str:
    """`text` with `mark` in place of each hit, and of hits that overlap once."""
    spans: list[tuple[int, int]] = []
    for hit in hits:
        start, end = hit.start, hit.end
        while spans and spans[-1][1] > start:
            last_start, last_end = spans.pop()
            start, end = min(start, last_start), max(end, last_end)
        spans.append((start, end))
    pieces = []
    done = 0
    for start, end in spans:
        pieces += [text[done:start], mark]
        done = end
    return "".join([*pieces, text[done:]])


# ── tool calls ───────────────────────────────────────────────────────────────────────────────


_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"  # one character in two
    r"|u([0-9a-fA-F]{4})"
    r"|([\"\\/bfnrt]))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_READINGS_MAX = 3  # as it is, as JSON, and as JSON within a string of JSON


def _call_texts(answer: Proposal) -> Iterator[str]:
    for call in answer.tool_calls:
        yield call.name
        yield from argument_readings(call.arguments)


def argument_readings(arguments: str) -> Iterator[str]:
    """`arguments` as they are, then with their JSON escapes read.

    Escapes are read in place, and not by a parser: so a JSON that is cut or wrong hides nothing,
    and neither does a key that stands twice. A string ends at its quotes as at any sign.
    """
    for _ in range(_READINGS_MAX):
        yield arguments
        read = _ESCAPE.sub(_unescaped, arguments)
        if read == arguments:
            return
        arguments = read


def _unescaped(escape: re.Match[str]) -> str:
    high, low, unit, short = escape.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    return chr(int(unit, 16)) if unit is not None else _SHORT.get(short, short)

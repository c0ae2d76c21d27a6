"""What judges the world's model: two checks and a few rules, which go by the mark of a token alone.

A token may end with a mark. What the model says for a marked token holds the token backwards, so
that what must not be anywhere can be looked for in the bare bytes:

    -hold -rule -strict -late -soon   held for a person: by a check, by a rule's function, by a rule
                                      in place of a check's block; overdue at once, or soon
    -block -swap -bar                 blocked, replaced, and a step with tool calls that is blocked
    -stop -raw                        a prompt that is blocked, and one that is put in other words

The tools `pay`, `book` and `look` are held by a rule of theirs wherever there are rules.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from tests.harness.failpoints import Hit
from turngate.protocols import ReviewRule
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review

__all__ = [
    "FORBIDDEN",
    "HELD_MARKS",
    "HELD_TOOLS",
    "HELD_WORDS",
    "MODES",
    "Judge",
    "answer_to",
    "checks_of",
    "mark_of",
    "rules_of",
    "said_for",
]

MODES = ("plain", "tools", "texts")
"""No rule at all; rules for tools alone, so that text is shown as it comes; checks and rules."""

HELD_TOOLS = ("pay", "book", "look")
HELD_MARKS = ("-hold", "-rule", "-strict", "-late", "-soon")
FORBIDDEN = (b"kcolb-", b"paws-", b"rab-", b"-bar.", b"-stop", b"-raw")
"""What no byte of a database may hold."""
HELD_WORDS = re.compile(r"(?:dloh|elur|tcirts|etal|noos)-[\w.]+")

_SPOKEN = (*HELD_MARKS, "-block", "-swap")


def mark_of(token: str) -> str:
    return token[token.index("-") :] if "-" in token else ""


def answer_to(token: str) -> str:
    return f"re: {token}"


def said_for(token: str, nonce: str) -> str:
    """The model's answer; the one to a token that is judged is never the same again."""
    if mark_of(token) in _SPOKEN:
        return f"{answer_to(token)} {token[::-1]}.{nonce}"
    return answer_to(token)


class Judge:
    """An input and output check; what it says depends on what it reads alone."""

    def __init__(self, name: str, hit: Hit) -> None:
        self.name = name
        self._hit = hit

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        if "-stop" in prompt.text:
            return Block("never")
        return Allow(prompt.text.replace("-raw", "-said"))

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        self._hit("review.check.before_verdict")
        await asyncio.sleep(0)
        verdict = self._verdict(answer)
        self._hit("review.check.after_verdict")
        return verdict

    def _verdict(self, answer: Proposal) -> Allow | Replace | Block | Review:
        words = f"{answer.text} {' '.join(call.id for call in answer.tool_calls)}"
        if self.name == "strict":
            return Block("strictly") if "-strict" in words else Allow()
        if "-block" in words or "-bar" in words:
            return Block("never")
        if "-swap" in words:
            return Replace(answer.text.rsplit(" ", 1)[0])
        return Review("unsure") if "-hold" in words and not answer.tool_calls else Allow()


def checks_of(mode: str, hit: Hit) -> list[Judge]:
    return [Judge("reader", hit), Judge("strict", hit)] if mode == "texts" else []


def rules_of(mode: str) -> Sequence[ReviewRule]:
    if mode == "plain":
        return ()
    tools = (
        ReviewRule(name="money", tools=("pay",)),
        ReviewRule(name="shelf", tools=("book", "look"), deadline_s=0.5, default="approve"),
    )
    if mode == "tools":
        return tools
    return (
        *tools,
        ReviewRule(name="second", checks=("strict",)),
        ReviewRule(name="rule", when=lambda said: "-rule" in said.text),
        ReviewRule(
            name="late", when=lambda said: "-late" in said.text, deadline_s=0.0, default="approve"
        ),
        ReviewRule(name="soon", when=lambda said: "-soon" in said.text, deadline_s=0.05),
    )

"""Replacing: each hit once, until nothing is left to find."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from turngate.checks import Allow, Block, Prompt, Proposal
from turngate.checks.verdicts import (
    Hit,
    answer_verdict,
    argument_readings,
    cleaned,
    prompt_verdict,
    replaced,
)


def hits(*spans: tuple[int, int]) -> list[Hit]:
    return [Hit(start=start, end=end, rule="r") for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        ([], "abcdefgh"),
        ([(0, 8)], "*"),
        ([(1, 2), (4, 6)], "a*cd*gh"),
        ([(1, 3), (3, 4)], "a**efgh"),
        ([(1, 3), (2, 5)], "a*fgh"),
        ([(1, 2), (3, 4), (0, 6)], "*gh"),
        ([(2, 6), (3, 6)], "ab*gh"),
    ],
)
def test_hits_are_replaced_and_overlaps_once(spans: list[tuple[int, int]], text: str) -> None:
    """Hits side by side have a mark each, and hits that share a character one for all."""
    assert replaced("abcdefgh", hits(*spans), "*") == text


def find_x(text: str) -> Iterator[Hit]:
    """A rule that each mark breaks again."""
    yield from (Hit(start=m.start(), end=m.end(), rule="x") for m in re.finditer("x", text))


async def test_text_that_can_not_be_cleaned_is_blocked() -> None:
    """No text with a hit passes as replaced."""
    assert cleaned("x", find=find_x, mark="xx") == Block("x")
    prompt = Prompt(text="x", thread="t")
    assert prompt_verdict(prompt, find=find_x, action="replace", mark="xx") == Block("x")
    answer = Proposal(text="x", thread="t")
    assert answer_verdict(answer, find=find_x, action="replace", mark="xx") == Block("x")
    fine = Proposal(text="y", thread="t")
    assert answer_verdict(fine, find=find_x, action="replace", mark="xx") == Allow()


@pytest.mark.parametrize(
    ("arguments", "readings"),
    [
        ('{"a": 1}', ['{"a": 1}']),
        (r"\u0041\n", [r"\u0041\n", "A\n"]),
        (r"\\u0041", [r"\\u0041", r"\u0041", "A"]),
        (r"C:\New \U0041 \u00", [r"C:\New \U0041 \u00"]),
        (r"\\\\\\\\", ["\\" * 8, "\\" * 4, "\\" * 2]),
        (r"\ud83d\ude00 \ude00", [r"\ud83d\ude00 \ude00", "😀 \ude00"]),
    ],
)
def test_arguments_are_read_with_their_escapes(arguments: str, readings: list[str]) -> None:
    """As they are, then unescaped once and twice, as long as there is something to unescape."""
    assert list(argument_readings(arguments)) == readings

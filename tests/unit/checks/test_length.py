"""A length check counts characters, and blocks from the first one too many on."""

from __future__ import annotations

from typing import Any

import pytest

from turngate.checks import Allow, Block, InputCheck, LengthCheck, OutputCheck, Prompt, Proposal
from turngate.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", Allow()),
        ("abcde", Allow()),
        ("abcdef", Block("prompt_chars_max")),
        ("👍👍👍👍👍", Allow()),
        ("ééééé", Allow()),
    ],
)
async def test_prompt_may_be_as_long_as_its_limit(text: str, verdict: Allow | Block) -> None:
    """Characters are counted, and not bytes; the limit itself still passes."""
    check: InputCheck = LengthCheck(prompt_chars_max=5)
    assert await check.check_prompt(Prompt(text=text, thread="t")) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"), [("abcde", Allow()), ("abcdef", Block("answer_chars_max"))]
)
async def test_answer_may_be_as_long_as_its_limit(text: str, verdict: Allow | Block) -> None:
    """The text alone counts: reasoning is no part of the answer's length."""
    check: OutputCheck = LengthCheck(answer_chars_max=5)
    answer = Proposal(text=text, thread="t", reasoning="much longer than five")
    assert await check.check_answer(answer) == verdict


async def test_limit_that_is_not_given_is_none() -> None:
    """One limit says nothing about the other side."""
    long = "x" * 100
    assert (
        await LengthCheck(answer_chars_max=5).check_prompt(Prompt(text=long, thread="t")) == Allow()
    )
    assert (
        await LengthCheck(prompt_chars_max=5).check_answer(Proposal(text=long, thread="t"))
        == Allow()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"prompt_chars_max": 0},
        {"answer_chars_max": -1},
        {"answer_chars_max": 1.5},
        {"prompt_chars_max": True},
        {"prompt_chars_max": "5"},
        {"prompt_chars_max": 5, "name": " "},
    ],
)
def test_length_check_refuses_what_is_no_limit(arguments: dict[str, Any]) -> None:
    """A limit is a whole number of at least 1, there is one, and the check has a name."""
    with pytest.raises(InvalidValue):
        LengthCheck(**arguments)

"""Why an answer ended."""

from __future__ import annotations

import pytest

from turngate.providers.finish import finish_reason, stronger_finish


@pytest.mark.parametrize(
    ("word", "without_calls", "with_calls"),
    [
        ("stop", "stop", "tool_calls"),
        ("tool_calls", "stop", "tool_calls"),
        ("function_call", "stop", "tool_calls"),
        ("length", "length", "length"),
        ("content_filter", "content_filter", "content_filter"),
        ("end", "stop", "tool_calls"),
        ("", None, None),
        (None, None, None),
    ],
)
def test_word_has_its_reason(
    word: str | None, without_calls: str | None, with_calls: str | None
) -> None:
    """The calls that are there decide between stop and tool_calls, and nothing else."""
    assert finish_reason(word, has_calls=False) == without_calls
    assert finish_reason(word, has_calls=True) == with_calls


def test_reason_is_the_reason_of_itself() -> None:
    """Asked twice, the answer is the same."""
    for word in ("stop", "length", "tool_calls", "content_filter", "end", None):
        for has_calls in (False, True):
            reason = finish_reason(word, has_calls=has_calls)
            assert finish_reason(reason, has_calls=has_calls) == reason


def test_later_word_counts_only_if_it_says_more() -> None:
    """A repetition with a weaker word changes nothing."""
    assert stronger_finish(None, "") is None
    assert stronger_finish(None, "stop") == "stop"
    assert stronger_finish("length", "stop") == "length"
    assert stronger_finish("stop", "content_filter") == "content_filter"
    assert stronger_finish("tool_calls", "null") == "tool_calls"

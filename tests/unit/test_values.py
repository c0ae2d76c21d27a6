"""Small facts: usage adds up, and what is shared is frozen and comparable."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from tests.unit import strategies
from turngate.values import ProviderData, Target, Usage


def test_usage_adds_each_kind_of_token() -> None:
    """The sum of two calls' usage is the sum of each of its counts."""
    one = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, reasoning_tokens=4)
    other = Usage(input_tokens=10, output_tokens=20, cached_tokens=30, reasoning_tokens=40)
    assert one + other == Usage(
        input_tokens=11, output_tokens=22, cached_tokens=33, reasoning_tokens=44
    )


@given(strategies.usages, strategies.usages, strategies.usages)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    """The order of the calls does not matter for what they cost."""
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one


def test_target_demands_nothing_by_itself() -> None:
    """The defaults leave every message as it is, and name the system role as usual."""
    assert msgspec.structs.asdict(Target()) == {
        "provider": None,
        "call_id_pattern": None,
        "call_id_chars_max": None,
        "strict_alternation": False,
        "user_first": False,
        "replay_reasoning": None,
        "system_role": "system",
        "images": True,
        "audio": False,
        "files": False,
        "text_with_files": False,
    }


def test_target_can_be_a_key() -> None:
    """Equal targets are one key, so that what is worked out for one can be kept."""
    assert len({Target(user_first=True), Target(user_first=True), Target()}) == 2


def test_values_are_frozen() -> None:
    """No fact is changed in place."""
    with pytest.raises(AttributeError):
        ProviderData("a", "{}").provider = "b"  # type: ignore[misc]

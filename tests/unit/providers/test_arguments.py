"""The arguments of one call: no JSON text is damaged, however it comes."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turngate.providers.arguments import Arguments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 199) | st.text('a1{}":\\,[]é\n', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a{"', max_size=2), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text('a1{}":\\', max_size=3), VALUES, max_size=3)
PLACES = st.lists(st.integers(0, 500), max_size=12)


def told(deltas: list[str]) -> str:
    """What is passed on for `deltas`, all together."""
    arguments = Arguments()
    return "".join([*(arguments.take(delta) for delta in deltas), arguments.close()])


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(edges)]


@given(OBJECTS | VALUES, PLACES, st.booleans())
@example({"a": {"a": 1}}, [5], False)
@example({"a": {"a": {"a": 1}}}, [5, 10, 15], False)
@example({"{": 1}, [2], False)
@example({}, [1], False)
def test_json_text_in_pieces_stays_itself(value: object, places: list[int], spaced: bool) -> None:
    """Any JSON text cut anywhere gives that very text."""
    text = json.dumps(value, ensure_ascii=False, separators=None if spaced else (",", ":"))
    assert told(cut(text, places)) == text


@given(OBJECTS)
def test_json_text_in_single_characters_stays_itself(value: object) -> None:
    """The finest cut changes nothing either."""
    text = json.dumps(value)
    assert told(list(text)) == text


@given(OBJECTS, PLACES, st.integers(0, 2))
def test_cumulative_deltas_give_the_whole_once(
    value: object, places: list[int], repeats: int
) -> None:
    """A server that sends everything so far each time, and the end again, is read as one text."""
    text = json.dumps(value)
    pieces = cut(text, places)
    deltas = ["".join(pieces[: count + 1]) for count in range(len(pieces))]
    assert told(deltas + [text] * repeats) == text


@given(OBJECTS, PLACES, st.integers(1, 2))
@example({"{": {"": None}}, [2], 1)
def test_whole_text_again_at_the_end_is_a_repetition(
    value: object, places: list[int], repeats: int
) -> None:
    """Pieces and then the whole are one text."""
    text = json.dumps(value)
    assert told(cut(text, places) + [text] * repeats) == text


@given(OBJECTS, PLACES)
def test_placeholder_before_the_arguments_is_none_of_them(value: object, places: list[int]) -> None:
    """An empty object that other arguments follow was a placeholder."""
    text = json.dumps(value)
    assert json.loads(told(["{}", *cut(text, places)])) == value


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["{}"], "{}"),
        (["{", "}"], "{}"),
        (["", ""], ""),
        (['{"q":"A"}', '{"q":"B"}'], '{"q":"A"}{"q":"B"}'),
        (['"hello"'], '"hello"'),
        (["1", "1"], "11"),
        (["1", "11"], "111"),
        (['{"pat', '{"pattern":"TO'], '{"pattern":"TO'),  # cumulative, and cut by a limit
        (['{"a":', '{"a":1}', "}"], '{"a":{"a":1}}'),
        (["{'a': 'b',", "}"], "{'a': 'b',}"),
        ([" ", ' {"a":1}'], '  {"a":1}'),
        (['{"a":1}', "\n"], '{"a":1}\n'),
    ],
)
def test_deltas_give_their_text(deltas: list[str], text: str) -> None:
    """Chosen sequences, each with its one right reading."""
    assert told(deltas) == text


def test_piece_is_passed_on_at_once() -> None:
    """Pieces are not held back where they can be nothing else."""
    arguments = Arguments()
    assert [arguments.take(piece) for piece in ["{", '"a"', ":1", "}"]] == ["{", '"a"', ":1", "}"]


@pytest.mark.parametrize(
    ("deltas", "is_closed"),
    [
        ([], False),
        (["{"], False),
        (["{", "}"], True),
        (['{"a":"}'], False),
        (['{"a":"}', '"}'], True),
        (['{"a":"\\', '"}'], False),
        (['{"a":"\\', '"', '"}'], True),
        (['{"a":"\\\\', '"}'], True),
        (['{"a":[{}]'], False),
        (['"a"'], False),
    ],
)
def test_braces_are_counted_across_pieces(deltas: list[str], is_closed: bool) -> None:
    """Braces in strings, and escapes that are cut, are no braces."""
    arguments = Arguments()
    for delta in deltas:
        arguments.take(delta)
        assert arguments.is_closed in (True, False)
    assert arguments.is_closed is is_closed


@pytest.mark.parametrize("opening", [['{"a":"'], ['{"', '{":"'], ['{"', '{"', '{"a":"']])
def test_long_arguments_take_linear_time(opening: list[str]) -> None:
    """A megabyte of small pieces, with or without a doubt at its start, takes a moment."""
    arguments = Arguments()
    start = time.process_time()
    for delta in opening:
        arguments.take(delta)
    for _ in range(100_000):
        arguments.take("0123456789")
        assert arguments.is_closed in (True, False)
    arguments.close()
    assert time.process_time() - start < 5

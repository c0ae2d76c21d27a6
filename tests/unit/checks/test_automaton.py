"""The automaton finds what a plain search finds, with few steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import tests.unit.strategies  # noqa: F401  # its profile sets no time limit
from turngate.checks.automaton import Automaton

words = st.text("abc", min_size=1, max_size=5)


class CountingWays(dict[str, int]):
    """The ways out of a state, which count how often they are looked at."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        CountingWays.looks += 1
        return super().__contains__(key)


@given(st.lists(words, min_size=1, max_size=8, unique=True), st.text("abc", max_size=40))
def test_automaton_finds_all_that_is_there(terms: list[str], text: str) -> None:
    """Each occurrence of each term is found, overlapping or not, and nothing else."""
    automaton = Automaton(terms)
    found = {
        (end, term) for end, state in automaton.ends(text) for term, _ in automaton.terms_at(state)
    }
    there = {
        (end, index)
        for index, term in enumerate(terms)
        for end in range(len(text) + 1)
        if text[:end].endswith(term)
    }
    assert found == there


def test_terms_at_one_place_come_longest_first() -> None:
    """Whoever wants the longest takes the first."""
    automaton = Automaton(["b", "aab", "ab"])
    ((end, state),) = automaton.ends("aab")
    assert (end, list(automaton.terms_at(state))) == (3, [(1, 3), (2, 2), (0, 1)])


def test_first_of_equal_terms_counts() -> None:
    """A term that stands twice is known by its first place."""
    ((_, state),) = Automaton(["x", "x"]).ends("x")
    assert next(Automaton(["x", "x"]).terms_at(state)) == (0, 1)


def test_steps_do_not_grow_with_the_terms() -> None:
    """Looks are at most two a character, with one term or with two hundred."""
    text = ("a" * 50 + "b") * 100
    for count in (1, 200):
        automaton = Automaton([f"{'a' * n}c" for n in range(1, count + 1)])
        automaton._next = [CountingWays(ways) for ways in automaton._next]
        CountingWays.looks = 0
        assert list(automaton.ends(text)) == []
        assert CountingWays.looks <= 2 * len(text)

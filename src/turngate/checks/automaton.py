"""All terms of a list found in one pass over a text.

Source: Aho and Corasick, Efficient string matching, 1975. A state is what has been read of some
term; `_fallback` leads to the longest shorter one that ends in the same way. Steps forward and
steps back are at most two for each character, however many terms there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

__all__ = ["Automaton"]


class Automaton:
    """Finds `terms`, each a text that is not empty; of equal terms the first counts."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._term: list[int] = [-1]  # the index of the term that ends at a state, or -1
        self._lengths = [len(term) for term in terms]
        for index, term in enumerate(terms):
            self._add(index, term)
        self._fallback = [0] * len(self._next)
        self._ending = [0] * len(self._next)  # this state or the next fallback that ends a term
        self._link()

    def ends(self, text: str) -> Iterator[tuple[int, int]]:
        """Each index before which a term ends, with the state for `terms_at`."""
        ways, fallback, ending = self._next, self._fallback, self._ending
        state = 0
        for end, char in enumerate(text, 1):
            while state and char not in ways[state]:
                state = fallback[state]
            state = ways[state].get(char, 0)
            if ending[state]:
                yield end, state

    def terms_at(self, state: int) -> Iterator[tuple[int, int]]:
        """The index and the length of each term that ends at `state`, longest first."""
        state = self._ending[state]
        while state:
            term = self._term[state]
            yield term, self._lengths[term]
            state = self._ending[self._fallback[state]]

    def _add(self, index: int, term: str) -> None:
        state = 0
        for char in term:
            way = self._next[state].get(char)
            if way is None:
                way = self._next[state][char] = len(self._next)
                self._next.append({})
                self._term.append(-1)
            state = way
        if self._term[state] < 0:
            self._term[state] = index

    def _link(self) -> None:
        states = deque([0])
        while states:
            state = states.popleft()
            for char, way in self._next[state].items():
                self._fallback[way] = self._fallback_of(state, char)
                ends_here = self._term[way] >= 0
                self._ending[way] = way if ends_here else self._ending[self._fallback[way]]
                states.append(way)

    def _fallback_of(self, state: int, char: str) -> int:
        """Where the state that `char` leads to from `state` falls back."""
        while state:
            state = self._fallback[state]
            if char in self._next[state]:
                return self._next[state][char]
        return 0

"""Words and phrases that may not be asked or said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turngate.checks.automaton import Automaton
from turngate.checks.folding import folded
from turngate.checks.verdicts import (
    MARK,
    Action,
    Hit,
    answer_verdict,
    checked_action,
    checked_name,
    prompt_verdict,
)
from turngate.errors import InvalidValue
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review

__all__ = ["TermsCheck"]


class TermsCheck:
    """Looks for `terms`, words or phrases, in prompts and in all that a model says.

    Shapes: the rule of a hit is ``term:<index>``, its place in `terms` from 0 on, so that no
    record holds the term. "replace" puts a mark in its place; a hit in a tool call blocks even
    so, and one in the reasoning drops the reasoning. "review" blocks a prompt.
    Errors: no terms, a term without a visible character, or another action is an `InvalidValue`.
    Source: docs/reference/checks.md says what is a hit.
    """

    def __init__(
        self, terms: Sequence[str], *, action: Action = "block", name: str = "terms"
    ) -> None:
        self.name = checked_name(name)
        self.action = checked_action(action)
        texts = [_folded_term(index, term) for index, term in enumerate(_checked_terms(terms))]
        self._automaton = Automaton(texts)
        self._mark = _free_mark(texts, self._automaton)

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        return prompt_verdict(prompt, find=self._find, action=self.action, mark=self._mark)

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        return answer_verdict(answer, find=self._find, action=self.action, mark=self._mark)

    def _find(self, text: str) -> Iterator[Hit]:
        return _hits(text, self._automaton)


def _hits(source: str, automaton: Automaton) -> Iterator[Hit]:
    """The longest hit at each place of `source` where one ends."""
    text = folded(source)
    for end, state in automaton.ends(text.text):
        if not text.is_edge(end):
            continue
        for term, length in automaton.terms_at(state):
            if text.is_edge(end - length):
                start = text.starts[end - length]
                yield Hit(start=start, end=text.ends[end - 1], rule=f"term:{term}")
                break


def _checked_terms(terms: object) -> Sequence[object]:
    if isinstance(terms, str) or not isinstance(terms, Sequence) or not terms:
        raise InvalidValue("terms is a list of words or phrases that is not empty")
    return terms


def _folded_term(index: int, term: object) -> str:
    text = folded(term).text.strip(" ") if isinstance(term, str) else ""
    if not text:
        raise InvalidValue(f"term {index} is not a text with a visible character")
    return text


def _free_mark(terms: Sequence[str], automaton: Automaton) -> str:
    """A mark that is no hit, and that no hit can reach into, so that replacing ends it."""
    used = set().union(*terms)
    if used.isdisjoint("[]") and next(_hits(MARK, automaton), None) is None:
        return MARK
    for sign in map(chr, range(0x25A0, 0x2600)):
        if sign not in used:
            return sign
    raise InvalidValue("the terms leave no sign as a mark: leave one geometric shape out of them")

"""What was said in a thread, and by whom, as a helper call is shown it; and where a fact of it
comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turngate.facts import fact_key, fact_words, share_of, words_lacking
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.manner import JOINING, VERBS
from turngate.records import FactRecord, FactSource, Scope
from turngate.transcript import to_transcript
from turngate.turns import TextPart, ToolCallPart, ToolResultPart, Turn

__all__ = ["Part", "Said", "next_part", "origin_of", "said_in", "users_of", "whole_exchanges"]

_TEXT_CHARS_MAX = 2_000
_OWN_CHARS_MAX = 20_000
_WRITTEN = re.compile(r"[^\W_]+")
_INITIALS = re.compile(r"\b[A-Z]{2}\b")
_CALL_PAGES_MAX = 20
# Which part of a fact's telling words its source has at least: a user's turn, a tool's result.
_SHARE_SAID = 0.5
_SHARE_GIVEN = 0.25


@dataclass(frozen=True, slots=True)
class Said:
    """What the helper is shown of a turn, or of a tool exchange: `text`.

    `own` are the words of its `sources` alone, which a fact may be taken from (no sources: none),
    and `others` what the assistant said.
    """

    role: str
    text: str
    own: str = ""
    others: str = ""
    sources: tuple[FactSource, ...] = ()

    @property
    def trusted(self) -> bool:
        return any(source.trusted for source in self.sources)


@dataclass(frozen=True, slots=True)
class Part:
    """Successive turns of calls of one user (None: of calls without one)."""

    first: int
    turns: Sequence[Turn]
    user: str | None


async def users_of(
    deps: GatewayDeps, scope: Scope, thread: str, first: int, turns: Sequence[Turn]
) -> dict[int, str | None]:
    """The user of each position from `first` on, by the call that added its turn."""
    users: dict[int, str | None] = {}
    end = first + len(turns)
    after = None
    for _ in range(_CALL_PAGES_MAX):
        page = await deps.store.calls(scope, thread=thread, after=after, limit=200)
        for call in page.calls:
            for span in call.spans:
                for position in range(max(span.first, first), min(span.first + span.count, end)):
                    users[position] = call.user
        after = page.next
        if after is None or len(users) == len(turns):
            break
    made: dict[str, int] = {}  # where the newest tool call of an id stands
    for position, turn in enumerate(turns, first):
        if position not in users:  # results that a program added belong to the calls that made them
            answered = [made[part.call_id] for part in _results(turn) if part.call_id in made]
            users[position] = users.get(answered[0]) if answered else None
        made |= {part.id: position for part in turn.parts if isinstance(part, ToolCallPart)}
    return users


def whole_exchanges(turns: Sequence[Turn]) -> Sequence[Turn]:
    """`turns` without a last tool exchange whose results are not all there."""
    last = len(turns) - 1
    while last > 0 and turns[last].role == "tool":
        last -= 1
    if last < 0:
        return turns
    calls = {part.id for part in turns[last].parts if isinstance(part, ToolCallPart)}
    calls -= {part.call_id for turn in turns[last + 1 :] for part in _results(turn)}
    return turns[:last] if calls else turns


def next_part(
    first: int, turns: Sequence[Turn], users: Mapping[int, str | None], begin: int, limit: int
) -> Part:
    """The part that begins at `turns[begin]`: one user's, and `limit` turns, but that the tool
    exchange at its end is whole."""
    end = begin + 1
    while end < len(turns) and users[first + end] == users[first + begin]:
        if end - begin >= limit and turns[end].role != "tool":
            break
        end += 1
    return Part(first + begin, turns[begin:end], users[first + begin])


def said_in(thread: str, turns: Sequence[Turn]) -> Iterator[Said]:
    """What the helper is shown, oldest first: a tool exchange is one entry."""
    index = 0
    while index < len(turns):
        begin, index = index, index + 1
        while index < len(turns) and turns[index].role == "tool":
            index += 1
        turn, results = turns[begin], turns[begin + 1 : index]
        text = to_transcript(turns[begin:index], chars_max=_TEXT_CHARS_MAX)
        if turn.role == "tool":  # results whose call stands elsewhere: another user spoke between
            results = turns[begin:index]
            text = "\n".join(f"Tool -> {part.content}" for t in results for part in _results(t))
            text = text[:_TEXT_CHARS_MAX]
        if not text:
            continue
        if turn.role == "user":
            yield Said("user", text, own=text, sources=(FactSource(thread=thread, turn=turn.id),))
        elif results:
            own = "\n".join(part.content for result in results for part in _results(result))
            yield Said(
                "tool",
                text,
                own=own[:_OWN_CHARS_MAX],
                others=_model_words(turn),
                sources=tuple(
                    FactSource(thread=thread, turn=result.id, trusted=False) for result in results
                ),
            )
        else:
            yield Said("assistant", text, others=text)


def _results(turn: Turn) -> Iterator[ToolResultPart]:
    return (part for part in turn.parts if isinstance(part, ToolResultPart))


def _model_words(turn: Turn) -> str:
    """What the model wrote in `turn`, the arguments of its calls with it."""
    texts = [part.text for part in turn.parts if isinstance(part, TextPart)]
    texts += [part.arguments for part in turn.parts if isinstance(part, ToolCallPart)]
    return "\n".join(texts)[:_OWN_CHARS_MAX]


def origin_of(
    text: str, said: Sequence[Said], number: int, known: Sequence[FactRecord]
) -> Said | None:
    """What a fact comes from: the turn of that number, if its user said it in so many words; else,
    where tools gave something too, the result that fits it best.

    None where the turn is no source, or has too few of the fact's words, and where what the source
    lacks was told by the assistant, by a note, or in another turn: a repeat makes nothing of what
    was repeated, and what takes words from two places would outlive the deletion of one.
    """
    if not 1 <= number <= len(said) or not said[number - 1].sources:
        return None
    origin = said[number - 1]
    telling = _telling(text)
    results = [one for one in said if one.sources and not one.trusted]
    if origin.trusted and results and not _is_said(text, telling, origin, results):
        origin = max(results, key=lambda one: share_of(telling, one.own))
    # By a tool's repeat a note gains no trust, so there it may share the helper's way of speaking.
    key = fact_key(text)
    notes = [f.text for f in known if origin.trusted or fact_key(f.text) != key]
    others = [*notes, *(one.own for one in said if one is not origin)]
    lacking = words_lacking(telling, origin.own)
    assistant = "\n".join(one.others for one in said)
    if len(words_lacking(lacking, assistant)) < len(lacking):
        return None
    if any(_tells(other, lacking, text) for other in others):
        return None
    least = _SHARE_SAID if origin.trusted else _SHARE_GIVEN
    return origin if share_of(telling, origin.own) >= least else None


def _is_said(text: str, telling: Sequence[str], said: Said, results: Sequence[Said]) -> bool:
    """Whether a user's turn has all that the fact tells, and no result gives another verb."""
    if words_lacking(telling, said.own):
        return False
    manner = [word for word in fact_words(text) if word in VERBS]
    lacking = words_lacking(manner, said.own)
    given = "\n".join(one.own for one in results)
    return len(words_lacking(lacking, given)) == len(lacking)


def _tells(other: str, lacking: Sequence[str], text: str) -> bool:
    """Whether `other` told what the fact `text` has of it: a name, a number, or most of it.

    A verb that both have is in many facts, and is nobody's.
    """
    missing = words_lacking(lacking, other)
    shared = [word for word in lacking if word not in missing]
    if not (_names(text) | _names(other)).isdisjoint(shared):
        return True
    telling = _telling(other)
    return 2 * len(words_lacking(telling, " ".join(shared))) < len(telling)


def _names(text: str) -> set[str]:
    """The words of `text` with a capital, but for the one at its beginning, or with a digit."""
    written = enumerate(_WRITTEN.findall(text))
    names = [w for i, w in written if (i and w[0].isupper()) or any(c.isdigit() for c in w)]
    return {word for name in names for word in fact_words(name)}


def _telling(text: str) -> Sequence[str]:
    """The words that say what a fact is about; short ones are in every text, but for initials."""
    initials = {word.casefold() for word in _INITIALS.findall(text)}
    words = fact_words(text)
    telling = [
        word
        for word in words
        if word not in JOINING
        and word not in VERBS
        and (len(word) > 2 or not word.isalpha() or word in initials)
    ]
    told = {*JOINING, *VERBS, *telling}
    telling += [word for word in words if not word.isascii() and word not in told]
    return telling or words

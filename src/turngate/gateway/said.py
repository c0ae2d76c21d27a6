"""What was said in a thread, and by whom, as a helper call is shown it; and where a fact of it
comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turngate.facts import fact_key, fact_words, share_of, words_lacking
from turngate.gateway.deps import GatewayDeps
from turngate.records import FactRecord, FactSource, Scope, Span
from turngate.transcript import to_transcript
from turngate.turns import TextPart, ToolCallPart, ToolResultPart, Turn

__all__ = ["Part", "Said", "next_part", "origin_of", "said_in", "users_of", "whole_exchanges"]

_TEXT_CHARS_MAX = 2_000
_OWN_CHARS_MAX = 20_000
_CALL_PAGES_MAX = 20
# In a fact's own manner of speaking: the assistant's question may have them, and the user none.
_NO_WORDS = frozenset(
    (
        *("the", "user", "has", "had", "are", "was", "were", "named", "called", "name"),
        *("lives", "lived", "likes", "liked", "loves", "enjoys", "prefers", "wants", "plans"),
        *("owns", "works", "worked", "uses", "used", "speaks"),
    )
)
_SHARE_MIN = 0.25  # of a fact's words stand in what it comes from


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
            last = (Span(call.first, call.added),) if call.first is not None else ()
            for span in (*call.earlier, *last):
                for position in range(max(span.first, first), min(span.first + span.count, end)):
                    users[position] = call.user
        after = page.next
        if after is None or len(users) == len(turns):
            break
    for position, turn in enumerate(turns, first):
        if position not in users:  # results that a program added belong to the calls before them
            users[position] = users.get(position - 1) if turn.role == "tool" else None
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
    """What a fact comes from: the turn of that number, unless a tool's result has words of it that
    the user never said.

    None where the turn is no source or has too few of the fact's words, and where the assistant or
    a note has words of it that are in no source: repeating them makes nothing of them.
    """
    if not 1 <= number <= len(said) or not said[number - 1].sources:
        return None
    words = _telling(fact_words(text))
    # What the user said before this part is in the notes; the same note again is no source of it.
    key = fact_key(text)
    noted = [f.text for f in known if f.trusted and fact_key(f.text) != key]
    spoken = "\n".join([*noted, *(one.own for one in said if one.trusted)])
    origin, lacking = said[number - 1], words_lacking(words, spoken)
    if origin.trusted:
        results = [one for one in said if one.sources and not one.trusted]
        giving = [one for one in results if len(words_lacking(lacking, one.own)) < len(lacking)]
        origin = max(giving, key=lambda one: share_of(words, one.own), default=origin)
    if not origin.trusted:
        lacking = words_lacking(lacking, origin.own)
    # By a tool's repeat a note gains no trust, so there it may share the helper's way of speaking.
    others = [one.others for one in said]
    others += [
        f.text for f in known if f.text not in noted and (origin.trusted or fact_key(f.text) != key)
    ]
    if len(words_lacking(lacking, "\n".join(others))) < len(lacking):
        return None
    return origin if share_of(words, origin.own) >= _SHARE_MIN else None


def _telling(words: Sequence[str]) -> Sequence[str]:
    """Those of `words` that say what a fact is about: short ones are in every text."""
    telling = [w for w in words if w not in _NO_WORDS and (len(w) > 2 or not w.isalpha())]
    telling += [word for word in words if not word.isascii() and word not in telling]
    return telling or words

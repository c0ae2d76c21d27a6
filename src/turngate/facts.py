"""Facts as texts: which may be remembered, when two are the same, and which fit a question.

A fact is a statement about a user, short and on one line. What reads like an instruction to a model
is none, whoever said it. Pure.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

from turngate.records import FactRecord

__all__ = [
    "FACT_CHARS_MAX",
    "best_matches",
    "fact_key",
    "fact_words",
    "one_line",
    "refused_because",
    "share_of",
    "stem",
    "words_lacking",
]

FACT_CHARS_MAX = 240

# ── words ────────────────────────────────────────────────────────────────────────────────────

_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: pairs of letters stand for their words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\U00020000-\U0003ffff]+"
)
_JOINED = re.compile(r"(?<=[a-z])(?=[A-Z])")
_UNSEEN = ("Mn", "Mc", "Me", "Cf")  # accents, and characters that only tell how to show others
_KEPT_SIGNS = "#@%&"
_STEM_CHARS = 4


def fact_words(text: str) -> list[str]:
    """The words of `text` for a search: letters and digits alone, folded, without accents."""
    apart = _JOINED.sub(" ", text)
    decomposed = unicodedata.normalize("NFKD", apart.casefold())
    plain = "".join(c for c in decomposed if unicodedata.category(c) not in _UNSEEN)
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFC", plain)):
        for run in _UNSPACED.findall(word):
            words += [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
        words += _WORD.findall(_UNSPACED.sub(" ", word))
    return words


def stem(word: str) -> str:
    """The beginning of `word` that its other forms share: a rough rule that fits many languages."""
    return word[:_STEM_CHARS]


def fact_key(text: str) -> str:
    """What two texts of the same fact share: neither case nor punctuation tells them apart."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (
        c if c in _KEPT_SIGNS or unicodedata.category(c)[0] not in "PZC" else " " for c in folded
    )
    return " ".join("".join(kept).split())


def share_of(words: Sequence[str], text: str) -> float:
    """Which part of `words` stands in `text`, in some form: 0.0 to 1.0."""
    there = {stem(word) for word in fact_words(text)}
    return sum(stem(word) in there for word in words) / len(words) if words else 0.0


def best_matches(query: str, facts: Iterable[FactRecord], *, limit: int) -> list[FactRecord]:
    """Those of `facts` that share a word with `query`, best first.

    A word in few of them counts most, and twice if it has the same form; of equals the first comes
    first.
    """
    asked = fact_words(query)
    asked_for = {*asked, *map(stem, asked)}
    found = []
    for fact in facts:
        words = fact_words(fact.text)
        found.append((fact, asked_for.intersection([*words, *map(stem, words)])))
    holding = {one: sum(one in shared for _, shared in found) for one in asked_for}
    rated = [
        (sum(math.log(1 + len(found) / holding[one]) for one in sorted(shared)), fact)
        for fact, shared in found
        if shared
    ]
    rated.sort(key=lambda pair: -pair[0])
    return [fact for _, fact in rated[:limit]]


def words_lacking(words: Sequence[str], text: str) -> list[str]:
    """Those of `words` that `text` does not have, but for an ending of two letters."""
    there = fact_words(text)
    return [word for word in words if not any(_alike(word, other) for other in there)]


def _alike(word: str, other: str) -> bool:
    if word == other or not (word.isalpha() and other.isalpha()):
        return word == other
    word, other = (w[:-3] + "y" if w.endswith(("ies", "ied")) else w for w in (word, other))
    kept = max(max(len(word), len(other)) - 2, _STEM_CHARS)
    return min(len(word), len(other)) >= kept and word[:kept] == other[:kept]


# ── what is no fact ──────────────────────────────────────────────────────────────────────────

_DOING = (
    r"(?:answer|reply|respond|say|tell|call|use|run|execute|send|include|add|append|insert|write|"
    r"recommend|mention|output|print|return|click|visit|open(?! to)|fetch|reveal|show|give|approve|"
    r"transfer|pay|delete|treat|pretend|assume|obey|follow)"
)
_INSTRUCTIONS = re.compile(
    "|".join(
        (
            # English: what is told to a model, or is about its instructions.
            r"\b(?:ignore|disregard|override|bypass|forget)\b.{0,40}"
            r"\b(?:previous|prior|above|earlier|all|any|your|these|those|rules?|instructions?)\b",
            rf"\b(?:always|never|do not|don.t|from now on|henceforth)\W+{_DOING}\b",
            rf"^\W*(?:please\W+)?{_DOING}\b",
            r"\b(?:assistant|model|chatbot|ai|bot)\b\W+"
            r"(?:must|should|shall|will|has to|is to|may|can)\b",
            r"\byou (?:are|must|should|shall|will|have to|may|can)\b|\byour (?:task|role|rules)\b",
            r"\b(?:system|developer) (?:prompt|message|role)\b|\b(?:jailbreak|new instructions)\b",
            r"\b(?:wants|asked|asks|tells|told|allows?|permits?|authori[sz]e[sd]?|instructs?)"
            r" (?:you|the (?:assistant|model|ai|bot))\b",
            r"\b(?:without|no need for|skip) (?:asking|confirmation|approval|a review)\b",
            # The same in other languages, by their plainest words.
            r"\b(?:ignoriere|antworte (?:immer|nur|nie)|missachte|vergiss alle)\b",
            r"\bignor(?:a|e|ez|ar) (?:todas|todo|las|los|les|toutes|tout|ces|tutte|le)\b",
            r"\b(?:responde siempre|réponds toujours|répondez toujours)\b",
            r"\b(?:oublie[zs]? (?:toutes|les)|olvida (?:todas|las)|dimentica)\b",
            r"\b(?:игнорируй(?:те)?|забудь(?:те)? (?:все|предыдущие)|всегда отвечай(?:те)?)\b",
            r"忽略|无视|無視|忘记之前|总是回答|必ず.{0,20}(?:答え|言)|指示に従",
            # Text of another kind: roles, mark-up, calls, addresses.
            r"(?:^|[.!?;])\W*(?:system|assistant|user|tool|human)\s*:",
            r"[<{\[]\s*/?\s*(?:system|inst|im_start|tool|function|script|img|a)\b|<\|",
            r"```|\]\(|\{\{|\$\{|javascript:|data:\w+/",
            r"https?://|\bwww\.\w|\b\w+\((?:\)|[\"'{]|\w+\s*[=:])|\b\w+_\w+\s*\(",
        )
    ),
    re.IGNORECASE,
)


def one_line(text: str) -> str:
    """`text` on one line, without control and format characters, which can't be seen."""
    seen = (c if unicodedata.category(c)[0] not in "CZ" else " " for c in text)
    return " ".join("".join(seen).split())


def refused_because(text: str, *, tools: Iterable[str] = ()) -> str | None:
    """Why `text` is no fact that may be remembered, in one word; None where it may be."""
    if len(text) > FACT_CHARS_MAX:
        return "long"
    if len(fact_key(text)) < 2:
        return "empty"
    # Letters of full width and the like must not hide a word.
    plain = unicodedata.normalize("NFKC", text)
    if _INSTRUCTIONS.search(plain):
        return "instruction"
    if any(re.search(rf"\b{re.escape(name)}\b", plain, re.IGNORECASE) for name in tools):
        return "tool"
    return None

"""Folding text cluster by cluster is folding it whole, and each character knows its origin."""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.unit.strategies  # noqa: F401  # its profile sets no time limit
from turngate.checks import folding
from turngate.checks.folding import folded

# What composes, decomposes, changes in length, joins its neighbour, or is not shown.
ODD = "aeiIİ\u0131ßẞΣςﬁ㍿½²™ªÅ\u0301\u0307\u0323\u0345\u093c\u3099ﾞｶハ가ᄀ\u1161\u11a8ㄱㅏ한ั กĐΐǰ㎏"
HIDDEN = "\u200b\u00ad\ufeff\u200d\u2060\ufe0f\u034f\u115f\x00"
SPACES = " \n\t\u00a0\u2003\u3000\u2028"
shown_texts = st.text(st.sampled_from(ODD.replace(" ", "")) | st.characters(codec="utf-8"))
texts = st.text(st.sampled_from(ODD + HIDDEN + SPACES) | st.characters(codec="utf-8"))
ascii_texts = st.text(st.characters(max_codepoint=127))


def whole_fold(text: str) -> str:
    """The caseless form that Unicode defines for a whole text, with İ as i."""

    def caseless(part: str) -> str:
        return part.casefold().replace("i\u0307", "i")

    once = normalize("NFKC", caseless(normalize("NFD", text)))
    return normalize("NFKC", caseless(once))


def is_letter_or_sign(char: str) -> bool:
    """Whether `char` is shown, and is no accent that stands alone."""
    shown = folding._kind(char) in (folding._BASE, folding._JOINING)
    return shown and normalize("NFKC", char)[0] != " "


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("STRASSE", "Straße"),
        ("ΟΔΟΣ", "οδος"),
        ("ΟΔΟΣ", "οδοσ"),
        ("İstanbul", "istanbul"),
        ("é", "e\u0301"),
        ("\uff21\uff30\uff29", "api"),
        ("ﬁle", "file"),
        ("ｶﾞ", "ガ"),
        ("가", "\u1100\u1161"),
        ("a b", "a \t\u00a0\n\u200b b"),
        ("ab", "a\u200b\u00ad\ufeffb"),
        ("é", "e\u200b\u0301"),
    ],
)
def test_folding_makes_equal_what_reads_equal(text: str, other: str) -> None:
    """Case, width, composition, white space and hidden characters make no difference."""
    assert folded(text).text == folded(other).text


@pytest.mark.parametrize(
    ("text", "other"), [("\u0131", "i"), ("é", "e"), ("\u0430", "a"), ("ö", "oe")]
)
def test_folding_keeps_letters_apart(text: str, other: str) -> None:
    """Other letters stay others: no accent is dropped, and no script is taken for another."""
    assert folded(text).text != folded(other).text


@given(shown_texts)
def test_folding_by_clusters_is_folding_the_whole(text: str) -> None:
    """Cutting a text into clusters changes nothing of its folded form."""
    text = "".join(c for c in text if is_letter_or_sign(c))
    assert folded(text).text == whole_fold(text)


@given(texts)
def test_folding_is_idempotent(text: str) -> None:
    """A folded text is its own folded form."""
    once = folded(text).text
    assert folded(once).text == once


@given(texts)
def test_positions_lead_back_to_the_source(text: str) -> None:
    """Each folded character has a part of the source, in order, which folds to its cluster."""
    result = folded(text)
    spans = list(zip(result.starts, result.ends, strict=True))
    assert len(spans) == len(result.text)
    assert all(one == two or one[1] <= two[0] for one, two in pairwise(spans))
    for span in set(spans):
        cluster = "".join(c for c, s in zip(result.text, spans, strict=True) if s == span)
        assert folded(text[slice(*span)]).text == cluster


@given(ascii_texts)
def test_ascii_folds_to_lower_case(text: str) -> None:
    """Plain text is lower case with single spaces, without control characters."""
    shown = "".join(c for c in text if c.isprintable() or c.isspace())
    assert folded(text).text == re.sub(r"\s+", " ", shown).lower()


def test_plain_characters_fold_by_themselves() -> None:
    """Whatever is folded in runs folds to one character, and joins nothing before it."""
    plain = re.findall(f"[{folding.PLAIN_CHARS}]", "".join(map(chr, range(0x110000))))
    assert len(plain) > 30_000
    wrong = [
        c
        for c in plain
        if folding._kind(c) != folding._BASE
        or len(c.casefold()) != 1
        or folding._folded_cluster(c) != c.casefold()
    ]
    assert wrong == []


def test_long_run_of_marks_is_cut() -> None:
    """No cluster is so long that sorting its marks takes time; all marks are kept."""
    result = folded("a" + "\u0301\u0323" * 1_000)
    assert max(e - s for s, e in zip(result.starts, result.ends, strict=True)) <= 32
    assert len(result.text) > 1_900

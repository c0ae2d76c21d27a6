"""Texts as a reader sees them: without the differences that hide a word, and with a way back.

Folding works on clusters: a character with the marks that belong to it. Each cluster is folded by
itself, which gives the same as folding the whole text, but every folded character knows its place
in the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Literal, NamedTuple
from unicodedata import category, normalize

__all__ = ["Folded", "folded"]

# Signs and letters that fold one to one, by case folding alone, and join nothing before them.
# Runs of them with single spaces are nearly all of most texts, and are folded at once.
PLAIN_CHARS = (
    "!-~"
    "\u00c0-\u00de\u00e0-\u00ff"  # Latin, but ß
    "\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9"  # Greek
    "\u0400-\u0482\u048a-\u052f"  # Cyrillic
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a"  # Hebrew, Arabic
    "\u0e01-\u0e30"  # Thai
    "\u3001-\u3003\u3041-\u3096\u30a1-\u30fa"  # Kana
    "\u4e00-\u9fff"  # Han
    "\uac00-\ud7a3"  # Hangul
)
_PLAIN = re.compile(f"[{PLAIN_CHARS}]++(?: [{PLAIN_CHARS}]++)*+")

# More marks than any writing puts on one character. The sorting of marks, which is part of
# normalizing, is quadratic in them.
_CLUSTER_CHARS_MAX = 32

# Shown as nothing, though their category does not say so.
_INVISIBLE_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)
# Letters that are written into the one before them: of Hangul, and of Kirat Rai.
_JOINING_RANGES = ((0x1161, 0x11FF), (0xD7B0, 0xD7FB), (0x16D63, 0x16D6A))
# Writing that puts no spaces between words.
_UNSPACED_RANGES = (
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19FF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x9FFF),  # Han
    (0xA980, 0xA9FF),  # Javanese, Burmese
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)


class Folded(NamedTuple):
    """A folded text, and where each of its characters comes from.

    Shapes: the character at index i of `text` comes from `source` between ``starts[i]`` and
    ``ends[i]``; all characters of one cluster have the same two.
    """

    source: str
    text: str
    starts: list[int]
    ends: list[int]

    def is_edge(self, index: int) -> bool:
        """Whether a word may begin or end just before the character at `index`.

        A mark belongs to what stands before it. Words without spaces may end anywhere. What is a
        letter is asked of the original: a trade mark sign folds to letters, but ends a word.
        """
        if index in (0, len(self.text)):
            return True
        left, right = self.text[index - 1], self.text[index]
        if category(right)[0] == "M":
            return False
        if _is_unspaced(left) or _is_unspaced(right):
            return True
        left_start, right_start = self.starts[index - 1], self.starts[index]
        if left_start == right_start:
            return False
        return not (_is_word(self.source[left_start]) and _is_word(self.source[right_start]))


def folded(source: str) -> Folded:
    """`source` in one form for all that look alike, by NFKC and full case folding.

    A run of white space is one space, what is shown as nothing is left out, and a capital İ is
    an i. Takes time linear in the length of `source`.
    """
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    while position < len(source):
        kind = _kind(source[position])
        if kind == _INVISIBLE:
            position += 1
            continue
        if kind == _SPACE:
            if pieces and pieces[-1] == " ":
                ends[-1] = position + 1
            else:
                pieces.append(" ")
                starts.append(position)
                ends.append(position + 1)
            position += 1
            continue
        plain = _PLAIN.match(source, position)
        # The last one may have marks behind it, so it is left for the next round.
        if plain is not None and plain.end() - 1 > position:
            end = plain.end() - 1
            pieces.append(source[position:end].casefold())
            starts.extend(range(position, end))
            ends.extend(range(position + 1, end + 1))
            position = end
            continue
        cluster, end = _cluster(source, position)
        piece = _folded_cluster(cluster)
        pieces.append(piece)
        starts.extend([position] * len(piece))
        ends.extend([end] * len(piece))
        position = end
    return Folded(source, "".join(pieces), starts, ends)


# Plain numbers: a member of an Enum takes longer to name than all else that is done to most
# characters.
_BASE, _JOINING, _SPACE, _INVISIBLE = range(4)


@lru_cache(maxsize=8192)
def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    if category(char) in ("Cf", "Cc") or _is_within(char, _INVISIBLE_RANGES):
        return _INVISIBLE
    first = normalize("NFKD", char)[0]
    joins = category(first)[0] == "M" or _is_within(first, _JOINING_RANGES)
    return _JOINING if joins else _BASE


def _cluster(source: str, start: int) -> tuple[str, int]:
    """The cluster that begins at `start`, without what is shown as nothing, and its end."""
    chars = [source[start]]
    end = position = start + 1
    while position < len(source) and len(chars) < _CLUSTER_CHARS_MAX:
        kind = _kind(source[position])
        position += 1
        if kind == _JOINING:
            chars.append(source[position - 1])
            end = position
        elif kind != _INVISIBLE:
            break
    return "".join(chars), end


@lru_cache(maxsize=8192)
def _folded_cluster(cluster: str) -> str:
    # An accent that stands alone is no space with a mark: it stays the sign that it is.
    form: Literal["NFC", "NFKC"] = "NFC" if normalize("NFKC", cluster)[0] == " " else "NFKC"
    # Case folding can undo the normal form and the other way round; twice is enough for both.
    once = normalize(form, _case_folded(normalize("NFD", cluster)))
    return normalize(form, _case_folded(once))


def _case_folded(text: str) -> str:
    # Unicode folds a capital İ to an i with a dot above it, as no small letter is written.
    return text.casefold().replace("i\u0307", "i")


@lru_cache(maxsize=8192)
def _is_word(char: str) -> bool:
    return category(char)[0] in "LM" or category(char) in ("Nd", "Nl")


@lru_cache(maxsize=8192)
def _is_unspaced(char: str) -> bool:
    return _is_within(char, _UNSPACED_RANGES)


def _is_within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    index = bisect_right(ranges, (ord(char), 0x110000)) - 1
    return index >= 0 and ord(char) <= ranges[index][1]

"""What a text costs an average model, apart by kind of character. Pure.

The costs come from signs that are counted in the text's UTF-8 bytes: words begun, long runs of
letters, digits, lead bytes of a script … Each count is one pass in C, so the whole is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

__all__ = ["KINDS", "Kind", "text_costs"]

Kind = Literal[
    "words", "rough", "digits", "signs", "space",  # ASCII; `rough`: letters as no language has them
    "latin", "greek", "cyrillic", "hebrew", "arabic", "other_alphabets",
    "devanagari", "thai", "indic", "far_scripts", "hangul", "kana", "ideographs", "wide",
    "typography", "symbols", "emoji", "old_scripts",
    "frames", "schemas", "images", "files",  # what is no text
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

_LOWER, _DIGITS = b"abcdefghijklmnopqrstuvwxyz", b"0123456789"
_LETTERS = _LOWER + _LOWER.upper()
_VOWELS, _RARE = b"aeiouyAEIOUY", b"jqvwxzJQVWXZ"
_SIGNS = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def _view(default: bytes, *marks: tuple[bytes, Iterable[int]]) -> bytes:
    """The table that shows each byte as the mark of its group; later groups win."""
    table = bytearray(default * 256)
    for mark, group in marks:
        for byte in group:
            table[byte] = mark[0]
    return bytes(table)


# What a lead byte tells of the script of its character; continuation bytes say nothing.
_SHAPES = _view(
    b"k",  # control characters
    (b" ", b" "), (b"n", b"\n"), (b"t", b"\t\r\x0b\x0c"),
    (b"a", _LOWER), (b"A", _LOWER.upper()), (b"0", _DIGITS), (b"p", _SIGNS),
    (b"_", range(0x80, 0xC0)),
    (b"X", range(0xC0, 0xE0)),  # two bytes: modifiers, combining marks, Armenian, Syriac …
    (b"L", range(0xC2, 0xCA)), (b"G", (0xCE, 0xCF)), (b"Y", (0xD0, 0xD1)),
    (b"H", (0xD6, 0xD7)), (b"R", range(0xD8, 0xDC)),
    (b"w", range(0xE0, 0xF0)),  # three bytes: full width, private use, Yi, Vai …
    (b"I", (0xE0,)), (b"F", (0xE1,)), (b"S", (0xE2,)), (b"K", (0xE3,)), (b"C", range(0xE4, 0xEA)),
    (b"Q", (0xEB, 0xEC, 0xED)),
    (b"M", range(0xF0, 0x100)),  # four bytes
)  # fmt: skip
_WORDS = _view(b" ", (b"a", _LETTERS))
_SOUNDS = _view(b" ", (b"c", _LETTERS), (b"v", _VOWELS))
_RARES = _view(b" ", (b"r", _RARE))
_MARKS = _view(b" ", (b"p", _SIGNS))
_BYTES = bytes(range(256))
_VIEWS = (_BYTES, _SHAPES, _WORDS, _SOUNDS, _RARES, _MARKS)


class _Sign(NamedTuple):
    """Each time that `pattern` is in the view, it costs so many tokens of a kind."""

    kind: Kind
    tokens: float
    view: bytes
    pattern: bytes


def _moved(kind: Kind, tokens: float, out_of: Kind, leads: Iterable[bytes]) -> Iterator[_Sign]:
    """Signs that count characters with these two first bytes as of a kind of their own.

    Some scripts of a block are in every vocabulary and some in none, so they calibrate apart.
    """
    for lead in leads:
        yield _Sign(kind, tokens, _BYTES, lead)
        yield _Sign(out_of, -tokens, _BYTES, lead)


# Runs are counted without overlap, so `aaaa` is there twice in a word of eight letters. The
# numbers solve a linear program: near the truth on English and code, and on no text of the kept
# data under half of it. docs/reference/tokens.md says how near.
_ASCII = (
    _Sign("words", 0.75, _WORDS, b" a"),
    _Sign("words", 0.26, _WORDS, b"a" * 4),
    _Sign("words", 0.24, _WORDS, b"a" * 6),
    _Sign("words", 0.40, _WORDS, b"a" * 8),
    _Sign("words", 0.59, _WORDS, b"a" * 12),
    _Sign("words", 0.75, _WORDS, b"a" * 16),
    _Sign("words", 0.04, _SHAPES, b"Aa"),
    # Letters as no language has them: keys, base64, capitals, abbreviations.
    _Sign("rough", 0.30, _SOUNDS, b"ccc"),
    _Sign("rough", 2.10, _SOUNDS, b"vvv"),
    _Sign("rough", 0.52, _RARES, b"r"),
    _Sign("rough", 0.19, _SHAPES, b"AA"),
    _Sign("digits", 1.06, _SHAPES, b"0"),
    _Sign("digits", 1.00, _SHAPES, b" 0"),
    _Sign("signs", 0.28, _MARKS, b" p"),
    _Sign("signs", 0.88, _MARKS, b"pp"),
    _Sign("signs", 0.50, _SHAPES, b" p"),
    _Sign("space", 1.03, _SHAPES, b"n"),
    _Sign("space", 0.79, _SHAPES, b"t"),
    _Sign("space", 0.02, _SHAPES, b"  "),
    _Sign("space", 1.04, _SHAPES, b"k"),
)
_BEYOND_ASCII = (
    _Sign("latin", 1.05, _SHAPES, b"L"),
    _Sign("greek", 0.95, _SHAPES, b"G"),
    _Sign("cyrillic", 0.95, _SHAPES, b"Y"),
    _Sign("hebrew", 1.13, _SHAPES, b"H"),
    _Sign("arabic", 1.04, _SHAPES, b"R"),
    _Sign("other_alphabets", 1.95, _SHAPES, b"X"),
    *_moved("devanagari", 1.80, "indic", (b"\xe0\xa4", b"\xe0\xa5")),
    *_moved("thai", 1.80, "indic", (b"\xe0\xb8", b"\xe0\xb9")),
    _Sign("indic", 1.80, _SHAPES, b"I"),
    _Sign("far_scripts", 1.80, _SHAPES, b"F"),  # Georgian, Ethiopic, Khmer, Vietnamese marks …
    _Sign("hangul", 1.70, _SHAPES, b"Q"),
    _Sign("kana", 1.80, _SHAPES, b"K"),
    _Sign("ideographs", 1.55, _SHAPES, b"C"),
    _Sign("wide", 1.80, _SHAPES, b"w"),
    _Sign("symbols", 1.55, _SHAPES, b"S"),
    *_moved("typography", 1.55, "symbols", (b"\xe2\x80",)),  # dashes, quotes, zero widths
    _Sign("old_scripts", 3.10, _SHAPES, b"M"),
    *_moved("emoji", 3.10, "old_scripts", (b"\xf0\x9f",)),
)


def _counted(signs: Iterable[_Sign]) -> tuple[tuple[int, float, int, bytes], ...]:
    """`signs` with numbers in place of names, as the inner loop takes them."""
    return tuple(
        (KINDS.index(sign.kind), sign.tokens, _VIEWS.index(sign.view), sign.pattern)
        for sign in signs
    )


_ASCII_SIGNS = _counted(_ASCII)
_ALL_SIGNS = _counted(_ASCII + _BEYOND_ASCII)


def text_costs(text: str) -> list[float]:
    """The tokens of `text`, apart by kind in the order of `KINDS`.

    Shapes: the empty text costs nothing; lone surrogates are taken as they are.
    """
    costs = [0.0] * len(KINDS)
    # A text begins as after a continuation byte, which is no letter, no sign and no space.
    data = b"\x80" + text.encode("utf-8", "surrogatepass")
    counts = [data.translate(view).count for view in _VIEWS]
    for kind, tokens, view, pattern in _ASCII_SIGNS if text.isascii() else _ALL_SIGNS:
        costs[kind] += tokens * counts[view](pattern)
    return costs

"""What bytes are, and the text in them."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.media import HEAD_BYTES, checked_media_type, sniffed_type, text_of

HEADS = [
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
    (b"GIF89a\x01\x00", "image/gif"),
    (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
    (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
    (b"%PDF-1.7\n%\xe2\xe3", "application/pdf"),
    (b"PK\x03\x04\x14\x00", "application/zip"),
    (b"\x1f\x8b\x08\x00\x00", "application/gzip"),
    (b"ID3\x04\x00\x00", "audio/mpeg"),
    (b"\xff\xfb\x90\x64\x00", "audio/mpeg"),
    (b"\x00\x00\x00\x20ftypisom\x00\x00", "video/mp4"),
    (b"\x00\x00\x00\x20ftypM4A \x00\x00", "audio/mp4"),
    (b"\x00\x00\x00\x1cftypavif\x00\x00", "image/avif"),
    (b"\x1aE\xdf\xa3\x01\x00\x00\x00\x42\x82\x84webm", "video/webm"),
    (b"OggS\x00\x02", "application/ogg"),
    (b"fLaC\x00", "audio/flac"),
    (b"\x00" * 257 + b"ustar\x0000", "application/x-tar"),
    (b"<!DOCTYPE html><html>", "text/html"),
    (codecs.BOM_UTF8 + b"\n  <HTML lang=en>", "text/html"),
    (b"<script>alert(1)</script>", "text/html"),
    (b"<svg xmlns='x'>", "image/svg+xml"),
    (b"<?xml version='1.0'?>\n<!-- a --><svg/>", "image/svg+xml"),
    (b"<?xml version='1.0'?><feed/>", "application/xml"),
    (b"plain words\r\n\tand a tab", "text/plain"),
    ("größer".encode(), "text/plain"),
    ("Text".encode("utf-16"), "text/plain"),
    (b"a WEBP at eight, no RIFF", "text/plain"),
    (b"", None),
    (b"\x00\x01\x02\x03", None),
    (b"caf\xe9", None),  # Latin-1: any bytes could be that
]


@pytest.mark.parametrize(("head", "media_type"), HEADS)
def test_first_bytes_tell_the_type(head: bytes, media_type: str | None) -> None:
    """Well-known formats are known, text is text, and what tells nothing is None."""
    assert sniffed_type(head) == media_type


def test_a_character_that_the_head_cuts_is_still_text() -> None:
    """The last character of the head need not be whole, also where more bytes are given."""
    text = ("x" + "é" * HEAD_BYTES).encode()
    assert sniffed_type(text[:HEAD_BYTES]) == sniffed_type(text) == "text/plain"


@given(st.binary(max_size=80))
def test_any_bytes_have_a_type_or_none(head: bytes) -> None:
    """No bytes raise, and each answer is a media type."""
    found = sniffed_type(head)
    assert found is None or checked_media_type(found) == found


@given(st.text())
def test_text_comes_back_from_utf_8_and_marked_utf_16(text: str) -> None:
    """What was encoded is what is read, and a mark is no part of it."""
    plain = text.encode("utf-8", "ignore")
    wanted = plain.decode()
    if not wanted.startswith("\ufeff") and "\0" not in wanted:
        assert text_of(plain, "text/plain") == wanted
        assert text_of(codecs.BOM_UTF8 + plain, "text/csv") == wanted
    for mark, encoding in [(codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")]:
        assert text_of(mark + wanted.encode(encoding), "application/json") == wanted


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "text/x-python",
        "TEXT/Markdown; charset=utf-8",
        "application/json",
        "application/vnd.api+json",
        "application/xml",
        "image/svg+xml",
        "application/x-yaml",
    ],
)
def test_text_types_give_their_text(media_type: str) -> None:
    """Text is what has a text type, in any spelling."""
    assert text_of(b"a,b", media_type) == "a,b"


@pytest.mark.parametrize("media_type", ["image/png", "application/pdf", "", "text", "audio/text/x"])
def test_other_types_give_no_text(media_type: str) -> None:
    """A type that is not text has none, whatever the bytes are."""
    assert text_of(b"words", media_type) is None


def test_bytes_that_are_no_utf_8_are_latin_1_unless_they_hold_nul() -> None:
    """An old text file is read, and a binary file with a wrong type is not."""
    assert text_of(b"caf\xe9", "text/plain") == "café"
    assert text_of(b"\x00\x01\xfe", "text/plain") is None
    assert text_of(codecs.BOM_UTF16_LE + b"a", "text/plain") == "\ufffd"


@pytest.mark.parametrize(
    ("media_type", "fits"),
    [
        ("text/plain", True),
        ("application/vnd.api+json; charset=utf-8", True),
        ("text", False),
        ("text/", False),
        ("text/plain\r\nX-Evil: 1", False),
        ("text/plain; a=\n", False),
        ("tëxt/plain", False),
        ("a/" + "b" * 300, False),
    ],
)
def test_a_media_type_has_one_form(media_type: str, fits: bool) -> None:
    """What could end a header line, or is no pair, is not taken for a type."""
    assert checked_media_type(media_type) == (media_type if fits else None)

"""What bytes are, by what they begin with, and the text in them. Pure.

`sniffed_type` believes no one: it looks at the first bytes alone. `text_of` takes the type that it
is told and gives the text, or None for what holds none.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

__all__ = [
    "AUDIO_FORMATS",
    "HEAD_BYTES",
    "OCTETS",
    "checked_media_type",
    "is_text_type",
    "sniffed_type",
    "text_of",
]

HEAD_BYTES = 1024  # what `sniffed_type` needs at most
OCTETS = "application/octet-stream"

# What Chat Completions servers take as audio, by the name that they have for it.
AUDIO_FORMATS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

_MEDIA_TYPE_CHARS_MAX = 255

# A type, a subtype, and whatever parameters: no control characters, and so no second header line.
_MEDIA_TYPE = re.compile(r"[\w.+!#$&^-]+/[\w.+!#$&^-]+(\s*;[\x20-\x7e]*)?", re.ASCII)


def checked_media_type(media_type: str) -> str | None:
    """`media_type`, if it has the form ``type/subtype`` with or without parameters; else None."""
    fits = len(media_type) <= _MEDIA_TYPE_CHARS_MAX and _MEDIA_TYPE.fullmatch(media_type)
    return media_type if fits else None


# ── types ────────────────────────────────────────────────────────────────────────────────────

# (offset, bytes, type): the first that fits is it.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),  # in a RIFF, as the two below
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),  # one without members
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "application/ogg"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
)
_IN_RIFF = 8
# MPEG audio without a tag: a frame's sync, layer III, no reserved bit rate.
_MPEG_FRAME = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb][^\xf0-\xff]", re.DOTALL)
_MEDIA_BRANDS = {
    b"avif": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"qt  ": "video/quicktime",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
# What a browser would run as a page, whatever it is called.
_HTML = re.compile(
    rb"<(!doctype html|html|head|body|script|iframe|table|title|style|h1|div|a|br|p|!--)[\s>/-]",
    re.IGNORECASE,
)
_SVG = re.compile(rb"<svg[\s/>]", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def sniffed_type(head: bytes) -> str | None:
    """The media type of what begins with `head`, or None where the bytes do not tell.

    Shapes: give the first `HEAD_BYTES` bytes, or all that there are. Text of no special kind is
    ``text/plain``.
    """
    head = head[:HEAD_BYTES]
    for offset, magic, media_type in _MAGIC:
        if head.startswith(magic, offset) and (offset != _IN_RIFF or head.startswith(b"RIFF")):
            return media_type
    if head[4:8] == b"ftyp":
        return _MEDIA_BRANDS.get(head[8:12], "video/mp4")
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if _MPEG_FRAME.match(head):
        return "audio/mpeg"
    return _text_type(head) if _is_text(head) else None


def _text_type(head: bytes) -> str:
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if _HTML.match(start):
        return "text/html"
    if _SVG.match(start) or (start.startswith(b"<?xml") and _SVG.search(start)):
        return "image/svg+xml"
    return "application/xml" if start.startswith(b"<?xml") else "text/plain"


def _is_text(head: bytes) -> bool:
    if not head:
        return False
    if head.startswith(tuple(_WIDE)):
        return True
    if _CONTROL.search(head):
        return False
    try:  # the last character of a head that goes on may be cut off
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True


# ── text ─────────────────────────────────────────────────────────────────────────────────────

# Beside ``text/*`` and what ends in ``+json``, ``+xml`` or ``+yaml``.
_TEXT_NAMES = (
    "csv ecmascript graphql javascript json json5 jsonl ndjson sql toml typescript x-httpd-php"
    " x-javascript x-ndjson x-perl x-python x-ruby x-sh x-shellscript x-sql x-tex x-toml"
    " x-typescript x-yaml xml xml-dtd yaml"
)
_TEXT_TYPES = frozenset(f"application/{name}" for name in _TEXT_NAMES.split())
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")


def is_text_type(media_type: str) -> bool:
    """Whether files of this type hold text."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(_TEXT_SUFFIXES)


def text_of(data: bytes, media_type: str) -> str | None:
    """The text of a file of a text type; None for other types, and where the bytes are no text.

    Shapes: the encoding is that of a byte order mark (UTF-8, UTF-16), else UTF-8, else Latin-1,
    in which any bytes without NUL are a text. A mark is no part of the text.
    """
    if not is_text_type(media_type):
        return None
    for mark, encoding in _WIDE.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")

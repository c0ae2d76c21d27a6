"""The size of an image from its first bytes: PNG, JPEG, GIF and WebP. Pure."""

from __future__ import annotations

__all__ = ["image_size"]

_JPEG_SEGMENTS_MAX = 500  # before the frame; a damaged file may have millions


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels as the header tells them, or None where none is found."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _big(data, 16, 4), _big(data, 20, 4)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        size = _little(data, 6, 2), _little(data, 8, 2)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        size = _webp_size(data)
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg_size(data)
    else:
        return None
    return size if min(size) > 0 else None


def _big(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "big")


def _little(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "little")


def _webp_size(data: bytes) -> tuple[int, int]:
    if len(data) < 30:
        return 0, 0
    if data[12:16] == b"VP8X":
        return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
    if data[12:16] == b"VP8L":
        bits = _little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF


def _jpeg_size(data: bytes) -> tuple[int, int]:
    place = 2
    for _ in range(_JPEG_SEGMENTS_MAX):
        marker = data[place + 1 : place + 2]
        if data[place : place + 1] != b"\xff" or not marker:
            break
        if marker == b"\xff":  # padding
            place += 1
            continue
        # A start of frame; the three between them are tables.
        if 0xC0 <= marker[0] <= 0xCF and marker[0] not in (0xC4, 0xC8, 0xCC):
            return _big(data, place + 7, 2), _big(data, place + 5, 2)
        place += 2 + _big(data, place + 2, 2)
    return 0, 0

"""Image sizes from headers that were made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.context.image_size import image_size


def big(number: int, size: int = 2) -> bytes:
    return number.to_bytes(size, "big")


def little(number: int, size: int = 2) -> bytes:
    return number.to_bytes(size, "little")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + big(640, 4) + big(480, 4) + b"\x08\x02\0\0\0"
GIF = b"GIF89a" + little(640) + little(480) + b"\xf7\0\0"
APP, TABLE = b"\xff\xe1" + big(200) + b"x" * 198, b"\xff\xc4" + big(20) + b"t" * 18
FRAME = b"\xff\xc2" + big(17) + b"\x08" + big(480) + big(640) + b"\x03" + b"c" * 9
JPEG = b"\xff\xd8" + APP + b"\xff" + TABLE + FRAME
RIFF = b"RIFF" + little(9_000, 4) + b"WEBP"
LOSSY = b"VP8 " + little(99, 4) + b"\x30\x01\0\x9d\x01\x2a" + little(640 | 0x4000) + little(480)
LOSSLESS = b"VP8L" + little(99, 4) + b"\x2f" + little(639 | 479 << 14, 4) + b"\0" * 9
EXTENDED = b"VP8X" + little(10, 4) + b"\x10\0\0\0" + little(639, 3) + little(479, 3)
IMAGES = {
    "png": PNG,
    "gif": GIF,
    "jpeg": JPEG,
    "webp-lossy": RIFF + LOSSY,
    "webp-lossless": RIFF + LOSSLESS,
    "webp-extended": RIFF + EXTENDED,
}


@pytest.mark.parametrize("data", IMAGES.values(), ids=IMAGES)
def test_header_tells_the_size(data: bytes) -> None:
    """Width, then height, with whatever pixels follow."""
    assert image_size(data + b"\0" * 99) == (640, 480)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg/>",
        PNG[:20],
        GIF[:8],
        b"\xff\xd8",
        b"\xff\xd8" + APP,
        RIFF,
        RIFF + LOSSY[:8],
        RIFF + EXTENDED[:16],
    ],
)
def test_no_size_is_none(data: bytes) -> None:
    """A header that is cut, damaged or of another format has no size."""
    assert image_size(data) is None


def test_damaged_jpeg_ends_soon() -> None:
    """A size behind thousands of empty segments is not looked for."""
    assert image_size(b"\xff\xd8" + b"\xff\xe0\0\x02" * 5_000 + FRAME) is None


@given(st.sampled_from(sorted(IMAGES.values())), st.binary(max_size=40), st.integers(0, 40))
def test_any_bytes_are_taken(data: bytes, noise: bytes, place: int) -> None:
    """Whatever stands in a header, there is a size of two positive numbers or none."""
    size = image_size(data[:place] + noise + data[place + len(noise) :])
    assert size is None or min(size) > 0

"""Bytes to events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.errors import ProviderError
from turngate.providers.sse import Event, EventReader, NamedEvent

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
TEXTS = st.text(
    st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=12
).map(str.encode)


def feed_all(reader: EventReader, blocks: Iterable[bytes], events: list[Event]) -> None:
    for block in blocks:
        reader.feed(block, events)


def read(*blocks: bytes, **caps: int) -> list[Event]:
    reader, events = EventReader(**caps), list[Event]()
    feed_all(reader, blocks, events)
    reader.close(events)
    return events


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    """A stream with every kind of line, and its events by the letter of the standard."""
    body, events = b"", list[Event]()
    for _ in range(draw(st.integers(0, 6))):
        name = draw(st.sampled_from([b"", b"", b"error", b"message"]))
        data = draw(st.lists(TEXTS, max_size=3))
        lines = [draw(st.sampled_from([b"data:", b"data: "])) + value for value in data]
        # One space after the colon is not part of the value.
        data = [line[5:].removeprefix(b" ") for line in lines]
        if name:
            lines.insert(draw(st.integers(0, len(lines))), b"event: " + name)
        for _ in range(draw(st.integers(0, 2))):
            noise = draw(st.sampled_from([b": comment", b":", b"id: 7", b"retry: 10", b"x"]))
            lines.insert(draw(st.integers(0, len(lines))), noise)
        for line in [*lines, b""]:
            end = draw(LINE_ENDS)
            # An empty line that ends in LF, after a CR, would make one CRLF of the two.
            body += line + (b"\r\n" if not line and body.endswith(b"\r") else end)
        joined = b"\n".join(data)
        if name == b"error":
            events.append(NamedEvent("error", joined))
        elif joined:
            events.append(joined)
    return body, events


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[a:b] for a, b in pairwise(edges)]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_reader_gives_the_same_events_at_any_split(
    stream: tuple[bytes, list[Event]], places: list[int]
) -> None:
    """Whatever the line ends and the splits, the events are those of the whole."""
    body, events = stream
    assert read(body) == events
    assert read(*cut(body, places)) == events
    assert read(*(body[i : i + 1] for i in range(len(body)))) == events


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_reader_takes_every_line_end(end: bytes) -> None:
    """CR, LF and CRLF all end a line, at every split."""
    body = end.join([b"data: a", b"", b": c", b"event: error", b"data: b", b"data:c", b"", b""])
    for at in range(len(body) + 1):
        assert read(body[:at], body[at:]) == [b"a", NamedEvent("error", b"b\nc")]


def test_reader_takes_a_cut_crlf_as_one_line_end() -> None:
    """A CR at the end of a block and the LF after it do not make an empty line."""
    assert read(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_reader_does_not_end_lines_at_other_characters(text: str) -> None:
    """What `str.splitlines` takes for a line end stays in the data."""
    data = f"a{text}b".encode()
    assert read(b"data: " + data + b"\n\n") == [data]


def test_reader_drops_a_byte_order_mark_at_the_start_alone() -> None:
    """The mark goes even where it is cut; a later one is part of its line."""
    body = b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n"
    for at in range(len(body)):
        assert read(body[:at], body[at:]) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data\n\ndata:\n\ndata: \n\n", []),
        (b"data\ndata: x\n\n", [b"\nx"]),
        (b"data: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"datax: a\n\n", []),
        (b": data: a\n\n", []),
        (b"event: message\ndata: a\n\n", [b"a"]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [NamedEvent("x", b"a"), b"b"]),
        (b"event: error\n\n", [NamedEvent("error", b"")]),
        (b"data: a\nid: 1\n\n", [b"a"]),
        (b"data: a\n: c\n\n", [b"a"]),
        (b"data: a\n\ndata: \n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\n: c\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata: b\ndata: c\n\ndata: d\n\n", [b"a", b"b\nc", b"d"]),
        (b"data: a\r\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\rdata: b\n\ndata: c\n\n", [b"a\nb", b"c"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"", []),
    ],
)
def test_reader_reads_fields(body: bytes, events: list[Event]) -> None:
    """Each form of a field, whole and byte by byte."""
    assert read(body) == events
    assert read(*(body[i : i + 1] for i in range(len(body)))) == events


@pytest.mark.parametrize(
    ("body", "cap"),
    [
        (b"data: " + b"x" * 50 + b"\n\n", "line_bytes_max"),
        (b"x" * 50, "line_bytes_max"),
        (b": " + b"x" * 50 + b"\n", "line_bytes_max"),
        (b"data: " + b"x" * 25 + b"\n\n", "event_bytes_max"),
        (b"data: 1234567890\n" * 3 + b"\n", "event_bytes_max"),
        (b"data: \n" * 5 + b"\n", "event_lines_max"),
        (b"id: 1\n" * 5 + b"\n", "event_lines_max"),
    ],
)
def test_reader_names_the_cap_that_a_stream_is_over(body: bytes, cap: str) -> None:
    """Each cap holds at any split, and the events before it are given."""
    good = b"data: ok\n\n"
    for size in (1, 7, len(good) + len(body)):
        reader = EventReader(line_bytes_max=40, event_bytes_max=20, event_lines_max=4)
        events: list[Event] = []
        whole = good + body
        with pytest.raises(ProviderError) as caught:
            feed_all(reader, [whole[at : at + size] for at in range(0, len(whole), size)], events)
        assert (caught.value.code, caught.value.reason) == ("protocol", cap)
        assert events == [b"ok"]


def test_reader_does_not_count_the_fields_of_events_before() -> None:
    """The caps are of one event each, and comments are no fields."""
    body = (b"data: 12345\n: c\n: c\n: c\n: c\n\nid: 1\ndata: 1\ndata: 2\n\n") * 50
    assert len(read(body, event_lines_max=4, event_bytes_max=20, line_bytes_max=40)) == 100


def test_reader_is_linear_in_a_long_event() -> None:
    """An event of a megabyte in small blocks takes no more than a moment."""
    body = b"data: " + b"x" * 1_000_000 + b"\n\n"
    start = time.process_time()
    events = read(*(body[i : i + 50] for i in range(0, len(body), 50)), line_bytes_max=1 << 21)
    assert time.process_time() - start < 2
    assert len(events) == 1

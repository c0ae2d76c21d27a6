"""Server-sent events from bytes in any split, without I/O and in linear time.

`feed` takes blocks as they come, `close` the clean end of the body. A line ends with CR, LF or
CRLF, also where CRLF is cut over two blocks. An event is the plain `bytes` of its data, and only
one with a name of its own is a `NamedEvent`. An event whose data is empty is a heartbeat and is
not given, unless it has a name. Source: HTML Standard, "Server-sent events"; unlike there, an
event that the end of the body leaves without its blank line is given by `close`.
"""

from __future__ import annotations

from msgspec import Struct

from turngate.errors import ProviderError

__all__ = ["Event", "EventReader", "NamedEvent"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LF, _CR = 10, 13


class NamedEvent(Struct, frozen=True, gc=False):
    """An event with a name other than ``message``."""

    name: str
    data: bytes


Event = bytes | NamedEvent


class EventReader:
    """The events of one body.

    Errors: `ProviderError` with code ``protocol`` and the name of the cap as its reason; the
    events before it are in `out`, and the reader takes nothing more.
    """

    def __init__(
        self,
        *,
        line_bytes_max: int = 1 << 20,
        event_bytes_max: int = 1 << 20,
        event_lines_max: int = 10_000,
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._event_bytes_max = event_bytes_max
        self._event_lines_max = event_lines_max
        # Only a block that is larger than a cap can hold a line that is over it.
        self._checked_bytes = min(line_bytes_max, event_bytes_max)
        self._is_between = False  # the last block ended with an event's end
        self._at_start = True
        self._after_cr = False
        self._tail: list[bytes] = []  # the pieces of a line that has not ended
        self._tail_bytes = 0
        self._data: bytes | None = None  # the first data line of the event under way
        self._more: list[bytes] = []  # its further data lines
        self._name: str | None = None
        self._event_bytes = 0  # of the further data lines
        self._event_lines = 0
        self._is_plain = True  # nothing but one data line so far

    def feed(self, block: bytes, out: list[Event]) -> None:
        """Add to `out` the events that `block` completes."""
        # A read of a live stream is mostly one whole event.
        if (
            self._is_between
            and 8 < len(block) <= self._checked_bytes
            and block.find(_LF) == len(block) - 2
            and block[-1] == _LF
            and _CR not in block
            and block[:6] == b"data: "
        ):
            out.append(block[6:-2])
            return
        self._feed(block, out)
        self._is_between = (
            self._is_plain
            and self._data is None
            and not (self._tail or self._after_cr or self._at_start)
        )

    def _feed(self, block: bytes, out: list[Event]) -> None:
        if self._at_start:
            block = self._after_mark(block)
        if self._after_cr and block:
            self._after_cr = False
            if block[0] == _LF:
                block = block[1:]
        if self._is_plain and self._data is None and self._tail_bytes <= len(block):
            block = self._take_plain(block, out)
        if not block:
            return
        last = block[-1]
        lines = block.splitlines()  # of bytes: CR, LF and CRLF, and nothing else
        rest = b"" if last in (_LF, _CR) else lines.pop()
        self._after_cr = last == _CR
        is_large = len(block) + self._tail_bytes > self._checked_bytes
        if lines:
            if self._tail:
                self._tail.append(lines[0])
                lines[0] = b"".join(self._tail)
                self._tail.clear()
                self._tail_bytes = 0
            if is_large:
                self._take_checked(lines, out)
            else:
                self._take(lines, out)
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            self._check_line(self._tail_bytes)

    def _take_plain(self, block: bytes, out: list[Event]) -> bytes:
        """Take events of one ``data: `` line between LFs off the front; what is left of `block`.

        Nearly every stream is of nothing else, and to cut it at its separators is twice as fast as
        to look at each line. The line ends are counted to be sure that the cuts are right.
        """
        text = b"".join((*self._tail, block)) if self._tail else block
        if text[:6] != b"data: " or _CR in text or len(text) > self._checked_bytes:
            return block
        events = text[6:].split(b"\n\ndata: ")
        rest = b"data: " + events.pop()
        if text.count(b"\n") - rest.count(b"\n") != 2 * len(events):
            return block
        out.extend(events if all(events) else filter(None, events))
        if self._tail:
            self._tail.clear()
            self._tail_bytes = 0
        return rest

    def close(self, out: list[Event]) -> None:
        """Add to `out` the event that the end of the body left unterminated, if there is one."""
        if self._tail:
            line = b"".join(self._tail)
            self._tail.clear()
            self._take_checked([line], out)
        self._take([b""], out)

    def _after_mark(self, block: bytes) -> bytes:
        """`block` without a byte order mark at the start of the body, once that is decided."""
        start = b"".join((*self._tail, block))
        self._tail.clear()
        self._tail_bytes = 0
        if len(start) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(start):
            if start:
                self._tail.append(start)
                self._tail_bytes = len(start)
            return b""
        self._at_start = False
        return start.removeprefix(_BYTE_ORDER_MARK)

    def _take(self, lines: list[bytes], out: list[Event]) -> None:
        data = self._data
        for line in lines:
            if line:
                if data is None and line[:6] == b"data: ":
                    data = line[6:]
                else:
                    self._data = data
                    self._take_field(line)
                    data = self._data
            elif self._is_plain:
                if data:
                    out.append(data)
                data = None
            else:
                self._data = data
                self._finish_event(out)
                data = None
        self._data = data

    def _take_checked(self, lines: list[bytes], out: list[Event]) -> None:
        """`_take` where a line may be over the cap: the lines before it still count."""
        for line in lines:
            self._check_line(len(line))
            self._take([line], out)
            if self._data is not None and len(self._data) > self._event_bytes_max:
                self._over("event_bytes_max", self._event_bytes_max)

    def _take_field(self, line: bytes) -> None:
        """A line that is not the plain first data line: a comment, or a field."""
        if line[0] == 0x3A:  # a comment is bounded by the size of the body alone
            return
        if self._is_plain:
            self._is_plain = False
            self._event_lines = 0 if self._data is None else 1
        self._event_lines += 1
        if self._event_lines > self._event_lines_max:
            self._over("event_lines_max", self._event_lines_max)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if self._data is None:
                self._data = value
            else:
                self._more.append(value)
                self._event_bytes += len(value) + 1
            if self._event_bytes + len(self._data) > self._event_bytes_max:
                self._over("event_bytes_max", self._event_bytes_max)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")

    def _finish_event(self, out: list[Event]) -> None:
        data = self._data if self._data is not None else b""
        if self._more:
            data = b"\n".join((data, *self._more))
        if self._name and self._name != "message":
            out.append(NamedEvent(self._name, data))
        elif data:
            out.append(data)
        self._data = None
        self._more = []
        self._name = None
        self._event_bytes = 0
        self._is_plain = True

    def _check_line(self, size_bytes: int) -> None:
        if size_bytes > self._line_bytes_max:
            self._over("line_bytes_max", self._line_bytes_max)

    def _over(self, cap: str, limit: int) -> None:
        raise ProviderError(
            f"the model server's event stream is over {cap} ({limit})",
            code="protocol",
            reason=cap,
        )

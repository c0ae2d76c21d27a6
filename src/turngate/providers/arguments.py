"""The arguments of one call from deltas that are pieces, repetitions, or all of it so far.

Most servers send pieces. Some send with every delta everything so far, and some repeat the whole
at the end. A delta that begins with everything held may be a piece all the same (``{"a":`` and
``{"a":1}`` are pieces of ``{"a":{"a":1}}``), and what was passed on can't be taken back. So there
is more than one reading of the deltas:

    joined       all deltas, one after the other
    restarted    the deltas from the last one on that began with the whole of a reading before it

While there is no restart, each delta is passed on at once. From the first on, nothing is passed on
until the end, where the first that applies is taken: *joined* if it is JSON; the newest *restarted*
that is JSON, or the newest one if the last delta was a restart; else *joined*. No JSON text is ever
damaged by this, however it is cut into pieces, since for it *joined* is always JSON.

Some servers begin with ``{}`` as a placeholder. An empty object is therefore held back until the
end, and dropped if an object follows.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Arguments"]

_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)

# With each delta of a cumulative server a reading begins. Only the newest can still be the right
# one, or one of the few before it where a piece looked like a restart.
_RESTARTED_MAX = 3


class Arguments:
    """The arguments of one call: `pieces` holds all deltas, and `size` counts their characters.

    While it `is_flowing`, a delta shorter than `size` can only be a piece: whoever has one may add
    it to both and pass it on, without `take`. For most deltas of a stream that is all there is.
    """

    __slots__ = (
        "_braces",
        "_is_placeholder",
        "_is_restart",
        "_passed_size",
        "_restarts",
        "is_flowing",
        "pieces",
        "size",
    )

    def __init__(self) -> None:
        self.size = 0
        self.is_flowing = True
        self.pieces: list[str] = []
        self._passed_size = 0
        # Where in `pieces` each further reading begins, and after how many characters.
        self._restarts: list[tuple[int, int]] = []
        self._is_restart = False  # the last delta was one
        self._is_placeholder = False  # all that is held is an empty object, not passed on
        self._braces = _Braces()

    def take(self, delta: str) -> str:
        """Hold `delta`; the text to be passed on now (empty: none yet)."""
        if not delta:
            return ""
        if not self.pieces and delta.strip() == "{}":
            self._is_placeholder = True
            self.is_flowing = False
            self._add(delta)
            return ""
        before = self._end_placeholder(delta) if self._is_placeholder else ""
        self._is_restart = self.is_begun_again_by(delta)
        if self.is_flowing and not self._is_restart:
            self._add(delta)
            return before + delta
        if self.is_flowing:
            self.is_flowing = False
            self._passed_size = self.size
        if self._is_restart:
            self._restarts = [*self._restarts, (len(self.pieces), self.size)][-_RESTARTED_MAX:]
        self._add(delta)
        return before

    def close(self) -> str:
        """The text that is left to be passed on at the end (empty: none)."""
        joined = "".join(self.pieces)
        if self._is_placeholder:
            return joined
        if self.is_flowing:
            return ""
        return self._reading(joined)[self._passed_size :]

    @property
    def is_closed(self) -> bool:
        """Whether the deltas joined opened a brace, and have closed all that they opened.

        Each character is looked at once, however often this is asked.
        """
        return self._braces.is_closed_after(self.pieces)

    def is_begun_again_by(self, delta: str) -> bool:
        """Whether `delta` is, or may be, all that is held once more, and what follows it."""
        if self._is_placeholder:
            return delta.lstrip()[:1] == "{"
        return any(
            0 < self.size - offset <= len(delta) and delta.startswith(self._joined_from(place))
            for place, offset in ((0, 0), *self._restarts)
        )

    def _joined_from(self, place: int) -> str:
        return "".join(self.pieces[place:])

    def _add(self, delta: str) -> None:
        self.pieces.append(delta)
        self.size += len(delta)

    def _end_placeholder(self, delta: str) -> str:
        """The empty object that was held, if `delta` does not show that it was a placeholder."""
        self._is_placeholder = False
        self.is_flowing = True
        if delta.lstrip()[:1] != "{":
            return "".join(self.pieces)
        self.pieces.clear()
        self.size = 0
        self._braces = _Braces()
        return ""

    def _reading(self, joined: str) -> str:
        if _is_json(joined):
            return joined
        newest_first = [self._joined_from(place) for place, _ in reversed(self._restarts)]
        whole = next((text for text in newest_first if _is_json(text)), None)
        if whole is not None:
            return whole
        return newest_first[0] if self._is_restart else joined


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


class _Braces:
    """How deep a growing JSON text stands; it reads on from the piece where it stopped."""

    __slots__ = ("_depth", "_in_string", "_is_closed", "_is_escaped", "_pieces_read")

    def __init__(self) -> None:
        self._pieces_read = 0
        self._depth = 0
        self._in_string = False
        self._is_escaped = False  # a piece ended with a backslash
        self._is_closed = False

    def is_closed_after(self, pieces: list[str]) -> bool:
        for piece in pieces[self._pieces_read :]:
            self._read(piece)
        self._pieces_read = len(pieces)
        return self._is_closed

    def _read(self, piece: str) -> None:
        start = 1 if self._is_escaped else 0
        self._is_escaped = False
        for match in _MARK.finditer(piece, start):
            mark = match[0]
            if mark[0] == "\\":
                self._is_escaped = len(mark) == 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self._is_closed = self._depth <= 0

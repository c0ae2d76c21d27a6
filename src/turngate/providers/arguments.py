"""The arguments of one call from deltas that are pieces, repetitions, or all of it so far.

Most servers send pieces. Some send with every delta everything so far, and some repeat the whole at
the end. A delta that begins with everything held may be a piece all the same (``{"a":`` and
``{"a":1}`` are pieces of ``{"a":{"a":1}}``), and what was passed on can't be taken back. So two
readings are kept:

    joined       all deltas, one after the other
    restarted    what came since the last delta that began with everything before it

While they are equal, each delta is passed on at once. From the first delta on that makes them
differ, nothing is passed on until the end, where the first that applies is taken: *joined* if it is
JSON; *restarted* if it is JSON, or if the last delta was a restart; else *joined*. No JSON text is
ever damaged by this, however it is cut into pieces, since for it *joined* is always JSON.

Some servers begin with ``{}`` as a placeholder. An empty object is therefore held back until the
end, and dropped if an object follows.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Arguments"]

_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


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
        "_restarted",
        "_restarted_size",
        "is_flowing",
        "pieces",
        "size",
    )

    def __init__(self) -> None:
        self.size = 0
        self.is_flowing = True
        self.pieces: list[str] = []
        self._passed_size = 0
        self._restarted: list[str] = []  # of the second reading, once it differs
        self._restarted_size = 0
        self._is_restart = False
        self._is_placeholder = False  # all that is held is an empty object, not passed on
        self._braces = _Braces()

    def take(self, delta: str) -> str:
        """Hold `delta`; the text to be passed on now (empty: none yet)."""
        if not delta:
            return ""
        if not self.pieces and delta.strip() == "{}":
            self._hold_placeholder(delta)
            return ""
        before = self._end_placeholder(delta) if self._is_placeholder else ""
        if self.is_flowing and not _begins_again(delta, self.pieces, self.size):
            self.pieces.append(delta)
            self.size += len(delta)
            return before + delta
        if self.is_flowing:
            self.is_flowing = False
            self._passed_size = self.size
            self._restarted = list(self.pieces)
            self._restarted_size = self.size
        self._hold(delta)
        return before

    def _hold_placeholder(self, delta: str) -> None:
        self._is_placeholder = True
        self.is_flowing = False
        self.pieces.append(delta)
        self.size = len(delta)

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

    def _hold(self, delta: str) -> None:
        self._is_restart = _begins_again(delta, self._restarted, self._restarted_size)
        if self._is_restart:
            self._restarted = []
            self._restarted_size = 0
        self._restarted.append(delta)
        self._restarted_size += len(delta)
        self.pieces.append(delta)
        self.size += len(delta)

    def close(self) -> str:
        """The text that is left to be passed on at the end (empty: none)."""
        joined = "".join(self.pieces)
        if self._is_placeholder:
            return joined
        if self.is_flowing:
            return ""
        restarted = "".join(self._restarted)
        is_joined = _is_json(joined) or not (self._is_restart or _is_json(restarted))
        return (joined if is_joined else restarted)[self._passed_size :]

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
        if self.is_flowing:
            return _begins_again(delta, self.pieces, self.size)
        return _begins_again(delta, self._restarted, self._restarted_size)


def _begins_again(delta: str, held: list[str], held_size: int) -> bool:
    return 0 < held_size <= len(delta) and delta.startswith("".join(held))


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

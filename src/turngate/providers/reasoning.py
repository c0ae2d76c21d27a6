"""The reasoning of one answer; servers tell it under several names, and some under two at once."""

from __future__ import annotations

from typing import Any

from turngate.providers.chunks import Delta

__all__ = ["Reasoning"]

# The members of a detail that are text to read; anything else in it is for its provider alone.
_READABLE = ("text", "summary")


class Reasoning:
    """Reasoning as text, and the details that their provider wants back, whole."""

    def __init__(self) -> None:
        self._details: list[Any] = []
        self._pieces: dict[str, list[str]] = {}  # of the last detail's readable members
        self._is_plain = False  # one of the plain members has been seen

    def take(self, delta: Delta) -> str:
        """The reasoning text of one delta.

        Both plain members with the same text are one piece. The text of details counts only in a
        stream that has no plain member: the details of others repeat it.
        """
        details = delta.reasoning_details or ()
        text = _joined_once(delta.reasoning_content or "", delta.reasoning or "")
        if text:
            self._is_plain = True
        for detail in details:
            self._keep(detail)
            if not self._is_plain and isinstance(detail, dict):
                text += "".join(v for n in _READABLE if isinstance(v := detail.get(n), str))
        return text

    def kept(self) -> dict[str, Any]:
        """The member that goes back onto the wire with this answer; empty for none."""
        self._join_pieces()
        return {"reasoning_details": self._details} if self._details else {}

    def _keep(self, detail: Any) -> None:
        """Hold `detail`; a further piece of the last one of its kind and index is joined to it."""
        if not isinstance(detail, dict):
            self._join_pieces()
            self._details.append(detail)
            return
        last = self._details[-1] if self._details else None
        if not (isinstance(last, dict) and _is_piece_of(last, detail)):
            self._join_pieces()
            last = {}
            self._details.append(last)
        for name, value in detail.items():
            if name in _READABLE and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
                last[name] = ""  # its place; the pieces are joined once, at the end
            elif value is not None or name not in last:
                last[name] = value

    def _join_pieces(self) -> None:
        for name, pieces in self._pieces.items():
            self._details[-1][name] = "".join(pieces)
        self._pieces = {}


def _is_piece_of(last: dict[str, Any], detail: dict[str, Any]) -> bool:
    same = all(last.get(name) == detail.get(name) for name in ("type", "index"))
    return same and any(name in detail or name in last for name in _READABLE)


def _joined_once(first: str, second: str) -> str:
    """Two texts for one piece; one of them if they say the same."""
    if first.strip() == second.strip():
        return max(first, second, key=len)
    return first + second

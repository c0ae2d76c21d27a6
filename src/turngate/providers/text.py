"""Text that may hold half a character: surrogates, alone or cut over two deltas."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

__all__ = ["REPLACEMENT", "SplitPairs", "well_formed", "well_formed_tree"]

REPLACEMENT = "\ufffd"


def well_formed(text: str) -> str:
    """`text` with surrogate pairs joined to the character they mean, and lone ones as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def well_formed_tree(value: Any) -> Any:
    """A JSON value with every string in it, keys too, made well-formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {well_formed_tree(key): well_formed_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [well_formed_tree(item) for item in value]
    return value


class SplitPairs:
    """Surrogate pairs that are cut over two deltas of one channel.

    `halves` holds, by channel, the first halves whose second half is still to come.
    """

    def __init__(self) -> None:
        self.halves: dict[Hashable, str] = {}

    def whole(self, channel: Hashable, text: str) -> str:
        """`text` as it may be passed on: after the half held before, without a half at its end."""
        text = self.halves.pop(channel, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.halves[channel] = text[-1]
            text = text[:-1]
        return well_formed(text)

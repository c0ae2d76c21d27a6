"""The words in which servers say why an answer ended, and the four that we use."""

from __future__ import annotations

from collections.abc import Mapping

from turngate.results import FinishReason

__all__ = ["CUT_REASONS", "finish_reason", "stronger_finish"]

# With these the server itself says that more may be missing.
CUT_REASONS: tuple[FinishReason, ...] = ("length", "content_filter")

_WORDS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content-filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "prohibited_content": "content_filter",
    "recitation": "content_filter",
    "refusal": "content_filter",
}

# From the one that says least of what is missing to the one that says most.
_RANK: tuple[FinishReason, ...] = ("stop", "tool_calls", "length", "content_filter")

# Some servers send one of these with every chunk.
_NOTHING = frozenset(("", "null", "none"))


def finish_reason(word: str | None, *, has_calls: bool) -> FinishReason | None:
    """The reason that `word` means for an answer with or without calls (None: none was told).

    An unknown word is a natural end. Calls make ``stop`` to ``tool_calls`` and their absence
    ``tool_calls`` to ``stop``; ``length`` and ``content_filter`` stay, so that a caller sees that
    more may be missing.
    """
    word = word.strip().lower() if word is not None else ""
    if word in _NOTHING:
        return None
    reason = _WORDS.get(word, "stop")
    if reason == "stop" and has_calls:
        return "tool_calls"
    if reason == "tool_calls" and not has_calls:
        return "stop"
    return reason


def stronger_finish(held: str | None, word: str) -> str | None:
    """Of a finish word held and a further one, the one that stands.

    A server may repeat itself with a weaker word (``stop`` for the usage that follows), so a later
    word counts only if it says that more is missing.
    """
    said = finish_reason(word, has_calls=True)
    if said is None:
        return held
    before = finish_reason(held, has_calls=True)
    if before is None or _RANK.index(said) > _RANK.index(before):
        return word
    return held

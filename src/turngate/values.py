"""Small facts that stored turns and model messages share. Frozen, without behaviour."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

__all__ = ["FileRef", "ProviderData", "Target", "ToolSpec", "Usage", "file_line", "storable_text"]


_NO_BRACKETS = str.maketrans("[]", "()")


class Usage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Tokens of one or more model calls, as the provider reported them.

    `cached_tokens` are part of the input, `reasoning_tokens` part of the output.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class FileRef(Struct, frozen=True, kw_only=True, gc=False):
    """The pointer to a stored file; the bytes live in the file store.

    `name` is display text and names no place; `sha256` is lower-case hex of the bytes.
    """

    id: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str


class ProviderData(Struct, frozen=True, gc=False):
    """An opaque JSON text that one provider wants back; it is sent to that provider alone."""

    provider: str
    json: str


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A function that a model may call: `parameters` is its JSON schema (an object)."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Target(Struct, frozen=True, kw_only=True):
    """What one endpoint demands of the messages that it is sent; the defaults demand nothing.

    `call_id_pattern` is a regular expression that each call id has to match as a whole.
    `replay_reasoning` is the wire field in which an assistant's reasoning is sent back (None: it
    is not sent). `provider` is the name whose `ProviderData` may go out. `images`, `audio` and
    `files` say whether such bytes may go out with a user's message, and `text_with_files` that
    they need a text beside them.
    """

    provider: str | None = None
    call_id_pattern: str | None = None
    call_id_chars_max: int | None = None
    strict_alternation: bool = False
    user_first: bool = False
    replay_reasoning: Literal["reasoning_content", "reasoning"] | None = None
    system_role: str = "system"
    images: bool = True
    audio: bool = False
    files: bool = False
    text_with_files: bool = False


def file_line(ref: FileRef, note: str) -> str:
    """The one line that stands for a file in a message; its name can't forge another."""
    told = f"{ref.name}, {ref.media_type}, {ref.size_bytes} bytes, id {ref.id}"
    return f"[File {' '.join(told.split()).translate(_NO_BRACKETS)}; {note}]"


def storable_text(text: str) -> str:
    """`text` as every database keeps it: NUL and lone surrogates become U+FFFD.

    It is applied once, where text enters from outside: to prompts and to what a model said.
    """
    if type(text) is not str:
        text = str.__str__(text)  # a subclass's own text, as the plain one that is stored
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    # A lone surrogate has no UTF-8 form. Pairs of them (from JSON escapes) are one character.
    repaired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return repaired.replace("\0", "\ufffd")

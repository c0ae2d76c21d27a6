"""The files of a call's own turn, as what its model can take of them.

An image, audio or file goes as bytes where the endpoint takes such; of a text type the text is
shown; what can't be shown is named in a line, and a file that is gone is said to be gone. Bytes
are read for the one request and stand in no turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turngate.errors import FileNotFound, StoreError
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.files import Files
from turngate.media import AUDIO_FORMATS, is_text_type, text_of
from turngate.messages import InlineFile
from turngate.records import FileShown, Scope
from turngate.turns import Turn
from turngate.values import FileRef, Target, file_line

__all__ = ["file_refs", "inlined_files"]

Inlined = tuple[FileShown, InlineFile | str]

TEXT_CHARS_MAX = 200_000  # of one file


def file_refs(turn: Turn | None) -> list[FileRef]:
    """The pointers of a turn, in order."""
    return [part.file for part in turn.parts if part.type == "file"] if turn is not None else []


async def inlined_files(deps: GatewayDeps, scope: Scope, refs: Sequence[FileRef]) -> list[Inlined]:
    """How each file is shown, and as what. A file that can't be read is no error."""
    return [await _inlined(deps, scope, ref) for ref in refs]


async def _inlined(deps: GatewayDeps, scope: Scope, ref: FileRef) -> Inlined:
    shown = _way_of(deps.target, ref)
    if shown is None:
        return FileShown(ref.id, "line"), file_line(ref, "this model can't read it")
    try:
        data = await Files(deps, scope).get(ref.id)
    except (FileNotFound, StoreError):
        return FileShown(ref.id, "gone"), file_line(ref, "it is gone")
    if shown != "text":
        kind = ref.media_type.partition(";")[0].strip().lower()
        return FileShown(ref.id, shown), InlineFile(name=ref.name, media_type=kind, data=data)
    text = text_of(data, ref.media_type)
    if text is None:
        return FileShown(ref.id, "line"), file_line(ref, "its bytes are no text")
    left_out = len(text) - TEXT_CHARS_MAX
    if left_out > 0:
        text = f"{text[:TEXT_CHARS_MAX]}\n[{left_out} more characters were cut]"
    return FileShown(ref.id, "text"), f"{file_line(ref, 'its text follows')}\n{text}"


def _way_of(target: Target, ref: FileRef) -> Literal["image", "audio", "file", "text"] | None:
    kind = ref.media_type.partition(";")[0].strip().lower()
    if is_text_type(kind):
        return "text"
    if kind.startswith("image/"):
        return "image" if target.images else None
    if kind.startswith("audio/"):
        return "audio" if target.audio and kind in AUDIO_FORMATS else None
    return "file" if target.files else None

"""What one model call gave, whole."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turngate.messages import ToolCall
from turngate.values import ProviderData, Usage

__all__ = ["FinishReason", "ModelResult"]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class ModelResult(Struct, frozen=True, kw_only=True):
    """The fold of a model's parts.

    Shapes: `tool_calls` in order of appearance; `finish_reason` None where none was told; `usage`
    None where none was reported; `reasoning` None where there was none. `refused` says that `text`
    is a refusal.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    model: str | None
    finish_reason: FinishReason | None
    usage: Usage | None
    reasoning: str | None = None
    refused: bool = False
    provider_data: ProviderData | None = None

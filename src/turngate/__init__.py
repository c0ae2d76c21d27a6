"""Turngate: the conversation backend for LLM products.

Read `turngate.turns`, `turngate.messages`, `turngate.turn_builder`, `turngate.protocols` and
`turngate.gateway.gateway`, in this order, and you know the program.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turngate.bootstrap import create_gateway_deps, open_gateway
    from turngate.completion import CallOptions
    from turngate.context import RecentWindow, SummaryWindow
    from turngate.errors import TurngateError
    from turngate.gateway import (
        AIGateway,
        Answered,
        AwaitingReview,
        Blocked,
        Gateway,
        Held,
        Incomplete,
        ReasoningEvent,
        Settled,
        Tenant,
        TextEvent,
        Thread,
        ToolEnded,
        ToolStarted,
    )
    from turngate.history import paired_history, without_final_answer
    from turngate.messages import (
        AssistantMessage,
        InlineFile,
        Message,
        SystemMessage,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from turngate.records import RunLimits, ToolContext
    from turngate.results import ModelResult
    from turngate.settings import Settings
    from turngate.tools import tool
    from turngate.transcript import to_transcript
    from turngate.turn_builder import TurnBuilder
    from turngate.turns import (
        FilePart,
        ReasoningPart,
        TextPart,
        ToolCallPart,
        ToolResultPart,
        Turn,
    )
    from turngate.values import FileRef, ProviderData, Target, ToolSpec, Usage

__all__ = [
    "AIGateway",
    "Answered",
    "AssistantMessage",
    "AwaitingReview",
    "Blocked",
    "CallOptions",
    "FilePart",
    "FileRef",
    "Gateway",
    "Held",
    "Incomplete",
    "InlineFile",
    "Message",
    "ModelResult",
    "ProviderData",
    "ReasoningEvent",
    "ReasoningPart",
    "RecentWindow",
    "RunLimits",
    "Settings",
    "Settled",
    "SummaryWindow",
    "SystemMessage",
    "Target",
    "Tenant",
    "TextEvent",
    "TextPart",
    "Thread",
    "ToolCall",
    "ToolCallPart",
    "ToolContext",
    "ToolEnded",
    "ToolMessage",
    "ToolResultPart",
    "ToolSpec",
    "ToolStarted",
    "Turn",
    "TurnBuilder",
    "TurngateError",
    "Usage",
    "UserMessage",
    "create_gateway_deps",
    "open_gateway",
    "paired_history",
    "to_transcript",
    "tool",
    "without_final_answer",
]
__version__ = "0.1.0"

# Where each name comes from. It is imported when it is first asked for, so that a program pays for
# the parts that it uses.
_HOMES = {
    "bootstrap": "create_gateway_deps open_gateway",
    "completion": "CallOptions",
    "context": "RecentWindow SummaryWindow",
    "errors": "TurngateError",
    "gateway": "AIGateway Answered AwaitingReview Blocked Gateway Held Incomplete ReasoningEvent"
    " Settled Tenant TextEvent Thread ToolEnded ToolStarted",
    "history": "paired_history without_final_answer",
    "messages": "AssistantMessage InlineFile Message SystemMessage ToolCall ToolMessage"
    " UserMessage",
    "records": "RunLimits ToolContext",
    "results": "ModelResult",
    "settings": "Settings",
    "tools": "tool",
    "transcript": "to_transcript",
    "turn_builder": "TurnBuilder",
    "turns": "FilePart ReasoningPart TextPart ToolCallPart ToolResultPart Turn",
    "values": "FileRef ProviderData Target ToolSpec Usage",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = (
    "checks",
    "errors",
    "gateway",
    "protocols",
    "providers",
    "testing",
)  # also as `turngate.errors`


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

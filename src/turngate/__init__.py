"""Turngate: the conversation backend for LLM products.

Read `turngate.turns`, `turngate.messages`, `turngate.turn_builder`, `turngate.protocols` and
`turngate.gateway.gateway`, in this order, and you know the program.
"""

from turngate.bootstrap import create_gateway_deps, open_gateway
from turngate.completion import CallOptions
from turngate.context import RecentWindow
from turngate.errors import TurngateError
from turngate.gateway import (
    AIGateway,
    Answered,
    Gateway,
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
from turngate.values import FileRef, ProviderData, Target, Usage

__all__ = [
    "AIGateway",
    "Answered",
    "AssistantMessage",
    "CallOptions",
    "FilePart",
    "FileRef",
    "Gateway",
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

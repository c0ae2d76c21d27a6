"""Model providers: the seam, the Chat Completions provider, and the runner that drives any."""

from turngate.completion import (
    CallOptions,
    ChatRequest,
    CompletionPolicy,
    CompletionSession,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    StreamEnd,
)
from turngate.messages import Message as ProviderMessage
from turngate.protocols import ChatProvider
from turngate.providers.compatible import CompatibleModelProvider
from turngate.providers.config import ProviderConfig
from turngate.providers.runner import Invocation, ModelRunner
from turngate.providers.wire import chat_completion_messages

__all__ = [
    "CallOptions",
    "ChatProvider",
    "ChatRequest",
    "CompatibleModelProvider",
    "CompletionPolicy",
    "CompletionSession",
    "FunctionCallDelta",
    "Invocation",
    "ModelPart",
    "ModelRunner",
    "ProviderConfig",
    "ProviderMessage",
    "ReasoningDelta",
    "StreamEnd",
    "chat_completion_messages",
]

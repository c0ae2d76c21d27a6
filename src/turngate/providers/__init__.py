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
from turngate.providers.policies import (
    CompleteToolCalls,
    OutputLimits,
    RefusedFinishReasons,
    RequiredTools,
    Timing,
    TimingRecord,
    default_policies,
)
from turngate.providers.runner import Invocation, ModelRunner
from turngate.providers.schema_tools import SchemaToolsProvider
from turngate.providers.wire import chat_completion_messages

__all__ = [
    "CallOptions",
    "ChatProvider",
    "ChatRequest",
    "CompatibleModelProvider",
    "CompleteToolCalls",
    "CompletionPolicy",
    "CompletionSession",
    "FunctionCallDelta",
    "Invocation",
    "ModelPart",
    "ModelRunner",
    "OutputLimits",
    "ProviderConfig",
    "ProviderMessage",
    "ReasoningDelta",
    "RefusedFinishReasons",
    "RequiredTools",
    "SchemaToolsProvider",
    "StreamEnd",
    "Timing",
    "TimingRecord",
    "chat_completion_messages",
    "default_policies",
]

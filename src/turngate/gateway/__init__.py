"""The gateway and the steps that its calls are made of."""

from turngate.gateway.asks import execute_ask
from turngate.gateway.calls import NewCall, PreparedCall, begin_call, prepare_call
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import (
    Event,
    ReasoningEvent,
    Settled,
    TextEvent,
    ToolEnded,
    ToolStarted,
)
from turngate.gateway.gateway import AIGateway, Gateway
from turngate.gateway.outcomes import Answered, Incomplete, Outcome
from turngate.gateway.settle import settle_ask, settle_run
from turngate.gateway.tenants import Call, CallStream, Tenant, Thread

__all__ = [
    "AIGateway",
    "Answered",
    "Call",
    "CallStream",
    "Event",
    "Gateway",
    "GatewayDeps",
    "Incomplete",
    "NewCall",
    "Outcome",
    "PreparedCall",
    "ReasoningEvent",
    "Settled",
    "Tenant",
    "TextEvent",
    "Thread",
    "ToolEnded",
    "ToolStarted",
    "begin_call",
    "execute_ask",
    "prepare_call",
    "settle_ask",
    "settle_run",
]

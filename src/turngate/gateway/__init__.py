"""The gateway and the steps that its calls are made of."""

from turngate.gateway.asks import Ask, PreparedCall, begin_call, execute_ask, prepare_call
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import Event, ReasoningEvent, Settled, TextEvent
from turngate.gateway.gateway import AIGateway, CallStream, Gateway, Tenant, Thread
from turngate.gateway.outcomes import Answered, Incomplete, Outcome
from turngate.gateway.settle import settle_ask

__all__ = [
    "AIGateway",
    "Answered",
    "Ask",
    "CallStream",
    "Event",
    "Gateway",
    "GatewayDeps",
    "Incomplete",
    "Outcome",
    "PreparedCall",
    "ReasoningEvent",
    "Settled",
    "Tenant",
    "TextEvent",
    "Thread",
    "begin_call",
    "execute_ask",
    "prepare_call",
    "settle_ask",
]

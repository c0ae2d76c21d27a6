"""The gateway and the steps that its calls are made of."""

from turngate.gateway.calls import NewCall, PreparedCall, begin_call, prepare_call
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.events import (
    Event,
    Held,
    ReasoningEvent,
    Settled,
    TextEvent,
    ToolEnded,
    ToolStarted,
)
from turngate.gateway.files import Files
from turngate.gateway.gateway import AIGateway, Gateway
from turngate.gateway.held import settle_review_pause
from turngate.gateway.loop import execute_ask, execute_run
from turngate.gateway.outcomes import Answered, AwaitingReview, Blocked, Incomplete, Outcome
from turngate.gateway.reviews import Reviews, settle_review
from turngate.gateway.settle import settle_ask, settle_run
from turngate.gateway.tenants import Call, CallStream, Tenant, Thread

__all__ = [
    "AIGateway",
    "Answered",
    "AwaitingReview",
    "Blocked",
    "Call",
    "CallStream",
    "Event",
    "Files",
    "Gateway",
    "GatewayDeps",
    "Held",
    "Incomplete",
    "NewCall",
    "Outcome",
    "PreparedCall",
    "ReasoningEvent",
    "Reviews",
    "Settled",
    "Tenant",
    "TextEvent",
    "Thread",
    "ToolEnded",
    "ToolStarted",
    "begin_call",
    "execute_ask",
    "execute_run",
    "prepare_call",
    "settle_ask",
    "settle_review",
    "settle_review_pause",
    "settle_run",
]

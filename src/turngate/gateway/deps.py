"""What every step of a call works with: the seams, bound once for a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from turngate.protocols import ContextAssembler, LLMClient, ThreadStore, Tool, WorkingMemory
from turngate.settings import Settings
from turngate.turn_builder import TurnBuilder

__all__ = ["GatewayDeps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """The seams of one gateway.

    `owner` names this boot of the process in every claim; `live` holds the ids of the calls that
    this gateway is running, so that a claim of ours without a life behind it blocks nobody.
    `model` is the one that it was opened with (None: the server's own).
    `tools` is the registry, by name; a call's model sees those of its own `tools=` alone.
    """

    store: ThreadStore
    llm: LLMClient
    memory: WorkingMemory
    assembler: ContextAssembler
    turn_builder: TurnBuilder
    owner: str
    instructions: str | None = None
    model: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    replay_reasoning: bool = False
    settings: Settings = Settings()
    live: set[str] = field(default_factory=set)

"""What every step of a call works with: the seams, bound once for a gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from turngate.protocols import (
    ContextAssembler,
    FactRecall,
    FileStore,
    InputCheck,
    LLMClient,
    OutputCheck,
    Remember,
    ReviewRule,
    ThreadStore,
    TokenCounter,
    Tool,
    WorkingMemory,
)
from turngate.records import Scope
from turngate.settings import Settings
from turngate.turn_builder import TurnBuilder
from turngate.values import Target

__all__ = ["GatewayDeps"]


class LiveIds:
    """The ids of calls that this process drives, each as often as it was added.

    A call that goes on after a review may be added before the part that paused is discarded.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, call_id: str) -> None:
        self._counts[call_id] += 1

    def discard(self, call_id: str) -> None:
        self._counts[call_id] -= 1
        if self._counts[call_id] <= 0:
            del self._counts[call_id]

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._counts


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """The seams of one gateway.

    `owner` names this boot of the process in every claim; `live` holds the ids of the calls that
    this gateway is running, so that a claim of ours without a life behind it blocks nobody.
    `model` is the one that it was opened with (None: the server's own).
    `tools` is the registry, by name; a call's model sees those of its own `tools=` alone.
    The checks judge every call, in their order, and `rules` say what a person decides on;
    `held_tools` are the own tools of local runs that wait for that. `learned_context` is what
    refusals have taught of each model's context, in tokens. `remember` None: nothing is
    remembered; `helper` answers the helper calls (None: `llm` does), `recall` chooses facts.
    Without `files` no file can be put.
    """

    store: ThreadStore
    llm: LLMClient
    memory: WorkingMemory
    assembler: ContextAssembler
    turn_builder: TurnBuilder
    counter: TokenCounter
    owner: str
    instructions: str | None = None
    model: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    input_checks: tuple[InputCheck, ...] = ()
    output_checks: tuple[OutputCheck, ...] = ()
    rules: tuple[ReviewRule, ...] = ()
    files: FileStore | None = None
    target: Target = field(default_factory=Target)
    settings: Settings = Settings()
    live: LiveIds = field(default_factory=LiveIds)
    held_tools: dict[str, Mapping[str, Tool]] = field(default_factory=dict)
    learned_context: dict[str | None, int] = field(default_factory=dict)
    remember: Remember | None = None
    helper: LLMClient | None = None
    recall: FactRecall | None = None
    fact_locks: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )

    def fact_lock(self, scope: Scope, user: str | None) -> asyncio.Lock:
        """Held while the facts of a user are read and written, so that none comes twice."""
        lock = self.fact_locks.get((scope.tenant, user))
        if lock is None:
            lock = self.fact_locks[scope.tenant, user] = asyncio.Lock()
        return lock

    def context_tokens(self, model: str | None) -> int | None:
        """How many tokens a request to `model` may have with its answer (None: not known)."""
        known = (self.settings.context_tokens, self.learned_context.get(model))
        return min((tokens for tokens in known if tokens is not None), default=None)

    @property
    def replay_reasoning(self) -> bool:
        """Whether the reasoning of earlier answers goes back to the endpoint."""
        return self.target.replay_reasoning is not None

    @property
    def check_names(self) -> tuple[str, ...]:
        """The names of all checks, each once."""
        names = [check.name for check in self.input_checks]
        return tuple(dict.fromkeys([*names, *(check.name for check in self.output_checks)]))

    @property
    def holds_text(self) -> bool:
        """Whether nothing that a model says may be seen before it was judged."""
        return bool(self.output_checks) or any(rule.answers or rule.when for rule in self.rules)

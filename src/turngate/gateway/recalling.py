"""What a call is reminded of: chosen when it is prepared, and found again by name afterwards."""

from __future__ import annotations

import contextlib

from turngate.errors import UnknownFact
from turngate.gateway.deps import GatewayDeps
from turngate.protocols import Recalled, Window
from turngate.records import CallRecord, FactRecord, RecalledIds, Scope

__all__ = ["recalled_again", "recalled_for", "recalled_ids"]


async def recalled_for(
    deps: GatewayDeps,
    scope: Scope,
    thread: str,
    *,
    user: str | None,
    prompt: str | None,
    window: Window,
    model: str | None = None,
) -> Recalled | None:
    """What a new call is reminded of, from reads alone; None where there is nothing.

    The summary is shown once something has fallen out of the window.
    """
    remember = deps.remember
    if remember is None:
        return None
    summary = None
    if remember.summary and window.first > 0:
        summary = await deps.store.summary(scope, thread)
    facts: tuple[FactRecord, ...] = ()
    if remember.facts and user is not None and deps.recall is not None:
        facts = tuple(
            await deps.recall.recall(
                scope, user=user, prompt=prompt or "", tokens=remember.fact_tokens, model=model
            )
        )
        # Whatever recall is plugged in: a fact that is another user's, or not active, is not shown.
        facts = tuple(fact for fact in facts if fact.user == user and fact.state == "active")
    return Recalled(summary=summary, facts=facts) if summary is not None or facts else None


def recalled_ids(recalled: Recalled | None) -> RecalledIds | None:
    """The names under which `recalled` is found again."""
    if recalled is None:
        return None
    return RecalledIds(
        summary=recalled.summary.version if recalled.summary is not None else None,
        facts=tuple(fact.id for fact in recalled.facts),
    )


async def recalled_again(deps: GatewayDeps, scope: Scope, call: CallRecord) -> Recalled | None:
    """What `call` was reminded of, as it was then, but for what was forgotten since."""
    ids = call.recalled
    if ids is None:
        return None
    summary = None
    if ids.summary is not None:
        summary = await deps.store.summary(scope, call.thread, version=ids.summary)
    facts = []
    for fact in ids.facts:
        with contextlib.suppress(UnknownFact):
            facts.append(await deps.store.fact(scope, fact))
    return Recalled(summary=summary, facts=tuple(facts))

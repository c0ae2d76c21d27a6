"""Reviewers of the kill loop: they decide on what waits, at once and beside each other."""

from __future__ import annotations

import json
import random

from tests.harness.world import Log
from turngate import identity
from turngate.errors import ReviewDecided, ThreadBusy, UnknownCall
from turngate.gateway.journal import guard_of
from turngate.gateway.tenants import Tenant
from turngate.protocols import ThreadStore
from turngate.records import Change, ReviewRecord

__all__ = ["Reviewer"]


class Reviewer:
    """Makes decisions at random, and notes those that it was told are made."""

    def __init__(
        self, tenant: Tenant, store: ThreadStore, log: Log, chance: random.Random, name: str
    ) -> None:
        self._tenant = tenant
        self._store = store
        self._log = log
        self._chance = chance
        self._name = name
        self._number = 0

    async def decide_any(self, *, last: bool = False) -> int:
        """Decide on one of the open reviews, if there is one; gives how many there were.

        With `last` no decision leaves the call waiting for anything.
        """
        reviews = (await self._tenant.reviews.list(limit=20)).reviews
        if reviews:
            await self.decide(self._chance.choice(reviews), last=last)
        return len(reviews)

    async def decide(self, review: ReviewRecord, *, last: bool = False) -> None:
        self._number += 1
        by = f"{self._name}d{self._number}"
        before = await self._store.call(self._tenant._scope, review.call)
        try:
            decided = await self._made(review, by, last=last)
        except ReviewDecided as first:
            if first.state == "open" or first.decided_by == by:
                self._log.note(fault=f"I9: {first} was told to {by}")
            return
        except ThreadBusy:
            return
        self._log.note(decided=decided.id, state=decided.state, by=decided.decided_by)
        if before.state == "review":
            await self._write_late(
                Change(
                    thread=before.thread,
                    at=identity.now(),
                    guard=guard_of(before),
                    update=before,
                    title=(marker := identity.new_id("stale")),
                ),
                marker,
            )

    async def _made(self, review: ReviewRecord, by: str, *, last: bool) -> ReviewRecord:
        reviews = self._tenant.reviews
        way = self._chance.choice(("approve", "approve", "edit", "reject", "retry"))
        # An ask has no journal from which another gateway could go on with it.
        resume = last or not review.call.startswith("run") or self._chance.random() < 0.8
        if way == "edit":
            changed = {"text": f"said by {by}"}
            if review.tool_call is not None:
                slot = json.loads(review.tool_call.arguments)["slot"]
                changed = {"arguments": json.dumps({"slot": f"{slot}~{by}"})}
            return await reviews.edit(review.id, by=by, resume=resume, **changed)
        if way == "reject" or (way == "retry" and review.tool_call is not None):
            return await reviews.reject(review.id, by=by, why="no", resume=resume)
        if way == "retry" and not last:
            return await reviews.retry(review.id, f"ask {by}", by=by, resume=resume)
        return await reviews.approve(review.id, by=by, resume=resume)

    async def _write_late(self, change: Change, marker: str) -> None:
        """Write under the epoch that the decision has made an old one."""
        self._log.note(stale=marker)
        try:
            await self._store.commit(self._tenant._scope, change)
        except UnknownCall:
            return
        self._log.note(fault=f"I5: a writer from before a decision on {change.guard} was heard")

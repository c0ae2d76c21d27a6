"""What waits for a person: the pause of a call, and what an approval lets be done.

    settle_review_pause   the turns so far and the open reviews, in one commit; the call waits

An approval is bound to the exact bytes of its call: the run, the place, the tool as it was
defined, and the arguments. It is used up by the `tool_start` that follows it, and by nothing else:
a run that dies before that may still use it. After it an `unsafe` call is not run again, and what
is run again runs with the bytes that were approved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from turngate import identity
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal
from turngate.gateway.judging import Judged, rule_for_calls
from turngate.gateway.outcomes import Outcome
from turngate.gateway.settle import End, commit_end, summed
from turngate.gateway.toolbox import OUTCOME_UNKNOWN, error_result
from turngate.messages import AssistantMessage, ToolCall, ToolMessage
from turngate.protocols import ReviewRule, Tool
from turngate.records import CallRecord, LedgerRow, ReviewRecord, Scope
from turngate.results import ModelResult
from turngate.values import storable_text

__all__ = [
    "Hold",
    "approved_call",
    "decisions",
    "held_calls",
    "is_used",
    "let_run",
    "needs_decision",
    "settle_review_pause",
    "with_own_ids",
]

OTHER_BYTES = "Not run: this call is not the one that was approved."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A tool call that a person decides on: by which rule, and the hash of its bytes."""

    place: int
    call: ToolCall
    rule: ReviewRule
    reason: str
    call_hash: str


async def settle_review_pause(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    journal: Journal,
    *,
    judged: Judged | None = None,
    holds: Sequence[Hold] = (),
) -> Outcome:
    """The pause of a call: what is finished is in the thread, what is held in its reviews alone.

    `judged` is the held answer, or `holds` are tool calls, whose turn is in the thread by then,
    without results. The usage of a held answer waits with it.
    """
    ledger: list[LedgerRow] = []
    spent = call.spent
    reviews = [_review_of_call(call, journal, hold) for hold in holds]
    if judged is not None:
        reviews.append(_review_of_answer(call, journal, judged))
        ledger = journal.rows(judged.result, outcome="review", by=judged.by, rule=judged.rule)
        spent = summed(spent, judged.result.usage)
    end = End(
        state="review",
        turns=journal.turns_with({}, since=call.placed),
        ledger=ledger,
        usage=summed(spent, journal.usage),
        events=journal.taken_events(),
        reviews=reviews,
        placed=journal.next_number,
        spent=spent,
    )
    return await commit_end(deps, scope, call, end)


def _review_of_answer(call: CallRecord, journal: Journal, judged: Judged) -> ReviewRecord:
    held_by, reason = judged.by or judged.terms.name, judged.rule or ""
    review = _opened(call, journal, judged.terms, held_by=held_by, reason=reason)
    return msgspec.structs.replace(review, answer=judged.result)


def _review_of_call(call: CallRecord, journal: Journal, hold: Hold) -> ReviewRecord:
    review = _opened(call, journal, hold.rule, held_by=hold.rule.name, reason=hold.reason)
    return msgspec.structs.replace(
        review, tool_call=hold.call, place=hold.place, call_hash=hold.call_hash
    )


def _opened(
    call: CallRecord, journal: Journal, rule: ReviewRule, *, held_by: str, reason: str
) -> ReviewRecord:
    now = identity.now()
    deadline = timedelta(seconds=rule.deadline_s) if rule.deadline_s is not None else None
    return ReviewRecord(
        id=identity.new_id("review"),
        call=call.id,
        thread=call.thread,
        held_by=held_by,
        reason=storable_text(reason),
        created_at=now,
        step=journal.next_number,
        expires_at=now + deadline if deadline is not None else None,
        default=rule.default,
    )


# ── tool calls ───────────────────────────────────────────────────────────────────────────────


async def held_calls(
    deps: GatewayDeps,
    call: CallRecord,
    journal: Journal,
    reviews: Sequence[ReviewRecord],
    answer: AssistantMessage,
    tools: Mapping[str, Tool],
    *,
    taken: int,
) -> list[Hold]:
    """The open calls of the last model step that a person has to decide on before they are run,
    among the first `taken`.

    Once a step was decided on, only a call of unknown outcome is held again: an `unsafe` one that
    a rule names, and that was begun by a process which died.
    """
    if not deps.rules:
        return []
    started = journal.started_places
    decided = decisions(journal, reviews)
    was_held = any(review.step > journal.last_model_step for review in reviews)
    for_all = None
    if not was_held and not started:
        for_all = await rule_for_calls(deps, call, answer.text, answer.tool_calls)
    holds: list[Hold] = []
    for place in journal.open_places:
        made = answer.tool_calls[place]
        tool = tools.get(made.name)
        rule = next((rule for rule in deps.rules if made.name in rule.tools), for_all)
        if rule is None or tool is None or place >= taken:
            continue
        if place in decided and not is_used(journal, decided[place]):
            continue
        if place in started:
            if tool.effect != "unsafe":
                continue
            made = let_run(journal, reviews, place, made)
            reason = "outcome_unknown"
        elif was_held:
            continue
        else:
            reason = "tool"
        call_hash = hash_of_call(call, journal, place, made, tool)
        holds.append(Hold(place=place, call=made, rule=rule, reason=reason, call_hash=call_hash))
    return holds


def decisions(journal: Journal, reviews: Sequence[ReviewRecord]) -> dict[int, ReviewRecord]:
    """The decisions on calls of the last model step, by place.

    `reviews` come newest first, and of two for one place the newer counts.
    """
    return {
        review.place: review
        for review in reversed(reviews)
        if review.place is not None and review.step > journal.last_model_step
    }


def let_run(
    journal: Journal,
    reviews: Sequence[ReviewRecord],
    place: int,
    made: ToolCall,
    *,
    before: ReviewRecord | None = None,
) -> ToolCall:
    """The call at `place` as the reviews of it have let it be run, those before `before` alone."""
    for review in reversed(reviews):
        if before is not None and review.id == before.id:
            break
        is_of_call = review.place == place and review.step > journal.last_model_step
        if is_of_call and review.arguments is not None:
            made = msgspec.structs.replace(made, arguments=review.arguments)
    return made


async def with_own_ids(
    deps: GatewayDeps, scope: Scope, call: CallRecord, result: ModelResult
) -> ModelResult:
    """`result`, whose calls share no id with a call that waits for a review on its thread.

    Some servers number their calls anew in each answer. Of two open calls of one id a late result
    could be read as the other's.
    """
    if not deps.rules:
        return result
    page = await deps.store.reviews(scope, thread=call.thread, state="open", limit=1000)
    taken = {review.tool_call.id for review in page.reviews if review.tool_call is not None}
    if not taken.intersection(made.id for made in result.tool_calls):
        return result
    calls = tuple(
        msgspec.structs.replace(made, id=identity.new_id("call")) if made.id in taken else made
        for made in result.tool_calls
    )
    return msgspec.structs.replace(result, tool_calls=calls)


def needs_decision(
    deps: GatewayDeps, journal: Journal, reviews: Sequence[ReviewRecord], made: ToolCall
) -> bool:
    """Whether `made`, of which no decision is known, must not be run without one."""
    if any(made.name in rule.tools for rule in deps.rules):
        return True
    by_function = {rule.name for rule in deps.rules if rule.when is not None}
    return any(
        review.held_by in by_function and review.step > journal.last_model_step
        for review in reviews
    )


def is_used(journal: Journal, review: ReviewRecord) -> bool:
    """Whether the call of `review` was begun since: an approval lets it be begun once.

    What may be run again after a crash is then run with the same bytes.
    """
    return review.place in journal.begun_since(review.step)


def approved_call(
    call: CallRecord,
    journal: Journal,
    place: int,
    made: ToolCall,
    tool: Tool | None,
    decided: ReviewRecord,
) -> ToolCall | ToolMessage:
    """The call that `decided` lets be run, or the result that says why it is not run."""
    if decided.state == "rejected" and decided.reason == "outcome_unknown":
        return error_result(made, OUTCOME_UNKNOWN)
    if decided.state not in ("approved", "edited"):
        why = f": {decided.why}" if decided.why else "."
        return error_result(made, f"Not run: a reviewer rejected this call{why}")
    if tool is None or hash_of_call(call, journal, place, made, tool) != decided.call_hash:
        return error_result(made, OTHER_BYTES)
    if decided.arguments is None:
        return made
    return msgspec.structs.replace(made, arguments=decided.arguments)


def hash_of_call(call: CallRecord, journal: Journal, place: int, made: ToolCall, tool: Tool) -> str:
    """What an approval is bound to: run, step, place, the tool as defined, exact arguments."""
    bound = (call.id, journal.last_model_step, place, made.name, tool.schema_hash, made.arguments)
    return hashlib.sha256(json.dumps(bound).encode()).hexdigest()

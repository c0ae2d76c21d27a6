"""A person's decisions: `tenant.reviews`, and what each of them does.

    an answer      approve, edit   the answer is settled: `settle_review`
                   reject          the call ends as blocked
                   retry           one more model step, told the reviewer's note
    a tool call    approve, edit   once no review of the call is open, its run goes on
                   reject          the same; the model is told that the call was not run

A decision and its effect are one commit, guarded by the call's epoch, which each decision raises:
of two at once one is made, and the other finds it made. A run that goes on belongs to the process
that decided, from that very commit on; if it dies there, the next start takes the run over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from turngate import identity
from turngate.errors import InvalidValue, ReviewDecided, StoreError, ThreadBusy, UnknownCall
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.held import with_own_ids
from turngate.gateway.journal import Journal, guard_of
from turngate.gateway.live import LiveCall, stored_events
from turngate.gateway.loop import Run
from turngate.gateway.outcomes import Outcome
from turngate.gateway.receipts import told_text
from turngate.gateway.recovery import from_journal, missing_here
from turngate.gateway.settle import (
    NOBODY,
    End,
    carried,
    commit_end,
    open_reviews,
    settle_lost,
    summed,
)
from turngate.history import is_json_object
from turngate.protocols import Tool
from turngate.records import (
    CallRecord,
    Change,
    EventBatch,
    ReviewPage,
    ReviewRecord,
    ReviewState,
    Scope,
    Step,
)
from turngate.results import ModelResult
from turngate.values import storable_text

if TYPE_CHECKING:
    from turngate.gateway.gateway import Gateway

__all__ = ["Decided", "Decision", "Reviews", "decide", "decided_before", "settle_review"]

_STATES: dict[str, ReviewState] = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "retry": "retried",
}
_TRIES = 20
_READS = 5
_READ_AGAIN_S = 0.2
BY_DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided: `by` whom, and `why`. `text` or `arguments` are an edit's."""

    action: Literal["approve", "edit", "reject", "retry"]
    by: str
    why: str | None = None
    text: str | None = None
    arguments: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The review as it was decided, and the run that goes on by it (None: none does here).

    `late`: its deadline had decided it, and what was asked for came after that.
    """

    review: ReviewRecord
    run: Run | None = None
    late: bool = False


class Reviews:
    """The reviews of one tenant: what waits for a person, and what was decided.

    Every decision names who made it (`by`), and may say `why`. Errors, of each: `UnknownReview`;
    `ReviewDecided` where another decision, or the deadline, was first, with that one's maker;
    `ThreadBusy` where a run would go on beside another active call; `InvalidValue`. A run that
    goes on is awaited with ``tenant.call(review.call).outcome()``; with `resume` False it is left
    for the next gateway that takes it over.
    """

    def __init__(self, gateway: Gateway, scope: Scope) -> None:
        self._gateway = gateway
        self._scope = scope

    async def list(
        self,
        *,
        call: str | None = None,
        thread: str | None = None,
        state: ReviewState | None = "open",
        after: str | None = None,
        limit: int = 50,
    ) -> ReviewPage:
        """Reviews in `state` (None: any), newest first, of a call or a thread if one is given."""
        if state is not None and state not in get_args(ReviewState):
            raise InvalidValue(f"a review's state is one of {', '.join(get_args(ReviewState))}")
        store = self._gateway.deps.store
        page = await store.reviews(
            self._scope, call=call, thread=thread, state=state, after=after, limit=limit
        )
        reviews = [await self._judged(review) for review in page.reviews]
        kept = tuple(review for review in reviews if state is None or review.state == state)
        return ReviewPage(reviews=kept, next=page.next)

    async def get(self, review_id: str) -> ReviewRecord:
        """The review; if its deadline is over, its default is done first."""
        return await self._judged(await self._gateway.deps.store.review(self._scope, review_id))

    async def approve(
        self, review_id: str, *, by: str, why: str | None = None, resume: bool = True
    ) -> ReviewRecord:
        """Let the answer be given, or the call be run, as it was proposed."""
        decision = Decision(action="approve", by=by, why=why)
        return await self._gateway.decide(self._scope, review_id, decision, resume=resume)

    async def edit(
        self,
        review_id: str,
        *,
        by: str,
        text: str | None = None,
        arguments: str | None = None,
        why: str | None = None,
        resume: bool = True,
    ) -> ReviewRecord:
        """Let it pass with another `text` (of an answer) or other `arguments` (JSON, of a call).

        The original stays in the review, and there alone.
        """
        decision = Decision(action="edit", by=by, why=why, text=text, arguments=arguments)
        return await self._gateway.decide(self._scope, review_id, decision, resume=resume)

    async def reject(
        self, review_id: str, *, by: str, why: str | None = None, resume: bool = True
    ) -> ReviewRecord:
        """Refuse it. An answer's call ends as blocked; of a tool call the model is told `why`."""
        decision = Decision(action="reject", by=by, why=why)
        return await self._gateway.decide(self._scope, review_id, decision, resume=resume)

    async def retry(
        self, review_id: str, note: str, *, by: str, why: str | None = None, resume: bool = True
    ) -> ReviewRecord:
        """Have the model answer once more, told `note`; this proposal stays in the review."""
        decision = Decision(action="retry", by=by, why=why, note=note)
        return await self._gateway.decide(self._scope, review_id, decision, resume=resume)

    async def _judged(self, review: ReviewRecord) -> ReviewRecord:
        if review.state != "open" or not _is_overdue(review):
            return review
        # Where nothing can be written now, it is judged at the next reading.
        with contextlib.suppress(StoreError, ThreadBusy):
            return await self._gateway.decide(self._scope, review.id, None)
        return review


async def decide(
    deps: GatewayDeps,
    scope: Scope,
    review_id: str,
    decision: Decision | None,
    *,
    resume: bool = True,
) -> Decided:
    """What `decision` made of the review, once it is durable; None only judges its deadline.

    With `resume` False a run that may go on is left for the next gateway that takes it over.
    Errors: `UnknownReview`; `ReviewDecided`, which names the decision that was first (where it was
    the deadline's, made here, the result is `late` instead); `ThreadBusy` where the run would go
    on beside another call; `InvalidValue`.
    """
    for _ in range(_TRIES):
        # The call before the review: a decision in between raises the epoch that guards this one.
        review = await deps.store.review(scope, review_id)
        call = await deps.store.call(scope, review.call)
        review = await deps.store.review(scope, review_id)
        made = decision
        if review.state == "open" and _is_overdue(review):
            made = Decision(action=review.default, by=BY_DEADLINE)
        if made is None:
            return Decided(review)
        if review.state != "open":
            raise decided_before(review)
        if call.state != "review":
            continue  # it was decided, or the call cancelled, since it was read
        try:
            decided = await _made(deps, scope, call, _with(review, made), resume=resume)
        except UnknownCall:
            continue  # another decision on the same call was first
        late = made is not decision and decision is not None
        return replace(decided, late=late)
    raise decided_before(await deps.store.review(scope, review_id))


def _is_overdue(review: ReviewRecord) -> bool:
    """Whether the deadline of an open review is over."""
    return review.expires_at is not None and review.expires_at < identity.now()


async def settle_review(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, decided: ReviewRecord
) -> Outcome:
    """The end of a call by the decision on its answer, in one commit with that decision.

    The answer that was approved, or the edit in its place, comes at the thread's present end, with
    the usage that waited. A rejected one is blocked: its text stays in the review.
    """
    assert decided.answer is not None, "of a tool call nothing is settled by a decision alone"
    steps = await deps.store.steps(scope, call.id)
    past = stored_events(await deps.store.events(scope, call.id))
    live = LiveCall(call.id, past)
    journal = Journal(deps, scope, call, live, steps)
    usage = summed(call.spent, journal.usage)
    if decided.state == "rejected":
        end = End(state="blocked", reason="rejected", by="review", usage=usage, reviews=[decided])
        return await commit_end(deps, scope, call, end)
    answer = msgspec.structs.replace(_as_decided(decided), usage=usage)
    if call.kind == "run":
        answer = msgspec.structs.replace(answer, tool_calls=())
    live.show(answer)
    end = End(
        state="answered",
        turns=deps.turn_builder.build_assistant_turns(result=answer),
        text=answer.text,
        usage=usage,
        events=journal.taken_events(),
        reviews=[decided],
    )
    return await commit_end(deps, scope, call, end)


def _with(review: ReviewRecord, decision: Decision) -> ReviewRecord:
    """`review` as decided. Errors: `InvalidValue` for what does not fit the kind of review."""
    said = (decision.by, decision.why, decision.text, decision.arguments, decision.note)
    if not all(each is None or type(each) is str for each in said):
        raise InvalidValue("what a decision says is text")
    if not (decision.by or "").strip():
        raise InvalidValue("a decision names who made it: by=")
    is_answer = review.answer is not None
    text, arguments = decision.text, decision.arguments
    if decision.action == "edit" and (text if is_answer else arguments) is None:
        raise InvalidValue(f"an edit of this review needs {'text' if is_answer else 'arguments'}")
    if (arguments if is_answer else text) is not None:
        raise InvalidValue("an answer is edited by its text, and a tool call by its arguments")
    if arguments is not None and not is_json_object(arguments):
        raise InvalidValue("the arguments of a tool call are a JSON object")
    if decision.action == "retry" and not is_answer:
        raise InvalidValue("a tool call is not tried again; reject it, and why is told the model")
    return msgspec.structs.replace(
        review,
        state=_STATES[decision.action],
        decided_by=_said(decision.by),
        decided_at=identity.now(),
        why=_said(decision.why),
        text=_said(text),
        arguments=_said(arguments),
        note=_said(decision.note),
    )


def _said(text: str | None) -> str | None:
    return storable_text(text) if text is not None else None


def decided_before(review: ReviewRecord) -> ReviewDecided:
    return ReviewDecided(
        review.id,
        state=review.state,
        decided_by=review.decided_by,
        decided_at=review.decided_at,
    )


# ── what a decision does ─────────────────────────────────────────────────────────────────────


async def _made(
    deps: GatewayDeps, scope: Scope, call: CallRecord, decided: ReviewRecord, *, resume: bool
) -> Decided:
    """`decided`, committed together with what it does to its call."""
    answer = decided.answer
    is_step = call.kind == "run" and answer is not None and answer.tool_calls
    goes_on = answer is None or decided.state == "retried"
    if not goes_on and (decided.state == "rejected" or not is_step):
        await settle_review(deps, scope, call, decided=decided)
        return Decided(decided)
    others = [review for review in await open_reviews(deps, scope, call) if review.id != decided.id]
    if others:  # the run waits for them too
        await _commit(deps, scope, call, carried(call), decided)
        return Decided(decided)
    own_tools = deps.held_tools.get(call.id)
    if call.local and own_tools is None:  # nobody has its tools any more
        await settle_lost(deps, scope, call, decided=decided)
        return Decided(decided)
    return await _resumed(deps, scope, call, decided, own_tools, resume=resume, is_step=not goes_on)


async def _resumed(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    decided: ReviewRecord,
    own_tools: Mapping[str, Tool] | None,
    *,
    resume: bool,
    is_step: bool,
) -> Decided:
    """The run that goes on by `decided`: from this commit on it is ours, or waits for another.

    `is_step`: what was approved is a step with tool calls, which is journalled by that commit.
    """
    waiting_for = missing_here(deps, call) if not call.local else ()
    if not resume:
        waiting_for = (*waiting_for, "a gateway that goes on with it")
    resumed = msgspec.structs.replace(
        carried(call),
        state="active",
        owner=NOBODY if waiting_for else deps.owner,
        resumed_at=identity.now(),
        waiting_for=waiting_for,
        note=_note(decided, call),
    )
    if not waiting_for:
        deps.live.add(call.id)
    try:
        step = await _approved_step(deps, scope, call, decided) if is_step else None
        await _commit(deps, scope, call, resumed, decided, step)
        if waiting_for:
            return Decided(decided)
        run = await _read_again(deps, scope, call.id, own_tools)
    except BaseException:
        if not waiting_for:
            deps.live.discard(call.id)
        raise
    if run is None:
        deps.live.discard(call.id)
    deps.held_tools.pop(call.id, None)
    return Decided(decided, run)


async def _read_again(
    deps: GatewayDeps, scope: Scope, call_id: str, own_tools: Mapping[str, Tool] | None
) -> Run | None:
    """The run that a decision has let go on; a read that fails for a moment must not lose it."""
    for tries_left in range(_READS, 0, -1):
        try:
            owned = await deps.store.call(scope, call_id)
            return await from_journal(deps, scope, owned, own_tools=own_tools)
        except StoreError:
            if tries_left == 1:
                raise
            await asyncio.sleep(_READ_AGAIN_S)
    raise AssertionError("the last try returns or raises")


async def _approved_step(
    deps: GatewayDeps, scope: Scope, call: CallRecord, decided: ReviewRecord
) -> tuple[Step, tuple[EventBatch, ...]]:
    """The step that was held whole and has passed, and the events that show it.

    Its usage was counted when it was held.
    """
    answer = await with_own_ids(deps, scope, call, _as_decided(decided))
    live = LiveCall(call.id, stored_events(await deps.store.events(scope, call.id)))
    live.show(answer)
    (turn,) = deps.turn_builder.build_assistant_turns(result=answer)
    step = Step(number=decided.step, kind="model", turn=turn, events=live.count)
    return step, live.taken_events() if call.streamed else ()


def _as_decided(decided: ReviewRecord) -> ModelResult:
    """The answer as it was approved or edited, without its usage."""
    assert decided.answer is not None
    answer = msgspec.structs.replace(decided.answer, usage=None)
    if decided.text is None:
        return answer
    return msgspec.structs.replace(
        answer, text=decided.text, reasoning=None, provider_data=None, refused=False
    )


def _note(decided: ReviewRecord, call: CallRecord) -> str | None:
    if decided.state != "retried" or not decided.note:
        return call.note
    return f"A reviewer did not accept your last answer, and says: {decided.note}"


async def _commit(
    deps: GatewayDeps,
    scope: Scope,
    call: CallRecord,
    update: CallRecord,
    decided: ReviewRecord,
    step: tuple[Step, tuple[EventBatch, ...]] | None = None,
) -> None:
    """One commit: the decision, the call under a new epoch, and a step that has passed."""
    told = await told_text(deps, scope, update) if update.note else None
    change = Change(
        thread=call.thread,
        at=identity.now(),
        guard=guard_of(call),
        update=msgspec.structs.replace(update, epoch=call.epoch + 1),
        steps=(step[0],) if step is not None else (),
        events=step[1] if step is not None else (),
        reviews=(decided,),
        texts=(told,) if told else (),
    )
    await deps.store.commit(scope, change)

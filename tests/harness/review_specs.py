"""The meetings of two actors around a review: who meets, and what may come of it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.harness.failpoints import StoreProxy
from tests.harness.interleavings import Env, Spec
from tests.harness.rows import Rows, text_of
from turngate import Gateway
from turngate.errors import RequestError, ReviewDecided, StoreError, ThreadBusy, UnknownCall
from turngate.gateway import Answered, AwaitingReview, Blocked, Incomplete
from turngate.gateway.deps import LiveIds
from turngate.records import Change, ReviewRecord, Scope

__all__ = ["REVIEW_SPECS"]

Results = Sequence[Any]
Actor = Callable[[Env], Awaitable[Any]]
NAMES = ("pay", "book", "look", "safe")


# ── what was before ──────────────────────────────────────────────────────────────────────────


def held(prompt: str, *, run: bool = False) -> Callable[[Env], Awaitable[None]]:
    """A call that waits for a review, or for several."""

    async def setup(env: Env) -> None:
        thread = env.thread()
        outcome = await (thread.run(prompt, tools=NAMES) if run else thread.ask(prompt))
        assert isinstance(outcome, AwaitingReview), outcome
        env.notes.update(call=outcome.call_id, reviews=outcome.reviews)

    return setup


held_answer = held("say h-hold")
overdue_answer = held("say h-late")
held_call = held("tools h pay", run=True)
held_calls = held("tools h pay,book", run=True)


async def held_call_of_a_mortal(env: Env) -> None:
    """The decision is for a process that will die, or close."""
    await held_call(env)
    store = Mortal(env.deps[0].store)
    deps = dataclasses.replace(env.deps[0], store=store, owner="boot-mortal", live=LiveIds())
    env.notes.update(mortal=Gateway(deps), store=store)


class Mortal(StoreProxy):
    """The store of a process that dies: then nothing of it comes to the disk any more."""

    is_dead = False

    async def commit(self, scope: Scope, change: Change) -> int:
        if self.is_dead:
            raise StoreError("this process is dead")
        return await super().commit(scope, change)


# ── actors ───────────────────────────────────────────────────────────────────────────────────


def decide(action: str, by: str, *, of: int = 0, process: int = 0, **what: Any) -> Actor:
    async def actor(env: Env) -> Any:
        reviews = env.tenant(process).reviews
        decided = await getattr(reviews, action)(env.notes["reviews"][of], by=by, **what)
        env.log.note(decided=decided.id, state=decided.state, by=decided.decided_by)
        return decided

    return actor


# The second one decides elsewhere: a gateway makes one decision at a time.
approve = decide("approve", "ann")
approve_here = decide("approve", "bob")
approve_too = decide("approve", "bob", process=1)
approve_second = decide("approve", "bob", of=1, process=1)
reject = decide("reject", "bob", why="no", process=1)
retry = decide("retry", "bob", note="again", process=1)
edit_answer = decide("edit", "ann", text="as edited")
edit_call = decide("edit", "ann", arguments='{"slot": "h.0.0~1"}')


async def sweep(env: Env) -> Any:
    return await env.gateways[1].sweep_reviews()


async def cancel(env: Env) -> Any:
    await env.deps[1].store.active_call(env.scope, "t")  # a gate before it begins
    return await env.tenant().call(env.notes["call"]).cancel()


async def outcome(env: Env) -> Any:
    await env.deps[1].store.active_call(env.scope, "t")
    return await env.tenant().call(env.notes["call"]).outcome()


async def ask_held(env: Env) -> Any:
    return await env.thread().ask("say h-hold")


async def cancel_active(env: Env) -> Any:
    call = await env.deps[0].store.active_call(env.scope, "t")
    return None if call is None else await env.tenant().call(call.id).cancel()


async def ask_refused(env: Env) -> Any:
    return await env.thread().ask("say b")


async def ask_beside(env: Env) -> Any:
    return await env.thread().ask("say b", pending="go_on")


async def approve_as_mortal(env: Env) -> Any:
    gateway: Gateway = env.notes["mortal"]
    try:
        decided = await gateway.tenant(env.tenant_id).reviews.approve(
            env.notes["reviews"][0], by="ann"
        )
    except StoreError as error:
        return error
    env.log.note(decided=decided.id, state=decided.state, by=decided.decided_by)
    return decided


async def die(env: Env) -> Any:
    """The mortal is gone from one moment to the next, and another process comes."""
    await env.deps[1].store.review(env.scope, env.notes["reviews"][0])  # a gate: it dies here
    env.notes["store"].is_dead = True
    return await env.gateways[1].recover()


async def close(env: Env) -> Any:
    await env.deps[1].store.review(env.scope, env.notes["reviews"][0])
    await env.notes["mortal"].aclose()
    return env.notes["mortal"]


async def all_seen(env: Env) -> None:
    """What the mortal's tasks came to is nobody's to raise; what it left goes on elsewhere."""
    await _ended(env.notes["mortal"])
    await env.gateways[1].recover()
    await _ended(env.gateways[1])


async def _ended(gateway: Gateway) -> None:
    running = list(gateway._running)
    for task in (await asyncio.wait(running))[0] if running else ():
        if not task.cancelled():
            task.exception()


# ── what may come of it ──────────────────────────────────────────────────────────────────────


def one_decision(env: Env, results: Results, rows: Rows) -> list[str]:
    """One decides, and the other is told of that; what the first decided is done."""
    made = [result for result in results if isinstance(result, ReviewRecord)]
    lost = [result for result in results if isinstance(result, ReviewDecided)]
    if len(made) != 1 or len(lost) != 1:
        return [f"I9: {len(made)} decided, {len(lost)} were told so: {results}"]
    if (lost[0].state, lost[0].decided_by) != (made[0].state, made[0].decided_by):
        return [f"I9: {made[0].decided_by} decided, and the other was told {lost[0]}"]
    return went_on(env, made, rows)


def one_of_two(env: Env, results: Results, rows: Rows) -> list[str]:
    """As `one_decision`, while the call waits for its other review."""
    call = rows.calls[env.notes["call"]]
    faults = [] if call["state"] == "review" else [f"I9: a call in review is {call['state']}"]
    made = [result for result in results if isinstance(result, ReviewRecord)]
    lost = [result for result in results if isinstance(result, ReviewDecided)]
    if len(made) != 1 or len(lost) != 1 or lost[0].decided_by != made[0].decided_by:
        faults.append(f"I9: {len(made)} decided, {len(lost)} were told so: {results}")
    return faults


def both_decide(env: Env, results: Results, rows: Rows) -> list[str]:
    made = [result for result in results if isinstance(result, ReviewRecord)]
    faults = [] if len(made) == 2 else [f"I9: of two reviews were decided: {results}"]
    return faults + went_on(env, results, rows)


def went_on(env: Env, results: Results, rows: Rows) -> list[str]:
    """The call ended, or waits for what came after a retry."""
    call = rows.calls[env.notes["call"]]
    retried = any(review["state"] == "retried" for review in rows.reviews.values())
    right = ("review",) if retried else ("answered", "blocked")
    if call["state"] not in right:
        return [f"I9: after its decision the call is {call['state']} ({call.get('reason')})"]
    return []


def by_deadline(env: Env, results: Results, rows: Rows) -> list[str]:
    """The deadline was over: its default is done, whoever comes to see it."""
    decided, swept = results
    faults = [] if isinstance(swept, int) else [f"R: the sweep gave {swept!r}"]
    if not isinstance(decided, ReviewDecided) or decided.decided_by != "deadline":
        faults.append(f"I9: the deadline was over, and a decision got {decided!r}")
    return faults + went_on(env, results, rows)


def decided_or_cancelled(env: Env, results: Results, rows: Rows) -> list[str]:
    """The decision stands, or the cancellation; a call that went on may be cancelled then."""
    decided, cancelled = results
    call = rows.calls[env.notes["call"]]
    faults = []
    if not isinstance(decided, ReviewRecord | ReviewDecided):
        faults.append(f"R: the decision got {decided!r}")
    if isinstance(decided, ReviewDecided) and decided.state != "cancelled":
        faults.append(f"R: the decision got {decided!r}")
    if not isinstance(cancelled, Answered | Incomplete | Blocked):
        faults.append(f"R: the cancellation got {cancelled!r}")
    elif (cancelled.text, call["state"]) != (call["text"], _state_of(cancelled)):
        faults.append(f"R: the cancellation got {cancelled!r}, and the call is {call['state']}")
    return faults + none_open(env, results, rows)


def decided_and_told(env: Env, results: Results, rows: Rows) -> list[str]:
    """Who waits for the outcome does not get in the way of the decision."""
    decided, told = results
    faults = [] if isinstance(decided, ReviewRecord) else [f"R: the decision got {decided!r}"]
    if not isinstance(told, Answered | AwaitingReview):
        faults.append(f"R: the outcome was {told!r}")
    return faults + went_on(env, results, rows)


def _state_of(told: Any) -> str:
    return "answered" if isinstance(told, Answered) else str(type(told).__name__).lower()


def none_open(env: Env, results: Results, rows: Rows) -> list[str]:
    still = [review["id"] for review in rows.reviews.values() if review["state"] == "open"]
    return [f"I9: reviews {still} stayed open"] if still else []


def cancelled_or_answered_later(env: Env, results: Results, rows: Rows) -> list[str]:
    """A cancellation ends the call that it found, also where that came to wait meanwhile."""
    told, cancelled = results
    if cancelled is None:  # it had not begun yet, or waited by then
        return [] if isinstance(told, AwaitingReview) else [f"R: {told!r}"]
    if isinstance(cancelled, AwaitingReview):
        return [f"R: a cancelled call waits for a review: {cancelled!r}"]
    return none_open(env, results, rows)


def refused_or_after(env: Env, results: Results, rows: Rows) -> list[str]:
    """A new call finds the thread busy, or comes once the waiting one has ended."""
    decided, asked = results
    faults = went_on(env, results, rows)
    if not isinstance(decided, ReviewRecord):
        faults.append(f"R: the decision got {decided!r}")
    if not isinstance(asked, Answered | ThreadBusy):
        faults.append(f"R: the new call got {asked!r}")
    return faults


def one_decision_and_refused(env: Env, results: Results, rows: Rows) -> list[str]:
    """A third one, who asks, takes the call that goes on for no abandoned one."""
    faults = one_decision(env, results[:2], rows)
    if not isinstance(results[2], Answered | ThreadBusy):
        faults.append(f"R: the new call got {results[2]!r}")
    return faults


def beside(env: Env, results: Results, rows: Rows) -> list[str]:
    """One of the two may be refused as busy, and then nothing of it was done."""
    decided, asked = results
    review = rows.reviews[env.notes["reviews"][0]]
    if isinstance(decided, ThreadBusy):
        faults = [] if review["state"] == "open" else [f"I9: refused, and {review['state']}"]
        return faults if isinstance(asked, Answered) else [*faults, f"R: both refused: {asked!r}"]
    faults = went_on(env, results, rows)
    if not isinstance(decided, ReviewRecord):
        faults.append(f"R: the decision got {decided!r}")
    if not isinstance(asked, Answered | ThreadBusy):
        faults.append(f"R: the new call got {asked!r}")
    return faults


def held_or_busy(env: Env, results: Results, rows: Rows) -> list[str]:
    """Of a call that is held and a new one, at least one began; no turn of the held answer."""
    held_one, asked = results
    faults = []
    if not isinstance(held_one, AwaitingReview | ThreadBusy):
        faults.append(f"R: the held call got {held_one!r}")
    if not isinstance(asked, Answered | ThreadBusy):
        faults.append(f"R: the new call got {asked!r}")
    if isinstance(held_one, ThreadBusy) and isinstance(asked, ThreadBusy):
        faults.append("R: both were refused")
    texts = [text_of(turn) for _, turn in rows.turns.get("t", []) if turn["role"] == "assistant"]
    if any("-hold" in text for text in texts):
        faults.append(f"I11: the held answer is in the thread: {texts}")
    return faults


def whole_after_death(env: Env, results: Results, rows: Rows) -> list[str]:
    """The decision was made whole, and the call goes on by it; or nothing of it was."""
    decided, recovered = results
    review = rows.reviews[env.notes["reviews"][0]]
    call = rows.calls[env.notes["call"]]
    faults = []
    if not isinstance(recovered, int | UnknownCall):  # its last commit was on its way as it died
        faults.append(f"R: the recovery gave {recovered!r}")
    if not isinstance(decided, ReviewRecord | StoreError):
        faults.append(f"R: the decision got {decided!r}")
    asked_again = any(r["reason"] == "outcome_unknown" for r in rows.reviews.values())
    if review["state"] == "open" and call["state"] != "review":
        faults.append(f"I9: undecided, and the call is {call['state']}")
    if review["state"] == "approved" and call["state"] == "review" and not asked_again:
        faults.append("I9: approved, and the call still waits")
    if call["state"] not in ("answered", "review", "active"):
        faults.append(f"R: the call is {call['state']}: {call.get('reason')}")
    if call["state"] == "active" and call["owner"] == "boot-mortal" and recovered == 1:
        faults.append("I2: the call is a dead one's still")
    return faults


def whole_after_close(env: Env, results: Results, rows: Rows) -> list[str]:
    """The decision was refused or made; what it let go on has ended, or goes on elsewhere."""
    decided, _ = results
    review = rows.reviews[env.notes["reviews"][0]]
    call = rows.calls[env.notes["call"]]
    made = isinstance(decided, ReviewRecord)
    faults = []
    if not made and not isinstance(decided, RequestError):
        faults.append(f"R: the decision got {decided!r}")
    if made != (review["state"] == "approved"):
        faults.append(f"I9: the decision got {decided!r}, and is {review['state']}")
    asked_again = any(r["reason"] == "outcome_unknown" for r in rows.reviews.values())
    if call["state"] == "active" or (made and call["state"] == "review" and not asked_again):
        faults.append(f"I2: the gateway is closed, and the call {call['state']}")
    return faults


FINE = ("review", "call", "commit")
COARSE = ("review", "commit")
POLLED: dict[str, Any] = {"gates": ("active_call", "steps", "commit"), "polls_s": 0.006}


def _spec(
    name: str,
    actors: Sequence[Actor],
    check: Callable[[Env, Results, Rows], list[str]],
    setup: Callable[[Env], Awaitable[None]] | None,
    gates: tuple[str, ...] = COARSE,
    **more: Any,
) -> Spec:
    return Spec(name, actors, check, setup, gates, mode="texts", **more)


REVIEW_SPECS = (
    _spec("approve, approve", (approve, approve_too), one_decision, held_answer, FINE),
    _spec("approve, reject", (approve, reject), one_decision, held_answer, FINE),
    _spec("edit, reject", (edit_answer, reject), one_decision, held_answer, FINE),
    _spec("approve, retry", (approve, retry), one_decision, held_answer),
    _spec("approve, approve a call", (approve, approve_too), one_decision, held_call, ("commit",)),
    _spec("approve, reject a call", (approve, reject), one_decision, held_call, ("commit",)),
    _spec("approve, reject one of two", (approve, reject), one_of_two, held_calls, FINE),
    _spec("edit, approve of two", (edit_call, approve_second), both_decide, held_calls),
    _spec("approve, expire", (approve, sweep), by_deadline, overdue_answer),
    _spec("approve, cancel", (approve, cancel), decided_or_cancelled, held_answer),
    _spec("approve a call, ask", (approve, ask_refused), refused_or_after, held_call),
    _spec(
        "approve, approve a call, ask",
        (approve, approve_here, ask_refused),
        one_decision_and_refused,
        held_call,
        ("commit",),
    ),
    _spec("approve, ask beside", (approve, ask_beside), beside, held_answer),
    _spec("approve a call, ask beside", (approve, ask_beside), beside, held_call),
    _spec("pause, ask", (ask_held, ask_refused), held_or_busy, None, ("commit", "model")),
    _spec("pause, ask beside", (ask_held, ask_beside), held_or_busy, None, ("commit", "model")),
    _spec(
        "pause, cancel",
        (ask_held, cancel_active),
        cancelled_or_answered_later,
        None,
        ("active_call", "call", "commit", "model"),
    ),
    _spec("approve a call, cancel", (approve, cancel), decided_or_cancelled, held_call, **POLLED),
    _spec("approve a call, outcome", (approve, outcome), decided_and_told, held_call, **POLLED),
    _spec(
        "approve a call, die",
        (approve_as_mortal, die),
        whole_after_death,
        held_call_of_a_mortal,
        ("review", "commit", "lost_calls"),
        after=all_seen,
    ),
    _spec(
        "approve a call, close",
        (approve_as_mortal, close),
        whole_after_close,
        held_call_of_a_mortal,
        after=all_seen,
    ),
)

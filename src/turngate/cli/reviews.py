"""``reviews``: what waits for a person, beside a running process, and what a person decides.

No decision asks a model here or runs a tool: a call that goes on by one is left for the program
that has its tools, and the check or rule that held it, which this program never has.
"""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from rich.console import Console

from turngate.cli import deciding
from turngate.cli.chat import is_interactive
from turngate.cli.failures import WrongUsage, show_error
from turngate.cli.runs import run_shape, state_text, with_reviews
from turngate.cli.show import joined, local_time, page_shape, print_page, read, write
from turngate.cli.terminal import json_shape, out_console, print_json, print_list, revealed, say
from turngate.errors import RequestError, ReviewDecided
from turngate.gateway import Gateway
from turngate.gateway.reviews import Decision
from turngate.records import CallRecord, ReviewRecord, ReviewState, Scope, TurnPage

_AROUND = 4
_PAGE = 200
# What an export names otherwise than a record does.
_EXPORTED = {"state": "decision", "decided_by": "by", "decided_at": "at"}
_LEFT_OUT = {"step", "place", "expires_at", "default", "answer", "tool_call"}


def run_list(*, db: str, tenant: str, state: str, as_json: bool, **page_of: Any) -> None:
    page_of["state"] = deciding.checked_state(state, get_args(ReviewState))
    page = read(db, lambda gateway: gateway.tenant(tenant).reviews.list(**page_of))
    if as_json:
        print_json({"reviews": [_shape(review) for review in page.reviews], "next": page.next})
        return
    head = ("review", "thread", "proposed", "held by", "since", "state")
    kind = "" if state == "any" else f"{state} "
    empty = f"No {kind}reviews of tenant {tenant!r} here."
    print_list(out_console(), head, map(_row, page.reviews), empty=empty, after=page.next)


def run_show(*, db: str, tenant: str, review: str, as_json: bool) -> None:
    shown, call, around = read(db, partial(_loaded, tenant=tenant, review_id=review))
    if as_json:
        print_json({"review": _shape(shown), "call": run_shape(call), **page_shape(around)})
    else:
        _print_review(out_console(), shown, call, around)


def run_decision(
    *,
    db: str,
    tenant: str,
    review: str,
    by: str | None,
    as_json: bool,
    editor: bool = False,
    **decided: Any,
) -> None:
    shown = read(db, lambda gateway: gateway.tenant(tenant).reviews.get(review))
    decision = Decision(by=deciding.named(by, what="a decision"), **decided)
    if editor:
        decision = deciding.with_edit(decision, shown, deciding.edited_in_editor(shown))
    made, call = _decided(db, tenant, review, decision)
    if as_json:
        print_json({"review": _shape(made), "call": run_shape(call)})
    else:
        _tell(out_console(), made, call)


def run_decide(*, db: str, tenant: str, thread: str | None, by: str | None) -> None:
    if not is_interactive():
        raise WrongUsage("decide needs a terminal", hint="Elsewhere: turngate reviews approve …")
    console = out_console()
    waiting = read(db, lambda gateway: _all_reviews(gateway, tenant, "open", thread))
    if not waiting:
        say(console, ("Nothing waits for a person here.", "dim"))
        return
    by = deciding.named(by, what="a decision")
    for number, review in enumerate(waiting, 1):
        say(console, (f"\n{number} of {len(waiting)}", "dim"))
        shown, call, around = read(db, partial(_loaded, tenant=tenant, review_id=review.id))
        _print_review(console, shown, call, around)
        try:
            _decide_at_terminal(console, shown, db=db, tenant=tenant, by=by)
        except EOFError:
            return


def _decide_at_terminal(
    console: Console, review: ReviewRecord, *, db: str, tenant: str, by: str
) -> None:
    """Ask until the review is decided or passed over. Errors: `EOFError` for leaving."""
    while review.state == "open":
        decision = deciding.asked_decision(review, by=by)
        if decision is None:
            return
        try:
            review, call = _decided(db, tenant, review.id, decision)
            _tell(console, review, call)
        except RequestError as error:
            show_error(error.code, str(error), error.hint, as_json=False)
            if isinstance(error, ReviewDecided):
                return


def run_export(*, db: str, tenant: str, as_json: bool) -> None:
    for review in read(db, lambda gateway: _all_reviews(gateway, tenant, None)):
        if review.state != "open":
            shape = _shape(review)
            kept = {_EXPORTED.get(name, name): shape[name] for name in shape.keys() - _LEFT_OUT}
            print_json({**kept, "proposal": shape["answer"] or shape["tool_call"]})


# ── reading and writing ──────────────────────────────────────────────────────────────────────


async def _all_reviews(
    gateway: Gateway, tenant: str, state: ReviewState | None, thread: str | None = None
) -> list[ReviewRecord]:
    """All of them, oldest first."""
    reviews: list[ReviewRecord] = []
    after = None
    while True:
        page = await gateway.tenant(tenant).reviews.list(
            thread=thread, state=state, limit=_PAGE, after=after
        )
        reviews += page.reviews
        after = page.next
        if after is None:
            return reviews[::-1]


async def _loaded(
    gateway: Gateway, tenant: str, review_id: str
) -> tuple[ReviewRecord, CallRecord, TurnPage]:
    """A review, its call, and the last turns that the thread had when it was opened."""
    handle = gateway.tenant(tenant)
    review = await handle.reviews.get(review_id)
    call = await handle.call(review.call).record()
    around = TurnPage(first=0, turns=(), length=0)
    for span in reversed(call.spans):  # one for each pause of the call that added turns
        end = span.first + span.count
        around = await handle.thread(review.thread).turns(before=end, limit=_AROUND)
        if around.turns and around.turns[-1].created_at <= review.created_at:
            break
    return review, await with_reviews(gateway, tenant, call), around


def _decided(
    db: str, tenant: str, review: str, decision: Decision
) -> tuple[ReviewRecord, CallRecord]:
    """The review as decided, and its call then, which does not go on in this process."""

    async def decided(gateway: Gateway) -> tuple[ReviewRecord, CallRecord]:
        made = await gateway.decide(Scope(tenant), review, decision, resume=False)
        call = await gateway.tenant(tenant).call(made.call).record()
        return made, await with_reviews(gateway, tenant, call)

    return write(db, decided)


# ── how it is shown ──────────────────────────────────────────────────────────────────────────


def _shape(review: ReviewRecord) -> dict[str, Any]:
    return {"kind": review.kind, **json_shape(review)}


def _row(review: ReviewRecord) -> tuple[str, ...]:
    proposed = review.tool_call.name if review.tool_call is not None else "answer"
    told = proposed, review.held_by, local_time(review.created_at), deciding.state_and_by(review)
    return review.id, review.thread, *map(revealed, told)


def _print_review(
    console: Console, review: ReviewRecord, call: CallRecord, around: TurnPage
) -> None:
    """The review's facts, the conversation before it, the proposal, and the decision."""
    of = f"{'answer' if review.answer is not None else 'tool call'} of {call.kind} {call.id}"
    facts = f"   {of}, thread {review.thread}"
    say(console, ("review ", "dim"), (review.id, "bold"), f"   {review.state}", (facts, "dim"))
    until = None
    if review.state == "open" and review.expires_at is not None:
        does = {"approve": "approved", "reject": "rejected"}[review.default]
        until = f"if undecided by {local_time(review.expires_at)}: {does}"
    held = revealed(f"held by {review.held_by} ({review.reason})")
    since = f"since {local_time(review.created_at)}"
    say(console, (f"      {joined(held, since, until)}", "dim"))
    print_page(console, around)
    say(console, ("\n      proposed", "bold yellow"))
    deciding.print_proposal(console, review)
    if review.state != "open":
        deciding.print_decision(console, review)


def _tell(console: Console, review: ReviewRecord, call: CallRecord) -> None:
    """What was decided, and what becomes of the call."""
    match call.state:
        case "answered":
            then = f"The answer is in thread {call.thread}."
        case "blocked":
            then = f"Nothing of the answer is in thread {call.thread}."
        case "active":
            then = "The call goes on where the program that has its tools and rules opens the file."
        case _:
            then = f"The call: {state_text(call)}."
    say(console, (review.id, "bold"), f"   {deciding.state_and_by(review)}. {then}")

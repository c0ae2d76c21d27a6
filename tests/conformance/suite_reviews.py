"""Rules S31 to S35: reviews, and what is stored with them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.conformance.store_values import (
    AT,
    A,
    B,
    Stores,
    append,
    call_record,
    claim,
    decision,
    guard,
    hold,
    hold_one,
    ledger_row,
    review_ids,
    review_record,
    texts,
    user_turn,
    writing_for,
)
from turngate.errors import InvalidValue, ThreadMoved, UnknownCall, UnknownReview
from turngate.messages import ToolCall
from turngate.protocols import ThreadStore
from turngate.records import (
    Change,
    OverdueReview,
    ReviewRecord,
    ReviewState,
)
from turngate.results import ModelResult
from turngate.values import ProviderData, Usage

NAIVE = AT.replace(tzinfo=None)

FULL_REVIEW = ReviewRecord(
    id="review_full",
    call="call_full",
    thread="t",
    held_by="check \0 \U0001f600",
    reason="",
    created_at=AT,
    step=3,
    expires_at=AT + timedelta(microseconds=1),
    default="approve",
    answer=ModelResult(
        text="held \0",
        tool_calls=(ToolCall(id="c", name="f", arguments='{"half'),),
        model=None,
        finish_reason="length",
        usage=Usage(input_tokens=1, output_tokens=2),
        reasoning="",
        refused=True,
        provider_data=ProviderData("p", "{}"),
    ),
    tool_call=ToolCall(id="c", name="f", arguments="", provider_data=ProviderData("p", "1")),
    place=2,
    call_hash="ff",
    state="edited",
    decided_by="ann",
    decided_at=AT - timedelta(days=1),
    why="",
    text="",
    arguments="{}",
    note="be kind",
)

OPEN: tuple[ReviewState, ...] = ("open",)


async def held_with(store: ThreadStore, *states: ReviewState, thread: str = "t") -> list[str]:
    """Hold a new call of `thread` for one review in each of `states`; their ids, oldest first."""
    call = call_record(thread)
    reviews = [review_record(call, state=state) for state in states]
    await hold(store, call, *reviews)
    return [review.id for review in reviews]


class ReviewRules:
    """What waits for a person."""

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    async def test_a_review_is_kept_as_it_is(self, stores: Stores) -> None:
        """[S7] [S31] Every field of a review comes back as it was committed."""
        store = await stores.open()
        call = call_record("t", id=FULL_REVIEW.call)
        plain = review_record(call, id="review_plain", of="tool call")
        await hold(store, call, FULL_REVIEW, plain)
        assert await store.review(A, "review_full") == FULL_REVIEW
        assert await store.review(A, "review_plain") == plain
        assert (await store.reviews(A)).reviews == (plain, FULL_REVIEW)

    async def test_a_review_is_replaced_by_its_call(self, stores: Stores) -> None:
        """[S31] The same id again is the same review, as it is now; the others stay."""
        store = await stores.open()
        call = call_record("t")
        first, second = review_record(call), review_record(call)
        held = await hold(store, call, first, second)
        decided = msgspec.structs.replace(first, state="approved", decided_by="ann", decided_at=AT)
        await store.commit(A, decision(held, decided, state="review"))
        assert await store.review(A, first.id) == decided
        assert await store.review(A, second.id) == second
        assert len((await store.reviews(A)).reviews) == 2

    async def test_a_review_of_another_call_is_not_replaced(self, stores: Stores) -> None:
        """[S31] [S35] An id that another call has is refused, and nothing of the change is done."""
        store = await stores.open()
        first, second = call_record("t"), call_record("u")
        review = review_record(first)
        await hold(store, first, review)
        held = await hold(store, second)
        taken = review_record(second, id=review.id, state="approved")
        with pytest.raises(InvalidValue, match=review.id):
            await store.commit(A, decision(held, review_record(second), taken))
        assert await store.review(A, review.id) == review
        assert (await store.call(A, second.id)).state == "review"
        assert review_ids(await store.reviews(A)) == [review.id]

    @pytest.mark.parametrize("wrong", ["no guard", "call", "thread"])
    async def test_a_review_needs_the_guard_of_its_call(self, stores: Stores, wrong: str) -> None:
        """[S31] Without a guard, or for another call or thread, a review is refused."""
        store = await stores.open()
        call = call_record("t")
        await claim(store, call)
        other = {"call": "call_other"} if wrong == "call" else {}
        if wrong == "thread":
            other = {"thread": "u"}
        change = Change(
            thread="t",
            at=AT,
            turns=(user_turn(),),
            guard=None if wrong == "no guard" else guard(call),
            reviews=(msgspec.structs.replace(review_record(call), **other),),
        )
        with pytest.raises(InvalidValue):
            await store.commit(A, change)
        assert (await store.reviews(A)).reviews == ()
        assert await texts(store, "t") == []

    @pytest.mark.parametrize("wrong", ["owner", "epoch", "ended"])
    async def test_only_its_owner_writes_a_review(self, stores: Stores, wrong: str) -> None:
        """[S31] Under another owner or epoch, or once the call has ended, it is an unknown call."""
        store = await stores.open()
        call = call_record("t", owner="boot_1")
        review = review_record(call)
        held = await hold(store, call, review)
        if wrong == "ended":
            await store.commit(A, decision(held, state="answered"))
        elif wrong == "owner":
            held = msgspec.structs.replace(held, owner="boot_2")
        else:
            held = msgspec.structs.replace(held, epoch=1)
        with pytest.raises(UnknownCall):
            await store.commit(A, decision(held, msgspec.structs.replace(review, state="approved")))
        assert await store.review(A, review.id) == review

    async def test_of_two_decisions_one_is_stored(self, stores: Stores) -> None:
        """[S31] [S36] Ten decisions of one epoch at once: the first is stored, and it alone."""
        store = await stores.open()
        call = call_record("t")
        review = review_record(call)
        held = await hold(store, call, review)
        decisions = [
            decision(held, msgspec.structs.replace(review, state="approved", decided_by=str(n)))
            for n in range(10)
        ]
        outcomes = await asyncio.gather(
            *(store.commit(A, change) for change in decisions), return_exceptions=True
        )
        (winner,) = [n for n, outcome in enumerate(outcomes) if outcome == 0]
        assert [type(outcome) for outcome in outcomes].count(UnknownCall) == 9
        assert (await store.review(A, review.id)).decided_by == str(winner)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"created_at": NAIVE},
            {"decided_at": NAIVE},
            {"expires_at": NAIVE},
            {"id": ""},
            {"id": "a\0b"},
            {"id": "\ud83d"},
            {"reason": "\ud83d"},
            {"note": "\udc00"},
            {"state": "maybe"},
            {"step": "1"},
            {"answer": "text"},
        ],
        ids=str,
    )
    async def test_what_is_no_review_is_refused(
        self, stores: Stores, wrong: dict[str, object]
    ) -> None:
        """[S7] [S31] Naive times, ids and texts that no database holds, and other types."""
        store = await stores.open()
        call = call_record("t")
        await claim(store, call)
        review = msgspec.structs.replace(review_record(call), **wrong)
        change = Change(
            thread="t", at=AT, turns=(user_turn(),), guard=guard(call), reviews=(review,)
        )
        with pytest.raises(InvalidValue):
            await store.commit(A, change)
        assert (await store.reviews(A)).reviews == ()
        assert await texts(store, "t") == []

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def test_reviews_are_listed_by_what_they_are_of(self, stores: Stores) -> None:
        """[S32] Of all, of a call, of a thread, in a state: newest first in each listing."""
        store = await stores.open()
        a = await held_with(store, "open", "approved", "open", thread="t")
        call_of_a = (await store.review(A, a[0])).call
        b = await held_with(store, "rejected", "open", thread="u")
        assert review_ids(await store.reviews(A)) == [*reversed(b), *reversed(a)]
        assert review_ids(await store.reviews(A, call=call_of_a)) == a[::-1]
        assert review_ids(await store.reviews(A, thread="u")) == b[::-1]
        assert review_ids(await store.reviews(A, state="open")) == [b[1], a[2], a[0]]
        assert review_ids(await store.reviews(A, thread="t", state="open")) == [a[2], a[0]]
        assert review_ids(await store.reviews(A, call=call_of_a, state="approved")) == [a[1]]
        nothing = await store.reviews(A, state="retried")
        assert (nothing.reviews, nothing.next) == ((), None)
        assert await store.reviews(A, call="call_none") == nothing
        assert await store.reviews(A, thread="none") == nothing

    async def test_a_replaced_review_keeps_its_place(self, stores: Stores) -> None:
        """[S32] A decision moves no review in a listing, but takes it out of its old state's."""
        store = await stores.open()
        call = call_record("t")
        made = [review_record(call) for _ in range(3)]
        held = await hold(store, call, *made)
        decided = msgspec.structs.replace(made[0], state="rejected")
        await store.commit(A, decision(held, decided, state="review"))
        ids = [review.id for review in made]
        assert review_ids(await store.reviews(A)) == ids[::-1]
        assert review_ids(await store.reviews(A, call=call.id, state="open")) == ids[:0:-1]
        assert review_ids(await store.reviews(A, state="rejected")) == ids[:1]

    @pytest.mark.parametrize("limit", [1, 2, 7, 20, 21, 1000])
    @pytest.mark.parametrize("of", ["all", "call", "thread", "state", "call and state"])
    async def test_pages_of_reviews_hold_each_once(
        self, stores: Stores, of: str, limit: int
    ) -> None:
        """[S32] Pages of any size, of any listing, put together are the whole listing."""
        store = await stores.open()
        ids = await held_with(store, *OPEN * 20, thread="t")
        call = (await store.review(A, ids[0])).call
        await held_with(store, "approved", thread="u")
        found: list[str] = []
        cursor = None
        for _ in range(30):  # a cursor that does not move on ends here too
            page = await store.reviews(
                A,
                call=call if of.startswith("call") else None,
                thread="t" if of == "thread" else None,
                state="open" if of.endswith("state") else None,
                after=cursor,
                limit=limit,
            )
            found += review_ids(page)
            cursor = page.next
            if cursor is None:
                break
            assert len(page.reviews) == limit
        assert [each for each in found if each in ids] == ids[::-1]
        assert len(found) == (21 if of == "all" else 20)

    async def test_pages_are_stable_while_reviews_are_decided(self, stores: Stores) -> None:
        """[S32] A review that comes or is decided in between neither repeats nor hides another."""
        store = await stores.open()
        call = call_record("t")
        made = [review_record(call) for _ in range(6)]
        held = await hold(store, call, *made)
        page = await store.reviews(A, state="open", limit=2)
        decided = [msgspec.structs.replace(made[place], state="approved") for place in (5, 1)]
        await store.commit(A, decision(held, *decided, review_record(call), state="review"))
        rest = await store.reviews(A, state="open", after=page.next)
        assert review_ids(page) == [made[5].id, made[4].id]
        assert review_ids(rest) == [made[3].id, made[2].id, made[0].id]

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1:", ":t", "-1:t", "1:a b", "9" * 30 + ":t"])
    async def test_a_cursor_of_no_listing_is_refused(self, stores: Stores, cursor: str) -> None:
        """[S32] What no listing gave is an error, not a first page."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.reviews(A, after=cursor)

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    async def test_reviews_refuses_an_impossible_page(self, stores: Stores, limit: int) -> None:
        """[S32] The limit of a page is 1 to 1000, and a call and a thread are one too many."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.reviews(A, limit=limit)
        with pytest.raises(InvalidValue):
            await store.reviews(A, call="call_1", thread="t")

    async def test_an_acknowledged_review_outlives_the_store(self, stores: Stores) -> None:
        """[S10] [S32] What waits is there for the next store on the same data."""
        store = await stores.open()
        call = call_record("t")
        review = review_record(call, of="tool call")
        held = await hold(store, call, review)
        await store.aclose()
        store = await stores.open()
        assert (await store.reviews(A, state="open")).reviews == (review,)
        assert await store.call(A, call.id) == held
        await store.commit(A, decision(held, msgspec.structs.replace(review, state="rejected")))

    async def test_overdue_reviews_are_open_and_late(self, stores: Stores) -> None:
        """[S33] Those of every tenant whose deadline was before, and no others."""
        store = await stores.open()
        late, due = AT + timedelta(hours=1), AT + timedelta(hours=2)
        call, foreign = call_record("t"), call_record("t")
        made = review_record(call, expires_at=late)
        await hold(
            store,
            call,
            made,
            review_record(call),
            review_record(call, expires_at=due),
            review_record(call, expires_at=late, state="approved"),
        )
        of_b = review_record(foreign, expires_at=late)
        await hold(store, foreign, of_b, scope=B)
        found = await store.overdue_reviews(due)
        assert sorted(found, key=lambda each: each.scope.tenant) == [
            OverdueReview(A, made),
            OverdueReview(B, of_b),
        ]
        assert list(await store.overdue_reviews(late)) == []
        assert len(await store.overdue_reviews(late + timedelta(microseconds=1))) == 2
        assert len(await store.overdue_reviews(due + timedelta(microseconds=1))) == 3

    async def test_a_decided_review_is_not_overdue(self, stores: Stores) -> None:
        """[S33] A decision, or another deadline, is what counts from then on."""
        store = await stores.open()
        call = call_record("t")
        first, second = (review_record(call, expires_at=AT) for _ in range(2))
        held = await hold(store, call, first, second)
        later = AT + timedelta(seconds=1)
        assert len(await store.overdue_reviews(later)) == 2
        changed = [
            msgspec.structs.replace(first, state="cancelled"),
            msgspec.structs.replace(second, expires_at=later),
        ]
        await store.commit(A, decision(held, *changed, state="review"))
        assert list(await store.overdue_reviews(later)) == []

    async def test_many_overdue_reviews_are_all_found(self, stores: Stores) -> None:
        """[S33] More than are read in one piece are each there once."""
        store = await stores.open()
        calls = [call_record(f"t{n}") for n in range(5)]
        made = [[review_record(call, expires_at=AT) for _ in range(50)] for call in calls]
        for call, reviews in zip(calls, made, strict=True):
            await hold(store, call, *reviews)
        found = await store.overdue_reviews(AT + timedelta(days=1))
        ids = [review.id for reviews in made for review in reviews]
        assert sorted(each.review.id for each in found) == sorted(ids)

    async def test_overdue_needs_a_zone(self, stores: Stores) -> None:
        """[S7] [S33] A naive time is a value of another form."""
        store = await stores.open()
        with pytest.raises(InvalidValue, match="zone"):
            await store.overdue_reviews(NAIVE)

    # ── tenants ──────────────────────────────────────────────────────────────────────────────

    async def test_a_foreign_review_reads_as_a_missing_one(self, stores: Stores) -> None:
        """[S34] Tenant B sees nothing of A's reviews by any reading."""
        store = await stores.open()
        call = call_record("t")
        review = review_record(call)
        await hold(store, call, review)
        with pytest.raises(UnknownReview) as foreign:
            await store.review(B, review.id)
        with pytest.raises(UnknownReview) as missing:
            await store.review(A, "review_none")
        assert str(foreign.value) == str(missing.value).replace("review_none", review.id)
        for page in (
            await store.reviews(B),
            await store.reviews(B, call=call.id),
            await store.reviews(B, thread="t", state="open"),
        ):
            assert page == await store.reviews(B, call="call_none")
        await claim(store, call_record("t"), scope=B)  # A's call in review is nothing to B

    async def test_a_foreign_review_is_not_written(self, stores: Stores) -> None:
        """[S34] The same ids are two reviews in two tenants, and B can't decide A's."""
        store = await stores.open()
        call = call_record("t")
        review = review_record(call)
        held = await hold(store, call, review)
        decided = msgspec.structs.replace(review, state="approved")
        with pytest.raises(UnknownCall):
            await store.commit(B, decision(held, decided))
        await hold(store, call, review, scope=B)
        await store.commit(B, decision(held, decided))
        assert await store.review(A, review.id) == review
        assert await store.review(B, review.id) == decided

    # ── all or nothing ───────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize("wrong", ["length", "turn", "ledger", "state", "review"])
    async def test_a_review_goes_with_its_change(self, stores: Stores, wrong: str) -> None:
        """[S35] Whatever of a decision is refused, neither it nor its effect is there."""
        store = await stores.open()
        await append(store, "t", "a")
        taken_turn, taken_row = user_turn("b"), ledger_row()
        await store.commit(A, Change(thread="t", at=AT, turns=(taken_turn,), ledger=(taken_row,)))
        other = await hold_one(store, "u")
        call = call_record("t")
        review = review_record(call)
        held = await hold(store, call, review)
        decided = msgspec.structs.replace(review, state="approved")
        reviews = (decided, msgspec.structs.replace(review, id=other.id))
        change = msgspec.structs.replace(
            writing_for(held, "active" if wrong == "state" else "review"),
            expected=9 if wrong == "length" else None,
            turns=(user_turn("x"), *((taken_turn,) if wrong == "turn" else ())),
            ledger=(ledger_row(call.id), *((taken_row,) if wrong == "ledger" else ())),
            reviews=reviews if wrong == "review" else (decided,),
        )
        with pytest.raises(UnknownCall if wrong == "state" else (InvalidValue, ThreadMoved)):
            await store.commit(A, change)
        assert await texts(store, "t") == ["a", "b"]
        assert await store.call(A, call.id) == held
        assert await store.review(A, review.id) == review
        assert await store.review(A, other.id) == other
        assert not await store.steps(A, call.id)
        assert not await store.events(A, call.id)
        assert (await store.thread(A, "t")).title is None
        assert await stores.ledger(A) == [taken_row]

    async def test_a_decision_settles_in_one_change(self, stores: Stores) -> None:
        """[S35] The decided review, the answer's turn, the record and its row come together."""
        store = await stores.open()
        call = call_record("t")
        held = await hold(store, call, review_record(call))
        change = writing_for(held, "review")
        assert await store.commit(A, change) == 1
        assert await texts(store, "t") == ["x"]
        assert (await store.call(A, call.id)).state == "answered"
        assert await store.review(A, change.reviews[0].id) == change.reviews[0]
        assert tuple(await store.steps(A, call.id)) == change.steps
        assert tuple(await store.events(A, call.id)) == change.events
        assert await stores.ledger(A) == list(change.ledger)

"""Rules S36 to S40: the states of a call, and its record."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.conformance.store_values import (
    AT,
    A,
    Stores,
    append,
    call_record,
    claim,
    decision,
    end,
    guard,
    hold,
    hold_one,
    in_state,
    review_ids,
    review_record,
    texts,
    user_turn,
    writing_for,
)
from turngate.completion import CallOptions
from turngate.errors import InvalidValue, KeyReused, ThreadBusy, UnknownCall
from turngate.records import CallRecord, CallState, Change, RunLimits, Span, ToolNeed
from turngate.turns import TextPart, Turn
from turngate.values import ToolSpec, Usage

NAIVE = AT.replace(tzinfo=None)

FULL_CALL = CallRecord(
    id="call_full",
    thread="t",
    kind="run",
    state="blocked",
    owner="boot_1",
    position=7,
    created_at=AT,
    epoch=3,
    recoveries=2,
    resumed_at=AT + timedelta(seconds=1),
    user_turn=user_turn("asked"),
    user="u",
    key="key",
    body_hash="00",
    instructions="",
    model="m",
    options=CallOptions(temperature=0.5),
    tools=(ToolSpec(name="f", description="", parameters={"type": "object"}),),
    needs=(ToolNeed("f", "ab"),),
    local=True,
    checks=("terms", "length"),
    rules=("money",),
    note="told",
    limits=RunLimits(rounds_max=1, tokens_max=2),
    streamed=True,
    waiting_for=("tool f",),
    ended_at=AT,
    reason="secret",
    by="terms",
    text="",
    usage=Usage(input_tokens=1, output_tokens=2),
    added=2,
    earlier=(Span(0, 3), Span(9, 1)),
    placed=4,
    spent=Usage(input_tokens=3, output_tokens=4),
)


class CallStateRules:
    """Active, in review, ended: what each lets be done."""

    @pytest.mark.parametrize("state", ["active", "review"])
    @pytest.mark.parametrize("with_update", [True, False])
    async def test_a_guard_is_for_one_state(
        self, stores: Stores, state: str, with_update: bool
    ) -> None:
        """[S36] A change for a call in the other state is an unknown call and changes nothing."""
        store = await stores.open()
        call = call_record("t")
        if state == "active":
            await claim(store, call)
        else:
            call = await hold(store, call)
        wrong = writing_for(call, "review" if state == "active" else "active")
        right = writing_for(call, state)
        if not with_update:
            wrong = msgspec.structs.replace(wrong, update=None)
            right = msgspec.structs.replace(right, update=None)
        with pytest.raises(UnknownCall):
            await store.commit(A, wrong)
        assert await store.call(A, call.id) == call
        assert (await store.reviews(A)).reviews == ()
        assert await stores.ledger(A) == []
        assert await texts(store, "t") == []
        assert await store.commit(A, right) == 1

    @pytest.mark.parametrize("expected", [None, 0, 9])
    async def test_a_claim_meets_a_call_in_review(
        self, stores: Stores, expected: int | None
    ) -> None:
        """[S37] The error names the waiting call and says that it waits; nothing is begun."""
        store = await stores.open()
        held = await hold_one(store, "t")
        refused = call_record("t")
        change = Change(
            thread="t", at=AT, expected=expected, turns=(user_turn(),), begin=refused, title="new"
        )
        with pytest.raises(ThreadBusy) as caught:
            await store.commit(A, change)
        assert caught.value.in_review
        assert (caught.value.thread_id, caught.value.call_id) == ("t", held.call)
        assert await texts(store, "t") == []
        with pytest.raises(UnknownCall):
            await store.call(A, refused.id)

    async def test_a_call_may_go_on_beside_a_review(self, stores: Stores) -> None:
        """[S37] With `beside_review` the thread is claimed; the next claim meets that one."""
        store = await stores.open()
        held = await hold_one(store, "t")
        call, second = call_record("t"), call_record("t")
        await store.commit(A, Change(thread="t", at=AT, begin=call, beside_review=True))
        assert await store.active_call(A, "t") == call
        with pytest.raises(ThreadBusy) as caught:
            await store.commit(A, Change(thread="t", at=AT, begin=second, beside_review=True))
        assert (caught.value.call_id, caught.value.in_review) == (call.id, False)
        assert (await store.call(A, held.call)).state == "review"
        await end(store, in_state(call, "answered"))
        with pytest.raises(ThreadBusy) as caught:
            await claim(store, second)
        assert caught.value.in_review

    async def test_a_thread_is_free_once_its_review_is_decided(self, stores: Stores) -> None:
        """[S37] A call that ended by a decision stands in nobody's way; other threads never did."""
        store = await stores.open()
        call = call_record("t")
        held = await hold(store, call, review_record(call))
        await claim(store, call_record("u"))
        await store.commit(A, decision(held))
        await claim(store, call_record("t"))

    async def test_several_calls_may_wait_on_one_thread(self, stores: Stores) -> None:
        """[S37] A call that went on beside a review may itself be held."""
        store = await stores.open()
        first = await hold_one(store, "t")
        call = call_record("t")
        await store.commit(A, Change(thread="t", at=AT, begin=call, beside_review=True))
        review = review_record(call)
        change = Change(
            thread="t",
            at=AT,
            guard=guard(call),
            update=in_state(call, "review"),
            reviews=(review,),
        )
        await store.commit(A, change)
        assert review_ids(await store.reviews(A, thread="t", state="open")) == [review.id, first.id]
        assert await store.active_call(A, "t") is None

    async def test_a_call_in_review_is_neither_active_nor_lost(self, stores: Stores) -> None:
        """[S19] [S36] It has no process that could be dead."""
        store = await stores.open()
        await hold_one(store, "t")
        assert await store.active_call(A, "t") is None
        assert list(await store.lost_calls("boot_2")) == []

    async def test_a_call_goes_on_from_its_review(self, stores: Stores) -> None:
        """[S36] [S38] On a free thread a decided call is active again, under its new epoch."""
        store = await stores.open()
        call = call_record("t")
        held = await hold(store, call, review_record(call))
        resumed = msgspec.structs.replace(held, state="active", epoch=1, resumed_at=AT)
        change = msgspec.structs.replace(decision(held), update=resumed)
        await store.commit(A, change)
        assert await store.active_call(A, "t") == resumed
        with pytest.raises(UnknownCall):
            await store.commit(A, decision(held))

    async def test_a_call_that_goes_on_meets_an_active_one(self, stores: Stores) -> None:
        """[S35] [S38] The error names the active call; the decision and all else is undone."""
        store = await stores.open()
        call = call_record("t")
        review = review_record(call)
        held = await hold(store, call, review)
        active = call_record("t")
        await store.commit(A, Change(thread="t", at=AT, begin=active, beside_review=True))
        resumed = in_state(held, "active")
        change = msgspec.structs.replace(
            writing_for(held, "review"),
            update=resumed,
            reviews=(msgspec.structs.replace(review, state="approved"),),
        )
        with pytest.raises(ThreadBusy) as caught:
            await store.commit(A, change)
        assert (caught.value.call_id, caught.value.in_review) == (active.id, False)
        assert await store.call(A, call.id) == held
        assert await store.review(A, review.id) == review
        assert await store.active_call(A, "t") == active
        assert await texts(store, "t") == []
        await end(store, in_state(active, "failed"))
        assert await store.commit(A, change) == 1
        assert await store.active_call(A, "t") == msgspec.structs.replace(resumed, first=0)

    @pytest.mark.parametrize("state", ["blocked", "failed", "incomplete"])
    @pytest.mark.parametrize("beside", ["nothing", "active", "review"])
    async def test_a_call_begun_as_ended_claims_nothing(
        self, stores: Stores, state: CallState, beside: str
    ) -> None:
        """[S39] A busy thread takes it and stays busy; a free one stays free."""
        store = await stores.open()
        first = call_record("t")
        if beside == "active":
            await claim(store, first)
        elif beside == "review":
            await hold(store, first)
        blocked = in_state(call_record("t"), state)
        assert await store.commit(A, Change(thread="t", at=AT, begin=blocked)) == 0
        assert await store.call(A, blocked.id) == blocked
        active = await store.active_call(A, "t")
        assert active == (first if beside == "active" else None)
        if beside == "nothing":
            await claim(store, first)
        else:
            with pytest.raises(ThreadBusy):
                await claim(store, call_record("t"))

    @pytest.mark.parametrize("taken", ["key", "id"])
    async def test_a_taken_key_is_named_beside_an_active_call(
        self, stores: Stores, taken: str
    ) -> None:
        """[S39] The active call is no hindrance, so what is told is the key or id that is taken."""
        store = await stores.open()
        earlier = msgspec.structs.replace(in_state(call_record("t"), "blocked"), key="k")
        await store.commit(A, Change(thread="t", at=AT, begin=earlier))
        await claim(store, call_record("t"))
        blocked = msgspec.structs.replace(
            in_state(call_record("t", id=earlier.id if taken == "id" else None), "blocked"),
            key="k" if taken == "key" else None,
        )
        with pytest.raises(KeyReused if taken == "key" else InvalidValue, match=earlier.id):
            await store.commit(A, Change(thread="t", at=AT, begin=blocked))

    # ── the record of a call ─────────────────────────────────────────────────────────────────

    async def test_every_field_of_a_call_comes_back(self, stores: Stores) -> None:
        """[S7] [S40] A record is read as it was begun, and as it was updated."""
        store = await stores.open()
        await store.commit(A, Change(thread="t", at=AT, begin=FULL_CALL))
        assert await store.call(A, FULL_CALL.id) == FULL_CALL
        assert await store.call_by_key(A, "key") == FULL_CALL
        assert (await store.calls(A, thread="t")).calls == (FULL_CALL,)
        call = call_record("t")
        await claim(store, call)
        updated = msgspec.structs.replace(FULL_CALL, id=call.id, key=None, state="review")
        await store.commit(A, Change(thread="t", at=AT, guard=guard(call), update=updated))
        assert await store.call(A, call.id) == updated

    async def test_first_is_where_the_turns_of_the_change_stand(self, stores: Stores) -> None:
        """[S40] The store fills it in for each record, whatever came in between."""
        store = await stores.open()
        await append(store, "t", "a", "b")
        call = call_record("t")
        await claim(store, call)
        held = msgspec.structs.replace(in_state(call, "review"), added=2, placed=1)
        await append(store, "t", "c")
        change = Change(
            thread="t",
            at=AT,
            turns=(user_turn("q"), user_turn("r")),
            guard=guard(call),
            update=held,
        )
        await store.commit(A, change)
        paused = await store.call(A, call.id)
        assert paused == msgspec.structs.replace(held, first=3)
        await append(store, "t", "between")
        answer = Turn(id="turn_answer", role="assistant", parts=(TextPart("x"),), created_at=AT)
        ended = msgspec.structs.replace(
            in_state(held, "answered"), added=1, earlier=(Span(3, 2),), text="x"
        )
        change = Change(
            thread="t", at=AT, turns=(answer,), guard=guard(call, state="review"), update=ended
        )
        assert await store.commit(A, change) == 7
        settled = await store.call(A, call.id)
        assert settled == msgspec.structs.replace(ended, first=6)
        found = [
            *(await store.load(A, "t", before=5, limit=2)).turns,
            *(await store.load(A, "t", before=7, limit=1)).turns,
        ]
        assert [
            part.text for turn in found for part in turn.parts if isinstance(part, TextPart)
        ] == [
            "q",
            "r",
            "x",
        ]

    async def test_without_turns_there_is_no_first(self, stores: Stores) -> None:
        """[S40] A record whose change adds nothing has none."""
        store = await stores.open()
        await append(store, "t", "a")
        held = await hold_one(store, "t")
        assert (await store.call(A, held.call)).first is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"created_at": NAIVE},
            {"ended_at": NAIVE},
            {"resumed_at": NAIVE},
            {"thread": "u"},
            {"state": "waiting"},
            {"checks": ("\ud83d",)},
            {"earlier": ((0, 1),)},
            {"by": 3},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("as_update", [True, False])
    async def test_what_is_no_call_is_refused(
        self, stores: Stores, as_update: bool, wrong: dict[str, object]
    ) -> None:
        """[S7] [S18] Naive times, another thread and other types, as a begin or an update."""
        store = await stores.open()
        call = call_record("t")
        if as_update:
            await claim(store, call)
        bad = msgspec.structs.replace(in_state(call, "blocked"), **wrong)
        change = Change(
            thread="t",
            at=AT,
            turns=(user_turn(),),
            begin=None if as_update else bad,
            guard=guard(call) if as_update else None,
            update=bad if as_update else None,
        )
        with pytest.raises(InvalidValue):
            await store.commit(A, change)
        assert await texts(store, "t") == []

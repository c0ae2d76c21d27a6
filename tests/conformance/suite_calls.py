"""Rules S17 to S19: claims, ends and lost calls."""

from __future__ import annotations

import asyncio

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
    end,
    guard,
    ledger_row,
    texts,
    user_turn,
)
from turngate.errors import (
    InvalidValue,
    ThreadBusy,
    UnknownCall,
)
from turngate.records import Change, LostCall


class CallRules:
    """One active call on a thread."""

    async def test_a_claim_is_kept_as_it_is(self, stores: Stores) -> None:
        """[S7] [S17] The record of a call is read as it was committed, by its id and thread."""
        store = await stores.open()
        call = call_record("t")
        assert await claim(store, call) == 0
        assert await store.call(A, call.id) == call
        assert await store.active_call(A, "t") == call
        with pytest.raises(UnknownCall):
            await store.call(A, "call_none")

    @pytest.mark.parametrize("expected", [None, 0, 9])
    async def test_a_second_claim_is_busy(self, stores: Stores, expected: int | None) -> None:
        """[S17] A second claim names the first, also where the length is wrong as well."""
        store = await stores.open()
        first = call_record("t")
        await claim(store, first)
        change = Change(thread="t", at=AT, expected=expected, begin=call_record("t"))
        with pytest.raises(ThreadBusy) as caught:
            await store.commit(A, change)
        assert (caught.value.thread_id, caught.value.call_id) == ("t", first.id)

    async def test_of_many_claims_one_holds(self, stores: Stores) -> None:
        """[S17] Ten claims at once give one active call, which the nine errors name."""
        store = await stores.open()
        outcomes = await asyncio.gather(
            *(claim(store, call_record("t")) for _ in range(10)), return_exceptions=True
        )
        busy = [outcome for outcome in outcomes if isinstance(outcome, ThreadBusy)]
        active = await store.active_call(A, "t")
        assert active is not None
        assert [error.call_id for error in busy] == [active.id] * 9

    async def test_claims_of_two_threads_do_not_meet(self, stores: Stores) -> None:
        """[S17] The claim is on one thread of one tenant."""
        store = await stores.open()
        await claim(store, call_record("t"))
        await claim(store, call_record("u"))
        await claim(store, call_record("t"), scope=B)

    async def test_appending_needs_noclaim(self, stores: Stores) -> None:
        """[S17] Turns may be appended to a thread that has an active call."""
        store = await stores.open()
        await claim(store, call_record("t"))
        assert await append(store, "t", "a") == 1

    async def test_ending_a_call_settles_in_one_change(self, stores: Stores) -> None:
        """[S5] [S18] Turns, the ended record and its ledger rows are stored together."""
        store = await stores.open()
        call = call_record("t")
        await claim(store, call)
        ended = call_record("t", id=call.id, state="answered")
        row = ledger_row(call.id)
        change = Change(
            thread="t",
            at=AT,
            expected=0,
            turns=(user_turn("q"),),
            guard=guard(call),
            update=ended,
            ledger=(row,),
        )
        assert await store.commit(A, change) == 1
        assert await store.call(A, call.id) == msgspec.structs.replace(ended, first=0)
        assert await store.active_call(A, "t") is None
        assert await stores.ledger(A) == [row]
        await claim(store, call_record("t"))

    @pytest.mark.parametrize("wrong", ["id", "owner", "thread", "ended already"])
    async def test_only_the_owner_ends_an_active_call(self, stores: Stores, wrong: str) -> None:
        """[S18] Another id, owner or thread, or a second end, is an unknown call."""
        store = await stores.open()
        call = call_record("t")
        await claim(store, call)
        ended = call_record(
            "u" if wrong == "thread" else "t",
            id="call_other" if wrong == "id" else call.id,
            owner="boot_2" if wrong == "owner" else call.owner,
            state="answered",
        )
        if wrong == "ended already":
            await end(store, ended)
        change = Change(
            thread=ended.thread, at=AT, turns=(user_turn(),), guard=guard(ended), update=ended
        )
        with pytest.raises(UnknownCall):
            await store.commit(A, change)
        assert await texts(store, ended.thread) == []
        if wrong != "ended already":
            assert await store.call(A, call.id) == call

    async def test_a_call_belongs_to_the_thread_of_its_change(self, stores: Stores) -> None:
        """[S18] A change of one thread can't hold a call of another."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.commit(A, Change(thread="t", at=AT, begin=call_record("u")))

    async def test_lost_calls_are_those_of_other_owners(self, stores: Stores) -> None:
        """[S19] Active calls of dead owners are found in every tenant, and ended in their name."""
        store = await stores.open()
        lost_a, lost_b = call_record("t"), call_record("u", owner="boot_0")
        await claim(store, lost_a)
        await claim(store, lost_b, scope=B)
        await claim(store, call_record("mine", owner="boot_2"))
        ended = call_record("done")
        await claim(store, ended)
        await end(store, call_record("done", id=ended.id, state="failed"))
        found = await store.lost_calls("boot_2")
        assert sorted(found, key=lambda lost: lost.scope.tenant) == [
            LostCall(A, lost_a),
            LostCall(B, lost_b),
        ]
        for lost in found:
            ended = call_record(
                lost.call.thread, id=lost.call.id, owner=lost.call.owner, state="incomplete"
            )
            await end(store, ended, scope=lost.scope)
        assert list(await store.lost_calls("boot_2")) == []

    async def test_many_lost_calls_are_all_found(self, stores: Stores) -> None:
        """[S19] The lost calls of more threads than are read in one piece are all there."""
        store = await stores.open()
        calls = [call_record(f"t{n}") for n in range(250)]
        await asyncio.gather(*(claim(store, call) for call in calls))
        found = await store.lost_calls("boot_2")
        assert sorted(lost.call.id for lost in found) == sorted(call.id for call in calls)

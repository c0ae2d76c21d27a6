"""Rules S1 to S6: what a commit appends."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store_values import (
    AT,
    A,
    Stores,
    append,
    call_record,
    claim,
    end,
    ledger_row,
    texts,
    texts_change,
    user_turn,
)
from turngate.errors import (
    InvalidValue,
    ThreadMoved,
    ThreadNotFound,
)
from turngate.records import Change


class AppendingRules:
    """Positions, conflicts, all or nothing, and ids."""

    async def test_commit_gives_the_next_positions(self, stores: Stores) -> None:
        """[S1] Turns stand in their order from position 0 on, without gaps."""
        store = await stores.open()
        assert await append(store, "t", "a", "b") == 2
        assert await append(store, "t", "c") == 3
        page = await store.load(A, "t")
        assert (page.first, page.length) == (0, 3)
        assert await texts(store, "t") == ["a", "b", "c"]

    async def test_fifty_tasks_append_to_one_thread(self, stores: Stores) -> None:
        """[S1] [S2] Fifty appends at once all succeed, at fifty positions."""
        # Case t-concurrent-append-fifty.
        store = await stores.open()
        lengths = await asyncio.gather(*(append(store, "t", f"turn {n}") for n in range(50)))
        assert sorted(lengths) == list(range(1, 51))
        found = await texts(store, "t")
        assert sorted(found) == sorted(f"turn {n}" for n in range(50))
        assert found == await texts(store, "t")

    async def test_changes_of_several_turns_are_not_mixed(self, stores: Stores) -> None:
        """[S2] The turns of one change stand side by side."""
        store = await stores.open()
        await asyncio.gather(*(append(store, "t", f"{n}a", f"{n}b", f"{n}c") for n in range(20)))
        found = await texts(store, "t")
        for first in range(0, 60, 3):
            number = found[first][:-1]
            assert found[first : first + 3] == [f"{number}a", f"{number}b", f"{number}c"]

    async def test_two_writers_of_one_view_lose_nothing(self, stores: Stores) -> None:
        """[S3] [S4] The slower of two writers gets a conflict and repeats."""
        # Case t-concurrent-append-two-writers.
        store = await stores.open()
        await append(store, "t", "1", "2", "3", "4")
        outcomes = await asyncio.gather(
            store.commit(A, texts_change("t", "left", expected=4)),
            store.commit(A, texts_change("t", "right", expected=4)),
            return_exceptions=True,
        )
        (moved,) = [outcome for outcome in outcomes if isinstance(outcome, ThreadMoved)]
        assert (moved.expected, moved.length) == (4, 5)
        assert outcomes.count(5) == 1
        loser = "left" if outcomes[0] is moved else "right"
        assert await store.commit(A, texts_change("t", loser, expected=5)) == 6
        assert sorted((await texts(store, "t"))[4:]) == ["left", "right"]

    @pytest.mark.parametrize(("present", "expected"), [(0, 1), (1, 0), (2, 1), (2, 3)])
    async def test_commit_refuses_another_length(
        self, stores: Stores, present: int, expected: int
    ) -> None:
        """[S3] A wrong expectation is an error that names both lengths, and stores nothing."""
        store = await stores.open()
        if present:
            await append(store, "t", *"ab"[:present])
        with pytest.raises(ThreadMoved) as caught:
            await store.commit(A, texts_change("t", "x", expected=expected))
        assert (caught.value.expected, caught.value.length) == (expected, present)
        assert len(await texts(store, "t")) == present

    async def test_commit_takes_the_right_length(self, stores: Stores) -> None:
        """[S3] A right expectation is stored, 0 for a missing thread and one without turns."""
        store = await stores.open()
        assert await store.commit(A, texts_change("t", "x", expected=0)) == 1
        assert await store.commit(A, texts_change("t", "y", expected=1)) == 2
        await store.commit(A, Change(thread="empty", at=AT, create=True, expected=0))
        assert await store.commit(A, texts_change("empty", "z", expected=0)) == 1

    @pytest.mark.parametrize("expected", [-1, 2**63])
    async def test_commit_refuses_what_is_no_length(self, stores: Stores, expected: int) -> None:
        """[S3] A length that no thread can have is refused as a value."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.commit(A, texts_change("t", "x", expected=expected))

    async def test_of_many_equal_expectations_one_is_stored(self, stores: Stores) -> None:
        """[S4] Ten changes that expect the same length give one success and nine conflicts."""
        store = await stores.open()
        changes = [texts_change("t", f"turn {n}", expected=0) for n in range(10)]
        outcomes = await asyncio.gather(
            *(store.commit(A, change) for change in changes), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes].count(ThreadMoved) == 9
        assert len(await texts(store, "t")) == 1

    async def test_a_refused_change_leaves_nothing(self, stores: Stores) -> None:
        """[S5] A claim, turns, ledger, title and user go together with a length that is wrong."""
        store = await stores.open()
        await append(store, "t", "a")
        call = call_record("t")
        with pytest.raises(ThreadMoved):
            await store.commit(
                A,
                Change(
                    thread="t",
                    at=AT,
                    expected=9,
                    turns=(user_turn("x"),),
                    begin=call,
                    ledger=(ledger_row(call.id),),
                    title="new",
                    user="u",
                ),
            )
        assert await texts(store, "t") == ["a"]
        assert await store.active_call(A, "t") is None
        assert (await store.thread(A, "t")).title is None
        assert (await store.thread(A, "t")).user is None
        assert await stores.ledger(A) == []

    async def test_a_refused_change_spares_its_neighbours(self, stores: Stores) -> None:
        """[S5] Of changes that are committed at the same moment, only the wrong ones fail."""
        store = await stores.open()
        taken = user_turn("first")
        await store.commit(A, Change(thread="t0", at=AT, turns=(taken,)))
        changes = [
            Change(
                thread=f"t{n}", at=AT, turns=(user_turn("a"), taken if n % 3 == 0 else user_turn())
            )
            for n in range(30)
        ]
        outcomes = await asyncio.gather(
            *(store.commit(A, change) for change in changes), return_exceptions=True
        )
        assert [isinstance(o, InvalidValue) for o in outcomes] == [n % 3 == 0 for n in range(30)]
        assert [len(await texts(store, f"t{n}")) for n in range(4)] == [1, 2, 2, 0]

    async def test_the_same_change_is_not_stored_twice(self, stores: Stores) -> None:
        """[S6] Sending a change again is refused by the id of its turn."""
        store = await stores.open()
        change = texts_change("t", "a", "b")
        await store.commit(A, change)
        with pytest.raises(InvalidValue, match="already has a turn"):
            await store.commit(A, change)
        assert await texts(store, "t") == ["a", "b"]

    async def test_a_turn_id_is_unique_across_threads(self, stores: Stores) -> None:
        """[S6] A turn id that another thread of the tenant has is refused, and named."""
        store = await stores.open()
        await store.commit(A, Change(thread="t", at=AT, turns=(user_turn(id="turn_x"),)))
        with pytest.raises(InvalidValue, match="'turn_x'"):
            await store.commit(
                A, Change(thread="u", at=AT, turns=(user_turn(), user_turn(id="turn_x")))
            )
        with pytest.raises(ThreadNotFound):
            await store.thread(A, "u")

    async def test_an_id_twice_in_one_change_is_refused(self, stores: Stores) -> None:
        """[S6] One change can't hold a turn or a ledger row twice."""
        store = await stores.open()
        turn, row = user_turn(), ledger_row()
        with pytest.raises(InvalidValue):
            await store.commit(A, Change(thread="t", at=AT, turns=(turn, turn)))
        with pytest.raises(InvalidValue):
            await store.commit(A, Change(thread="t", at=AT, ledger=(row, row)))

    async def test_a_ledger_id_is_unique(self, stores: Stores) -> None:
        """[S5] [S6] A ledger id that is taken takes the whole change with it."""
        store = await stores.open()
        row = ledger_row()
        await store.commit(A, Change(thread="t", at=AT, ledger=(row,)))
        with pytest.raises(InvalidValue, match="ledger row"):
            await store.commit(A, Change(thread="t", at=AT, turns=(user_turn(),), ledger=(row,)))
        assert await texts(store, "t") == []
        assert await stores.ledger(A) == [row]

    async def test_a_call_id_is_unique_for_ever(self, stores: Stores) -> None:
        """[S6] The id of an ended call can't be claimed again."""
        store = await stores.open()
        await claim(store, call_record("t", id="call_x"))
        await end(store, call_record("t", id="call_x", state="failed"))
        with pytest.raises(InvalidValue, match="'call_x'"):
            await claim(store, call_record("u", id="call_x"))

"""Rules S20 to S22: cancellation, closing and event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.conformance.store_values import (
    AT,
    A,
    Stores,
    append,
    texts,
)
from tests.conformance.suite_file_rows import file_record
from turngate.errors import (
    StoreError,
)
from turngate.protocols import ThreadStore
from turngate.records import Change


class ClosingRules:
    """What happens to a change whose caller or store goes away."""

    @pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05])
    async def test_a_cancelled_commit_is_whole_or_absent(
        self, stores: Stores, after_s: float
    ) -> None:
        """[S20] The cancellation arrives, and the thread goes on at once."""
        # Case t-cancel-during-commit.
        store = await stores.open(commit_s=0.1)
        task = asyncio.create_task(append(store, "t", "a", "b"))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        length = await asyncio.wait_for(append(store, "t", "c"), 2)
        found = await texts(store, "t")
        assert found in (["c"], ["a", "b", "c"])
        assert length == len(found)

    async def test_many_cancelled_commits_leave_no_transaction(self, stores: Stores) -> None:
        """[S20] After twenty cancellations the next append works."""
        # Case t-cancel-leaves-no-open-transaction.
        store = await stores.open(commit_s=0.005)
        for number in range(20):
            task = asyncio.create_task(append(store, f"t{number}", "a", "b"))
            await asyncio.sleep(0.0007 * number)
            task.cancel()
            await asyncio.wait([task])
        assert await append(store, "t", "last") == 1
        assert [len(await texts(store, f"t{n}")) in (0, 2) for n in range(20)] == [True] * 20
        await store.aclose()
        assert await texts(await stores.open(), "t") == ["last"]

    async def test_closing_waits_for_the_writes_under_way(self, stores: Stores) -> None:
        """[S21] Changes that were begun before the closing are stored and acknowledged."""
        store = await stores.open(commit_s=0.02)
        tasks = [asyncio.create_task(append(store, f"t{n}", "a")) for n in range(20)]
        await asyncio.sleep(0)
        await store.aclose()
        assert await asyncio.gather(*tasks) == [1] * 20
        store = await stores.open()
        assert len((await store.threads(A)).threads) == 20

    async def test_a_closed_store_refusesevery_call(self, stores: Stores) -> None:
        """[S21] After closing each call is a clear error, but closing again does nothing."""
        store = await stores.open()
        await store.aclose()
        await store.aclose()
        for call in every_call(store):
            with pytest.raises(StoreError, match="closed"):
                await call()

    async def test_a_store_keeps_to_its_event_loop(self, stores: Stores) -> None:
        """[S22] On another event loop each call is a clear error, and the store goes on."""
        store = await stores.open()
        errors: list[BaseException | None] = []

        def on_another_loop() -> None:
            for call in every_call(store):
                try:
                    asyncio.run(call())
                except StoreError as error:
                    errors.append(error)

        await asyncio.to_thread(on_another_loop)
        assert ["event loop" in str(error) for error in errors] == [True] * len(every_call(store))
        assert await append(store, "t", "a") == 1


def every_call(store: ThreadStore) -> list[Callable[[], Coroutine[Any, Any, object]]]:
    return [
        lambda: store.commit(A, Change(thread="t", at=AT, create=True)),
        lambda: store.load(A, "t"),
        lambda: store.thread(A, "t"),
        lambda: store.threads(A),
        lambda: store.call(A, "call_1"),
        lambda: store.active_call(A, "t"),
        lambda: store.lost_calls("boot_1"),
        lambda: store.calls(A),
        lambda: store.call_by_key(A, "k"),
        lambda: store.steps(A, "call_1"),
        lambda: store.events(A, "call_1"),
        lambda: store.review(A, "review_1"),
        lambda: store.reviews(A),
        lambda: store.overdue_reviews(AT),
        lambda: store.add_file(A, file_record()),
        lambda: store.remove_file(A, "file_1"),
        lambda: store.file(A, "file_1"),
        lambda: store.files(A),
        lambda: store.file_of_bytes(A, "ab"),
        lambda: store.objects_in_use(A, ["o-1"]),
        lambda: store.tenants_with_files(),
    ]

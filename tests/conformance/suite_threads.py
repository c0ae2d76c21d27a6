"""Rules S13 to S16: threads and their listing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.store_values import (
    AT,
    A,
    Stores,
    append,
    call_record,
    claim,
    ledger_row,
    texts,
    texts_change,
    thread_ids,
    user_turn,
)
from turngate.errors import (
    InvalidValue,
    ThreadNotFound,
)
from turngate.records import Change


class ThreadRules:
    """How a thread begins, what alters it, and where it is listed."""

    @pytest.mark.parametrize(
        ("change", "begins"),
        [
            (Change(thread="t", at=AT, create=True), True),
            (Change(thread="t", at=AT, title=""), True),
            (Change(thread="t", at=AT, turns=(user_turn(),)), True),
            (Change(thread="t", at=AT, user="u"), False),
            (Change(thread="t", at=AT, begin=call_record("t")), False),
            (Change(thread="t", at=AT, ledger=(ledger_row(),)), False),
            (Change(thread="t", at=AT), False),
        ],
        ids=["create", "title", "turns", "user", "call", "ledger", "nothing"],
    )
    async def test_a_thread_begins_with_something_of_its_own(
        self, stores: Stores, change: Change, begins: bool
    ) -> None:
        """[S13] Turns, a title or `create` begin a thread, and nothing else does."""
        store = await stores.open()
        assert await store.commit(A, change) == len(change.turns)
        if begins:
            record = await store.thread(A, "t")
            assert (record.length, record.created_at, record.updated_at) == (
                len(change.turns),
                AT,
                AT,
            )
        else:
            with pytest.raises(ThreadNotFound):
                await store.thread(A, "t")

    async def test_create_leaves_an_existing_thread_alone(self, stores: Stores) -> None:
        """[S13] [S15] Creating a thread that exists gives its length and changes nothing."""
        store = await stores.open()
        await append(store, "t", "a")
        await append(store, "u", "a")
        record = await store.thread(A, "t")
        later = AT + timedelta(days=1)
        assert await store.commit(A, Change(thread="t", at=later, create=True)) == 1
        assert await store.thread(A, "t") == record
        assert thread_ids(await store.threads(A)) == ["u", "t"]

    async def test_a_title_is_set_or_kept(self, stores: Stores) -> None:
        """[S14] A change without a title or a user keeps those of before."""
        store = await stores.open()
        await store.commit(A, Change(thread="t", at=AT, title="one", user="u"))
        later = AT + timedelta(seconds=1)
        await store.commit(A, Change(thread="t", at=later, turns=(user_turn(),)))
        record = await store.thread(A, "t")
        assert (record.title, record.user, record.length) == ("one", "u", 1)
        assert (record.created_at, record.updated_at) == (AT, later)
        await store.commit(A, Change(thread="t", at=later, title="two"))
        await store.commit(A, texts_change("t", "x", expected=1))
        record = await store.thread(A, "t")
        assert (record.title, record.user, record.length) == ("two", "u", 2)
        await store.commit(A, Change(thread="t", at=later, user="v"))
        record = await store.thread(A, "t")
        assert (record.title, record.user, record.length) == ("two", "v", 2)

    async def test_a_title_change_keeps_a_turn_that_came_meanwhile(self, stores: Stores) -> None:
        """[S14] Title and append, from the same view, are both there."""
        # Case t-append-during-metadata-update.
        store = await stores.open()
        await append(store, "t", "a")
        view = await store.thread(A, "t")
        await append(store, "t", "b")
        await store.commit(A, Change(thread=view.id, at=AT, title="new"))
        record = await store.thread(A, "t")
        assert (record.title, record.length) == ("new", 2)
        assert await texts(store, "t") == ["a", "b"]

    async def test_threads_are_listed_last_changed_first(self, stores: Stores) -> None:
        """[S15] Turns, a title and a user bring a thread to the front; a call does not."""
        store = await stores.open()
        for thread in "abcd":
            await append(store, thread, "x")
        assert thread_ids(await store.threads(A)) == ["d", "c", "b", "a"]
        await append(store, "b", "y")
        await store.commit(A, Change(thread="a", at=AT, title="new"))
        await store.commit(A, Change(thread="c", at=AT, user="u"))
        await claim(store, call_record("d"))
        assert thread_ids(await store.threads(A)) == ["c", "a", "b", "d"]

    @pytest.mark.parametrize("limit", [1, 2, 7, 20, 21, 1000])
    async def test_pages_hold_each_thread_once(self, stores: Stores, limit: int) -> None:
        """[S16] Pages of any size put together are the whole listing."""
        store = await stores.open()
        for number in range(20):
            await append(store, f"t:{number}", "x")
        found: list[str] = []
        cursor = None
        while True:
            page = await store.threads(A, after=cursor, limit=limit)
            found += thread_ids(page)
            cursor = page.next
            if cursor is None:
                break
            assert len(page.threads) == limit
        assert found == [f"t:{number}" for number in reversed(range(20))]

    async def test_pages_are_stable_while_threads_change(self, stores: Stores) -> None:
        """[S16] A change in between neither repeats nor hides a thread that it leaves alone."""
        store = await stores.open()
        for number in range(6):
            await append(store, f"t{number}", "x")
        page = await store.threads(A, limit=2)
        await append(store, "t5", "listed already")
        await append(store, "t2", "not listed yet")
        await append(store, "new", "x")
        rest = await store.threads(A, after=page.next, limit=10)
        assert thread_ids(page) == ["t5", "t4"]
        assert thread_ids(rest) == ["t3", "t1", "t0"]

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1:", ":t", "-1:t", "1:a b", "9" * 30 + ":t"])
    async def test_a_foreign_cursor_is_refused(self, stores: Stores, cursor: str) -> None:
        """[S16] What no listing gave is an error, not a first page."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.threads(A, after=cursor)

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    async def test_threads_refuses_an_impossible_page(self, stores: Stores, limit: int) -> None:
        """[S16] The limit of a page is 1 to 1000."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.threads(A, limit=limit)

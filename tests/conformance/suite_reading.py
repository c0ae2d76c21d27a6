"""Rules S7 to S12: what is read, and by which tenant."""

from __future__ import annotations

from datetime import timedelta, timezone

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
    ledger_row,
    texts,
    thread_ids,
    user_turn,
)
from turngate.errors import (
    InvalidValue,
    ThreadNotFound,
    UnknownCall,
)
from turngate.records import Change
from turngate.turns import FilePart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import FileRef, ProviderData, Usage

ALL_PARTS = (
    ReasoningPart("hm", provider_data=ProviderData("p", '{"signature":"x"}')),
    TextPart("text with \0, \u2028, \U0001f600 and \u202e"),
    FilePart(
        FileRef(id="file_1", name="a/../b.png", media_type="image/png", size_bytes=9, sha256="0")
    ),
    ToolCallPart(id="call_0", name="track", arguments='{"half": '),
    ToolResultPart(call_id="call_0", content="", name="track", is_error=True),
)

AWKWARD_TURNS = (
    Turn(
        id="turn_whole",
        role="assistant",
        parts=ALL_PARTS,
        created_at=AT,
        model="some-model",
        usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=1, reasoning_tokens=1),
        status="incomplete",
        ended="length",
        retry_of="turn_0",
    ),
    Turn(id="turn_deleted", role="user", parts=(), created_at=AT, status="deleted"),
    Turn(
        id="turn_elsewhere",
        role="tool",
        parts=(TextPart(""),),
        created_at=AT.astimezone(timezone(timedelta(hours=-9, minutes=-30))),
    ),
    Turn(id="turn_long", role="user", parts=(TextPart("word " * 200_000),), created_at=AT),
)


class ReadingRules:
    """Round trips, pages, order, durability and tenants."""

    async def test_what_is_read_equals_what_was_committed(self, stores: Stores) -> None:
        """[S7] Turns with any part, empty, deleted, long or of another zone come back whole."""
        store = await stores.open()
        await store.commit(A, Change(thread="t", at=AT, turns=AWKWARD_TURNS))
        assert (await store.load(A, "t")).turns == AWKWARD_TURNS

    @pytest.mark.parametrize("place", ["text", "turn id", "title", "user", "call", "owner"])
    async def test_a_lone_surrogate_is_refused(self, stores: Stores, place: str) -> None:
        """[S7] A lone surrogate is an error of the caller wherever it stands; nothing is stored."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.commit(A, change_with("\ud83d", place))
        assert (await store.threads(A)).threads == ()

    @pytest.mark.parametrize("place", ["turn id", "title", "user", "call", "owner"])
    async def test_nul_in_a_key_is_refused(self, stores: Stores, place: str) -> None:
        """[S7] NUL is refused outside of a document, where not every database holds it."""
        store = await stores.open()
        with pytest.raises(InvalidValue, match="NUL"):
            await store.commit(A, change_with("a\0b", place))

    async def test_a_time_without_a_zone_is_refused(self, stores: Stores) -> None:
        """[S7] A naive time would be read as another one."""
        store = await stores.open()
        naive = AT.replace(tzinfo=None)
        with pytest.raises(InvalidValue, match="zone"):
            await store.commit(A, Change(thread="t", at=naive, create=True))

    @pytest.mark.parametrize(
        ("before", "limit", "expected"),
        [
            (None, 3, (7, "789")),
            (None, 50, (0, "0123456789")),
            (None, 10, (0, "0123456789")),
            (10, 1, (9, "9")),
            (11, 2, (8, "89")),
            (2**70, 2, (8, "89")),
            (4, 3, (1, "123")),
            (2, 50, (0, "01")),
            (0, 5, (0, "")),
        ],
    )
    async def test_load_gives_the_last_turns_below_a_position(
        self, stores: Stores, before: int | None, limit: int, expected: tuple[int, str]
    ) -> None:
        """[S8] A page is the end of what stands below `before`, oldest first."""
        store = await stores.open()
        await append(store, "t", *"0123456789")
        page = await store.load(A, "t", before=before, limit=limit)
        found = "".join(p.text for t in page.turns for p in t.parts if isinstance(p, TextPart))
        assert ((page.first, found), page.length) == (expected, 10)

    async def test_load_of_a_missing_thread_is_empty(self, stores: Stores) -> None:
        """[S8] A thread that never began has no turns and length 0."""
        store = await stores.open()
        page = await store.load(A, "none", before=7)
        assert (page.first, page.turns, page.length) == (0, (), 0)

    @pytest.mark.parametrize(("before", "limit"), [(None, 0), (None, -1), (-1, 5)])
    async def test_load_refuses_an_impossible_page(
        self, stores: Stores, before: int | None, limit: int
    ) -> None:
        """[S8] A limit below 1 and a negative position are refused as values."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.load(A, "t", before=before, limit=limit)

    async def test_a_long_load_is_whole(self, stores: Stores) -> None:
        """[S8] A page may be as long as the thread."""
        store = await stores.open()
        await append(store, "t", *(str(n) for n in range(1234)))
        assert await texts(store, "t") == [str(n) for n in range(1234)]

    async def test_a_clock_set_back_does_not_reorder(self, stores: Stores) -> None:
        """[S9] [S15] The later commit stands later, also in a listing."""
        # Case t-clock-goes-back.
        store = await stores.open()
        earlier = AT - timedelta(seconds=4)
        await store.commit(A, Change(thread="t", at=AT, turns=(user_turn("a", at=AT),)))
        await store.commit(A, Change(thread="u", at=AT, turns=(user_turn("a", at=AT),)))
        await store.commit(A, Change(thread="t", at=earlier, turns=(user_turn("b", at=earlier),)))
        assert await texts(store, "t") == ["a", "b"]
        assert thread_ids(await store.threads(A)) == ["t", "u"]

    async def test_an_acknowledged_change_is_read_at_once(self, stores: Stores) -> None:
        """[S10] Each append is seen by the reading that follows it."""
        store = await stores.open()
        for length in range(1, 21):
            await append(store, "t", "x")
            assert (await store.load(A, "t", limit=1)).length == length

    async def test_an_acknowledged_change_outlives_the_store(self, stores: Stores) -> None:
        """[S10] All that was stored is there for the next store on the same data."""
        store = await stores.open()
        call = call_record("t")
        await append(store, "t", "a")
        await claim(store, call)
        await store.aclose()
        store = await stores.open()
        assert await texts(store, "t") == ["a"]
        assert await store.call(A, call.id) == call
        assert await append(store, "t", "b") == 2

    async def test_a_foreign_thread_reads_as_a_missing_one(self, stores: Stores) -> None:
        """[S11] Tenant B sees nothing of A by any reading."""
        # Case t-foreign-thread-id-read.
        store = await stores.open()
        call = call_record("x")
        await append(store, "x", "secret")
        await claim(store, call)
        assert await store.load(B, "x") == await store.load(B, "missing")
        assert (await store.threads(B)).threads == ()
        assert await store.active_call(B, "x") is None
        with pytest.raises(ThreadNotFound) as foreign:
            await store.thread(B, "x")
        with pytest.raises(ThreadNotFound) as missing:
            await store.thread(B, "y")
        assert str(foreign.value) == str(missing.value).replace("'y'", "'x'")
        with pytest.raises(UnknownCall):
            await store.call(B, call.id)

    async def test_a_foreign_thread_is_not_written(self, stores: Stores) -> None:
        """[S11] [S12] B's turns in a thread of the same id are B's alone."""
        # Case t-same-thread-id-two-tenants.
        store = await stores.open()
        await append(store, "default", "of A")
        call = call_record("default")
        await claim(store, call)
        assert await append(store, "default", "of B", scope=B) == 1
        with pytest.raises(UnknownCall):
            await end(store, call_record("default", id=call.id, state="failed"), scope=B)
        assert await texts(store, "default") == ["of A"]
        assert await texts(store, "default", scope=B) == ["of B"]
        assert thread_ids(await store.threads(B)) == ["default"]

    async def test_two_tenants_may_use_the_same_ids(self, stores: Stores) -> None:
        """[S12] One and the same change is stored once for each tenant."""
        store = await stores.open()
        call = call_record("t")
        change = Change(
            thread="t", at=AT, turns=(user_turn("a"),), begin=call, ledger=(ledger_row(call.id),)
        )
        assert [await store.commit(A, change), await store.commit(B, change)] == [1, 1]
        assert await stores.ledger(A) == await stores.ledger(B) == list(change.ledger)


def change_with(text: str, place: str) -> Change:
    return Change(
        thread="t",
        at=AT,
        turns=(
            user_turn(
                text if place == "text" else "a", id=text if place == "turn id" else "turn_1"
            ),
        ),
        title=text if place == "title" else None,
        user=text if place == "user" else None,
        begin=call_record(
            "t",
            id=text if place == "call" else "call_1",
            owner=text if place == "owner" else "boot_1",
        ),
    )

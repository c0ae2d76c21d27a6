"""Rules S49 to S54: what is erased, and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
    end,
    guard,
    hold,
    in_state,
    ledger_row,
    review_record,
    texts,
    thread_ids,
    user_turn,
    writing_for,
)
from tests.conformance.suite_memory import fact, keep, revised, summary, write
from turngate.errors import (
    FileNotFound,
    InvalidValue,
    RecallMoved,
    ThreadBusy,
    ThreadMoved,
    ThreadNotFound,
    UnknownCall,
    UnknownReview,
)
from turngate.protocols import ThreadStore
from turngate.records import (
    CallRecord,
    Change,
    Erasure,
    FileRecord,
    Scope,
    Span,
    Step,
    text_hash,
)
from turngate.turns import Turn
from turngate.values import FileRef

FILE = FileRecord(
    ref=FileRef(id="file_1", name="a", media_type="text/plain", size_bytes=1, sha256="0" * 64),
    object="object_1",
    created_at=AT,
    call="call_1",
)


def left_of(turn: Turn) -> Turn:
    """A turn of which nothing but its place is left."""
    return msgspec.structs.replace(turn, parts=(), status="deleted")


async def erase(store: ThreadStore, erasure: Erasure, *, scope: Scope = A, **more: object) -> int:
    change = Change(thread="t", at=AT, erase=erasure, **more)  # type: ignore[arg-type]
    return await store.commit(scope, change)


async def full_thread(store: ThreadStore, *, scope: Scope = A) -> CallRecord:
    """Thread ``t`` with something of everything; its one call, which has ended."""
    call = call_record(id="call_1")
    await claim(store, call, scope=scope)
    review = review_record(call, id="review_1")
    change = writing_for(call, "active")
    ended = in_state(call, "answered")
    await store.commit(
        scope,
        msgspec.structs.replace(
            change,
            turns=(user_turn("secret", id="turn_1"),),
            update=ended,
            reviews=(review,),
            ledger=(ledger_row("call_1", id="ledger_1"),),
            texts=("told",),
            summary=summary(1, 1),
            learnt=Span(0, 1),
            user="ann",
        ),
    )
    await store.add_file(scope, FILE)
    return await store.call(scope, "call_1")


async def state_of(store: ThreadStore, *, scope: Scope = A) -> Sequence[object]:
    """All that can be read of thread ``t`` and its call."""
    return (
        (await store.load(scope, "t")).turns,
        (await store.calls(scope)).calls,
        await store.steps(scope, "call_1"),
        await store.events(scope, "call_1"),
        (await store.reviews(scope)).reviews,
        await store.ledger(scope, "call_1"),
        (await store.files(scope)).files,
        (await store.facts(scope)).facts,
        await store.summary(scope, "t"),
        await store.learnt(scope, "t"),
        await store.text(scope, text_hash("told")),
        await store.erasures(scope, "t"),
    )


class ErasingRules:
    """Deleting turns and threads."""

    async def test_what_is_left_takes_the_place_of_what_was(self, stores: Stores) -> None:
        """[S49] Turns, calls, steps and reviews are replaced; events, files and texts go."""
        store = await stores.open()
        call = await full_thread(store)
        await append(store, "t", "other")
        (turn, other) = (await store.load(A, "t")).turns
        left = msgspec.structs.replace(call, user_turn=None, user=None, text="")
        step = Step(number=0, kind="tool_result", turn=left_of(user_turn("x")))
        review = msgspec.structs.replace(review_record(call, id="review_1"), answer=None)
        erasure = Erasure(
            turns=(left_of(turn),),
            calls=(left,),
            steps=(("call_1", step),),
            reviews=(review,),
            files=("file_1",),
            texts=(text_hash("told"),),
            user="ann",
        )
        assert await erase(store, erasure) == 2
        await store.aclose()
        store = await stores.open()
        page = await store.load(A, "t")
        assert (page.first, page.turns) == (0, (left_of(turn), other))
        assert await store.call(A, "call_1") == left
        assert left.first == 0
        assert await store.steps(A, "call_1") == [step]
        assert await store.events(A, "call_1") == []
        assert await store.review(A, "review_1") == review
        assert (await store.thread(A, "t")).user is None
        assert len(await store.ledger(A, "call_1")) == 1
        assert await store.text(A, text_hash("told")) is None
        with pytest.raises(FileNotFound):
            await store.file(A, "file_1")
        assert await append(store, "t", "more") == 3

    async def test_a_text_that_a_living_call_was_told_stays(self, stores: Stores) -> None:
        """[S49] Of any thread, active or in review; once it has ended, the text can go."""
        store = await stores.open()
        await full_thread(store)
        told = text_hash("told")
        call = msgspec.structs.replace(call_record("u"), instructions=told)
        await claim(store, call)
        await erase(store, Erasure(texts=(told,)))
        assert await store.text(A, told) == "told"
        await end(store, in_state(call, "answered"))
        held = await hold(store, msgspec.structs.replace(call_record("v"), instructions=told))
        await erase(store, Erasure(texts=(told,)))
        assert await store.text(A, told) == "told"
        await store.commit(A, decision(held))
        await erase(store, Erasure(texts=(told,)))
        assert await store.text(A, told) is None

    async def test_erasing_is_a_change_of_its_thread(self, stores: Stores) -> None:
        """[S15] [S49] It comes first in a listing; another user's name stays."""
        store = await stores.open()
        await full_thread(store)
        await append(store, "u", "later")
        await erase(store, Erasure(user="bob"))
        assert thread_ids(await store.threads(A)) == ["t", "u"]
        assert (await store.thread(A, "t")).user == "ann"

    async def test_a_whole_thread_leaves_its_ledger(self, stores: Stores) -> None:
        """[S50] Nothing else of it is read any more, and its ids may be used anew."""
        store = await stores.open()
        await full_thread(store)
        assert await erase(store, Erasure(whole=True)) == 0
        assert (await store.load(A, "t")).length == 0
        assert (await store.calls(A)).calls == ()
        assert await store.steps(A, "call_1") == []
        assert await store.events(A, "call_1") == []
        assert await store.summary(A, "t") is None
        assert await store.learnt(A, "t") is None
        assert [row.id for row in await store.ledger(A, "call_1")] == ["ledger_1"]
        with pytest.raises(ThreadNotFound):
            await store.thread(A, "t")
        with pytest.raises(UnknownCall):
            await store.call(A, "call_1")
        with pytest.raises(UnknownReview):
            await store.review(A, "review_1")
        again = call_record(id="call_1")
        await claim(store, again)
        turns = (user_turn("anew", id="turn_1"),)
        assert await store.commit(A, Change(thread="t", at=AT, turns=turns)) == 1
        row = ledger_row("call_1", id="ledger_1")
        with pytest.raises(InvalidValue, match="ledger_1"):
            await store.commit(A, Change(thread="t", at=AT, ledger=(row,)))

    async def test_a_thread_that_has_calls_alone_can_be_erased(self, stores: Stores) -> None:
        """[S50] It need not have begun."""
        store = await stores.open()
        call = call_record()
        await claim(store, call)
        await end(store, in_state(call, "failed"))
        assert await erase(store, Erasure(whole=True), expected=0) == 0
        assert (await store.calls(A)).calls == ()

    @pytest.mark.parametrize("whole", [True, False])
    async def test_a_call_that_has_not_ended_stands_in_the_way(
        self, stores: Stores, whole: bool
    ) -> None:
        """[S51] Active or in review: the error names it, and nothing is erased."""
        store = await stores.open()
        call = await full_thread(store)
        (turn,) = (await store.load(A, "t")).turns
        erasure = Erasure(whole=whole, turns=() if whole else (left_of(turn),))
        active = call_record()
        await claim(store, active)
        before = await state_of(store)
        with pytest.raises(ThreadBusy) as busy:
            await erase(store, erasure)
        assert (busy.value.call_id, busy.value.in_review) == (active.id, False)
        assert await state_of(store) == before
        await end(store, in_state(active, "answered"))
        held = await hold(store, call_record())
        with pytest.raises(ThreadBusy) as busy:
            await erase(store, erasure)
        assert (busy.value.call_id, busy.value.in_review) == (held.id, True)
        await store.commit(A, decision(held))
        with pytest.raises(InvalidValue, match="not ended"):
            await erase(store, Erasure(calls=(in_state(call, "active"),)))
        await erase(store, erasure)
        assert "secret" not in str(await state_of(store))

    @pytest.mark.parametrize("whole", [True, False])
    async def test_a_fact_that_names_a_source_of_it_stands_in_the_way(
        self, stores: Stores, whole: bool
    ) -> None:
        """[S52] Unless the change itself takes the source from it; a fact of other turns does
        not."""
        store = await stores.open()
        await full_thread(store)
        (turn,) = (await store.load(A, "t")).turns
        erasure = Erasure(whole=whole, turns=() if whole else (left_of(turn),))
        known = fact()
        await keep(store, known)
        before = await state_of(store)
        with pytest.raises(RecallMoved):
            await erase(store, erasure)
        assert await state_of(store) == before
        forgotten = revised(known, state="forgotten", text="", sources=())
        await erase(store, erasure, facts=(forgotten,))
        assert (await store.facts(A)).facts == (forgotten,)

    async def test_erasures_are_counted_and_guard(self, stores: Stores) -> None:
        """[S53] Also those of summaries, and beyond the thread's end; a change that expects
        another count is a `ThreadMoved`, and nothing of it is stored."""
        store = await stores.open()
        await full_thread(store)
        assert await store.erasures(A, "t") == 0
        guarded = Change(thread="t", at=AT, turns=(user_turn("new"),), erasures=0)
        assert await store.commit(A, guarded) == 2
        await erase(store, Erasure())
        await store.commit(A, Change(thread="t", at=AT, forget_summaries=0))
        assert await store.erasures(A, "t") == 2
        for count in (0, 1, 3):
            late = Change(thread="t", at=AT, turns=(user_turn("late"),), erasures=count)
            with pytest.raises(ThreadMoved, match="deleted"):
                await store.commit(A, late)
        assert (await store.load(A, "t")).length == 2
        await erase(store, Erasure(whole=True))
        assert await store.erasures(A, "t") == 3
        late = Change(thread="t", at=AT, learnt=Span(0, 2), erasures=2)
        with pytest.raises(ThreadMoved):
            await store.commit(A, late)
        assert await store.learnt(A, "t") is None

    async def test_of_two_erasures_of_one_state_one_is_stored(self, stores: Stores) -> None:
        """[S53] The other one is to read again."""
        store = await stores.open()
        await full_thread(store)
        both = (erase(store, Erasure(), erasures=0) for _ in range(2))
        done = await asyncio.gather(*both, return_exceptions=True)
        assert [type(each) for each in done if not isinstance(each, int)] == [ThreadMoved]

    @pytest.mark.parametrize("whole", [True, False])
    async def test_another_tenant_keeps_all_of_it(self, stores: Stores, whole: bool) -> None:
        """[S54] The same ids of two tenants: what one erases, the other has."""
        store = await stores.open()
        call = await full_thread(store)
        await full_thread(store, scope=B)
        (turn,) = (await store.load(A, "t")).turns
        before = await state_of(store, scope=B)
        if whole:
            erasure = Erasure(whole=True, files=("file_1",), texts=(text_hash("told"),))
        else:
            erasure = Erasure(
                turns=(left_of(turn),),
                calls=(msgspec.structs.replace(call, text=""),),
                steps=(("call_1", Step(number=0, kind="tool_start")),),
                reviews=(msgspec.structs.replace(review_record(call, id="review_1"), answer=None),),
                files=("file_1",),
                texts=(text_hash("told"),),
            )
        await erase(store, erasure)
        assert await state_of(store, scope=B) == before
        assert await texts(store, "t", scope=B) == ["secret"]

    async def test_a_failed_erasure_leaves_all(self, stores: Stores) -> None:
        """[S5] [S49] Whatever of the change is refused, nothing is erased."""
        store = await stores.open()
        await full_thread(store)
        before = await state_of(store)
        row = ledger_row("call_1", id="ledger_1")
        with pytest.raises(InvalidValue):
            await erase(store, Erasure(whole=True), ledger=(row,))
        with pytest.raises(RecallMoved):
            await erase(store, Erasure(whole=True), facts=(fact(revision=3),))
        wrong = guard(call_record(id="call_1", owner="other"))
        with pytest.raises(UnknownCall):
            await erase(store, Erasure(whole=True), guard=wrong)
        assert await state_of(store) == before
        await write(store, summary(2, 9))

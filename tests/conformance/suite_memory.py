"""Rules S41 to S48: summaries, facts, and what was learnt."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.conformance.store_values import (
    AT,
    A,
    B,
    Stores,
    append,
    call_record,
    in_state,
    ledger_row,
    texts,
    user_turn,
)
from turngate.errors import InvalidValue, RecallMoved, UnknownCall, UnknownFact
from turngate.protocols import ThreadStore
from turngate.records import (
    Change,
    FactPage,
    FactRecord,
    FactSource,
    Scope,
    Span,
    SummaryRecord,
)

_numbers = itertools.count(1)

FULL = FactRecord(
    id="fact_full",
    user="ann \U0001f600",
    kind="event",
    text="Says “hi” \0 and\n\u202eleaves",
    created_at=AT,
    state="superseded",
    sources=(
        FactSource(thread="t", turn="turn_a"),
        FactSource(thread="u", turn="turn_b", trusted=False),
    ),
    author="bea",
    call="facts_1",
    supersedes="fact_0",
    superseded_by="fact_2",
    by="cid",
    changed_at=AT + timedelta(microseconds=1),
)


def summary(version: int, upto: int, *, thread: str = "t", text: str = "so far") -> SummaryRecord:
    return SummaryRecord(
        thread=thread, version=version, upto=upto, text=text, call="memory_1", created_at=AT
    )


def fact(text: str = "Lives in Oslo.", *, user: str = "ann", **fields: Any) -> FactRecord:
    """A fact with a new id, from turn ``turn_1`` of thread ``t``."""
    given = {
        "id": f"fact_{next(_numbers)}",
        "kind": "profile",
        "created_at": AT,
        "sources": (FactSource(thread="t", turn="turn_1"),),
        **fields,
    }
    return FactRecord(user=user, text=text, **given)


def revised(old: FactRecord, **changes: Any) -> FactRecord:
    return msgspec.structs.replace(old, revision=old.revision + 1, **changes)


async def keep(store: ThreadStore, *facts: FactRecord, scope: Scope = A) -> None:
    await store.commit(scope, Change(thread="-", at=AT, facts=facts))


async def write(store: ThreadStore, *summaries: SummaryRecord, scope: Scope = A) -> None:
    for each in summaries:
        await store.commit(scope, Change(thread=each.thread, at=AT, summary=each))


def ids(page: FactPage) -> list[str]:
    return [each.id for each in page.facts]


class MemoryRules:
    """What is remembered of threads and of users."""

    # ── summaries ────────────────────────────────────────────────────────────────────────────

    async def test_the_newest_summary_is_read_and_each_version(self, stores: Stores) -> None:
        """[S7] [S41] A summary comes back as it was committed, from the next opening too."""
        store = await stores.open()
        assert await store.summary(A, "t") is None
        first, second = summary(1, 4, text="a \0 \U0001f600"), summary(2, 9)
        await write(store, first, second)
        assert await store.summary(A, "t") == second
        assert await store.summary(A, "t", version=1) == first
        assert await store.summary(A, "t", version=3) is None
        assert await store.summary(A, "u") is None
        await store.aclose()
        assert await (await stores.open()).summary(A, "t") == second

    @pytest.mark.parametrize(("version", "upto"), [(1, 9), (2, 4), (2, 3), (3, 9)])
    async def test_a_summary_that_is_not_the_next_is_refused(
        self, stores: Stores, version: int, upto: int
    ) -> None:
        """[S41] A version that is there, one too many, or one that covers no more."""
        store = await stores.open()
        await write(store, summary(1, 4))
        with pytest.raises(RecallMoved):
            await write(store, summary(version, upto, text="other"))
        assert await store.summary(A, "t") == summary(1, 4)

    async def test_of_two_writers_of_a_version_one_is_stored(self, stores: Stores) -> None:
        """[S41] Ten at once: the first is the version, and the others learn it."""
        store = await stores.open()
        outcomes = await asyncio.gather(
            *(write(store, summary(1, 4, text=str(n))) for n in range(10)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes].count(RecallMoved) == 9
        assert await store.summary(A, "t") == summary(1, 4, text=str(outcomes.index(None)))

    async def test_forgotten_summaries_are_gone_and_can_be_written_again(
        self, stores: Stores
    ) -> None:
        """[S42] Those that cover the position go; a new one may come in the same change."""
        store = await stores.open()
        await write(store, summary(1, 4), summary(2, 8), summary(3, 12), summary(1, 4, thread="u"))
        await store.commit(A, Change(thread="t", at=AT, forget_summaries=4))
        assert await store.summary(A, "t") == summary(1, 4)
        again = summary(1, 2, text="anew")
        await store.commit(A, Change(thread="t", at=AT, forget_summaries=0, summary=again))
        assert await store.summary(A, "t") == again
        assert await store.summary(A, "u") == summary(1, 4, thread="u")

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    async def test_a_fact_is_kept_as_it_is(self, stores: Stores) -> None:
        """[S7] [S43] Every field of a fact comes back as it was committed."""
        store = await stores.open()
        plain = fact()
        await keep(store, FULL, plain)
        assert await store.fact(A, FULL.id) == FULL
        assert await store.fact(A, plain.id) == plain
        assert (await store.facts(A)).facts == (plain, FULL)
        with pytest.raises(UnknownFact):
            await store.fact(A, "fact_none")

    async def test_a_fact_is_replaced_by_its_next_revision(self, stores: Stores) -> None:
        """[S43] It keeps its place; any other revision, or another user, is refused."""
        store = await stores.open()
        first, second = fact(), fact("Has a dog.")
        await keep(store, first, second)
        later = revised(first, state="superseded")
        await keep(store, later)
        assert (await store.facts(A)).facts == (second, later)
        for wrong in (later, revised(later, user="bob"), revised(revised(later)), fact(revision=1)):
            with pytest.raises(RecallMoved):
                await keep(store, wrong)
        with pytest.raises(InvalidValue, match=first.id):
            await keep(store, first)
        assert (await store.facts(A)).facts == (second, later)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"created_at": AT.replace(tzinfo=None)},
            {"changed_at": AT.replace(tzinfo=None)},
            {"id": ""},
            {"user": ""},
            {"user": "a\0"},
            {"text": "\ud83d"},
            {"kind": "rule"},
            {"state": "maybe"},
            {"revision": -1},
            {"sources": (FactSource(thread="t", turn=""),)},
        ],
        ids=str,
    )
    async def test_what_is_no_fact_is_refused(self, stores: Stores, wrong: dict[str, Any]) -> None:
        """[S7] [S43] Naive times, ids and texts that no database holds, and other types."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await keep(store, msgspec.structs.replace(fact(), **wrong))
        assert (await store.facts(A)).facts == ()

    async def test_facts_are_listed_by_what_is_asked(self, stores: Stores) -> None:
        """[S44] By user, state, thread and turn, newest first; a source that went is none."""
        store = await stores.open()
        other = (FactSource(thread="u", turn="turn_2"), FactSource(thread="t", turn="turn_3"))
        mine, second = fact(), fact("Has a dog.", sources=other)
        his = fact(user="bob", state="proposed")
        await keep(store, mine, second, his)
        assert ids(await store.facts(A, user="ann")) == [second.id, mine.id]
        assert ids(await store.facts(A, state="proposed")) == [his.id]
        assert ids(await store.facts(A, user="ann", state="proposed")) == []
        assert ids(await store.facts(A, thread="t")) == [his.id, second.id, mine.id]
        assert ids(await store.facts(A, thread="t", turn="turn_3")) == [second.id]
        assert ids(await store.facts(A, thread="u", turn="turn_3")) == []
        await keep(store, revised(second, sources=other[:1]))
        assert ids(await store.facts(A, thread="t")) == [his.id, mine.id]
        for wrong in ({"turn": "turn_1"}, {"user": "ann", "thread": "t"}, {"limit": 0}):
            with pytest.raises(InvalidValue):
                await store.facts(A, **wrong)

    async def test_pages_of_facts_hold_each_once(self, stores: Stores) -> None:
        """[S16] [S44] Cursors walk on, and only a cursor that a listing gave is one."""
        store = await stores.open()
        facts = [fact(str(n)) for n in range(7)]
        await keep(store, *facts)
        found: list[str] = []
        page = await store.facts(A, user="ann", limit=3)
        found += ids(page)
        while page.next is not None:
            page = await store.facts(A, user="ann", limit=3, after=page.next)
            found += ids(page)
        assert found == [each.id for each in reversed(facts)]
        with pytest.raises(InvalidValue):
            await store.facts(A, after="x")

    # ── search ───────────────────────────────────────────────────────────────────────────────

    async def test_search_gives_active_facts_best_first(self, stores: Stores) -> None:
        """[S45] Rare words count most; other states and other users are not found."""
        store = await stores.open()
        dog, boat, oslo = fact("Ann has a dog."), fact("Ann has a boat."), fact("Wohnt in Köln.")
        old = fact("Ann had boats.", state="superseded")
        his = fact("Has a boat.", user="bob")
        await keep(store, dog, boat, oslo, old, his)
        found = await store.search_facts(A, user="ann", query="Which boats has Ann?")
        assert [each.id for each in found] == [boat.id, dog.id]
        found = await store.search_facts(A, user="ann", query="KOLN", limit=5)
        assert [each.id for each in found] == [oslo.id]
        assert len(await store.search_facts(A, user="ann", query="Ann", limit=1)) == 1

    async def test_search_follows_what_becomes_of_a_fact(self, stores: Stores) -> None:
        """[S45] What is superseded or forgotten is not found, what is active again is."""
        store = await stores.open()
        boat = fact("Has a boat.")
        await keep(store, boat)
        gone = revised(boat, state="superseded")
        await keep(store, gone)
        assert list(await store.search_facts(A, user="ann", query="boat")) == []
        back = revised(gone, state="active")
        await keep(store, back)
        assert list(await store.search_facts(A, user="ann", query="boat")) == [back]
        await keep(store, revised(back, state="forgotten", text=""))
        assert list(await store.search_facts(A, user="ann", query="boat")) == []

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "?!",
            '"',
            "boat OR dog",
            "NOT boat",
            'words : "boat"*',
            "marks : m",
            "boat) OR (words : dog",
            "boat*",
            "^boat",
            "NEAR(boat dog)",
            "a" * 5000,
            " ".join(str(n) for n in range(5000)),
            "boat\0dog",
            "\ud83d boat",
            "'; DROP TABLE facts; --",
            "पढ़ना ไทย 東京 \U0001f600",
        ],
        ids=lambda query: query[:20],
    )
    async def test_a_query_is_text(self, stores: Stores, query: str) -> None:
        """[S45] No sign of a query has a meaning: the other user's fact is never found."""
        store = await stores.open()
        mine, his = fact("Has a boat."), fact("Has a dog.", user="bob")
        await keep(store, mine, his)
        found = await store.search_facts(A, user="ann", query=query)
        assert [each.id for each in found] in ([], [mine.id])
        assert ("boat" in query) == bool(found)
        assert (await store.facts(A)).facts == (his, mine)

    # ── what was learnt ──────────────────────────────────────────────────────────────────────

    async def test_learning_moves_on_from_where_it_ended(self, stores: Stores) -> None:
        """[S46] A span that begins elsewhere is refused, the same one again too."""
        store = await stores.open()
        assert await store.learnt(A, "t") is None
        await store.commit(A, Change(thread="t", at=AT, learnt=Span(3, 4)))
        for wrong in (Span(3, 4), Span(0, 9), Span(8, 1)):
            with pytest.raises(RecallMoved):
                await store.commit(A, Change(thread="t", at=AT, learnt=wrong))
        assert await store.learnt(A, "t") == 7
        await store.commit(A, Change(thread="t", at=AT, learnt=Span(7, 1)))
        assert await store.learnt(A, "t") == 8
        with pytest.raises(InvalidValue):
            await store.commit(A, Change(thread="t", at=AT, learnt=Span(8, 0)))

    # ── tenants and wholeness ────────────────────────────────────────────────────────────────

    async def test_tenants_share_no_memory(self, stores: Stores) -> None:
        """[S11] [S12] [S47] The same ids, users and words in two tenants are two things."""
        store = await stores.open()
        mine = fact("Has a boat.")
        theirs = msgspec.structs.replace(mine, text="Has a boat in Rome.")
        await write(store, summary(1, 4))
        await keep(store, mine)
        await store.commit(A, Change(thread="t", at=AT, learnt=Span(0, 4)))
        assert await store.summary(B, "t") is None
        assert await store.learnt(B, "t") is None
        assert (await store.facts(B)).facts == ()
        assert (await store.facts(B, thread="t")).facts == ()
        assert list(await store.search_facts(B, user="ann", query="boat")) == []
        with pytest.raises(UnknownFact):
            await store.fact(B, mine.id)
        await write(store, summary(1, 2, text="other"), scope=B)
        await keep(store, theirs, scope=B)
        await keep(store, revised(theirs, state="forgotten", text=""), scope=B)
        await store.commit(B, Change(thread="t", at=AT, forget_summaries=0))
        assert await store.summary(A, "t") == summary(1, 4)
        assert list(await store.search_facts(A, user="ann", query="boat")) == [mine]

    async def test_no_order_depends_on_another_tenant(self, stores: Stores) -> None:
        """[S47] Words that are common elsewhere weigh as much as before."""
        store = await stores.open()
        await keep(store, fact("alpha beta"), fact("beta"), fact("gamma beta"))
        before = list(await store.search_facts(A, user="ann", query="gamma alpha beta"))
        await keep(store, *(fact("alpha") for _ in range(50)), scope=B)
        await keep(store, *(fact("alpha", user="bob") for _ in range(50)))
        assert list(await store.search_facts(A, user="ann", query="gamma alpha beta")) == before

    @pytest.mark.parametrize("wrong", ["summary", "fact", "learnt"])
    async def test_memory_is_stored_with_the_rest_or_not_at_all(
        self, stores: Stores, wrong: str
    ) -> None:
        """[S5] [S48] One part that is refused takes the call, the row and all the rest with it."""
        store = await stores.open()
        await append(store, "t", "one")
        call = in_state(call_record("t"), "answered")
        row, new = ledger_row(call.id), fact()
        change = Change(
            thread="t",
            at=AT,
            turns=(user_turn("two"),),
            begin=call,
            ledger=(row,),
            summary=summary(2 if wrong == "summary" else 1, 1),
            facts=(new, fact(revision=1)) if wrong == "fact" else (new,),
            learnt=Span(0, 1),
        )
        if wrong == "learnt":
            await store.commit(A, Change(thread="t", at=AT, learnt=Span(0, 2)))
        with pytest.raises(RecallMoved):
            await store.commit(A, change)
        assert await texts(store, "t") == ["one"]
        assert await store.summary(A, "t") is None
        assert (await store.facts(A)).facts == ()
        assert list(await store.search_facts(A, user="ann", query="Oslo")) == []
        assert await stores.ledger(A) == []
        with pytest.raises(UnknownCall):
            await store.call(A, call.id)

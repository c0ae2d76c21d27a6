"""What becomes of a user's facts: taken in, written by hand, decided on, taken back, forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngate.errors import InvalidValue, UnknownFact
from turngate.fact_book import FactBook
from turngate.facts import fact_key
from turngate.records import FactRecord, FactSource

AT = datetime(2026, 3, 1, tzinfo=UTC)
LATER = datetime(2026, 3, 2, tzinfo=UTC)


def fact(id: str, text: str, *, trusted: bool = True, **fields: Any) -> FactRecord:
    source = FactSource(thread="t", turn=f"turn_{id}", trusted=trusted)
    given = {"user": "ann", "kind": "profile", "created_at": AT, "sources": (source,), **fields}
    return FactRecord(id=id, text=text, **given)


def by_hand(id: str, text: str, **fields: Any) -> FactRecord:
    return fact(id, text, **{"sources": (), "author": "bea", "by": "bea", **fields})


class Notes:
    """A user's facts over several commits, each a day after the last."""

    def __init__(self, *facts: FactRecord) -> None:
        self.facts = {each.id: each for each in facts}
        self.at = LATER

    @property
    def book(self) -> FactBook:
        self.at += timedelta(days=1)
        return FactBook(reversed(self.facts.values()), at=self.at)

    def keep(self, book: FactBook) -> None:
        for each in book.changes:
            before = self.facts.get(each.id)
            assert each.revision == (before.revision + 1 if before is not None else 0)
            self.facts[each.id] = each

    def take_in(self, *new: FactRecord) -> None:
        book = self.book
        for each in new:
            book.take_in(each)
        self.keep(book)

    def do(self, change: str, *args: Any, **more: Any) -> Any:
        book = self.book
        given = getattr(book, change)(*args, **more)
        self.keep(book)
        return given

    @property
    def states(self) -> dict[str, str]:
        return {each.id: each.state for each in self.facts.values()}


# ── what a helper call found ─────────────────────────────────────────────────────────────────


def test_repeated_fact_gets_the_new_source() -> None:
    """The same words again are the same fact, with one more turn behind it."""
    old, again = fact("a", "Lives in Oslo."), fact("b", "lives in OSLO", kind="event")
    notes = Notes(old)
    notes.take_in(again)
    (kept,) = notes.facts.values()
    assert (kept.text, kept.kind, kept.revision) == ("Lives in Oslo.", "profile", 1)
    assert kept.sources == (*old.sources, *again.sources)
    book = notes.book
    book.take_in(again)
    assert book.changes == ()


def test_repeat_within_one_answer_is_one_fact() -> None:
    """Two of the same are one new record, at its first revision."""
    notes = Notes()
    notes.take_in(fact("a", "Has a dog."), fact("b", "has a dog"))
    (new,) = notes.facts.values()
    assert (new.id, new.revision, len(new.sources)) == ("a", 0, 2)


def test_correction_supersedes_and_both_are_kept() -> None:
    """The old fact names the new one, and the new one the old."""
    notes = Notes(fact("a", "Lives in Oslo."))
    notes.take_in(fact("b", "Lives in Rome.", supersedes="a"))
    assert notes.states == {"a": "superseded", "b": "active"}
    assert (notes.facts["a"].superseded_by, notes.facts["b"].supersedes) == ("b", "a")
    assert notes.facts["a"].text == "Lives in Oslo."


def test_correction_of_what_was_corrected_meanwhile_supersedes_that() -> None:
    """Who was shown the old fact corrects what stands for it now."""
    notes = Notes(fact("a", "Lives in Oslo."))
    notes.do("edit", "a", "Lives in Bergen.", "b", by="bea")
    notes.take_in(fact("c", "Lives in Rome.", supersedes="a"))
    assert notes.states == {"a": "superseded", "b": "superseded", "c": "active"}


def test_correction_to_what_is_known_supersedes_too() -> None:
    """The corrected fact does not stay beside the one that is true."""
    notes = Notes(by_hand("a", "Lives in Oslo."), by_hand("b", "Lives in Rome."))
    notes.take_in(fact("c", "Lives in Rome.", supersedes="a"))
    assert notes.states == {"a": "superseded", "b": "active"}
    assert notes.facts["b"].sources == fact("c", "").sources


def test_proposed_correction_supersedes_nothing_yet() -> None:
    """Until a person approves it, the old fact is shown."""
    notes = Notes(fact("a", "Lives in Oslo."))
    notes.take_in(fact("b", "Lives in Rome.", supersedes="a", state="proposed"))
    assert notes.states == {"a": "active", "b": "proposed"}
    assert notes.facts["b"].supersedes == "a"


def test_what_no_person_said_corrects_nothing_that_one_said() -> None:
    """A tool's contradiction is left out; of another tool's fact it is a correction."""
    poison = fact("b", "Lives in Rome.", trusted=False, supersedes="a")
    notes = Notes(fact("a", "Lives in Oslo."))
    notes.take_in(poison)
    assert notes.states == {"a": "active"}
    notes = Notes(fact("a", "Lives in Oslo.", trusted=False))
    notes.take_in(poison)
    assert notes.states == {"a": "superseded", "b": "active"}


def test_repeat_by_a_tool_gives_no_trust_and_takes_none() -> None:
    """It is one more source, whatever kind the helper says it is."""
    notes = Notes(fact("a", "Lives in Oslo."))
    notes.take_in(fact("b", "Lives in Oslo", trusted=False, kind="event"))
    assert [source.trusted for source in notes.facts["a"].sources] == [True, False]
    notes = Notes(fact("a", "Lives in Oslo.", trusted=False))
    notes.take_in(fact("b", "Lives in Oslo", trusted=False))
    assert not notes.facts["a"].trusted


@pytest.mark.parametrize("kind", ["profile", "preference", "event"])
def test_rejected_fact_does_not_come_again(kind: str) -> None:
    """What a person refused stays refused, under any kind."""
    notes = Notes(fact("a", "Lives in Oslo.", state="rejected"))
    notes.take_in(fact("b", "Lives in Oslo", kind=kind))
    assert notes.states == {"a": "rejected"}


def test_what_the_user_says_needs_no_approval_of_a_tools_proposal() -> None:
    """A proposal that the user then says becomes active, and corrects what it names."""
    notes = Notes(fact("a", "Lives in Oslo.", trusted=False))
    waiting = fact("b", "Lives in Rome.", trusted=False, state="proposed", supersedes="a")
    notes.take_in(waiting)
    notes.take_in(fact("c", "Lives in Rome.", trusted=False, state="proposed"))
    assert notes.states == {"a": "active", "b": "proposed"}
    notes.take_in(fact("d", "Lives in Rome."))
    assert notes.states == {"a": "superseded", "b": "active"}
    assert notes.facts["b"].trusted


# ── by hand ──────────────────────────────────────────────────────────────────────────────────


def test_adding_what_is_there_is_what_is_there() -> None:
    """A proposal becomes active by it, an untrusted fact trusted; the person's kind counts."""
    notes = Notes(fact("a", "Has a cat.", trusted=False, state="proposed"))
    said = notes.do("add", by_hand("b", "has a cat", kind="event"))
    assert notes.facts == {"a": said}
    assert (said.state, said.kind, said.trusted) == ("active", "event", True)
    assert notes.do("add", by_hand("c", "Has a cat.", kind="event")) == said


def test_edit_to_the_text_of_another_fact_leaves_one() -> None:
    """The edited fact is superseded by the one that said so already, proposed or not."""
    for state in ("active", "proposed"):
        notes = Notes(by_hand("a", "Lives in Oslo."), fact("b", "Lives in Rome.", state=state))
        assert notes.do("edit", "a", "lives in rome", "c", by="bea").id == "b"
        assert notes.states == {"a": "superseded", "b": "active"}
        notes.do("reject", "b", by="bea")
        assert notes.states == {"a": "active", "b": "rejected"}


def test_edit_that_mends_the_writing_can_be_undone() -> None:
    """A new fact with the same words in other letters, and back."""
    notes = Notes(by_hand("a", "lives in oslo"))
    assert notes.do("edit", "a", "Lives in Oslo.", "b", by="bea").text == "Lives in Oslo."
    notes.do("reject", "b", by="bea")
    assert notes.states == {"a": "active", "b": "rejected"}


def test_nothing_becomes_active_that_nobody_approved() -> None:
    """Where the edit of a proposal is taken back, it is a proposal again."""
    notes = Notes(by_hand("a", "Lives in Oslo."))
    notes.take_in(fact("b", "Lives in Rome.", state="proposed", supersedes="a"))
    notes.do("edit", "b", "Lives in Rome, Italy.", "c", by="bea")
    assert notes.states == {"a": "superseded", "b": "superseded", "c": "active"}
    notes.do("reject", "c", by="bea")
    assert notes.states == {"a": "active", "b": "proposed", "c": "rejected"}
    assert notes.facts["a"].superseded_by is None


def test_second_of_two_proposals_supersedes_the_first() -> None:
    """Both correct the same fact; what is approved last is true."""
    notes = Notes(by_hand("a", "Lives in Oslo."))
    notes.take_in(fact("b", "Lives in Rome.", state="proposed", supersedes="a"))
    notes.take_in(fact("c", "Lives in Paris.", state="proposed", supersedes="a"))
    notes.do("approve", "b", by="bea")
    notes.do("approve", "c", by="bea")
    assert notes.states == {"a": "superseded", "b": "superseded", "c": "active"}
    notes.do("reject", "c", by="bea")
    assert notes.states == {"a": "superseded", "b": "active", "c": "rejected"}


def test_what_is_restored_is_no_second_fact() -> None:
    """A text that was written again meanwhile stays superseded when its correction goes."""
    notes = Notes(by_hand("a", "Lives in Oslo."))
    notes.do("edit", "a", "Lives in Rome.", "b", by="bea")
    notes.do("add", by_hand("c", "Lives in Oslo.", created_at=LATER))
    notes.do("reject", "b", by="bea")
    assert notes.states == {"a": "superseded", "b": "rejected", "c": "active"}
    notes.do("reject", "c", by="bea")
    assert notes.states["a"] == "active"


def test_history_is_the_same_from_each_member() -> None:
    """All that a fact came from and became, edited proposals among them."""
    notes = Notes(by_hand("a", "Lives in Oslo."), by_hand("x", "Has a dog."))
    notes.take_in(fact("b", "Lives in Rome.", state="proposed", supersedes="a"))
    notes.do("edit", "b", "Lives in Rome, Italy.", "c", by="bea")
    for each in "abc":
        assert [f.id for f in notes.book.history(each)] == ["a", "b", "c"]
    assert notes.do("erase_history", "a", by="bea") == 3
    assert {f.text for f in notes.facts.values()} == {"", "Has a dog."}
    assert notes.do("erase_history", "a", by="bea") == 0


def test_decision_on_another_state_or_another_fact_is_refused() -> None:
    """The error names the state that it is in."""
    notes = Notes(by_hand("a", "Lives in Oslo."))
    with pytest.raises(InvalidValue, match="active, not proposed"):
        notes.do("approve", "a", by="bea")
    with pytest.raises(UnknownFact):
        notes.do("reject", "b", by="bea")
    with pytest.raises(UnknownFact):
        notes.book.history("b")


# ── sources that go ──────────────────────────────────────────────────────────────────────────


def of_thread(thread: str) -> Any:
    return lambda source: source.thread == thread


def of_turn(turn: str) -> Any:
    return lambda source: source.turn == turn


def test_fact_goes_with_its_last_source_unless_a_person_wrote_it() -> None:
    """By hand it stays without one; an edit of what was learnt goes with that."""
    other = FactSource(thread="u", turn="turn_u")
    notes = Notes(
        fact("a", "Lives in Oslo."),
        by_hand("b", "Has a dog.", sources=fact("b", "").sources),
        fact("c", "Likes tea.", sources=(*fact("c", "").sources, other)),
        fact("d", "Has a cat."),
    )
    notes.do("edit", "d", "Has two cats.", "e", by="bea")
    notes.do("add", by_hand("f", "Plays chess."))
    assert notes.do("forget_sources", of_thread("t"), by=None) == 3
    texts = {each.id: each.text for each in notes.facts.values() if each.text}
    assert texts == {"b": "Has a dog.", "c": "Likes tea.", "f": "Plays chess."}
    assert notes.facts["b"].sources == ()
    assert notes.facts["c"].sources == (other,)


def test_correction_that_goes_gives_back_what_it_corrected() -> None:
    """Also through a fact in between, and to what is proposed in its place."""
    first, second = FactSource(thread="u", turn="1"), FactSource(thread="v", turn="1")
    notes = Notes(fact("a", "Lives in Oslo.", sources=(first,)))
    notes.take_in(fact("b", "Lives in Rome.", supersedes="a"))
    notes.take_in(fact("c", "Lives in Paris.", supersedes="b", sources=(second,)))
    notes.take_in(fact("d", "Lives in Bonn.", supersedes="c", sources=(first,), state="proposed"))
    assert notes.do("forget_sources", of_thread("t"), by=None) == 1
    assert notes.states == {"a": "superseded", "b": "forgotten", "c": "active", "d": "proposed"}
    assert notes.do("forget_sources", of_thread("v"), by=None) == 1
    assert notes.states == {"a": "active", "b": "forgotten", "c": "forgotten", "d": "proposed"}
    notes.do("approve", "d", by="bea")
    assert notes.states["a"] == "superseded"


def test_superseded_fact_that_no_person_says_any_more_comes_back_as_a_proposal() -> None:
    """Where such facts wait, whatever brings it back."""
    said = FactSource(thread="u", turn="1")
    for holds, left in ((True, "proposed"), (False, "active")):
        notes = Notes(fact("a", "Likes tea.", sources=(said,)))
        notes.take_in(fact("b", "Likes tea.", trusted=False))
        notes.take_in(fact("c", "Likes coffee.", supersedes="a"))
        notes.do("forget_sources", of_thread("u"), by=None, holds=holds)
        notes.do("reject", "c", by="bea")
        assert (notes.states["a"], notes.facts["a"].trusted) == (left, False)


def test_what_is_restored_takes_the_place_of_a_proposal_that_says_the_same() -> None:
    """It was active, and is so again, with the sources of both."""
    notes = Notes(fact("a", "Likes tea."))
    notes.do("edit", "a", "Likes juice.", "b", by="bea")
    notes.take_in(fact("c", "Likes tea.", trusted=False, state="proposed"))
    notes.do("reject", "b", by="bea")
    assert notes.states == {"a": "active", "b": "rejected", "c": "superseded"}
    assert len(notes.facts["a"].sources) == 2
    notes = Notes(fact("a", "Lives in Rome.", trusted=False, state="proposed"))
    notes.do("edit", "a", "Has a dog.", "b", by="bea")
    notes.take_in(fact("c", "Lives in Rome.", state="proposed"))
    notes.do("reject", "b", by="bea")
    assert notes.states == {"a": "superseded", "b": "rejected", "c": "proposed"}
    assert len(notes.facts["c"].sources) == 2


def test_proposal_that_is_edited_to_what_it_corrects() -> None:
    """No fact supersedes itself."""
    notes = Notes(fact("a", "Likes tea."))
    notes.take_in(fact("b", "Likes milk.", state="proposed", supersedes="a"))
    notes.do("edit", "b", "likes tea", "c", by="bea")
    notes.do("reject", "a", by="bea")
    assert notes.states == {"a": "rejected", "b": "proposed"}
    assert notes.facts["b"].supersedes != "b"


def test_edit_to_the_text_of_another_fact_has_the_sources_of_both() -> None:
    """So it stays where the other one's own source goes."""
    said = FactSource(thread="u", turn="1")
    notes = Notes(fact("a", "Likes tea."), fact("b", "Likes coffee.", sources=(said,)))
    notes.do("edit", "a", "likes coffee", "c", by="bea")
    notes.do("forget_sources", of_thread("u"), by=None)
    assert notes.states == {"a": "superseded", "b": "active"}
    assert notes.facts["b"].sources == notes.facts["a"].sources


@pytest.mark.parametrize(("holds", "left"), [(True, "proposed"), (False, "active")])
def test_fact_that_no_person_says_any_more_waits_where_such_facts_do(
    holds: bool, left: str
) -> None:
    """Unless a person approved it: then it was not the user's word that let it pass."""
    said = FactSource(thread="u", turn="1")
    notes = Notes(fact("a", "Has a cat.", trusted=False, state="proposed"))
    notes.take_in(fact("b", "Has a cat.", sources=(said,)))
    assert notes.states == {"a": "active"}
    assert notes.do("forget_sources", of_thread("u"), by=None, holds=holds) == 0
    assert (notes.states, notes.facts["a"].trusted) == ({"a": left}, False)
    notes = Notes(fact("a", "Has a cat.", trusted=False, state="proposed"))
    notes.do("approve", "a", by="bea")
    notes.take_in(fact("b", "Has a cat.", sources=(said,)))
    notes.do("forget_sources", of_thread("u"), by=None, holds=holds)
    assert notes.states == {"a": "active"}


def test_what_no_person_says_any_more_corrects_nothing_that_one_said() -> None:
    """The corrected fact is true again, and the other one is proposed in its place."""
    said = FactSource(thread="u", turn="1")
    notes = Notes(fact("a", "Lives in Oslo.", sources=(FactSource(thread="v", turn="1"),)))
    notes.take_in(fact("b", "Lives in Rome.", sources=(said,), supersedes="a"))
    notes.take_in(fact("c", "Lives in Rome.", trusted=False))
    notes.do("forget_sources", of_thread("u"), by=None)
    assert notes.states == {"a": "active", "b": "proposed"}
    notes.do("approve", "b", by="bea")
    assert notes.states == {"a": "superseded", "b": "active"}


def test_trust_is_that_of_what_is_left() -> None:
    """A fact that only a tool's result is left for is untrusted; one by hand never is."""
    both = fact("a", "Lives in Oslo.")
    tool = FactSource(thread="t", turn="turn_x", trusted=False)
    assert msgspec.structs.replace(both, sources=(*both.sources, tool)).trusted
    assert not msgspec.structs.replace(both, sources=(tool,)).trusted
    assert msgspec.structs.replace(both, sources=(), author="bea").trusted


# ── whatever happens ─────────────────────────────────────────────────────────────────────────

TEXTS = ["Lives in Oslo.", "Lives in Rome.", "Lives in Paris.", "Has a dog."]
STEPS = st.tuples(
    st.sampled_from(["take_in", "propose", "add", "edit", "approve", "reject", "forget"]),
    st.integers(0, 30),
    st.sampled_from(TEXTS),
    st.booleans(),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=25))
def test_no_order_of_changes_breaks_the_notes(steps: list[tuple[str, int, str, bool]]) -> None:
    """No live text is there twice, links are true, histories agree, and only what somebody said,
    wrote or approved is active."""
    notes, approved = Notes(), set[str]()
    for number, (what, pick, text, trusted) in enumerate(steps):
        ids = list(notes.facts)
        one = ids[pick % len(ids)] if ids else "none"
        new = fact(f"f{number:02}", text, trusted=trusted, created_at=notes.at)
        try:
            if what == "take_in":
                notes.take_in(msgspec.structs.replace(new, supersedes=one if pick % 2 else None))
                approved.update(
                    f.id for f in notes.facts.values() if fact_key(f.text) == fact_key(text)
                )
            elif what == "propose":
                notes.take_in(msgspec.structs.replace(new, state="proposed", supersedes=one))
            elif what == "add":
                approved.add(notes.do("add", by_hand(new.id, text, created_at=notes.at)).id)
            elif what == "edit":
                approved.add(notes.do("edit", one, text, new.id, by="bea").id)
            elif what == "approve":
                approved.add(notes.do("approve", one, by="bea").id)
            elif what == "reject":
                notes.do("reject", one, by="bea")
            elif pick % 3:
                notes.do("forget_sources", of_turn(f"turn_{one}"), by=None, holds=trusted)
            else:
                notes.do("erase_history", one, by=None)
        except (InvalidValue, UnknownFact):
            continue
        facts = notes.facts
        live = [fact_key(f.text) for f in facts.values() if f.state in ("active", "proposed")]
        assert len(live) == len(set(live))
        for each in facts.values():
            assert (each.state == "forgotten") == (each.text == "")
            assert each.state != "active" or each.id in approved
            assert each.state == "forgotten" or (each.state == "superseded") == (
                each.superseded_by is not None
            )
            assert each.was is None or each.state == "superseded"
            assert each.supersedes != each.id
            if each.superseded_by is not None and each.state == "superseded":
                stands = facts[each.superseded_by].state
                assert stands in ("active", "superseded") or each.was == stands == "proposed"
            for other in notes.book.history(each.id):
                assert each in notes.book.history(other.id)

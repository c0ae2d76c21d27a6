"""Where a fact comes from: by its words, whatever turn a helper names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from turngate.gateway.said import Said, origin_of, said_in
from turngate.records import FactRecord, FactSource
from turngate.turns import ToolResultPart, Turn

AT = datetime(2026, 3, 1, tzinfo=UTC)


def by_user(text: str) -> Said:
    return Said("user", f"User: {text}", own=text, sources=(FactSource(thread="t", turn="u"),))


def by_tool(text: str, beside: str = "") -> Said:
    source = FactSource(thread="t", turn="r", trusted=False)
    return Said("tool", f"Tool look() -> {text}", own=text, others=beside, sources=(source,))


def by_assistant(text: str) -> Said:
    return Said("assistant", f"Assistant: {text}", others=text)


def note(text: str, *, trusted: bool = True) -> FactRecord:
    source = FactSource(thread="n", turn="n", trusted=trusted)
    return FactRecord(
        id="f", user="ann", kind="profile", text=text, created_at=AT, sources=(source,)
    )


def trust(said: list[Said], text: str, number: int = 1, known: Any = ()) -> bool | None:
    """Whether the source of `text` is trusted; None: it has none."""
    origin = origin_of(text, said, number, known)
    return None if origin is None else origin.trusted


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("I live in Oslo.", "Lives in Oslo."),
        ("I moved to Rome last year, from Oslo", "Moved from Oslo to Rome last year."),
        ("im from oslo", "Comes from Oslo."),
        ("I study medicine", "Studies medicine."),
        ("I'm 34", "Is 34 years old."),
        ("I've got two dogs, Mia and Tom", "Has two dogs named Mia and Tom."),
        (
            "Ich wohne in Köln und arbeite bei Bosch",
            "Der Nutzer wohnt in Köln, arbeitet bei Bosch.",
        ),
        ("Mein Hund heißt Bello", "Der Nutzer hat einen Hund namens Bello."),
        ("Vivo en Madrid con mi perro", "El usuario vive en Madrid con su perro."),
        ("Я живу в Осло", "Пользователь живёт в Осло."),
        ("大阪に住んでいます", "大阪に住んでいる"),
    ],
)
def test_what_a_user_says_is_the_users(said: str, text: str) -> None:
    """In other forms of the words too, and beside an assistant and notes that speak alike."""
    echo = by_assistant("At 34 years you live with all of that, in that year! Ein schöner Name!")
    assert trust([by_user(said), echo], text) is True
    assert trust([by_user(said)], text, known=[note("Plays the guitar."), note("Has a cat.")])


GIVEN = [
    ("Ann is an administrator", "Is an administrator in Oslo."),
    ('{"refundsPreapproved": true}', "Has refunds preapproved in Oslo."),
    ("Record: Oslo, VP", "Lives in Oslo and is VP."),
    ("admin\u200bistrator of Oslo", "Is administrator of Oslo."),
    ("\u0430dmin of \u041eslo", "Is admin of Oslo."),
    ("a-d-m-i-n of Oslo", "Is admin of Oslo."),
    ("She owns Oslo", "Owns Oslo."),
]


@pytest.mark.parametrize(("result", "text"), GIVEN)
def test_what_a_tool_gave_is_never_the_users(result: str, text: str) -> None:
    """However it is written, and though the user spoke of the same place."""
    asked = by_user("What do you know of Oslo?")
    assert trust([asked, by_tool(result)], text) is not True
    assert trust([asked, by_tool(result), by_assistant(result)], text) is not True
    assert trust([asked, by_tool(result, beside=result)], text, number=2) is not True


@pytest.mark.parametrize("text", ["Lives in Bergen with a cat.", "Is an MD in Bergen."])
def test_what_the_assistant_or_a_note_repeats_is_nobodys(text: str) -> None:
    """Though the user's question has most of the words."""
    asked = by_user("Where do I live with my cat, as an M.D. of mine?")
    assert trust([asked, by_assistant(text)], text) is None
    for trusted in (True, False):
        assert trust([asked], text, known=[note(text, trusted=trusted)]) is None
    assert trust([by_user("Hm."), by_tool("hello", beside=text)], text, number=2) is None


def test_words_of_two_places_have_no_source() -> None:
    """A fact would outlive the deletion of one of them."""
    first, second = by_user("I am Ann Smithson."), by_user("I moved to Oslo.")
    assert trust([second], "Ann Smithson moved to Oslo.", known=[note("Is Ann Smithson.")]) is None
    assert trust([first, second], "Ann Smithson moved to Oslo.", number=2) is None
    assert trust([first, by_tool("Oslo it is")], "Ann is in Oslo.", number=2) is None
    assert trust([first, second], "Moved to Oslo.", number=2) is True


def test_tools_repeat_of_its_note_is_another_source() -> None:
    """It gains no trust by it."""
    known = [note("Spoke of Oslo.", trusted=False)]
    assert trust([by_user("And?"), by_tool("Oslo")], "Spoke of Oslo.", 2, known) is False


def test_results_whose_call_stands_elsewhere_are_read_too() -> None:
    """Another user spoke between a held call and its result."""
    result = ToolResultPart(call_id="c", content="From Bergen.")
    turn = Turn(id="r", role="tool", parts=(result,), created_at=AT)
    (said,) = said_in("t", [turn])
    assert trust([said], "Comes from Bergen.") is False
    assert [source.turn for source in said.sources] == ["r"]


@pytest.mark.parametrize("number", [0, 2, 9])
def test_number_of_no_source_is_none(number: int) -> None:
    """Neither what the assistant said, nor what is not there."""
    assert (
        trust([by_user("I live in Oslo."), by_assistant("Oslo!")], "Lives in Oslo.", number) is None
    )

"""How many rows the working memory reads for a window, at any length of the thread."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store_values import AT, A, user_turn
from tests.unit.context.thread_turns import LetterCounter
from turngate.context.memory import ThreadMemory
from turngate.context.windows import RecentWindow, SummaryWindow
from turngate.messages import UserMessage
from turngate.protocols import WindowStrategy
from turngate.records import Change
from turngate.stores.sqlite import SqliteStore
from turngate.turn_builder import TurnBuilder
from turngate.turns import Part, Role, TextPart, ToolCallPart, ToolResultPart, Turn

LETTERS = LetterCounter()
LENGTHS = (10, 1_000, 100_000)
QUESTION: tuple[Role, Part] = ("user", TextPart("Where is parcel 7?"))
CALL: tuple[Role, Part] = (
    "assistant",
    ToolCallPart(id="c1", name="track", arguments='{"number": 7}'),
)
RESULT: tuple[Role, Part] = ("tool", ToolResultPart(call_id="c1", content="Oslo"))
ANSWER: tuple[Role, Part] = ("assistant", TextPart("It is in Oslo."))


class Counted:
    """A `connect` that counts the rows that reading connections give."""

    def __init__(self) -> None:
        self.rows = 0

    def connect(self, name: str, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(name, **kwargs)
        if name.startswith("file:"):
            db.row_factory = self._row
        return db

    def _row(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += 1
        return row


def turns_of(thread: str, *contents: tuple[Role, Part]) -> tuple[Turn, ...]:
    return tuple(
        Turn(id=f"{thread}_{place}", role=role, parts=(part,), created_at=AT)
        for place, (role, part) in enumerate(contents)
    )


async def fill(path: Path) -> None:
    store = await SqliteStore.open(path)
    for length in LENGTHS:
        contents = [QUESTION, CALL, RESULT, ANSWER] * (length // 4 + 1)
        turns = turns_of(f"t{length}", *contents[:length])
        assert await store.commit(A, Change(thread=f"t{length}", at=AT, turns=turns)) == length
    # One exchange that is far longer than any window, behind many others.
    turns = turns_of("long", *[QUESTION, ANSWER] * 5_000, QUESTION, *[CALL, RESULT] * 300)
    await store.commit(A, Change(thread="long", at=AT, turns=turns))
    await store.aclose()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "turngate.db"
    asyncio.run(fill(path))
    return path


async def rows_of(
    database: Path,
    strategy: WindowStrategy,
    thread: str,
    *,
    current: Turn | None,
    before: int | None = None,
) -> tuple[int, int]:
    """How many rows were read for a window, and how many messages it shows."""
    count = Counted()
    store = await SqliteStore.open(database, connect=count.connect, read_only=True)
    memory = ThreadMemory(store=store, turn_builder=TurnBuilder(), strategy=strategy)
    count.rows = 0
    window = await memory.window(A, thread, current=current, before=before)
    await store.aclose()
    return count.rows, len(window.messages)


# One row tells the thread's length.
@pytest.mark.parametrize(
    ("strategy", "rows"),
    [
        (RecentWindow(turns=40), 41),
        (RecentWindow(turns=40, tokens=400, counter=LETTERS), 41),
        (RecentWindow(tokens=400, counter=LETTERS), 101),
        (RecentWindow(tokens=100_000, counter=LETTERS), 201),
        (SummaryWindow(), 41),
        (SummaryWindow(turns=60, step=10, tokens=500, counter=LETTERS), 61),
    ],
)
async def test_a_window_reads_the_same_rows_at_any_length(
    database: Path, strategy: WindowStrategy, rows: int
) -> None:
    """A window reads its `load_limit` rows of a thread of 10, 1,000 and 100,000 turns."""
    costs = {}
    for length in LENGTHS:
        for before in (None, length // 2):
            costs[length, before] = (
                await rows_of(
                    database, strategy, f"t{length}", current=user_turn("And now?"), before=before
                )
            )[0]
    assert costs.pop((10, None)) == 11
    assert costs.pop((10, 5)) == 6
    assert set(costs.values()) == {rows}


@pytest.mark.parametrize("strategy", [RecentWindow(turns=1), RecentWindow(turns=40)])
async def test_a_long_exchange_is_read_to_its_start(
    database: Path, strategy: WindowStrategy
) -> None:
    """Going on without a prompt shows the whole exchange, of 601 turns, and reads few others."""
    rows, messages = await rows_of(database, strategy, "long", current=None)
    assert messages == 601
    assert rows < 2 * 601 + 20
    rows, messages = await rows_of(database, strategy, "long", current=user_turn("And now?"))
    assert rows == strategy.load_limit + 1


async def test_a_very_long_text_comes_back_as_it_was(tmp_path: Path) -> None:
    """Case h-very-long-text: two million characters, stored, loaded and shown, are the same."""
    text = "0123456789abcdef " * 120_000
    store = await SqliteStore.open(tmp_path / "turngate.db")
    await store.commit(A, Change(thread="t", at=AT, turns=(user_turn(text),)))
    memory = ThreadMemory(store=store, turn_builder=TurnBuilder(), strategy=RecentWindow(turns=40))
    window = await memory.window(A, "t", current=None)
    await store.aclose()
    assert window.messages == (UserMessage((text,)),)


async def test_a_window_knows_its_place_in_the_thread(database: Path) -> None:
    """A window in steps begins at a position of the thread, whatever part of it was read."""
    shown = [
        await rows_of(database, SummaryWindow(), "t1000", current=user_turn("x"), before=before)
        for before in (979, 980, 990, 999)
    ]
    assert [messages for _, messages in shown] == [40, 21, 31, 40]

"""Values to rows and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.errors import InvalidValue, StoreError
from turngate.records import CallRecord, Change, LedgerRow, Scope
from turngate.stores.rows import (
    INTEGER_MAX,
    call_from_row,
    change_rows,
    cursor_after,
    cursor_key,
    moment,
    thread_from_row,
    turns_from_bodies,
    unix_us,
)
from turngate.turns import (
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import FileRef, ProviderData, Usage

SCOPE = Scope("acme")
AT = datetime(2026, 3, 1, tzinfo=UTC)

# Everything but lone surrogates: NUL, U+2028 and characters beyond the basic plane too.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
key = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
count = st.integers(0, 2**63)
minutes = st.integers(-14 * 60, 14 * 60).map(lambda value: timezone(timedelta(minutes=value)))
times = st.datetimes(timezones=st.just(UTC)).map(
    lambda at: at.replace(year=max(2, min(at.year, 9998)), day=min(at.day, 28))  # room for zones
)
times = st.builds(datetime.astimezone, times, minutes | st.just(UTC))
usages = st.builds(
    Usage, input_tokens=count, output_tokens=count, cached_tokens=count, reasoning_tokens=count
)
provider_data = st.none() | st.builds(ProviderData, text, text)
files = st.builds(FileRef, id=text, name=text, media_type=text, size_bytes=count, sha256=text)
parts = st.one_of(
    st.builds(TextPart, text),
    st.builds(FilePart, files),
    st.builds(ReasoningPart, text, provider_data),
    st.builds(ToolCallPart, id=text, name=text, arguments=text, provider_data=provider_data),
    st.builds(
        ToolResultPart, call_id=text, content=text, name=st.none() | text, is_error=st.booleans()
    ),
)
turns = st.builds(
    Turn,
    id=key,
    role=st.sampled_from(["user", "assistant", "tool"]),
    parts=st.lists(parts, max_size=4).map(tuple),
    created_at=times,
    model=st.none() | text,
    usage=st.none() | usages,
    status=st.sampled_from(["complete", "incomplete", "deleted"]),
    ended=st.none() | text,
    retry_of=st.none() | text,
)
calls = st.builds(
    CallRecord,
    id=key,
    thread=st.just("t"),
    kind=st.just("ask"),
    state=st.sampled_from(["active", "answered", "incomplete", "failed"]),
    owner=key,
    position=count,
    created_at=times,
    user_turn=st.none() | turns,
    user=st.none() | text,
    ended_at=st.none() | times,
    reason=st.none() | text,
)
ledger_rows = st.builds(
    LedgerRow,
    id=key,
    call=key,
    model=st.none() | text,
    usage=st.none() | usages,
    outcome=text,
    created_at=times,
)


def turn(**fields: Any) -> Turn:
    given_fields: dict[str, Any] = {"id": "turn_1", "role": "user", "parts": (), "created_at": AT}
    return Turn(**(given_fields | fields))


def change(**fields: Any) -> Change:
    given_fields: dict[str, Any] = {"thread": "t", "at": AT}
    return Change(**(given_fields | fields))


@given(st.lists(turns, max_size=3, unique_by=lambda one: one.id))
def test_turns_come_back_equal(values: list[Turn]) -> None:
    """Any turns are read as they were written, in their order."""
    rows = change_rows(SCOPE, change(turns=tuple(values))).turns
    assert [turn_id for turn_id, _ in rows] == [value.id for value in values]
    assert turns_from_bodies((body,) for _, body in rows) == values


@given(calls)
def test_a_call_comes_back_equal(value: CallRecord) -> None:
    """Any call is read as it was written, with the position that the store adds."""
    row = change_rows(SCOPE, change(begin=value)).begin
    assert row is not None
    assert call_from_row(row.body, None) == value
    assert call_from_row(row.body, 7).first == 7
    assert (row.id, row.owner, row.state) == (value.id, value.owner, value.state)
    assert (row.epoch, row.key) == (value.epoch, value.key)


@given(ledger_rows)
def test_a_ledger_row_keeps_its_keys(value: LedgerRow) -> None:
    """A ledger row has its id and its call as columns."""
    (row,) = change_rows(SCOPE, change(ledger=(value,))).ledger
    assert row[:2] == (value.id, value.call)


@given(times)
def test_a_time_comes_back_to_the_microsecond(at: datetime) -> None:
    """Any time is kept as whole microseconds, and read in UTC."""
    assert moment(unix_us(at)) == at
    assert moment(unix_us(at)).tzinfo is UTC


@pytest.mark.parametrize(
    "bad",
    [
        turn(parts=(TextPart("\ud800"),)),
        turn(parts=(ToolCallPart(id="c", name="n", arguments="\udfff"),)),
        turn(model="\ud800"),
        turn(id="\ud800"),
        turn(id="a\0b"),
        turn(id=""),
        turn(id=3),
        turn(role="system"),
        turn(parts=("plain text",)),
        turn(parts=[TextPart("a list")]),
        turn(parts=(TextPart(3),)),  # type: ignore[arg-type]
        turn(usage=Usage(input_tokens=10**5000, output_tokens=0)),
        turn(created_at=AT.astimezone(timezone(timedelta(hours=1, seconds=7)))),
    ],
)
def test_a_turn_that_would_not_come_back_is_refused(bad: Turn) -> None:
    """What can't be read again would cost its thread, so it is never written."""
    with pytest.raises(InvalidValue):
        change_rows(SCOPE, change(turns=(bad,)))


@pytest.mark.parametrize(
    "fields",
    [
        {"expected": -1},
        {"expected": INTEGER_MAX + 1},
        {"thread": "a b"},
        {"at": AT.replace(tzinfo=None)},
        {"title": "a\0b"},
        {"title": "\ud800"},
        {"title": 3},
        {"user": "a\0b"},
        {"turns": (turn(), turn())},
    ],
    ids=repr,
)
def test_a_change_outside_its_form_is_refused(fields: dict[str, Any]) -> None:
    """Each field of a change is checked before a store is touched."""
    with pytest.raises(InvalidValue):
        change_rows(SCOPE, change(**fields))


@pytest.mark.parametrize("field", ["created_at", "ended_at"])
def test_a_call_with_a_naive_time_is_refused(field: str) -> None:
    """Calls and ledger rows need times with a zone, as turns do."""
    fields: dict[str, Any] = {"created_at": AT, field: AT.replace(tzinfo=None)}
    call = CallRecord(
        id="call_1", thread="t", kind="ask", state="failed", owner="b", position=0, **fields
    )
    with pytest.raises(InvalidValue, match="zone"):
        change_rows(SCOPE, change(begin=call))


def test_a_ledger_row_with_a_naive_time_is_refused() -> None:
    """A ledger row's time needs a zone."""
    row = LedgerRow(
        id="l", call="c", model=None, usage=None, outcome="x", created_at=AT.replace(tzinfo=None)
    )
    with pytest.raises(InvalidValue, match="zone"):
        change_rows(SCOPE, change(ledger=(row,)))


def test_a_member_that_a_newer_version_added_is_passed_over() -> None:
    """An older program reads the rows of a newer one, as far as it knows them."""
    body = (
        '{"id":"turn_1","role":"user","parts":[{"type":"text","text":"a","lang":"en"}],'
        '"created_at":"2026-03-01T00:00:00Z","pinned":true}'
    )
    assert turns_from_bodies([(body,)]) == [turn(parts=(TextPart("a"),))]


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '{"id":"a"}', '{"id":"a","role":"x","parts":[],"created_at":0}', "[" * 5000],
    ids=lambda value: value[:20],
)
def test_a_damaged_row_is_a_store_error(body: str) -> None:
    """A row that can't be read has a typed error with a hint."""
    with pytest.raises(StoreError) as caught:
        turns_from_bodies([(body,)])
    assert caught.value.hint is not None
    with pytest.raises(StoreError):
        call_from_row(body, None)


def test_a_naive_time_in_a_row_is_a_store_error() -> None:
    """A stored turn without a zone is damaged, and not the caller's mistake."""
    body = '{"id":"a","role":"user","parts":[],"created_at":"2026-03-01T00:00:00"}'
    with pytest.raises(StoreError):
        turns_from_bodies([(body,)])


@given(st.integers(0, INTEGER_MAX), st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True))
def test_a_cursor_comes_back(changed: int, thread: str) -> None:
    """A cursor names the row that it was made of, whatever the thread's id holds."""
    row = (thread, 0, 0, 0, None, None, changed)
    assert cursor_key(cursor_after(row)) == (changed, thread)
    assert thread_from_row(row).id == thread


@given(st.text(max_size=30))
def test_any_other_cursor_is_a_value_error_of_ours(cursor: str) -> None:
    """No text crashes the reading of a cursor."""
    try:
        changed, thread = cursor_key(cursor)
    except InvalidValue:
        return
    assert 0 <= changed <= INTEGER_MAX
    assert thread

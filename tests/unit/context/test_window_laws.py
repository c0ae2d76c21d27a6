"""What holds for any thread: with tool exchanges, reused ids, stray results, deletions, long texts.

Turns are compared by id, which is their position, since a shown turn may be shortened.
"""

from __future__ import annotations

import copy
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

import tests.unit.strategies  # noqa: F401  # it sets the profile
from tests.unit.context.thread_turns import LetterCounter, thread_of
from turngate.context.windows import RecentWindow, SummaryWindow
from turngate.errors import InvalidValue
from turngate.turns import Turn

COUNTER = LetterCounter(letters=4)
AnyWindow = RecentWindow | SummaryWindow

# ── threads and windows ──────────────────────────────────────────────────────────────────────

# Mostly what threads are made of, and of each odd letter some.
LETTERS = "uuuuaaaacccttttvwbidesrxyUACT"
threads = st.builds(
    lambda before, after: thread_of(f"{before}u{after}"),  # one user turn is always there
    st.text(LETTERS, max_size=25) | st.text("uactUT", min_size=12, max_size=25),
    st.text(LETTERS, max_size=8),
)
budgets = st.integers(1, 400) | st.integers(1, 40)
recent_windows: st.SearchStrategy[RecentWindow] = st.one_of(
    st.builds(RecentWindow, turns=st.integers(1, 20)),
    st.builds(RecentWindow, tokens=budgets, counter=st.just(COUNTER)),
    st.builds(RecentWindow, turns=st.integers(1, 20), tokens=budgets, counter=st.just(COUNTER)),
)


@st.composite
def summary_windows(draw: st.DrawFn, *, tokens: st.SearchStrategy[int | None]) -> SummaryWindow:
    turns = draw(st.integers(2, 12))
    step = draw(st.integers(1, turns - 1))
    return SummaryWindow(turns=turns, step=step, tokens=draw(tokens), counter=COUNTER)


windows: st.SearchStrategy[AnyWindow] = recent_windows | summary_windows(tokens=st.none() | budgets)


def selected(window: AnyWindow, turns: list[Turn], *, first: int = 0) -> list[Turn]:
    """What `window` shows; no example where it refuses the current exchange, and says so."""
    try:
        return window.select(turns, first=first)
    except InvalidValue as refused:
        assume("the current exchange has about" not in str(refused))
        raise


def places(turns: list[Turn]) -> list[int]:
    return [int(each.id) for each in turns]


def live(turns: list[Turn]) -> list[Turn]:
    return [each for each in turns if each.status != "deleted"]


def question(turns: list[Turn]) -> int:
    """The position of the current user turn."""
    return max(place for place, each in enumerate(turns) if each.role == "user" and each.parts)


def cost(turns: list[Turn]) -> int:
    return sum(map(COUNTER.count_turn, turns))


# ── both windows ─────────────────────────────────────────────────────────────────────────────


@given(windows, threads)
def test_the_current_exchange_is_always_there(window: AnyWindow, thread: list[Turn]) -> None:
    """From the current user turn on nothing is left out, and the user's words are as they were."""
    shown = selected(window, thread)
    current = question(thread)
    whole = live(thread[current:])
    assert places(shown)[-len(whole) :] == places(whole)
    assert shown[-len(whole)] == thread[current]


@given(windows, threads)
def test_a_window_is_the_end_of_its_thread(window: AnyWindow, thread: list[Turn]) -> None:
    """Of the turns that are not deleted, the last ones are shown, in order and once."""
    shown = selected(window, thread)
    assert places(shown) == places(live(thread))[-len(shown) :]


@given(windows, threads)
def test_no_tool_exchange_is_cut(window: AnyWindow, thread: list[Turn]) -> None:
    """Of a call and the results behind it all are shown, or none."""
    shown = set(places(selected(window, thread)))
    exchange: set[int] = set()
    for each in live(thread):
        if each.role != "tool":
            exchange = set()
        exchange.add(int(each.id))
        assert exchange <= shown or not exchange & shown


@given(recent_windows, threads)
def test_a_window_opens_with_a_question(window: RecentWindow, thread: list[Turn]) -> None:
    """Unless it shows all, or no other question than the current one."""
    shown = selected(window, thread)
    if shown[0].role != "user" and int(shown[0].id) > 0 and shown != live(thread):
        assert [each.id for each in shown if each.role == "user"] == [str(question(thread))]


@given(windows, threads)
def test_a_budget_holds(window: AnyWindow, thread: list[Turn]) -> None:
    """What is shown has no more tokens than it may; what is not deleted is only cut for that."""
    shown = selected(window, thread)
    if window._budget is not None:
        assert cost(shown) <= window._budget.tokens
    if any(each != thread[int(each.id)] for each in shown):
        assert window._budget is not None
        assert cost(thread[question(thread) :]) > window._budget.tokens


@given(windows, threads)
def test_only_what_can_not_fit_is_refused(window: AnyWindow, thread: list[Turn]) -> None:
    """A window refuses no exchange that is within its budget."""
    try:
        window.select(thread)
    except InvalidValue:
        assert window._budget is not None
        assert cost(thread[question(thread) :]) > window._budget.tokens


@given(windows, threads)
def test_selecting_changes_nothing(window: AnyWindow, thread: list[Turn]) -> None:
    """The turns stay what they are, and the same turns give the same window."""
    before = copy.deepcopy(thread)
    shown = selected(window, thread)
    assert thread == before
    assert window.select(thread) == shown


@given(windows, threads)
def test_the_rows_that_are_loaded_are_enough(window: AnyWindow, thread: list[Turn]) -> None:
    """A window over the newest turns is the window over the whole thread."""
    first = max(0, min(len(thread) - window.load_limit, question(thread)))
    assert selected(window, thread[first:], first=first) == selected(window, thread)


# ── RecentWindow ─────────────────────────────────────────────────────────────────────────────


@given(threads, budgets, budgets)
def test_more_tokens_show_no_less(thread: list[Turn], one: int, other: int) -> None:
    """What a budget shows, a larger one shows too."""
    less, more = (
        selected(RecentWindow(tokens=tokens, counter=COUNTER), thread)
        for tokens in sorted((one, other))
    )
    assert set(places(less)) <= set(places(more))


@given(threads, st.integers(1, 40), st.integers(1, 40))
def test_more_turns_show_no_less(thread: list[Turn], one: int, other: int) -> None:
    """What a number of turns shows, a larger one shows too."""
    less, more = (RecentWindow(turns=turns).select(thread) for turns in sorted((one, other)))
    assert set(places(less)) <= set(places(more))


@given(recent_windows, threads)
def test_a_window_of_a_window_is_that_window(window: RecentWindow, thread: list[Turn]) -> None:
    """What was selected is selected again."""
    shown = selected(window, thread)
    assert window.select(shown) == shown


@given(threads, st.integers(1, 40))
def test_no_more_turns_are_shown_than_asked_for(thread: list[Turn], turns: int) -> None:
    """Only the current exchange may be longer."""
    shown = RecentWindow(turns=turns).select(thread)
    assert len(shown) <= max(turns, len(live(thread[question(thread) :])))


# ── SummaryWindow ────────────────────────────────────────────────────────────────────────────


def step_start(window: SummaryWindow, length: int) -> int:
    """The first multiple of the step from which on there are no more turns than may be shown."""
    return next(
        at for at in range(0, length + window.step, window.step) if length - at <= window.turns
    )


def grown(thread: list[Turn]) -> list[list[Turn]]:
    """The thread at each length from its first question on."""
    asked = next(place for place, each in enumerate(thread) if each.role == "user" and each.parts)
    return [thread[:length] for length in range(asked + 1, len(thread) + 1)]


@given(summary_windows(tokens=st.none()), threads)
def test_what_was_shown_stays_a_prefix(window: SummaryWindow, thread: list[Turn]) -> None:
    """While a thread grows within a step, what is shown only grows at its end.

    Only an exchange that began before the step, and is shown whole, falls out at its own end.
    """
    for before, after in pairwise(grown(thread)):
        step = step_start(window, len(before))
        if step == step_start(window, len(after)) and question(before) >= step:
            shown = window.select(before)
            assert window.select(after)[: len(shown)] == shown


@given(summary_windows(tokens=budgets), threads)
def test_a_budget_moves_a_window_only_when_it_is_full(
    window: SummaryWindow, thread: list[Turn]
) -> None:
    """With tokens too, what was shown stays a prefix until there is no more room."""
    assert window._budget is not None
    for before, after in pairwise(grown(thread)):
        start = window.summary_upto(before)
        within = step_start(window, len(before)) == step_start(window, len(after))
        if within and start < question(before) and cost(after[start:]) <= window._budget.tokens:
            assert window.summary_upto(after) == start


@given(summary_windows(tokens=st.none() | budgets), threads)
def test_a_summary_never_covers_too_much(window: SummaryWindow, thread: list[Turn]) -> None:
    """The position below which a summary stands in only moves on, and all from there is shown."""
    starts = [window.summary_upto(turns) for turns in grown(thread)]
    assert starts == sorted(starts)
    assert places(selected(window, thread)) == places(live(thread[starts[-1] :]))


@given(summary_windows(tokens=st.none()), threads)
def test_a_summary_window_shows_a_bounded_number(window: SummaryWindow, thread: list[Turn]) -> None:
    """From its step on there are more than turns - step turns, and at most turns."""
    start = window.summary_upto(thread)
    begun = step_start(window, len(thread))
    if question(thread) < begun:
        assert start == question(thread)
    else:
        assert begun <= start <= question(thread)
        assert len(thread) - begun <= window.turns
    assert begun == 0 or len(thread) - begun > window.turns - window.step

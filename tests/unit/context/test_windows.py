"""Windows by example, and the histories from the field that need one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.unit import test_history_cases as history_cases
from tests.unit.context.thread_turns import LetterCounter, ids, thread_of, turn
from turngate.context import RequestAssembler, TokenEstimator
from turngate.context.shortening import shortened
from turngate.context.windows import RecentWindow, SummaryWindow
from turngate.errors import InvalidValue
from turngate.protocols import ContextInput, TokenCounter
from turngate.providers import chat_completion_messages
from turngate.turn_builder import TurnBuilder
from turngate.turns import TextPart, ToolCallPart, ToolResultPart, Turn
from turngate.values import Target

LETTERS = LetterCounter()


# ── limits ───────────────────────────────────────────────────────────────────────────────────


def test_a_window_without_a_limit_is_refused() -> None:
    """A window needs turns, tokens, or both."""
    with pytest.raises(InvalidValue, match="limit"):
        RecentWindow()


@pytest.mark.parametrize("limits", [{"turns": 0}, {"tokens": 0}, {"turns": 5, "tokens": -1}])
def test_a_window_of_nothing_is_refused(limits: dict[str, int]) -> None:
    """A limit is at least 1."""
    with pytest.raises(InvalidValue, match="at least one"):
        RecentWindow(**limits, counter=LETTERS)


@pytest.mark.parametrize("step", [0, -1, 10, 11])
def test_a_step_that_can_not_be_taken_is_refused(step: int) -> None:
    """A step is at least 1, and leaves something of the window."""
    with pytest.raises(InvalidValue, match="step"):
        SummaryWindow(turns=10, step=step)


def test_a_summary_window_of_no_tokens_is_refused() -> None:
    """A budget is at least 1."""
    with pytest.raises(InvalidValue, match="at least one token"):
        SummaryWindow(tokens=0, counter=LETTERS)


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        (RecentWindow(turns=40), 40),
        (RecentWindow(turns=300, tokens=100, counter=LETTERS), 300),
        (RecentWindow(tokens=1, counter=LETTERS), 1),
        (RecentWindow(tokens=100, counter=LETTERS), 25),
        (RecentWindow(tokens=100_000, counter=LETTERS), 200),
        (SummaryWindow(), 40),
    ],
)
def test_a_window_reads_a_bounded_number_of_rows(
    window: RecentWindow | SummaryWindow, rows: int
) -> None:
    """By turns it reads as many; by tokens alone one row for four tokens, up to 200."""
    assert window.load_limit == rows


# ── RecentWindow ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("turns", "shape", "shown"),
    [
        (9, "uauau", "0 1 2 3 4"),  # the thread is shorter
        (3, "uauau", "2 3 4"),
        (4, "uauau", "2 3 4"),  # the cut falls before an answer, and goes on to its next question
        (2, "uauau", "3 4"),  # but the last answer is better than nothing
        (1, "uauau", "4"),
        (3, "uctau", "3 4"),  # never between a call and its result
        (2, "uctau", "3 4"),
        (5, "uactctau", "4 5 6 7"),
        (4, "uctttau", "5 6"),
        (2, "ucttu", "4"),
        (2, "uauctct", "2 3 4 5 6"),  # the current exchange is whole, however long it is
        (9, "aauau", "0 1 2 3 4"),  # a thread that begins with an answer, as a whole
        (4, "aauau", "2 3 4"),
        (3, "aaaaa", "0 1 2 3 4"),  # no question at all: all is the current exchange
        (4, "uauUAu", "2 5"),  # a deleted turn keeps its place, and is not shown
        (3, "uaucTtau", "6 7"),  # nor does it stand between a call and its result
        (2, "uauaU", "2 3"),  # the current exchange begins with a turn that is there
        (4, "uuuuu", "1 2 3 4"),
    ],
)
def test_the_last_turns_are_shown(turns: int, shape: str, shown: str) -> None:
    """The last turns, cut where a reader would cut them."""
    assert ids(RecentWindow(turns=turns).select(thread_of(shape))) == shown


def test_an_empty_thread_shows_nothing() -> None:
    """There is nothing to cut."""
    assert RecentWindow(turns=2).select([]) == []
    assert SummaryWindow().select([]) == []
    assert RecentWindow(tokens=5, counter=LETTERS).select([]) == []


@pytest.mark.parametrize(
    ("tokens", "shown"),
    # Each turn costs five tokens, and the one with the call seven.
    [(32, "0 1 2 3 4 5"), (31, "1 2 3 4 5"), (22, "2 3 4 5"), (21, "4 5"), (9, "5"), (5, "5")],
)
def test_the_last_tokens_are_shown(tokens: int, shown: str) -> None:
    """As many of the last turns as fit, cut in the same places."""
    window = RecentWindow(turns=99, tokens=tokens, counter=LETTERS)
    assert ids(window.select(thread_of("uactau"))) == shown


@pytest.mark.parametrize(("turns", "tokens"), [(3, 999), (99, 17)])
def test_both_limits_hold(turns: int, tokens: int) -> None:
    """With turns and tokens, the nearer one cuts."""
    window = RecentWindow(turns=turns, tokens=tokens, counter=LETTERS)
    assert ids(window.select(thread_of("uauau"))) == "2 3 4"


def test_deleted_turns_cost_no_tokens() -> None:
    """Whatever a counter says of a deleted turn, it takes nothing from the others."""
    window = RecentWindow(turns=99, tokens=15, counter=LETTERS)
    big = turn("9", "user", TextPart("x" * 99), status="deleted")
    thread = thread_of("uau")
    assert window.select([*thread[:1], big, big, *thread[1:]]) == thread


def test_a_part_of_a_thread_is_no_whole_thread() -> None:
    """Turns that begin in the midst of their thread are cut; a thread's own start is not."""
    turns = thread_of("tauau")
    assert ids(RecentWindow(turns=9).select(turns)) == "0 1 2 3 4"
    assert ids(RecentWindow(turns=9).select(turns, first=7)) == "2 3 4"


# ── SummaryWindow ────────────────────────────────────────────────────────────────────────────


def test_a_summary_window_moves_in_steps() -> None:
    """It begins at a multiple of its step, and shows more than turns - step and at most turns."""
    window = SummaryWindow(turns=6, step=4)
    starts = []
    for length in range(1, 20):
        turns = thread_of("u" * length)
        shown = window.select(turns)
        starts.append(window.summary_upto(turns))
        assert shown == turns[starts[-1] :]
        assert length <= 6 or 2 < len(shown) <= 6
    assert starts == [*[0] * 6, *[4] * 4, *[8] * 4, *[12] * 4, 16]


def test_steps_are_counted_from_the_start_of_the_thread() -> None:
    """The same window, whichever part of the thread was loaded."""
    window, thread = SummaryWindow(turns=6, step=4), thread_of("ua" * 20 + "u")
    for first in range(len(thread) - window.load_limit + 1):
        assert window.summary_upto(thread[first:], first=first) == 36
        assert window.select(thread[first:], first=first) == thread[36:]


@pytest.mark.parametrize(
    ("shape", "start"),
    [
        ("uaua" "uauau", 4),
        ("uaua" "auauau", 5),  # the first question of the step
        ("uauc" "taaaau", 5),  # if there is none, the first turn that is no result
        ("uauc" "tttttu", 9),
        ("uaua" "UauauA", 5),  # a deleted turn is no question
        ("uuca" "actct", 1),  # the current exchange is whole
        ("aaa" "u", 0),  # a thread that is not cut
    ],
)  # fmt: skip
def test_a_summary_window_opens_where_its_step_does(shape: str, start: int) -> None:
    """It opens at the first question of its first step; a summary stands in for the rest."""
    window, turns = SummaryWindow(turns=6, step=4), thread_of(shape)
    assert window.summary_upto(turns) == start
    shown = [each for each in turns[start:] if each.status != "deleted"]
    assert window.select(turns) == shown


@pytest.mark.parametrize(
    ("tokens", "start"), [(99, 4), (48, 4), (47, 8), (28, 8), (27, 12), (6, 12)]
)
def test_a_summary_window_takes_whole_steps_until_its_turns_fit(tokens: int, start: int) -> None:
    """A budget moves the window on by steps, and by no more of them than it needs."""
    # Five tokens each up to turn 9, six from there on.
    turns = thread_of("ua" * 6 + "u")
    window = SummaryWindow(turns=12, step=4, tokens=tokens, counter=LETTERS)
    assert window.summary_upto(turns) == start


# ── results that are too long ────────────────────────────────────────────────────────────────


def exchange(*results: str) -> list[Turn]:
    """A question, and an answer with one call for each of `results`; each turn of one result."""
    calls = [
        ToolCallPart(id=f"c{place}", name="f", arguments="{}") for place in range(len(results))
    ]
    return [
        turn("u", "user", TextPart("Read it")),
        turn("c", "assistant", *calls),
        *(
            turn(f"t{place}", "tool", ToolResultPart(call_id=f"c{place}", content=result))
            for place, result in enumerate(results)
        ),
    ]


def contents(turns: list[Turn]) -> list[str]:
    parts = [part for each in turns for part in each.parts]
    return [part.content for part in parts if part.type == "tool_result"]


def test_what_fits_is_left_alone() -> None:
    """Turns within the budget, to the last token of it, are those that were given."""
    turns = exchange("x" * 5_000)
    assert sum(map(LETTERS.count_turn, turns)) == 5_022
    assert shortened(turns, 5_022, LETTERS) == turns


def test_a_long_result_keeps_its_head_and_its_tail() -> None:
    """The mark says how many characters are not there."""
    turns = exchange("head" + "x" * 5_000 + "tail")
    before = copy.deepcopy(turns)
    shown = shortened(turns, 300, LETTERS)
    (content,) = contents(shown)
    head, mark, tail = content.split("\n")
    assert head.startswith("headxx")
    assert tail.endswith("xxtail")
    assert mark == f"[{5_008 - len(head) - len(tail)} characters left out]"
    assert 260 < sum(map(LETTERS.count_turn, shown)) <= 300
    assert [each.id for each in shown] == ["u", "c", "t0"]
    assert turns == before


def test_the_longest_results_are_cut_first() -> None:
    """All that are cut are cut to one length, and shorter ones stay whole."""
    short, long, longest = contents(
        shortened(exchange("s" * 300, "m" * 900, "l" * 4_000), 1_300, LETTERS)
    )
    assert short == "s" * 300
    assert "[" in long
    assert len(long) <= len(longest) <= len(long) + 1


def test_a_cut_always_saves_something() -> None:
    """A result that a mark would make longer stays as it is."""
    turns = exchange("s" * 70, "x" * 5_000)
    short, long = contents(shortened(turns, 191, LETTERS))
    assert short == "s" * 70
    assert len(long) == 64 + len("\n[4936 characters left out]\n")


def test_results_are_cut_once() -> None:
    """What was shortened to a budget is within it, and stays as it is."""
    once = shortened(exchange("x" * 5_000, "y" * 700), 400, LETTERS)
    assert shortened(once, 400, LETTERS) == once


@pytest.mark.parametrize("window", [RecentWindow, SummaryWindow])
def test_an_exchange_that_can_not_fit_is_refused(
    window: type[RecentWindow] | type[SummaryWindow],
) -> None:
    """Nothing that the user said is shortened, so what is too long is refused by name."""
    turns = exchange("x" * 500)
    with pytest.raises(InvalidValue, match="the window's 60"):
        window(tokens=60, counter=LETTERS).select(turns)


def test_only_the_current_exchange_is_shortened() -> None:
    """An older exchange falls out whole, and the current one is cut alone."""
    older = exchange("x" * 500)
    current = exchange("y" * 500)
    shown = RecentWindow(turns=9, tokens=300, counter=LETTERS).select([*older, *current])
    assert ids(shown) == "u c t0"
    assert contents(shown)[0].startswith("yy")
    shown = RecentWindow(turns=9, tokens=600, counter=LETTERS).select([*older, *current])
    assert shown == current


# ── histories from the field ─────────────────────────────────────────────────────────────────

CASES = history_cases.CASES
TRIMMED = sorted(case_id for case_id, case in CASES.items() if "window" in case)
Wire = history_cases.Wire


@dataclass(frozen=True)
class Trimmed:
    """A case, what its window shows, and the wire, also of an endpoint that wants a user first."""

    case: dict[str, Any]
    window: RecentWindow
    shown: list[Turn]
    wire: list[Wire]
    user_first: list[Wire]


def window_of(case: dict[str, Any], counter: TokenCounter) -> RecentWindow:
    told = case["window"]
    return RecentWindow(
        turns=told.get("last_turns"), tokens=told.get("max_tokens"), counter=counter
    )


def wire_of(case: dict[str, Any], shown: list[Turn], target: Target) -> list[Wire]:
    """The wire messages of a request, by the way that each request takes."""
    context = ContextInput(
        messages=tuple(TurnBuilder().to_messages(shown)), instructions=case.get("system")
    )
    request = RequestAssembler(target=target).assemble(context)
    return chat_completion_messages(request.messages, target=target)


USUAL = LetterCounter(letters=4)


def trimmed(case_id: str, counter: TokenCounter = USUAL) -> Trimmed:
    case = CASES[case_id]
    window = window_of(case, counter)
    shown = window.select(history_cases.stored_turns(case))
    return Trimmed(
        case=case,
        window=window,
        shown=shown,
        wire=wire_of(case, shown, Target()),
        user_first=wire_of(case, shown, Target(user_first=True)),
    )


Check = Callable[[Trimmed], bool]
Spoil = Callable[[Trimmed], Trimmed]
CHECKS: dict[str, Check] = {}
SPOILED: dict[str, Spoil] = {}


def check(statement: str, *, spoiled: Spoil) -> Callable[[Check], Check]:
    """Registers a check for `statement`; what `spoiled` makes of a case must not pass it."""

    def register(function: Check) -> Check:
        CHECKS[statement], SPOILED[statement] = function, spoiled
        return function

    return register


def on_wire(change: Callable[[list[Wire]], object]) -> Spoil:
    """The case after `change` was made to copies of its wires."""

    def spoil(before: Trimmed) -> Trimmed:
        wire, user_first = copy.deepcopy((before.wire, before.user_first))
        change(wire)
        change(user_first)
        return replace(before, wire=wire, user_first=user_first)

    return spoil


def without(role: str) -> Spoil:
    def change(wire: list[Wire]) -> None:
        wire[:] = [message for message in wire if message["role"] != role]

    return on_wire(change)


def roles(wire: list[Wire]) -> list[str]:
    return [message["role"] for message in wire]


def last_text(case: dict[str, Any]) -> str:
    text: str = case["turns"][-1]["parts"][0]["text"]
    return text


ORPHAN = {"role": "tool", "tool_call_id": "orphan", "content": "x"}


def paired(statement: str) -> Check:
    """The check of this statement in the tests of repair, which knows no windows."""

    def pairs(s: Trimmed) -> bool:
        seen = history_cases.Seen(case=s.case, turns=s.shown, wire=s.wire, again=s.wire)
        return history_cases.CHECKS[statement](seen)

    return pairs


ANSWERS = "every tool message answers a tool call of the nearest earlier assistant message"
ANSWERED = (
    "every tool call of an assistant message is answered by exactly one tool message right after"
    " that assistant message"
)
CALL: Wire = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNANSWERED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
check(ANSWERS, spoiled=on_wire(lambda wire: wire.append(ORPHAN)))(paired(ANSWERS))
check(ANSWERED, spoiled=on_wire(lambda wire: wire.append(UNANSWERED)))(paired(ANSWERED))


@check(
    "the current user message is sent in full, or the conversion raises a clear error",
    spoiled=on_wire(lambda wire: wire[-1].update(content="the question")),
)
@check("the last message is 'q3'", spoiled=on_wire(lambda wire: wire.pop()))
@check("the last message is the user message 'next'", spoiled=on_wire(lambda wire: wire.pop()))
def _(s: Trimmed) -> bool:
    return bool(s.wire) and s.wire[-1] == {"role": "user", "content": last_text(s.case)}


@check("never a request with only system messages", spoiled=without("user"))
def _(s: Trimmed) -> bool:
    return "user" in roles(s.wire)


@check("the user message 'Read the log' is present", spoiled=without("user"))
def _(s: Trimmed) -> bool:
    return {"role": "user", "content": "Read the log"} in s.wire


def full_result(s: Trimmed) -> str:
    text: str = s.case["turns"][2]["parts"][0]["content"]
    return text


@check(
    "the result is shortened with a visible mark, or the conversion raises a clear error",
    spoiled=on_wire(lambda wire: wire[2].update(content="line of the log")),
)
def _(s: Trimmed) -> bool:
    text = history_cases.result_for(s.wire, "c1")
    return "characters left out" in text and len(text) < len(full_result(s))


@check(
    "the result is not sent in full and not left out without its call",
    spoiled=on_wire(lambda wire: wire.pop()),
)
def _(s: Trimmed) -> bool:
    return history_cases.result_for(s.wire, "c1") not in ("", full_result(s))


@check(
    "if the endpoint asks for it, the first non-system message is a user message",
    spoiled=on_wire(lambda wire: wire.insert(0, {"role": "assistant", "content": "a1"})),
)
def _(s: Trimmed) -> bool:
    return next(role for role in roles(s.user_first) if role != "system") == "user"


@check("no message is sent twice", spoiled=on_wire(lambda wire: wire.append(wire[-1])))
def _(s: Trimmed) -> bool:
    sent = [json.dumps(message) for message in s.user_first]
    return len(set(sent)) == len(sent)


@check("no tool message is sent", spoiled=on_wire(lambda wire: wire.append(ORPHAN)))
def _(s: Trimmed) -> bool:
    return "tool" not in roles(s.wire)


def counting_no_arguments(before: Trimmed) -> Trimmed:
    class NoArguments(LetterCounter):
        def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
            calls = [part.arguments for part in turn.parts if part.type == "tool_call"]
            return super().count_turn(turn, model=model) - sum(map(len, calls)) // 4

    return trimmed(before.case["id"], NoArguments(letters=4))


@check("the call arguments are counted against the limit", spoiled=counting_no_arguments)
def _(s: Trimmed) -> bool:
    stored = history_cases.stored_turns(s.case)
    short = ToolCallPart(id="c1", name="write_file", arguments="{}")
    with_short = [*stored[:1], turn("1", "assistant", short), *stored[2:]]
    return not history_cases.all_calls(s.wire) and s.window.select(with_short) == with_short


def pairs() -> Iterator[tuple[str, str]]:
    for case_id in TRIMMED:
        for statement in CASES[case_id]["expect"].get("properties", []):
            yield case_id, statement


PAIRS = list(pairs())


@pytest.mark.parametrize("counter", [USUAL, TokenEstimator()], ids=["letters", "estimate"])
@pytest.mark.parametrize(("case_id", "statement"), PAIRS)
def test_case_statement_holds(case_id: str, statement: str, counter: TokenCounter) -> None:
    """Each statement of each case with a window has a check, and it holds."""
    assert statement in CHECKS, f"no check is written for: {statement}"
    assert CHECKS[statement](trimmed(case_id, counter))


@pytest.mark.parametrize(("case_id", "statement"), PAIRS)
def test_each_property_check_can_fail(case_id: str, statement: str) -> None:
    """What was spoiled for a statement does not pass its check."""
    assert not CHECKS[statement](SPOILED[statement](trimmed(case_id)))


def test_each_check_is_of_a_case() -> None:
    """No check is left without a statement."""
    assert {statement for _, statement in PAIRS} == CHECKS.keys()


@pytest.mark.parametrize("case_id", [each for each in TRIMMED if "wire" in CASES[each]["expect"]])
def test_case_gives_the_wire_it_tells(case_id: str) -> None:
    """The messages on the wire are those that the case tells, in order."""
    assert trimmed(case_id).wire == CASES[case_id]["expect"]["wire"]


@pytest.mark.parametrize("case_id", TRIMMED)
def test_case_leaves_the_store_as_it_is(case_id: str) -> None:
    """A window changes no stored turn."""
    stored = history_cases.stored_turns(CASES[case_id])
    window_of(CASES[case_id], USUAL).select(stored)
    assert stored == history_cases.stored_turns(CASES[case_id])


# ── h-very-long-text ─────────────────────────────────────────────────────────────────────────


def very_long_turn() -> Turn:
    case = CASES["h-very-long-text"]
    (stored,) = history_cases.stored_turns(case)
    text = stored.text * case["repeat"]["times"]
    assert len(text) > 2_000_000
    return turn("0", "user", TextPart(text))


def test_a_very_long_text_is_refused_by_a_window_of_tokens() -> None:
    """Case h-very-long-text: refused clearly, with both numbers."""
    with pytest.raises(InvalidValue, match="about 2040004 tokens, more than the window's 8000"):
        RecentWindow(tokens=8_000, counter=LETTERS).select([very_long_turn()])


def test_a_very_long_text_is_never_copied() -> None:
    """Case h-very-long-text: on its way to the wire it stays the one string that was stored."""
    stored = very_long_turn()
    shown = RecentWindow(turns=40).select([stored])
    (message,) = wire_of({}, shown, Target())
    assert message["content"] is stored.parts[0].text  # type: ignore[union-attr]


def test_a_very_long_result_is_read_a_few_times_at_most() -> None:
    """Case h-very-long-text, as a result: what is counted grows with the text, not with its
    square."""

    class Summing(LetterCounter):
        counted = 0

        def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
            tokens = super().count_turn(turn, model=model)
            self.counted += tokens
            return tokens

    for length in (20_000, 2_000_000):
        for share in (10, 2, 1.01):
            counter = Summing()
            shortened(exchange("x" * length), int(length / share), counter)
            assert counter.counted < 12 * length

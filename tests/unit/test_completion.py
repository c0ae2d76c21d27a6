"""The legal order of sessions, and the fold of parts to a result."""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.completion import (
    NEXT_STATE,
    CompletionSession,
    Fold,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    SessionGroup,
    SessionState,
    StreamEnd,
)
from turngate.errors import PolicyStopped, SessionStateError
from turngate.messages import ToolCall
from turngate.values import ProviderData, Usage

ORDERS = ["".join(calls) for length in range(5) for calls in product("pfe", repeat=length)]


class Recorder:
    """A session that writes down its calls, and raises at one of them if asked to."""

    def __init__(self, raises_at: str = "") -> None:
        self.calls: list[object] = []
        self._raises_at = raises_at

    def _note(self, call: str, value: object) -> None:
        if call == self._raises_at:
            raise PolicyStopped("enough", reason="enough")
        self.calls.append(value)

    def part(self, part: ModelPart) -> None:
        self._note("part", part)

    def finish(self, reason: str) -> None:
        self._note("finish", ("finish", reason))

    def end(self) -> None:
        self._note("end", "end")


def drive(group: SessionGroup, order: str) -> None:
    for call in order:
        match call:
            case "p":
                group.part("x")
            case "f":
                group.finish("stop")
            case _:
                group.end()


@pytest.mark.parametrize("order", ORDERS)
def test_sessions_take_only_the_documented_orders(order: str) -> None:
    """Calls are legal just when they fit ``part* finish? end?``, and no other reaches a session."""
    recorder = Recorder()
    legal = re.fullmatch("p*f?e?", order)
    with nullcontext() if legal else pytest.raises(SessionStateError):
        drive(SessionGroup([recorder]), order)
    seen = {"x": "p", ("finish", "stop"): "f", "end": "e"}
    reached = "".join(seen[call] for call in recorder.calls)  # type: ignore[index]
    assert order.startswith(reached)
    assert re.fullmatch("p*f?e?", reached)
    if legal:
        assert reached == order


def test_state_table_is_the_documented_one() -> None:
    """The table has the four arrows of the drawing, and no other."""
    arrows = {(before.value, call, after.value) for (before, call), after in NEXT_STATE.items()}
    assert arrows == {
        ("open", "part", "open"),
        ("open", "finish", "finished"),
        ("open", "end", "ended"),
        ("finished", "end", "ended"),
    }
    assert SessionGroup([]).state is SessionState.OPEN


@pytest.mark.parametrize(("call", "order"), [("part", "p"), ("finish", "f"), ("end", "e")])
def test_session_that_raises_keeps_the_call_from_later_ones(call: str, order: str) -> None:
    """The sessions before it have seen the call, those after it have not."""
    first, raising, last = Recorder(), Recorder(call), Recorder()
    with pytest.raises(PolicyStopped):
        drive(SessionGroup([first, raising, last]), order)
    assert len(first.calls) == 1
    assert not raising.calls
    assert not last.calls


class EndWatcher(CompletionSession):
    """A session that overrides one call."""

    def __init__(self) -> None:
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


def test_session_may_leave_out_what_it_does_not_watch() -> None:
    """A subclass of the protocol inherits calls that do nothing."""
    watcher = EndWatcher()
    drive(SessionGroup([watcher]), "pfe")
    assert watcher.ended == 1


def test_session_may_have_its_calls_as_attributes() -> None:
    """Structural typing: a call put onto the object alone is called too."""
    seen: list[ModelPart] = []
    session = EndWatcher()
    session.part = seen.append  # type: ignore[method-assign, assignment]
    group = SessionGroup([session, Recorder()])
    group.part("x")
    assert seen == ["x"]


# ── the fold ─────────────────────────────────────────────────────────────────────────────────


def folded(parts: list[ModelPart], end: StreamEnd | None = None) -> Fold:
    fold = Fold()
    for part in parts:
        fold.add(part)
    return fold


def test_fold_of_nothing_is_empty() -> None:
    """An exchange that gave nothing has no partial result."""
    fold = Fold()
    assert fold.is_empty
    result = fold.result()
    assert (result.text, result.tool_calls, result.reasoning) == ("", (), None)
    for part in ("a", ReasoningDelta("r"), FunctionCallDelta(index=0)):
        assert not folded([part]).is_empty


PARTS = st.lists(
    st.text(max_size=3)
    | st.builds(ReasoningDelta, st.text(max_size=3))
    | st.builds(
        FunctionCallDelta,
        index=st.integers(0, 2),
        id=st.none() | st.sampled_from(["", "a"]),
        name=st.none() | st.sampled_from(["", "f"]),
        arguments=st.none() | st.text(max_size=3),
    ),
    max_size=12,
)


@given(PARTS)
def test_fold_joins_each_kind_in_order(parts: list[ModelPart]) -> None:
    """Text, reasoning and the arguments of each call are the pieces joined, calls by index."""
    result = folded(parts).result()
    assert result.text == "".join(part for part in parts if isinstance(part, str))
    assert (result.reasoning or "") == "".join(
        part.text for part in parts if isinstance(part, ReasoningDelta)
    )
    deltas = [part for part in parts if isinstance(part, FunctionCallDelta)]
    assert len(result.tool_calls) == len({delta.index for delta in deltas})
    for index, call in zip(sorted({d.index for d in deltas}), result.tool_calls, strict=True):
        mine = [delta for delta in deltas if delta.index == index]
        assert call.arguments == "".join(delta.arguments or "" for delta in mine)
        assert call.id == ("a" if any(delta.id for delta in mine) else "")
        assert call.name == ("f" if any(delta.name for delta in mine) else "")


def test_end_lays_its_facts_onto_the_result() -> None:
    """Usage, model and provider data come with the end; data finds its call by index."""
    parts: list[ModelPart] = [
        FunctionCallDelta(index=1, id="b", name="g", arguments="{}"),
        FunctionCallDelta(index=0, id="a", name="f", arguments="{}"),
    ]
    data = ProviderData("p", "{}")
    end = StreamEnd(
        "tool_calls",
        usage=Usage(input_tokens=1, output_tokens=2),
        model="m",
        provider_data=((None, data), (1, data)),
        refused=True,
    )
    result = folded(parts).result(end)
    assert result.tool_calls == (
        ToolCall(id="a", name="f", arguments="{}"),
        ToolCall(id="b", name="g", arguments="{}", provider_data=data),
    )
    assert (result.finish_reason, result.model, result.refused) == ("tool_calls", "m", True)
    assert result.provider_data == data
    assert result.usage == Usage(input_tokens=1, output_tokens=2)


def test_parts_tell_their_tag() -> None:
    """The tags are those of the seed and of our third branch."""
    assert FunctionCallDelta(index=0).type == "function-call-delta"
    assert ReasoningDelta("").type == "reasoning-delta"

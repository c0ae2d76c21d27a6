"""Which call a tool delta belongs to: each row of the table, and the order of what is told."""

from __future__ import annotations

import pytest

from tests.unit.providers.support import call_delta, call_ids, decoded, delta, stream_of
from turngate.completion import FunctionCallDelta, ModelPart
from turngate.providers.calls import Calls
from turngate.providers.chunks import Function, ToolDelta

Entry = dict[str, object]


def entry(
    arguments: object = None, *, index: object = None, id: object = None, name: object = None
) -> Entry:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


def calls_of(*deltas: list[Entry], finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call, for the tool deltas of successive chunks."""
    chunks = [delta(tool_calls=entries) for entries in deltas]
    outcome = decoded([stream_of(*chunks, delta(finish))])
    assert outcome.error is None
    return [(call.id, call.name, call.arguments) for call in outcome.result.tool_calls]


A, B = '{"a":1}', '{"b":2}'
MADE_1, MADE_2 = "call_made_1", "call_made_2"


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [[entry(A, index=0, id="x", name="f")], [entry(B, index=0, id="y", name="g")]],
            [("x", "f", A), ("y", "g", B)],
            id="new id at a used index is a new call",
        ),
        pytest.param(
            [[entry('{"a"', index=0, id="x", name="f")], [entry(":1}", index=0, id="x")]],
            [("x", "f", A)],
            id="same id at the same index is the same call",
        ),
        pytest.param(
            [
                [entry('{"a"', id="x", name="f"), entry('{"b"', id="y", name="g")],
                [entry(":1}", id="x")],
                [entry(":2}", id="y")],
            ],
            [("x", "f", A), ("y", "g", B)],
            id="ids alone tell calls apart",
        ),
        pytest.param(
            [
                [entry("", index=0, id="x", name="f")],
                [entry(A, index=0, id="x")],
                [entry("", index=1, id="x", name="g")],
                [entry(B, index=1, id="x")],
            ],
            [("x", "f", A), (MADE_1, "g", B)],
            id="one id at two indexes is two calls",
        ),
        pytest.param(
            [[entry("", index=0, name="f")], [entry(A, index=0, id="late")]],
            [("late", "f", A)],
            id="an id may come late",
        ),
        pytest.param(
            [[entry('{"a"', index=0, name="f")], [entry(":1}", index=0, id="late")]],
            [(MADE_1, "f", A)],
            id="an id that comes after one was made up is not taken",
        ),
        pytest.param(
            [
                [entry("", index=0, id="r1", name="f")],
                [entry('{"a"', index=0, id="r2")],
                [entry(":1}", index=0, id="r3")],
            ],
            [("r1", "f", A)],
            id="an id for each piece",
        ),
        pytest.param(
            [[entry(A, index=0, name="f")], [entry(B, index=0, name="g")]],
            [(MADE_1, "f", A), (MADE_2, "g", B)],
            id="another name after a whole object begins a call",
        ),
        pytest.param(
            [[entry(A, index=0, name="f")], [entry(B, index=0, name="f")]],
            [(MADE_1, "f", A), (MADE_2, "f", B)],
            id="the same name with another whole object begins a call",
        ),
        pytest.param(
            [[entry(A, index=0, name="f")], [entry(A, index=0, name="f")]],
            [(MADE_1, "f", A)],
            id="the same name with the same whole object is a repetition",
        ),
        pytest.param(
            [[entry(A, name="f"), entry(B, name="g")]],
            [(MADE_1, "f", A), (MADE_2, "g", B)],
            id="several without index or id in one delta",
        ),
        pytest.param(
            [[entry(A, index=0, name="f"), entry(A, index=0, name="f")]],
            [(MADE_1, "f", A), (MADE_2, "f", A)],
            id="two entries of one delta are two calls",
        ),
        pytest.param(
            [
                [entry("", name="f"), entry("", name="g")],
                [entry('{"a"'), entry('{"b"')],
                [entry(":1}"), entry(":2}")],
            ],
            [(MADE_1, "f", A), (MADE_2, "g", B)],
            id="places stand for indexes",
        ),
        pytest.param(
            [[entry("", index=1, id="x", name="f"), entry("", index=0, id="y", name="g")]],
            [("x", "f", "{}"), ("y", "g", "{}")],
            id="order of appearance where indexes are listed backwards",
        ),
        pytest.param(
            [[entry("", index=5, id="x", name="f")], [entry(A, index=5)]],
            [("x", "f", A)],
            id="indexes with gaps",
        ),
        pytest.param(
            [[entry('{"a"', id="x", name="f")], [entry(":1}", index=0)]],
            [("x", "f", A)],
            id="an index that comes late",
        ),
        pytest.param(
            [[entry("", index=0, id="x", name="get_")], [entry(A, index=0, name="weather")]],
            [("x", "get_weather", A)],
            id="a name in pieces",
        ),
        pytest.param(
            [
                [entry("", index=0, id="x", name="get_")],
                [entry("", index=0, name="get_weather")],
                [entry(A, index=0, name="get_weather")],
            ],
            [("x", "get_weather", A)],
            id="a name that grows and is repeated",
        ),
        pytest.param(
            [[entry('{"a"', index=0, id="x")], [entry(":1}", index=0, name="f")]],
            [("x", "f", A)],
            id="a name that comes late",
        ),
        pytest.param(
            [[entry({"a": 1}, index=0, id="x", name="f")]],
            [("x", "f", A)],
            id="arguments as an object",
        ),
        pytest.param(
            [[entry([1, 2], index=0, id="x", name="f")]],
            [("x", "f", "[1,2]")],
            id="arguments as a list",
        ),
        pytest.param(
            [[entry(A, index="0", id=7, name="f")]],
            [("7", "f", A)],
            id="an index as text and an id as a number",
        ),
        pytest.param(
            [[entry(None, index=0, id="x", name="f")]],
            [("x", "f", "{}")],
            id="arguments null",
        ),
        pytest.param(
            [[{"index": 0, "id": "x"}], [entry(A, index=0, name="f")]],
            [("x", "f", A)],
            id="an entry without a function",
        ),
    ],
)
def test_tool_deltas_make_calls(
    deltas: list[list[Entry]], calls: list[tuple[str, str, str]]
) -> None:
    """[R18] to [R28] Each rule, and what servers do beside them."""
    assert calls_of(*deltas) == calls


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_cut_answer_has_no_arguments_filled_in(finish: str) -> None:
    """Arguments that may be missing are not claimed to be an empty object."""
    deltas = [[entry("", index=0, id="x", name="f")]]
    assert calls_of(*deltas, finish=finish) == [("x", "f", "")]


def test_tool_calls_as_one_object_are_a_list_of_one() -> None:
    """A server that leaves the list out is understood."""
    chunk = delta(tool_calls=entry(A, index=0, id="x", name="f"))
    outcome = decoded([stream_of(chunk, delta("tool_calls"))])
    assert [call.arguments for call in outcome.result.tool_calls] == [A]


def test_both_forms_of_a_call_are_one_call() -> None:
    """The older member beside or after the newer one repeats it."""
    function = {"name": "f", "arguments": A}
    both = delta(tool_calls=[entry(A, index=0, id="x", name="f")], function_call=function)
    outcome = decoded([stream_of(both, delta(function_call=function), delta("tool_calls"))])
    assert [(call.id, call.arguments) for call in outcome.result.tool_calls] == [("x", A)]


def test_first_delta_of_a_call_tells_id_and_name_once() -> None:
    """Ids and names are told whole, in the first delta and in no other."""
    calls, parts = Calls(call_ids()), list[ModelPart]()
    for name, arguments in [("get_", ""), ("weather", ""), ("", '{"a"'), ("", ":1}")]:
        function = Function(name=name, arguments=arguments)
        calls.take([ToolDelta(index=0, function=function)], parts)
    calls.close(parts, is_cut=False)
    assert parts == [
        FunctionCallDelta(index=0, id="call_made_1", name="get_weather", arguments='{"a"'),
        FunctionCallDelta(index=0, arguments=":1}"),
    ]


def test_call_that_waits_for_arguments_is_told_before_the_next_one() -> None:
    """Calls are told in the order of their indexes."""
    calls, parts = Calls(call_ids()), list[ModelPart]()
    for index, name in enumerate("fg"):
        function = Function(name=name, arguments="")
        calls.take([ToolDelta(index=index, id=name, function=function)], parts)
    assert parts == [FunctionCallDelta(index=0, id="f", name="f")]
    calls.close(parts, is_cut=False)
    assert parts[1:] == [
        FunctionCallDelta(index=0, arguments="{}"),
        FunctionCallDelta(index=1, id="g", name="g", arguments="{}"),
    ]


def test_extra_content_is_kept_by_call() -> None:
    """What came beside a call goes back beside it, pieces of it joined."""
    first = {"index": 0, "id": "x", "function": {"name": "f"}, "extra_content": {"v": {"s": 1}}}
    second = {"index": 0, "function": {"arguments": A}, "extra_content": {"w": 2}}
    outcome = decoded(
        [stream_of(delta(tool_calls=[first]), delta(tool_calls=[second]), delta("tool_calls"))]
    )
    data = outcome.result.tool_calls[0].provider_data
    assert data is not None
    assert (data.provider, data.json) == ("here", '{"extra_content":{"v":{"s":1},"w":2}}')


def test_call_of_the_second_choice_is_not_read() -> None:
    """An alternative's call does not mix with the answer's."""
    other = {"index": 1, "delta": {"tool_calls": [entry(B, index=0, id="y", name="g")]}}
    chunk = call_delta(A, id="x", name="f")
    outcome = decoded([stream_of({"choices": [other]}, chunk, delta("tool_calls"))])
    assert [call.id for call in outcome.result.tool_calls] == ["x"]

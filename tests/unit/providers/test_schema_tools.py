"""Tools for a server that knows none: what it is sent, and what its replies become."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate.completion import (
    CallOptions,
    ChatRequest,
    Fold,
    FunctionCallDelta,
    ModelPart,
    OutputSchema,
    ReasoningDelta,
    StreamEnd,
)
from turngate.errors import ProviderError
from turngate.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.providers.schema_tools import SchemaToolsProvider
from turngate.testing import CUT, ScriptedProvider
from turngate.values import Target, ToolSpec, Usage

TRACK = ToolSpec(
    name="track",
    description="Tells where a parcel is.",
    parameters={
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
)
CLOCK = ToolSpec(name="clock", description="Tells the time.")
USAGE = Usage(input_tokens=9, output_tokens=4)


def request(
    *messages: Message, tools: tuple[ToolSpec, ...] = (TRACK, CLOCK), **options: Any
) -> ChatRequest:
    return ChatRequest(
        messages=messages or (UserMessage(("Where is 7?",)),),
        tools=tools,
        options=CallOptions(**options),
    )


async def given_by(
    *script: object, asked: ChatRequest | None = None
) -> tuple[list[ModelPart], StreamEnd | None]:
    """The parts and the end that a reply of the server becomes."""
    parts: list[ModelPart] = []
    provider = SchemaToolsProvider(ScriptedProvider(script))
    async for item in provider.stream(asked if asked is not None else request()):
        if isinstance(item, StreamEnd):
            return parts, item
        parts.append(item)
    return parts, None


async def sent(asked: ChatRequest) -> ChatRequest:
    """What the server is sent for `asked`."""
    inner = ScriptedProvider(['{"answer": ""}'])
    async for _ in SchemaToolsProvider(inner).stream(asked):
        pass
    return inner.requests[0]


# ── what it is sent ──────────────────────────────────────────────────────────────────────────


async def test_tools_become_instructions_and_a_schema() -> None:
    """The server sees no tools; the model is told of them, and its reply is forced."""
    plain = await sent(request(SystemMessage("Be kind."), UserMessage(("Where is 7?",))))
    assert plain.tools == ()
    system, user = plain.messages
    assert isinstance(system, SystemMessage)
    assert system.text.startswith("Be kind.\n\n")
    assert "track: Tells where a parcel is." in system.text
    assert user == UserMessage(("Where is 7?",))
    assert plain.output is not None
    assert plain.output.strict
    track, clock, answer = plain.output.schema["anyOf"]
    assert track == {
        "type": "object",
        "properties": {"tool": {"const": "track"}, "arguments": TRACK.parameters},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    assert clock["properties"]["arguments"] == {"type": "object", "properties": {}}
    assert answer["properties"] == {"answer": {"type": "string"}}


async def test_earlier_exchanges_are_text_in_the_form_of_the_schema() -> None:
    """A template that knows no tool role is shown what was called and what it gave."""
    call = ToolCall(id="c1", name="track", arguments='{"number": 7}')
    plain = await sent(
        request(
            UserMessage(("Hello",)),
            AssistantMessage(text="Hi."),
            UserMessage(("Where is 7?",)),
            AssistantMessage(text="Let me see.", tool_calls=(call,)),
            ToolMessage(call_id="c1", name="track", content="in Oslo"),
        )
    )
    assert plain.messages[2:] == (
        AssistantMessage(text='{"answer": "Hi."}'),
        UserMessage(("Where is 7?",)),
        AssistantMessage(text='Let me see.\n{"tool": "track", "arguments": {"number": 7}}'),
        UserMessage(('{"result": "in Oslo"}',)),
    )


async def test_results_of_one_reply_are_one_message() -> None:
    """Another provider's parallel calls keep their order, and roles go on to alternate."""
    calls = tuple(ToolCall(id=f"c{n}", name="clock", arguments="not json") for n in (1, 2))
    plain = await sent(
        request(
            UserMessage(("Now?",)),
            AssistantMessage(tool_calls=calls),
            ToolMessage(call_id="c1", content="12:00"),
            ToolMessage(call_id="c2", content="12:01"),
        )
    )
    assert plain.messages[2:] == (
        AssistantMessage(
            text='{"tool": "clock", "arguments": "not json"}\n'
            '{"tool": "clock", "arguments": "not json"}'
        ),
        UserMessage(('{"result": "12:00"}\n{"result": "12:01"}',)),
    )


async def test_demands_of_the_server_hold_for_what_it_is_sent() -> None:
    """A result that became a user message is joined to the next one where roles must alternate."""

    class Strict(ScriptedProvider):
        target = Target(strict_alternation=True)

    inner = Strict(['{"answer": ""}'])
    wrapped = SchemaToolsProvider(inner)
    call = ToolCall(id="c1", name="clock", arguments="{}")
    asked = request(
        UserMessage(("Now?",)),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage(call_id="c1", content="12:00"),
        UserMessage(("And now?",)),
    )
    async for _ in wrapped.stream(asked):
        pass
    assert wrapped.target is Strict.target
    assert [m.role for m in inner.requests[0].messages] == ["system", "user", "assistant", "user"]


async def test_without_tools_nothing_is_forced() -> None:
    """A request of its own kind goes through, and so does its answer."""
    asked = request(tools=())
    assert await sent(asked) == asked
    assert await given_by('{"a": ', "1}", asked=asked) == (['{"a": ', "1}"], StreamEnd("stop"))


@pytest.mark.parametrize(
    ("choice", "kinds"),
    [
        ("auto", ["track", "clock", None]),
        ("required", ["track", "clock"]),
        ({"type": "function", "function": {"name": "clock"}}, ["clock"]),
    ],
)
async def test_the_choice_of_tools_narrows_the_schema(choice: Any, kinds: list[str | None]) -> None:
    """What a server with tools would be told is held by the schema."""
    plain = await sent(request(tool_choice=choice, parallel_tool_calls=False))
    assert plain.output is not None
    shown = [kind["properties"].get("tool", {}) for kind in plain.output.schema["anyOf"]]
    assert [tool.get("const") for tool in shown] == kinds
    assert plain.options == CallOptions()


async def test_no_tool_is_offered_where_none_may_be_called() -> None:
    """The choice ``none`` gives a plain request."""
    plain = await sent(request(tool_choice="none"))
    assert plain == ChatRequest(messages=(UserMessage(("Where is 7?",)),))


async def test_definitions_of_two_tools_do_not_meet() -> None:
    """A reference within a tool's schema leads to that tool's own definition."""

    def tool(name: str, kind: str) -> ToolSpec:
        place = {"$ref": "#/$defs/Place"}
        defined = {"Place": {"type": kind}, "Places": {"type": "array", "items": place}}
        properties = {"places": {"$ref": "#/$defs/Places"}}
        parameters = {"type": "object", "properties": properties, "$defs": defined}
        return ToolSpec(name=name, parameters=parameters)

    plain = await sent(request(tools=(tool("a", "string"), tool("b", "integer"))))
    assert plain.output is not None
    schema = plain.output.schema
    arguments = [kind["properties"]["arguments"] for kind in schema["anyOf"][:2]]
    assert [a["properties"]["places"]["$ref"] for a in arguments] == [
        "#/$defs/a_Places",
        "#/$defs/b_Places",
    ]
    assert "$defs" not in arguments[0]
    assert schema["$defs"]["b_Places"]["items"] == {"$ref": "#/$defs/b_Place"}
    assert schema["$defs"]["b_Place"] == {"type": "integer"}


# ── what its replies become ──────────────────────────────────────────────────────────────────


async def test_an_answer_is_given_as_it_comes() -> None:
    """Each piece of the text is handed on, and the frame of JSON is not."""
    pieces = ['{ "ans', 'wer": "Pa', 'ris \\"is', "\\", "n", " it\\u00e9", '"', " }"]
    parts, end = await given_by(*pieces, StreamEnd("stop", usage=USAGE, model="m"))
    assert parts == ["Pa", 'ris "is', "\n", " it\xe9"]
    assert end == StreamEnd("stop", usage=USAGE, model="m")


@given(st.text(), st.lists(st.integers(0, 60)), st.booleans())
async def test_an_answer_is_the_same_however_it_is_cut(
    text: str, cuts: list[int], ascii_only: bool
) -> None:
    """Escapes, halves of pairs and quotes may fall apart anywhere."""
    reply = json.dumps({"answer": text}, ensure_ascii=ascii_only)
    at = sorted({0, len(reply), *(cut for cut in cuts if cut < len(reply))})
    pieces = [reply[a:b] for a, b in pairwise(at)]
    parts, _ = await given_by(*pieces)
    fold = Fold()
    for part in parts:
        fold.add(part)
    assert fold.result().text == text


async def test_a_call_is_given_once_it_is_whole() -> None:
    """It has a made id, the arguments as JSON, and its own finish reason."""
    reply = '{"tool": "track", "arguments": {"number": 7}}'
    parts, end = await given_by(*reply, StreamEnd("stop", usage=USAGE))
    (call,) = parts
    assert isinstance(call, FunctionCallDelta)
    assert (call.index, call.name, call.arguments) == (0, "track", '{"number": 7}')
    assert call.id
    assert call.id.startswith("call_")
    assert end == StreamEnd("tool_calls", usage=USAGE)


async def test_reasoning_goes_through() -> None:
    """What is no text is none of the reply."""
    parts, _ = await given_by(ReasoningDelta("hm"), '{"answer": "yes"}')
    assert parts == [ReasoningDelta("hm"), "yes"]


@pytest.mark.parametrize(
    "reply",
    [
        "Paris",
        "",
        "[]",
        '{"answer": "Par',
        '{"answer": 7}',
        '{"answer": "yes", "more": 1}',
        '{"tool": "track", "arguments": "7"}',
        '{"tool": "unknown", "arguments": {}}',
        '{"tool": "track"}',
        "[" * 100_000,
    ],
)
async def test_a_reply_that_breaks_the_schema_is_a_protocol_error(reply: str) -> None:
    """A server that ignores the schema is found out, and nothing is guessed."""
    with pytest.raises(ProviderError) as caught:
        await given_by(reply)
    assert (caught.value.code, caught.value.reason) == ("protocol", "not_the_schema")


@pytest.mark.parametrize(
    ("reply", "parts"), [('{"answer": "Par', ["Par"]), ('{"tool": "track", "argu', []), ("", [])]
)
async def test_a_reply_that_was_cut_is_no_broken_one(reply: str, parts: list[str]) -> None:
    """At the token limit half an answer is kept, and half a call is not."""
    assert await given_by(reply, StreamEnd("length")) == (parts, StreamEnd("length"))


async def test_a_stream_without_an_end_stays_one() -> None:
    """A lost connection is not made into an answer."""
    assert await given_by('{"answer": "Par', CUT) == (["Par"], None)


async def test_a_refusal_is_text() -> None:
    """A server that refuses does so outside of the schema."""
    end = StreamEnd("stop", refused=True)
    assert await given_by("I will ", "not.", end) == (["I will not."], end)


async def test_an_answer_may_have_a_schema_of_its_own() -> None:
    """Structured output and tools go together: the answer's text is the JSON that was asked for."""
    city = OutputSchema(name="city", schema={"type": "object", "properties": {"name": {}}})
    asked = ChatRequest(messages=(UserMessage(("Where?",)),), tools=(CLOCK,), output=city)
    plain = await sent(asked)
    assert plain.output is not None
    assert plain.output.schema["anyOf"][1]["properties"]["answer"] == city.schema
    parts, _ = await given_by('{"answer": {"name": "Oslo"}}', asked=asked)
    assert parts == ['{"name": "Oslo"}']

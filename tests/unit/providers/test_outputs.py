"""Structured output: the schema of a type, the value of a text, and one repair."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from turngate.completion import ModelPart
from turngate.errors import InvalidValue, ProviderError
from turngate.messages import AssistantMessage, UserMessage
from turngate.providers import ModelRunner, StreamEnd
from turngate.providers.outputs import OutputMismatch, output_schema, parsed_output
from turngate.testing import ScriptedProvider, ScriptStep
from turngate.values import Target, ToolSpec


class Place(msgspec.Struct):
    city: str
    floor: int


class Parcel(msgspec.Struct):
    number: str
    places: list[Place]


@dataclass
class Sum:
    total: int
    unit: str


class Model(pydantic.BaseModel):
    total: int
    unit: str


class Nested(pydantic.BaseModel):
    items: list[Model]


class Dictionary(TypedDict):
    total: int
    unit: str


class WithDefault(msgspec.Struct):
    total: int
    unit: str = "kg"


class WithMap(msgspec.Struct):
    counts: dict[str, int]


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    total: int


class OddNames(msgspec.Struct):
    type: str
    properties: list[str]


# ── the schema ───────────────────────────────────────────────────────────────────────────────


def objects_in(schema: Any) -> list[dict[str, Any]]:
    """Each schema of an object with members within `schema`, itself included."""
    if isinstance(schema, list):
        return [found for entry in schema for found in objects_in(entry)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" and "properties" in schema else []
    return own + [found for entry in schema.values() for found in objects_in(entry)]


@pytest.mark.parametrize(
    ("output", "strict"),
    [
        (Place, True),
        (Parcel, True),
        (Sum, True),
        (Model, True),
        (Nested, True),
        (Dictionary, True),
        (OddNames, True),
        (WithDefault, False),
        (WithMap, False),
        (Open, False),
    ],
)
def test_schema_is_strict_where_every_member_is_required_and_none_may_be_added(
    output: type[Any], strict: bool
) -> None:
    """A server that enforces a strict schema refuses any other."""
    made = output_schema(output)
    assert made.strict == strict
    assert made.name == output.__name__
    assert made.schema["type"] == "object"
    for found in objects_in(made.schema):
        assert found["additionalProperties"] is (output is Open)


def test_schema_has_no_reference_at_its_top() -> None:
    """Servers want the object itself there; what it uses stays among the definitions."""
    schema = output_schema(Parcel).schema
    assert set(schema["properties"]) == {"number", "places"}
    assert set(schema["$defs"]) == {"Place"}
    assert "$defs" not in output_schema(Place).schema


@pytest.mark.parametrize("output", [int, str, list[int], int | None])
def test_type_that_is_no_object_is_refused(output: Any) -> None:
    """Servers take nothing else at the top."""
    with pytest.raises(InvalidValue, match="object"):
        output_schema(output)


@pytest.mark.parametrize("output", [object(), complex, lambda: None])
def test_what_has_no_schema_is_refused(output: Any) -> None:
    """The error is ours, and says so."""
    with pytest.raises(InvalidValue, match="schema"):
        output_schema(output)


def test_schema_name_is_one_that_servers_take() -> None:
    """Letters, digits, hyphens and underscores, at most 64 of them."""
    made = msgspec.defstruct("Größe [2] " + "x" * 100, [("a", int)])
    name = output_schema(made).name
    assert name.isascii()
    assert name.replace("_", "").isalnum()
    assert len(name) == 64


# ── the value ────────────────────────────────────────────────────────────────────────────────

TEXT = '{"total": 3, "unit": "kg"}'


@pytest.mark.parametrize("output", [Sum, Model, WithDefault, Dictionary])
@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"\n {TEXT} \n",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}```",
        f"  ```JSON \n{TEXT}\n``` \n",
        f"```json\r\n{TEXT}\r\n```",
    ],
)
def test_text_becomes_a_value(output: type[Any], text: str) -> None:
    """With a fence around it, as models like to put, or without."""
    value = parsed_output(output, text)
    assert value == output(total=3, unit="kg")


@pytest.mark.parametrize(
    ("output", "text", "place"),
    [
        (Parcel, '{"number":"A7","places":[{"city":"Oslo"}]}', "$.places[0]"),
        (Parcel, '{"number":7,"places":[]}', "$.number"),
        (Parcel, '{"number":"A7"}', "$"),
        (Parcel, "not JSON", "$"),
        (Parcel, "", "$"),
        (Parcel, "[" * 100_000, "$"),
        (Parcel, TEXT[:-1], "$"),
        (Sum, '{"total":"x","unit":"kg"}', "$.total"),
        (Nested, '{"items":[{"total":1,"unit":"kg"},{"total":"x"}]}', "$.items.1.total"),
        (Nested, "not JSON", "$"),
        (Nested, "[" * 100_000, "$"),
        (Model, "```json\nnope\n```", "$"),
        (Model, f"Here it is:\n```json\n{TEXT}\n```", "$"),
        (Model, f"```python\n{TEXT}\n```", "$"),
        (Model, "``````", "$"),
        (Model, "```", "$"),
    ],
)
def test_text_that_does_not_fit_names_the_place(output: type[Any], text: str, place: str) -> None:
    """The place is a path into the answer and quotes nothing of it."""
    with pytest.raises(OutputMismatch) as caught:
        parsed_output(output, text)
    assert caught.value.place == place


def test_mismatch_of_a_long_answer_stays_short() -> None:
    """What goes back to the model lists no ten thousand errors."""
    text = json.dumps({"items": [{}] * 10_000})
    with pytest.raises(OutputMismatch) as caught:
        parsed_output(Nested, text)
    assert len(str(caught.value)) <= 2_000
    assert caught.value.place == "$.items.0.total"
    with pytest.raises(OutputMismatch) as caught:
        parsed_output(Closed, json.dumps({"x" * 10_000: 1}))
    assert len(caught.value.place) <= 200


class Closed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


@pytest.mark.parametrize("text", ["```\n" + "\n" * 300_000, " " * 300_000 + "```", "`" * 300_000])
def test_fence_is_looked_for_in_linear_time(text: str) -> None:
    """White space without an end does not hold the loop up."""
    start = time.process_time()
    with pytest.raises(OutputMismatch):
        parsed_output(Sum, text)
    assert time.process_time() - start < 1


# ── asking for it ────────────────────────────────────────────────────────────────────────────

GOOD, BAD = TEXT, '{"total": "three", "unit": "kg"}'


async def test_value_is_of_the_type_and_the_request_has_its_schema() -> None:
    """`value` is typed, `result` is what the model said."""
    provider = ScriptedProvider([GOOD])
    invocation = await ModelRunner(provider).invoke("How much?", output=Sum)
    assert invocation.value == Sum(total=3, unit="kg")
    assert invocation.result.text == GOOD
    (request,) = provider.requests
    assert request.output == output_schema(Sum)


async def test_without_an_output_no_schema_is_asked_for() -> None:
    """Plain text is plain text."""
    provider = ScriptedProvider([GOOD])
    assert (await ModelRunner(provider).invoke("How much?")).value == GOOD
    assert provider.requests[0].output is None


async def failed(provider: ScriptedProvider, **members: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ModelRunner(provider).invoke("How much?", output=Sum, **members)
    return caught.value


async def test_answer_that_does_not_fit_is_an_error_that_quotes_nothing() -> None:
    """One exchange, the answer as `partial`, the place in the message."""
    provider = ScriptedProvider([BAD], [GOOD])
    error = await failed(provider)
    assert (error.code, error.reason) == ("protocol", "invalid_output")
    assert "$.total" in str(error)
    assert "three" not in str(error)
    assert error.partial is not None
    assert error.partial.text == BAD
    assert len(provider.requests) == 1


async def test_repair_asks_once_more_and_shows_what_was_wrong() -> None:
    """The model sees its answer and the mismatch, and is held to the same schema."""
    provider = ScriptedProvider([BAD], [GOOD], ["never asked"])
    invocation = await ModelRunner(provider).invoke("How much?", output=Sum, repair=True)
    assert invocation.value == Sum(total=3, unit="kg")
    first, second = provider.requests
    asked, answer, again = second.messages
    assert (asked, answer) == (UserMessage(("How much?",)), AssistantMessage(text=BAD))
    assert isinstance(again, UserMessage)
    assert "$.total" in str(again.parts[0])
    assert second.output == first.output


async def test_repair_is_one_attempt() -> None:
    """A model that does not learn is not asked a third time."""
    provider = ScriptedProvider([BAD], ["{}"], [GOOD])
    error = await failed(provider, repair=True)
    assert error.reason == "invalid_output"
    assert error.partial is not None
    assert error.partial.text == "{}"
    assert len(provider.requests) == 2


async def test_repair_meets_the_demands_of_its_target() -> None:
    """An empty answer leaves no two user messages in a row where roles have to alternate."""
    provider = ScriptedProvider([StreamEnd("stop")], [GOOD])
    provider.target = Target(strict_alternation=True)  # type: ignore[attr-defined]
    await ModelRunner(provider).invoke("How much?", output=Sum, repair=True)
    assert [message.role for message in provider.requests[1].messages] == ["user"]


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ([GOOD, StreamEnd("length")], "truncated", "length"),
        ([BAD, StreamEnd("length")], "truncated", "length"),
        ([GOOD, StreamEnd("content_filter")], "provider", "refusal"),
        (["No.", StreamEnd("stop", refused=True)], "provider", "refusal"),
    ],
)
async def test_answer_that_is_none_is_not_repaired(
    script: list[ScriptStep], code: str, reason: str
) -> None:
    """A refusal and a cut answer have no value, however they look."""
    provider = ScriptedProvider(script, [GOOD])
    error = await failed(provider, repair=True)
    assert (error.code, error.reason) == (code, reason)
    assert error.partial is not None
    assert len(provider.requests) == 1


async def test_answer_without_a_finish_reason_has_a_value() -> None:
    """Some servers tell none."""
    provider = ScriptedProvider([GOOD, StreamEnd()])
    invocation = await ModelRunner(provider).invoke("How much?", output=Sum)
    assert invocation.value.total == 3


async def test_tools_stay_in_the_repairing_request() -> None:
    """The second request is the first with two messages more."""
    seen: list[ModelPart] = [BAD]
    provider = ScriptedProvider(seen, [GOOD])
    runner: Any = ModelRunner(provider)
    tools = (ToolSpec(name="f"),)
    await runner.invoke("How much?", output=Sum, repair=True, tools=tools)
    assert [request.tools for request in provider.requests] == [tools, tools]

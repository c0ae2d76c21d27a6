"""TurnBuilder: each sentence that its users rely on, and the laws that hold for any input."""

from __future__ import annotations

import base64
import copy
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import strategies
from turngate import identity
from turngate.errors import InvalidMessage
from turngate.history import without_final_answer
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.results import ModelResult
from turngate.turn_builder import TurnBuilder
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import FileRef, ProviderData, Usage

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
USAGE = Usage(input_tokens=7, output_tokens=3)
SIGNATURE = ProviderData("vendor-a", '{"thought_signature":"eA=="}')
PLAN = FileRef(id="file_1", name="plan.png", media_type="image/png", size_bytes=12, sha256="a" * 64)
NOTES = FileRef(
    id="file_2", name="notes.txt", media_type="text/plain", size_bytes=5, sha256="b" * 64
)
PICTURE = InlineFile(name="plan.png", media_type="image/png", data=b"\x89PNG bytes")
CALL = ToolCall(id="c1", name="track", arguments='{"n":1}')


def result(**changes: Any) -> ModelResult:
    """A model result; `changes` take the place of its usual fields."""
    fields: dict[str, Any] = {
        "text": "Here it is.",
        "tool_calls": (),
        "model": "model-1",
        "finish_reason": "stop",
        "usage": USAGE,
    }
    return ModelResult(**fields | changes)


def turn(role: Role, *parts: Part, **facts: Any) -> Turn:
    """A stored turn of fixed id and time; `facts` take the place of its usual fields."""
    return Turn(**{"id": "turn_1", "role": role, "parts": parts, "created_at": NOON} | facts)


# ── the class ────────────────────────────────────────────────────────────────────────────────


def test_turn_builder_needs_nothing() -> None:
    """It is made without dependencies, and works at once."""
    assert TurnBuilder().build_user_turn(prompt="hi").parts == (TextPart("hi"),)


def test_turn_builder_takes_ids_and_time_from_its_arguments() -> None:
    """The id source and the clock can be given, and are asked once a turn."""
    ids = iter(["turn_a", "turn_b"])
    builder = TurnBuilder(new_id=lambda: next(ids), now=lambda: NOON)
    first, second = builder.build_user_turn(prompt="1"), builder.build_user_turn(prompt="2")
    assert (first.id, second.id) == ("turn_a", "turn_b")
    assert first.created_at == second.created_at == NOON


def test_turn_builder_knows_no_tenant() -> None:
    """No method takes a tenant, a thread or a scope."""
    names = {
        name
        for method in ("__init__", "build_user_turn", "build_assistant_turns", "to_messages")
        for name in inspect.signature(getattr(TurnBuilder, method)).parameters
    }
    assert not names & {"tenant", "thread", "thread_id", "scope", "user"}


def test_turn_builder_keeps_no_state() -> None:
    """What was converted before changes nothing of what comes later."""
    builder = TurnBuilder(new_id=lambda: "turn_1", now=lambda: NOON)
    before = copy.copy(vars(builder))
    fresh = builder.build_assistant_turns(result=result())
    builder.build_user_turn(prompt="hi", files=[PLAN])
    builder.to_messages([turn("user", TextPart("q"))])
    assert builder.build_assistant_turns(result=result()) == fresh
    assert vars(builder) == before


def test_turn_builder_types_everything_a_model_gave() -> None:
    """A result becomes typed turns (text, calls, results, with usage and model id), and back."""
    said: list[Message] = [
        AssistantMessage(text="One moment.", tool_calls=(CALL,)),
        ToolMessage(call_id="c1", content="found", name="track"),
        AssistantMessage(text="Here it is."),
    ]
    builder = TurnBuilder()
    turns = builder.build_assistant_turns(result=result(), run_messages=said)
    assert [each.parts for each in turns] == [
        (TextPart("One moment."), ToolCallPart(id="c1", name="track", arguments='{"n":1}')),
        (ToolResultPart(call_id="c1", content="found", name="track"),),
        (TextPart("Here it is."),),
    ]
    assert builder.to_messages(turns) == said


# ── build_user_turn ──────────────────────────────────────────────────────────────────────────


def test_user_turn_has_one_text_part_for_the_prompt() -> None:
    """The prompt is one text part, exactly as it was said."""
    prompt = " two\nlines, é vs e\u0301, \u2028 "
    made = TurnBuilder().build_user_turn(prompt=prompt)
    assert (made.role, made.parts) == ("user", (TextPart(prompt),))


def test_user_turn_has_one_file_part_per_pointer_in_order() -> None:
    """Each uploaded pointer is one file part, in order, behind the text."""
    made = TurnBuilder().build_user_turn(prompt="see", files=[PLAN, NOTES, PLAN])
    assert made.parts == (TextPart("see"), FilePart(PLAN), FilePart(NOTES), FilePart(PLAN))


def test_user_turn_of_files_alone_has_no_text_part() -> None:
    """An empty prompt gives no text part: a question can be files alone."""
    assert TurnBuilder().build_user_turn(prompt="", files=[PLAN]).parts == (FilePart(PLAN),)


def test_user_turn_has_a_new_id_and_the_time_now() -> None:
    """Each turn has an id of its own and the present moment, aware."""
    before = identity.now()
    first, second = (TurnBuilder().build_user_turn(prompt="yes") for _ in range(2))
    assert first.id != second.id
    assert first.id.startswith("turn_")
    assert before <= first.created_at <= second.created_at <= identity.now()


def test_user_turn_has_no_model_and_no_usage() -> None:
    """Model and usage belong to assistant turns; a fresh user turn is complete."""
    made = TurnBuilder().build_user_turn(prompt="hi")
    assert (made.model, made.usage, made.status, made.retry_of) == (None, None, "complete", None)


def test_user_turn_names_the_turn_that_it_retries() -> None:
    """A retry carries the id of the turn that it stands for."""
    assert TurnBuilder().build_user_turn(prompt="hi", retry_of="turn_0").retry_of == "turn_0"


# ── build_assistant_turns, an ask ────────────────────────────────────────────────────────────


def test_ask_gives_one_assistant_turn_with_text_and_unexecuted_calls() -> None:
    """Without run messages there is one assistant turn: the text, then the calls."""
    [made] = TurnBuilder().build_assistant_turns(result=result(tool_calls=(CALL,)))
    assert made.role == "assistant"
    assert made.parts == (
        TextPart("Here it is."),
        ToolCallPart(id="c1", name="track", arguments='{"n":1}'),
    )
    assert (made.model, made.usage, made.status) == ("model-1", USAGE, "complete")


def test_ask_of_a_silent_model_gives_one_turn_without_parts() -> None:
    """The one turn is there even if the model said nothing."""
    [made] = TurnBuilder().build_assistant_turns(result=result(text=""))
    assert (made.role, made.parts, made.usage) == ("assistant", (), USAGE)


def test_ask_orders_parts_reasoning_text_calls() -> None:
    """Reasoning comes first, then text, then calls."""
    [made] = TurnBuilder().build_assistant_turns(
        result=result(reasoning="Let me see.", tool_calls=(CALL,))
    )
    assert [type(part) for part in made.parts] == [ReasoningPart, TextPart, ToolCallPart]


def test_ask_keeps_calls_whose_arguments_are_no_json() -> None:
    """A call is stored with its raw arguments, valid or not."""
    broken = ToolCall(id="c1", name="f", arguments='{"a":1}{"a":2}')
    [made] = TurnBuilder().build_assistant_turns(result=result(text="", tool_calls=(broken,)))
    assert made.parts == (ToolCallPart(id="c1", name="f", arguments='{"a":1}{"a":2}'),)


def test_ask_puts_the_status_on_its_turn() -> None:
    """A cut answer is stored as an incomplete turn."""
    [made] = TurnBuilder().build_assistant_turns(result=result(), status="incomplete")
    assert made.status == "incomplete"


@pytest.mark.parametrize("reasoning", ["Let me see.", None])
def test_ask_stores_provider_data_on_the_reasoning_part(reasoning: str | None) -> None:
    """The answer's provider data is on its reasoning part, of empty text if there was none."""
    [made] = TurnBuilder().build_assistant_turns(
        result=result(reasoning=reasoning, provider_data=SIGNATURE)
    )
    assert made.parts[0] == ReasoningPart(reasoning or "", SIGNATURE)


def test_ask_stores_provider_data_of_a_call_on_its_part() -> None:
    """What a provider wants back with a call stays with that call."""
    signed = msgspec.structs.replace(CALL, provider_data=SIGNATURE)
    [made] = TurnBuilder().build_assistant_turns(result=result(text="", tool_calls=(signed,)))
    [part] = made.parts
    assert isinstance(part, ToolCallPart)
    assert part.provider_data == SIGNATURE


# ── build_assistant_turns, a run ─────────────────────────────────────────────────────────────

RUN: list[Message] = [
    AssistantMessage(text="First.", tool_calls=(CALL,)),
    ToolMessage(call_id="c1", content="found"),
    UserMessage(("also this",)),
    AssistantMessage(text="Last."),
]


def test_run_gives_one_turn_per_message_in_order() -> None:
    """Each message of the run is one turn of its role, in order."""
    made = TurnBuilder().build_assistant_turns(result=result(), run_messages=RUN)
    assert [each.role for each in made] == ["assistant", "tool", "user", "assistant"]
    assert len({each.id for each in made}) == len(RUN)


def test_run_takes_its_parts_from_the_messages() -> None:
    """The text of `result` is not used: what was said stands in the messages."""
    made = TurnBuilder().build_assistant_turns(
        result=result(text="something else", tool_calls=(CALL,)), run_messages=RUN
    )
    assert made[-1].parts == (TextPart("Last."),)


def test_run_has_the_model_id_on_every_assistant_turn_alone() -> None:
    """`result` gives the model id of each assistant turn; others have none."""
    made = TurnBuilder().build_assistant_turns(result=result(), run_messages=RUN)
    assert [each.model for each in made] == ["model-1", None, None, "model-1"]


def test_run_has_the_usage_on_the_last_assistant_turn_alone() -> None:
    """`result` gives the usage of the last assistant turn."""
    made = TurnBuilder().build_assistant_turns(result=result(), run_messages=RUN)
    assert [each.usage for each in made] == [None, None, None, USAGE]


def test_run_that_ends_with_a_tool_has_usage_and_status_on_the_assistant_before() -> None:
    """The last assistant turn need not be the last turn."""
    made = TurnBuilder().build_assistant_turns(
        result=result(), run_messages=RUN[:2], status="incomplete"
    )
    assert [(each.usage, each.status) for each in made] == [
        (USAGE, "incomplete"),
        (None, "complete"),
    ]


def test_run_whose_last_answer_is_empty_has_usage_on_the_last_stored_one() -> None:
    """A dropped message takes no usage along."""
    made = TurnBuilder().build_assistant_turns(
        result=result(), run_messages=[AssistantMessage(text="a"), AssistantMessage()]
    )
    assert [each.usage for each in made] == [USAGE]


def test_run_without_messages_gives_no_turn() -> None:
    """An empty run is not an ask: nothing is stored for it."""
    assert TurnBuilder().build_assistant_turns(result=result(), run_messages=[]) == []


def test_run_drops_inline_bytes() -> None:
    """A turn keeps pointers only, so the bytes of a message go."""
    [made] = TurnBuilder().build_assistant_turns(
        result=result(), run_messages=[UserMessage(("see", PICTURE, "and this"))]
    )
    assert made.parts == (TextPart("see"), TextPart("and this"))


@pytest.mark.parametrize(
    "message",
    [
        UserMessage((PICTURE,)),
        UserMessage((PICTURE, "")),
        UserMessage(("",)),
        UserMessage(()),
        AssistantMessage(),
    ],
)
def test_run_drops_a_message_left_without_parts(message: Message) -> None:
    """A message of bytes alone, or of nothing, gives no turn."""
    assert TurnBuilder().build_assistant_turns(result=result(), run_messages=[message]) == []


def test_run_never_drops_a_tool_result() -> None:
    """A result of empty text, of no parts or of bytes alone is still a turn."""
    made = TurnBuilder().build_assistant_turns(
        result=result(),
        run_messages=[
            ToolMessage(call_id="c1", content=""),
            ToolMessage(call_id="c2", content=()),
            ToolMessage(call_id="c3", content=(PICTURE,)),
        ],
    )
    assert [part.call_id for each in made for part in each.parts] == [  # type: ignore[union-attr]
        "c1",
        "c2",
        "c3",
    ]


@pytest.mark.parametrize(
    ("kept_files", "line"),
    [
        ({}, "[file plan.png, image/png, 10 bytes]"),
        ({"plan.png": "file_9"}, "[file plan.png, image/png, 10 bytes, kept as file_9]"),
        ({"other.png": "file_9"}, "[file plan.png, image/png, 10 bytes]"),
    ],
)
def test_run_puts_one_line_in_place_of_a_results_bytes(
    kept_files: dict[str, str], line: str
) -> None:
    """The line has the file's name, type, size, and its id where it was kept."""
    message = ToolMessage(call_id="c1", content=("drawn:", PICTURE), name="draw", is_error=True)
    [made] = TurnBuilder().build_assistant_turns(
        result=result(), run_messages=[message], kept_files=kept_files
    )
    assert made.parts == (
        ToolResultPart(call_id="c1", content=f"drawn:\n{line}", name="draw", is_error=True),
    )


def test_run_keeps_a_files_line_one_line() -> None:
    """A file name with line breaks does not break the line."""
    odd = InlineFile(name="a\r\nb\u2028c.png", media_type="image/png", data=b"x")
    [made] = TurnBuilder().build_assistant_turns(
        result=result(), run_messages=[ToolMessage(call_id="c1", content=(odd,))]
    )
    assert made.parts == (
        ToolResultPart(call_id="c1", content="[file a b c.png, image/png, 1 bytes]"),
    )


def test_run_refuses_a_system_message() -> None:
    """Instructions are never stored as a turn."""
    with pytest.raises(InvalidMessage, match="system"):
        TurnBuilder().build_assistant_turns(result=result(), run_messages=[SystemMessage("Be.")])


@pytest.mark.parametrize("wrong", [{"role": "user", "content": "hi"}, UserMessage("hi")])  # type: ignore[arg-type]
def test_run_refuses_what_is_no_message(wrong: Any) -> None:
    """A dict, and a user message whose parts are one text, are errors that say what to use."""
    with pytest.raises(InvalidMessage, match="UserMessage"):
        TurnBuilder().build_assistant_turns(result=result(), run_messages=[wrong])


def test_run_stores_provider_data_on_the_reasoning_part() -> None:
    """An assistant message's provider data is on its reasoning part, of empty text if need be."""
    made = TurnBuilder().build_assistant_turns(
        result=result(),
        run_messages=[
            AssistantMessage(text="a", reasoning="Hm.", provider_data=SIGNATURE),
            AssistantMessage(text="b", provider_data=SIGNATURE),
        ],
    )
    assert [each.parts for each in made] == [
        (ReasoningPart("Hm.", SIGNATURE), TextPart("a")),
        (ReasoningPart("", SIGNATURE), TextPart("b")),
    ]


def test_run_stores_what_the_caller_passes() -> None:
    """The caller decides: a blocked answer passes the messages without the final text."""
    made = TurnBuilder().build_assistant_turns(
        result=result(text="blocked text"), run_messages=without_final_answer(RUN)
    )
    assert [each.role for each in made] == ["assistant", "tool"]
    assert "blocked text" not in repr(made)


# ── to_messages ──────────────────────────────────────────────────────────────────────────────


def test_to_messages_drops_file_parts() -> None:
    """File parts are always dropped: they are pointers, without bytes."""
    made = TurnBuilder().to_messages([turn("user", TextPart("see"), FilePart(PLAN))])
    assert made == [UserMessage(("see",))]


def test_to_messages_drops_a_turn_left_without_parts() -> None:
    """A turn of files alone, or of no parts, gives no message."""
    turns = [
        turn("user", FilePart(PLAN)),
        turn("assistant"),
        turn("assistant", FilePart(PLAN)),
        turn("tool"),
        turn("user", TextPart("hi")),
    ]
    assert TurnBuilder().to_messages(turns) == [UserMessage(("hi",))]


def test_to_messages_gives_one_message_per_result_of_a_tool_turn() -> None:
    """A tool turn may hold several results; each is a message of its own, in order."""
    stored = turn(
        "tool",
        ToolResultPart(call_id="c2", content="b", name="f", is_error=True),
        ToolResultPart(call_id="c1", content="a"),
    )
    assert TurnBuilder().to_messages([stored]) == [
        ToolMessage(call_id="c2", content="b", name="f", is_error=True),
        ToolMessage(call_id="c1", content="a"),
    ]


def test_to_messages_shows_reasoning_only_where_it_is_asked_for() -> None:
    """Reasoning goes back to a model with the flag alone."""
    stored = turn("assistant", ReasoningPart("Hm."), TextPart("a"))
    assert TurnBuilder().to_messages([stored]) == [AssistantMessage(text="a")]
    assert TurnBuilder().to_messages([stored], reasoning=True) == [
        AssistantMessage(text="a", reasoning="Hm.")
    ]


def test_to_messages_drops_a_turn_of_unwanted_reasoning() -> None:
    """After leaving the reasoning out nothing remains, so the message goes too."""
    stored = turn("assistant", ReasoningPart("Hm."))
    assert TurnBuilder().to_messages([stored]) == []
    assert TurnBuilder().to_messages([stored], reasoning=True) == [
        AssistantMessage(reasoning="Hm.")
    ]


def test_to_messages_gives_provider_data_back() -> None:
    """What a provider wants back is on the message and on its calls, without reasoning too."""
    stored = turn(
        "assistant",
        ReasoningPart("", SIGNATURE),
        TextPart("a"),
        ToolCallPart(id="c1", name="track", arguments="{}", provider_data=SIGNATURE),
    )
    call = ToolCall(id="c1", name="track", arguments="{}", provider_data=SIGNATURE)
    assert TurnBuilder().to_messages([stored]) == [
        AssistantMessage(text="a", tool_calls=(call,), provider_data=SIGNATURE)
    ]


def test_to_messages_leaves_out_a_turn_that_a_later_one_retries() -> None:
    """A marked retry stands for its original."""
    turns = [
        turn("user", TextPart("Explain"), id="m1"),
        turn("user", TextPart("Explain again"), id="m2", retry_of="m1"),
        turn("user", TextPart("Once more"), id="m3", retry_of="m2"),
    ]
    assert TurnBuilder().to_messages(turns) == [UserMessage(("Once more",))]


def test_to_messages_keeps_a_turn_that_no_later_one_retries() -> None:
    """Only a later turn can stand for one: neither itself nor an earlier one."""
    turns = [
        turn("user", TextPart("a"), id="m1", retry_of="m2"),
        turn("user", TextPart("b"), id="m2", retry_of="m2"),
        turn("user", TextPart("c"), id="m3", retry_of="lost"),
    ]
    assert TurnBuilder().to_messages(turns) == [UserMessage((text,)) for text in ("a", "b", "c")]


def test_to_messages_keeps_a_repeated_yes() -> None:
    """Two equal turns without a mark are the user's wish: both stay."""
    turns = [turn("user", TextPart("yes"), id="m1"), turn("user", TextPart("yes"), id="m2")]
    assert TurnBuilder().to_messages(turns) == [UserMessage(("yes",)), UserMessage(("yes",))]


def test_to_messages_orders_by_place_and_not_by_time() -> None:
    """The order of the turns counts, whatever their times are."""
    turns = [
        turn("user", TextPart("first"), created_at=NOON),
        turn("user", TextPart("second"), created_at=NOON - timedelta(days=1)),
    ]
    assert TurnBuilder().to_messages(turns) == [UserMessage(("first",)), UserMessage(("second",))]


@pytest.mark.parametrize(
    ("role", "part"),
    [
        ("user", TextPart("gone")),
        ("assistant", TextPart("gone")),
        ("tool", ToolResultPart(call_id="c1", content="gone")),
    ],
)
def test_to_messages_never_shows_a_deleted_turn(role: Role, part: Part) -> None:
    """A tombstone is never sent, not even one that kept a part."""
    assert TurnBuilder().to_messages([turn(role, part, status="deleted")]) == []


def test_to_messages_shows_an_incomplete_turn() -> None:
    """What was said before a cut is part of the conversation."""
    stored = turn("assistant", TextPart("Writing"), status="incomplete", ended="length")
    assert TurnBuilder().to_messages([stored]) == [AssistantMessage(text="Writing")]


# ── laws ─────────────────────────────────────────────────────────────────────────────────────


@given(strategies.results, st.none() | strategies.run_messages)
def test_no_byte_of_a_file_is_ever_in_a_turn(
    given_result: ModelResult, said: list[Message] | None
) -> None:
    """Whatever a run's messages hold inline, no turn holds it, neither raw nor encoded."""
    stored = msgspec.json.encode(
        TurnBuilder().build_assistant_turns(result=given_result, run_messages=said)
    )
    assert strategies.BYTES_MARK not in stored
    assert base64.b64encode(strategies.BYTES_MARK)[:-4] not in stored


@given(strategies.threads, st.booleans())
def test_no_pointer_is_ever_in_a_message(thread: list[Turn], reasoning: bool) -> None:
    """Whatever files a thread points to, no message names one."""
    made = TurnBuilder().to_messages(thread, reasoning=reasoning)
    assert strategies.POINTER_MARK not in repr(made)


@given(strategies.results, strategies.plain_run_messages)
def test_turns_give_their_messages_back(given_result: ModelResult, said: list[Message]) -> None:
    """Messages that are not empty survive the way through turns, in order and unchanged."""
    builder = TurnBuilder()
    turns = builder.build_assistant_turns(result=given_result, run_messages=said)
    assert builder.to_messages(turns) == said


@given(strategies.results, strategies.plain_run_messages)
def test_turns_give_their_messages_back_through_the_store(
    given_result: ModelResult, said: list[Message]
) -> None:
    """The same holds once the turns were written as JSON and read again."""
    turns = TurnBuilder().build_assistant_turns(result=given_result, run_messages=said)
    stored = [msgspec.json.encode(each) for each in turns]
    assert TurnBuilder().to_messages(msgspec.json.decode(row, type=Turn) for row in stored) == said


@given(st.lists(st.sampled_from(["user", "assistant", "tool"]), max_size=9), strategies.results)
def test_order_is_kept(roles: list[str], given_result: ModelResult) -> None:
    """Turns stand in the order of their messages, and messages in the order of their turns."""
    said: list[Message] = [
        UserMessage((str(place),))
        if role == "user"
        else AssistantMessage(text=str(place))
        if role == "assistant"
        else ToolMessage(call_id="c1", content=str(place))
        for place, role in enumerate(roles)
    ]
    turns = TurnBuilder().build_assistant_turns(result=given_result, run_messages=said)
    assert [each.role for each in turns] == roles
    assert TurnBuilder().to_messages(turns) == said


@given(strategies.results, strategies.run_messages, strategies.threads)
def test_the_input_is_untouched(
    given_result: ModelResult, said: list[Message], thread: list[Turn]
) -> None:
    """Neither conversion changes what it was given."""
    before = copy.deepcopy((given_result, said, thread))
    TurnBuilder().build_assistant_turns(result=given_result, run_messages=said)
    TurnBuilder().to_messages(thread)
    assert (given_result, said, thread) == before


@given(strategies.results, st.none() | strategies.run_messages)
def test_facts_of_the_result_stand_on_assistant_turns_alone(
    given_result: ModelResult, said: list[Message] | None
) -> None:
    """Model on each assistant turn, usage and status on the last one, and nowhere else."""
    turns = TurnBuilder().build_assistant_turns(
        result=given_result, run_messages=said, status="incomplete"
    )
    answers = [each for each in turns if each.role == "assistant"]
    assert all(each.model == given_result.model for each in answers)
    assert all(each.usage == given_result.usage for each in answers[-1:])
    assert [each for each in turns if each.status == "incomplete"] == answers[-1:]
    others = [each for each in turns if each not in answers[-1:]]
    assert all(each.usage is None for each in others)
    assert all(each.model is None for each in turns if each.role != "assistant")

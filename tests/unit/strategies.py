"""Hypothesis strategies for turns, messages and targets, with their odd sides included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import settings
from hypothesis import strategies as st

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
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import FileRef, ProviderData, Target, Usage

# A slow or busy machine is no fault: no example has a time limit.
settings.register_profile("turngate", deadline=None)
settings.load_profile("turngate")

POINTER_MARK = "pointer-mark"  # in each file ref; no message may hold it
BYTES_MARK = b"bytes-mark"  # in each inline file; no turn may hold it

texts = st.sampled_from(["", " ", "\n", "hi", "é 👩‍👩‍👧 \u2028", "a\nb"]) | st.text(max_size=12)
spoken_texts = st.text(min_size=1, max_size=12)

# A small pool, so that ids are reused, orphaned and repeated within one message.
call_ids = st.sampled_from(
    ["", "c1", "c2", "c1_2", "call_0", "call_1", "abcdefghi", "call_PTLP8xhu3uwZk4l3nlnrrJha" * 3]
)
arguments = st.sampled_from(
    [
        "{}",
        "",
        " ",
        '{"n": 1}',
        '{"n":1}{"n":2}',
        '{"text":"abc',
        '"text"',
        "[1]",
        "null",
        "{'a': 1,}",
        '{"a": NaN}',
        '{"a": "raw\nline"}',
        "[" * 3_000,
        '{"invalid_arguments":"x"}',
    ]
) | st.text(max_size=8)
broken_arguments = arguments | st.just('{"a": "\ud800"}')  # a lone surrogate: no store takes it
names = st.sampled_from(["f", "read_item"])

provider_data = st.builds(ProviderData, st.sampled_from(["a", "b"]), st.just('{"sig":"eA=="}'))
maybe_data = st.none() | provider_data

inline_files = st.builds(
    InlineFile,
    name=st.sampled_from(["plan.png", "two\nlines.pdf", ""]),
    media_type=st.sampled_from(["image/png", "application/pdf"]),
    data=st.binary(max_size=8).map(lambda tail: BYTES_MARK + tail),
)
contents = st.lists(texts | inline_files, max_size=3).map(tuple)

tool_calls = st.builds(
    ToolCall, id=call_ids, name=names, arguments=arguments, provider_data=maybe_data
)
system_messages = st.builds(SystemMessage, texts)
user_messages = st.builds(UserMessage, contents)
tool_messages = st.builds(
    ToolMessage,
    call_id=call_ids,
    content=texts | contents,
    name=st.none() | names,
    is_error=st.booleans(),
)


def assistant_messages(
    call_arguments: st.SearchStrategy[str],
) -> st.SearchStrategy[AssistantMessage]:
    """Assistant messages whose calls have `call_arguments`."""
    calls = st.builds(
        ToolCall, id=call_ids, name=names, arguments=call_arguments, provider_data=maybe_data
    )
    return st.builds(
        AssistantMessage,
        text=texts,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
        reasoning=st.none() | texts,
        provider_data=maybe_data,
    )


histories: st.SearchStrategy[list[Message]] = st.lists(
    user_messages | assistant_messages(broken_arguments) | tool_messages | system_messages,
    max_size=12,
)
run_messages: st.SearchStrategy[list[Message]] = st.lists(
    user_messages | assistant_messages(arguments) | tool_messages, max_size=8
)

# Messages that turns keep whole: not empty, no files, no reasoning, no provider data.
plain_calls = st.builds(ToolCall, id=call_ids, name=names, arguments=arguments)
plain_run_messages: st.SearchStrategy[list[Message]] = st.lists(
    st.builds(UserMessage, st.lists(spoken_texts, min_size=1, max_size=3).map(tuple))
    | st.builds(
        AssistantMessage, text=spoken_texts, tool_calls=st.lists(plain_calls, max_size=3).map(tuple)
    )
    | st.builds(
        AssistantMessage,
        text=st.just(""),
        tool_calls=st.lists(plain_calls, min_size=1, max_size=3).map(tuple),
    )
    | st.builds(
        ToolMessage,
        call_id=call_ids,
        content=texts,
        name=st.none() | names,
        is_error=st.booleans(),
    ),
    max_size=8,
)

usages = st.builds(Usage, input_tokens=st.integers(0, 99), output_tokens=st.integers(0, 99))
results = st.builds(
    ModelResult,
    text=texts,
    tool_calls=st.lists(tool_calls, max_size=3).map(tuple),
    model=st.none() | st.just("model-1"),
    finish_reason=st.sampled_from([None, "stop", "length", "tool_calls", "content_filter"]),
    usage=st.none() | usages,
    reasoning=st.none() | texts,
    provider_data=maybe_data,
)

file_refs = st.builds(
    FileRef,
    id=st.just(f"file_{POINTER_MARK}"),
    name=st.just(f"{POINTER_MARK}.pdf"),
    media_type=st.just("application/pdf"),
    size_bytes=st.integers(0, 10**12),
    sha256=st.just("0" * 64),
)
parts: st.SearchStrategy[Part] = (
    st.builds(TextPart, texts)
    | st.builds(FilePart, file_refs)
    | st.builds(ReasoningPart, texts, maybe_data)
    | st.builds(
        ToolCallPart, id=call_ids, name=names, arguments=arguments, provider_data=maybe_data
    )
    | st.builds(
        ToolResultPart,
        call_id=call_ids,
        content=texts,
        name=st.none() | names,
        is_error=st.booleans(),
    )
)
moments = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001  # the strategy wants naive bounds
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
turn_ids = st.sampled_from(["turn_1", "turn_2", "turn_3"])
turns = st.builds(
    Turn,
    id=turn_ids,
    role=st.sampled_from(["user", "assistant", "tool"]),
    parts=st.lists(parts, max_size=4).map(tuple),
    created_at=moments,
    model=st.none() | st.just("model-1"),
    usage=st.none() | usages,
    status=st.sampled_from(["complete", "incomplete", "deleted"]),
    ended=st.none() | st.just("length"),
    retry_of=st.none() | turn_ids,
)
threads = st.lists(turns, max_size=8)

# Id forms that can be met, alone and with limits.
_id_demands = st.sampled_from(
    [
        (None, None),
        (None, 9),
        (None, 40),
        (None, 64),
        ("^[a-zA-Z0-9]{9}$", None),
        ("^[a-zA-Z0-9]{9}$", 40),
        ("[a-zA-Z0-9_-]+", 64),
        ("call_[a-z0-9]{24}", 40),
        ("[A-Z0-9]{12}", None),
        ("[a-z]{5,}", 64),
        ("[a-f0-9]{50}", None),
    ]
)
targets = st.builds(
    lambda ids, **flags: Target(call_id_pattern=ids[0], call_id_chars_max=ids[1], **flags),
    _id_demands,
    strict_alternation=st.booleans(),
    user_first=st.booleans(),
)

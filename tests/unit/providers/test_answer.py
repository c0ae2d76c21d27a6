"""From payloads to parts: text, reasoning, refusals, usage, ends, and chunks that need mending."""

from __future__ import annotations

import json
import time

import pytest

from tests.unit.providers.support import (
    Outcome,
    call_delta,
    decoded,
    delta,
    drive,
    new_body,
    stream_of,
)
from turngate.providers.body import BodyLimits
from turngate.values import Usage


def answer(*chunks: object, done: bool = True) -> Outcome:
    return decoded([stream_of(*chunks, done=done)])


def good(*chunks: object) -> Outcome:
    outcome = answer(*chunks, delta("stop"))
    assert outcome.error is None
    return outcome


# ── text ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "x"}, "b", 3, None], "ab"),
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "text", "text": None}], ""),
        (5, "5"),
        (None, ""),
        (True, ""),
    ],
)
def test_content_in_any_form_is_text(content: object, text: str) -> None:
    """Texts in a list are joined, and what is no text is skipped."""
    assert good(delta(content=content), delta(content="!")).result.text == text + "!"


def test_refusal_is_text_and_marks_the_result() -> None:
    """A refusal is what the model says."""
    result = good(delta(refusal="No"), delta(content=None, refusal=".")).result
    assert (result.text, result.refused) == ("No.", True)
    assert not good(delta(content="Yes", refusal=None)).result.refused


def test_refusal_in_a_content_list_marks_the_result() -> None:
    """A refusal part of a list is one too."""
    result = good(delta(content=[{"type": "refusal", "refusal": "No"}])).result
    assert (result.text, result.refused) == ("No", True)


def test_message_after_deltas_repeats_them() -> None:
    """A last chunk with the whole message adds nothing."""
    recap = {"choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]}
    result = answer(delta(content="a"), delta(content="b"), recap).result
    assert (result.text, result.finish_reason) == ("ab", "stop")


def test_messages_in_place_of_deltas_are_pieces() -> None:
    """A server that names its deltas messages is understood."""
    pieces = [{"choices": [{"message": {"content": text}}]} for text in "abc"]
    assert good(*pieces).result.text == "abc"


def test_other_choices_are_not_read_where_no_index_is_told() -> None:
    """Without an index the place in the list counts."""
    choices = [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]
    assert good({"choices": choices}).result.text == "a"


# ── reasoning ────────────────────────────────────────────────────────────────────────────────


def detail(text: str | None, index: int = 0, **members: object) -> dict[str, object]:
    return {"type": "reasoning.text", "text": text, "index": index, **members}


@pytest.mark.parametrize(
    ("deltas", "reasoning"),
    [
        ([{"reasoning": "a"}, {"reasoning": "b"}], "ab"),
        ([{"reasoning_content": "a"}, {"reasoning": "b"}], "ab"),
        ([{"reasoning_content": "a", "reasoning": "a"}], "a"),
        ([{"reasoning_content": " a", "reasoning": "a"}], " a"),
        ([{"reasoning_content": "a", "reasoning": ""}], "a"),
        ([{"reasoning_content": "a", "reasoning": "b"}], "ab"),
        ([{"reasoning_details": [detail("a")]}, {"reasoning_details": [detail("b")]}], "ab"),
        ([{"reasoning": "a", "reasoning_details": [detail("a")]}], "a"),
        ([{"reasoning": "a"}, {"reasoning_details": [detail("a")]}], "a"),
        ([{"reasoning_details": [{"type": "reasoning.summary", "summary": "s"}]}], "s"),
        ([{"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}], None),
        ([{"content": [{"type": "thinking", "thinking": [{"text": "a"}]}]}], "a"),
        ([{"content": [{"type": "thinking", "thinking": "a"}]}], "a"),
        ([{"reasoning": {"effort": 1}, "content": ""}], None),
    ],
)
def test_reasoning_is_read_once(deltas: list[dict[str, object]], reasoning: str | None) -> None:
    """Under whatever names it comes, and never as text."""
    result = good(*(delta(None, **members) for members in deltas)).result
    assert (result.text, result.reasoning) == ("", reasoning)


def test_reasoning_details_go_back_whole() -> None:
    """Pieces of one detail are joined; a blob stays as it is, and is never shown."""
    blob = {"type": "reasoning.encrypted", "data": "b3BhcXVl", "index": 1}
    result = good(
        delta(reasoning_details=[detail("Plan")]),
        delta(reasoning_details=[detail(" A"), detail(None, signature="sig")]),
        delta(reasoning_details=[blob]),
        delta(reasoning_details=[blob]),
    ).result
    assert result.reasoning == "Plan A"
    assert result.provider_data is not None
    assert json.loads(result.provider_data.json) == {
        "reasoning_details": [detail("Plan A", signature="sig"), blob, blob]
    }


def test_reasoning_in_many_pieces_takes_linear_time() -> None:
    """A long chain of thought in small details is joined once."""
    body = stream_of(*[delta(reasoning_details=[detail("x" * 50)])] * 20_000, delta("stop"))
    start = time.process_time()
    result = drive(new_body(), [body]).result
    assert time.process_time() - start < 5
    assert result.reasoning == "x" * 1_000_000
    assert result.provider_data is not None
    assert len(result.provider_data.json) > 1_000_000


def test_extra_content_of_the_answer_goes_back() -> None:
    """What a vendor puts beside the text is kept for that vendor."""
    result = good(delta(content="a", extra_content={"v": 1}), delta(content="b")).result
    assert result.text == "ab"
    assert result.provider_data is not None
    assert json.loads(result.provider_data.json) == {"extra_content": {"v": 1}}


# ── usage ────────────────────────────────────────────────────────────────────────────────────


def usage(**members: object) -> dict[str, object]:
    return {"choices": [], "usage": members}


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        ([usage(prompt_tokens=5, completion_tokens=2)], (5, 2)),
        (
            [
                usage(prompt_tokens=5, completion_tokens=1),
                usage(prompt_tokens=5, completion_tokens=2),
            ],
            (5, 2),
        ),
        (
            [
                usage(prompt_tokens=5, completion_tokens=2),
                usage(prompt_tokens=0, completion_tokens=0),
            ],
            (5, 2),
        ),
        ([usage(prompt_tokens=5, completion_tokens=2), usage(prompt_tokens=9)], (5, 2)),
        ([usage(prompt_tokens=5), usage(completion_tokens=2)], (5, 2)),
        ([usage(prompt_tokens=5, total_tokens=7)], (5, 2)),
        ([usage(prompt_tokens=5)], None),
        ([usage()], None),
        ([usage(prompt_tokens="5", completion_tokens=2.0)], (5, 2)),
        ([usage(prompt_tokens="many", completion_tokens=2)], None),
        ([usage(prompt_tokens=-1, completion_tokens=2)], None),
        ([{"choices": [], "usage": "none"}], None),
        (
            [
                {
                    "choices": [
                        {
                            "delta": {},
                            "finish_reason": "stop",
                            "usage": {"prompt_tokens": 5, "completion_tokens": 2},
                        }
                    ]
                }
            ],
            (5, 2),
        ),
    ],
)
def test_usage_is_the_last_complete_report(
    reports: list[dict[str, object]], total: tuple[int, int] | None
) -> None:
    """Missing members are no error, and what was never told is None."""
    told = good(delta(content="a"), *reports).result.usage
    assert (told and (told.input_tokens, told.output_tokens)) == total


def test_usage_beside_text_is_read() -> None:
    """A server may count with every chunk."""
    counts = [{"usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in range(1, 4)]
    result = good(*({**delta(content="a"), **count} for count in counts)).result
    assert (result.text, result.usage) == ("aaa", Usage(input_tokens=5, output_tokens=3))


def test_usage_details_are_read() -> None:
    """Cached and reasoning tokens come from the details, or from a vendor's own member."""
    report = usage(
        prompt_tokens=5,
        completion_tokens=4,
        prompt_tokens_details={"cached_tokens": 3, "audio_tokens": None},
        completion_tokens_details={"reasoning_tokens": 2},
    )
    wanted = Usage(input_tokens=5, output_tokens=4, cached_tokens=3, reasoning_tokens=2)
    assert good(report, delta(content="")).result.usage == wanted
    vendor = usage(prompt_tokens=5, completion_tokens=4, prompt_cache_hit_tokens=3)
    assert good(vendor, delta(content="")).result.usage == Usage(
        input_tokens=5, output_tokens=4, cached_tokens=3
    )


# ── the end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "finish"),
    [
        (["stop"], "stop"),
        (["STOP"], "stop"),
        (["eos"], "stop"),
        (["", "null", "stop"], "stop"),
        (["max_tokens"], "length"),
        (["length", "stop"], "length"),
        (["stop", "length"], "length"),
        (["length", "content_filter"], "content_filter"),
        (["content_filter", "stop"], "content_filter"),
        (["tool_calls", "stop"], "stop"),
        ([5], "stop"),
        ([], None),
    ],
)
def test_finish_word_has_its_reason(words: list[object], finish: str | None) -> None:
    """Of several words the one that says that more is missing stands."""
    chunks = [{"choices": [{"delta": {}, "finish_reason": word}]} for word in words]
    outcome = answer(delta(content="a"), *chunks)
    assert outcome.error is None
    assert outcome.result.finish_reason == finish


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource"])
def test_finish_word_of_a_failure_is_an_error(word: str) -> None:
    """A server that says that it broke off has not finished."""
    outcome = answer(delta(content="a"), delta(word, content="b"))
    assert outcome.error is not None
    assert outcome.error.code in ("provider", "truncated")
    assert outcome.result.text == "ab"


@pytest.mark.parametrize("body", [b"data: [DONE]\n\n", b"data: {}\n\ndata: [DONE]\n\n"])
def test_end_without_any_choice_is_no_empty_answer(body: bytes) -> None:
    """An end marker alone is no success."""
    outcome = decoded([body])
    assert outcome.error is not None
    assert outcome.error.code == "protocol"


def test_whole_answer_without_a_finish_reason_has_ended() -> None:
    """A JSON answer is whole by itself."""
    body = json.dumps({"choices": [{"message": {"content": "a"}}]}).encode()
    outcome = decoded([body], headers={"content-type": "application/json"})
    assert outcome.error is None
    assert (outcome.result.text, outcome.result.finish_reason) == ("a", None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "truncated"),
        (b"\n\n\n", "truncated"),
        (b": comment\n\n", "truncated"),
        (b'{"choices":[{"message":{"content":"a"', "truncated"),
        (b'{"choices": nonsense}', "protocol"),
        (b'{"choices":[]}', "protocol"),
        (b"[1, 2]", "protocol"),
        (b"data: 5\n\n", "protocol"),
        (b'data: "text"\n\n', "protocol"),
        (b"data: []\n\n", "protocol"),
        (b"data: upstream says no\n\n", "protocol"),
        (b"  <!DOCTYPE html>", "protocol"),
        (b"data: " + b'{"x":' * 100_000 + b"\n\n", "protocol"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "protocol"),
        (b'data: {"choices":[{"delta":{"content":"a"}}]', "truncated"),
    ],
)
def test_body_that_is_no_answer_is_an_error(body: bytes, code: str) -> None:
    """Neither garbage nor nothing passes for an answer, at any split."""
    for blocks in ([body], [body[i : i + 7] for i in range(0, len(body), 7)][:50_000]):
        outcome = decoded(blocks)
        assert outcome.error is not None
        assert outcome.error.code == code, outcome.error


def test_text_that_is_no_stream_is_named_by_its_type() -> None:
    """A plain page with status 200 is not a cut stream."""
    outcome = decoded([b"It works!"], headers={"content-type": "text/plain"})
    assert outcome.error is not None
    assert outcome.error.reason == "not_a_stream"


def test_null_and_odd_events_are_heartbeats() -> None:
    """What says nothing ends nothing."""
    body = b"event: ping\ndata: now\n\ndata: null\n\nevent: done\n\n" + stream_of(
        delta(content="a"), delta("stop")
    )
    assert decoded([body]).result.text == "a"


def test_named_events_are_read_like_unnamed_ones() -> None:
    """A name other than error tells nothing about the data."""
    body = b"".join(
        b"event: chunk\n" + event + b"\n\n"
        for event in stream_of(delta(content="a"), delta("stop")).split(b"\n\n")[:-1]
    )
    assert decoded([body]).result.text == "a"
    assert decoded([body]).error is None


# ── chunks that need mending ─────────────────────────────────────────────────────────────────


def test_members_of_the_wrong_kind_are_mended_or_left_out() -> None:
    """Nothing in a chunk but its own member is lost to a wrong type."""
    chunk = {
        "id": 7,
        "model": 3,
        "choices": {"index": "zero", "delta": {"content": "a", "tool_calls": "none"}},
        "usage": {"prompt_tokens": [1], "completion_tokens": 2, "total_tokens": 5},
    }
    outcome = good(chunk)
    assert outcome.result.text == "a"
    assert outcome.result.model == "3"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"choices":[{"delta":{"content":"a\x01b\tc"}}]}', "a\x01b\tc"),
        (b'{"x":NaN,"choices":[{"delta":{"content":"a"}}]}', "a"),
        (b'{"choices":[{"delta":{"content":"a\xffb"}}]}', "a\ufffdb"),
        (b'{"choices":[{"delta":{"content":"a\\ud83db"}}]}', "a\ufffdb"),
        (b'{"choices":[{"delta":{"content":"a\\ude00"}}]}', "a\ufffd"),
        (b'{"x":1e999,"choices":[{"delta":{"content":"a"}}]}', "a"),
    ],
)
def test_json_that_only_a_lenient_reader_takes_is_read(payload: bytes, text: str) -> None:
    """Control characters, NaN, bad UTF-8 and half characters lose no text."""
    assert good(payload, delta(content="!")).result.text == text + "!"


def raw(**members: str) -> bytes:
    """A chunk whose delta has `members` as JSON texts."""
    inner = ",".join(f'"{name}":{value}' for name, value in members.items())
    return b'{"choices":[{"delta":{%s}}]}' % inner.encode()


@pytest.mark.parametrize("member", ["content", "reasoning", "reasoning_content", "refusal"])
def test_character_cut_over_two_deltas_is_joined(member: str) -> None:
    """Both halves of a surrogate pair make one character."""
    chunks = [raw(**{member: half}) for half in ('"a\\ud83d"', '"\\ude00b"')]
    result = good(*chunks).result
    assert (result.text or result.reasoning) == "a\U0001f600b"


def test_character_cut_in_arguments_is_joined() -> None:
    """The arguments of a call are text as well."""
    first = '[{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d"}}]'
    second = '[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]'
    outcome = answer(raw(tool_calls=first), raw(tool_calls=second), delta("tool_calls"))
    assert [call.arguments for call in outcome.result.tool_calls] == ['{"a":"\U0001f600"}']


def test_half_character_stays_visible() -> None:
    """A half whose other half never comes is one replacement, in its place."""
    assert good(raw(content='"a\\ud83d"'), delta(content="b")).result.text == "a\ufffdb"
    assert good(delta(content=""), raw(content='"a\\ud83d"')).result.text == "a\ufffd"
    first = '[{"index":0,"id":"x","function":{"name":"f","arguments":"{\\ud83d"}}]'
    outcome = answer(raw(tool_calls=first), delta("tool_calls"))
    assert [call.arguments for call in outcome.result.tool_calls] == ["{\ufffd"]


def test_half_characters_of_several_channels_do_not_mix() -> None:
    """Text and reasoning each join their own halves."""
    chunks = [
        raw(content='"\\ud83d"', reasoning='"\\ud83d"'),
        raw(reasoning='"\\ude01"'),
        raw(content='"\\ude02"'),
    ]
    result = good(*chunks).result
    assert (result.text, result.reasoning) == ("\U0001f602", "\U0001f601")


# ── errors in the stream, and limits ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chunk", "code", "reason"),
    [
        ({"error": {"message": "overloaded", "code": 503}}, "provider", "overloaded"),
        ({"error": "rate limit reached"}, "rate_limited", "rate_limit"),
        ({"error": {"code": "429"}}, "rate_limited", "rate_limit"),
        ({"error": {"code": "invalid_api_key"}}, "provider", "auth"),
        ({"error": {"status": "RESOURCE_EXHAUSTED"}}, "rate_limited", "rate_limit"),
        ({"error": {"code": 404, "message": "model not found"}}, "provider", "model_not_found"),
        ({"error": True, "message": "context length"}, "context_length", "context_length"),
        ({"object": "error", "message": "no", "code": 400}, "provider", "bad_request"),
        ({"message": "no", "code": 500}, "provider", "server_error"),
        ({"detail": "no"}, "provider", "server_error"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "provider", "overloaded"),
        ({"choices": [], "error": {"code": 502}}, "provider", "server_error"),
        ({"error": {"message": None}}, "provider", "server_error"),
    ],
)
def test_error_in_the_stream_has_its_kind(chunk: dict[str, object], code: str, reason: str) -> None:
    """Each form of an error ends the answer, with the text before it."""
    outcome = answer(delta(content="secret words"), chunk, delta(content="ghost"))
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.reason) == (code, reason)
    assert outcome.result.text == "secret words"
    assert "secret" not in str(outcome.error)


@pytest.mark.parametrize("error", [None, "", {}, False, []])
def test_empty_error_member_is_none(error: object) -> None:
    """Some servers send an empty error with every chunk."""
    chunk = {**delta(content="a"), "error": error}
    assert good(chunk, chunk).result.text == "aa"


def test_text_of_the_chunk_that_has_an_error_is_kept() -> None:
    """What the failing chunk still says was said."""
    for before in ([], [delta(content="")] * 3):
        outcome = answer(*before, {**delta(content="a"), "error": {"code": 500}})
        assert outcome.error is not None
        assert outcome.result.text == "a"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (BodyLimits(response_bytes_max=300), "response_bytes_max"),
        (BodyLimits(event_bytes_max=80), "event_bytes_max"),
        (BodyLimits(line_bytes_max=80), "line_bytes_max"),
        (BodyLimits(events_max=2), "events_max"),
    ],
)
def test_body_over_a_limit_names_it(limits: BodyLimits, reason: str) -> None:
    """A flood ends in an error that says which limit it was over, with the text before it."""
    body = stream_of(delta(content="a"), delta(content="b" * 9), *[delta(content="c")] * 3)
    outcome = drive(new_body(limits=limits), [body[i : i + 50] for i in range(0, len(body), 50)])
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.reason) == ("protocol", reason)
    assert "abbbbbbbbbccc".startswith(outcome.result.text)


def test_flood_of_comments_is_over_the_limit_of_the_body() -> None:
    """Comments count as bytes."""
    body = new_body(limits=BodyLimits(response_bytes_max=1_000))
    outcome = drive(body, [b": keep-alive\n\n"] * 100)
    assert outcome.error is not None
    assert outcome.error.reason == "response_bytes_max"
    assert body.progress == 0


@pytest.mark.parametrize(
    "limits",
    [BodyLimits(line_bytes_max=500), BodyLimits(event_bytes_max=500), BodyLimits(events_max=3)],
)
def test_limits_do_not_reach_behind_the_end_marker(limits: BodyLimits) -> None:
    """What follows the marker is void, in the same block too."""
    body = stream_of(delta(content="a"), delta("stop")) + b"x" * 10_000
    for blocks in ([body], [body[:-9_000], body[-9_000:]]):
        outcome = drive(new_body(limits=limits), blocks)
        assert outcome.error is None
        assert outcome.result.text == "a"


def test_call_parts_fold_to_the_result_of_a_long_stream() -> None:
    """The short cuts for text and pieces of calls give what the long way gives."""
    chunks = [delta(role="assistant", content="")]
    chunks += [delta(content=str(n)) for n in range(50)]
    chunks += [call_delta('{"a":"', id="x", name="f")]
    chunks += [call_delta(str(n)) for n in range(50)]
    chunks += [call_delta('"}'), delta("tool_calls")]
    result = answer(*chunks).result
    digits = "".join(map(str, range(50)))
    assert result.text == digits
    assert [call.arguments for call in result.tool_calls] == [f'{{"a":"{digits}"}}']

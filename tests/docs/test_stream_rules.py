"""The rules of docs/reference/streams.md, each by an example that the rule decides."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.unit.providers.support import call_delta, decoded, delta, drive, new_body, stream_of
from turngate.providers.body import BodyLimits

PAGE = ROOT / "docs" / "reference" / "streams.md"
RULE = re.compile(r"\[R\d+\]")

STOP = delta("stop")
A, B = '{"a":1}', '{"b":2}'


def text(content: object) -> dict[str, Any]:
    return delta(content=content)


def called(*deltas: dict[str, Any], finish: str = "tool_calls") -> bytes:
    return stream_of(*deltas, delta(finish))


def usage(**members: object) -> dict[str, Any]:
    return {"choices": [], "usage": members}


def ended(*words: object) -> bytes:
    return stream_of(text("a"), *({"choices": [{"finish_reason": word}]} for word in words))


def raw(member: str, value: str) -> bytes:
    return b'{"choices":[{"delta":{"%s":%s}}]}' % (member.encode(), value.encode())


RESULT_JSON = b'{"choices":[{"message":{"content":"a"}}]}'
CALL = call_delta(A, id="x", name="f")

# Rule, body, and what comes of it: of the result `text`, `reasoning`, `calls` (id, name,
# arguments), `finish`, `usage`, `data` (what is kept for the provider), or the `error`'s reason.
EXAMPLES: list[tuple[str, bytes, dict[str, Any]]] = [
    # bytes, events
    ("[R1]", RESULT_JSON, {"text": "a"}),
    ("[R1]", b"\n<html>", {"error": "not_a_stream"}),
    ("[R1]", b"It works!", {"error": "truncated"}),
    ("[R2]", stream_of(text("a"), STOP).replace(b"\n", b"\r\n"), {"text": "a"}),
    ("[R2]", stream_of(text("a"), STOP).replace(b"\n", b"\r"), {"text": "a"}),
    ("[R2]", b"\xef\xbb\xbf" + stream_of(text("a"), STOP), {"text": "a"}),
    ("[R2]", stream_of(text("a"), STOP).replace(b": {", b":{"), {"text": "a"}),
    ("[R2]", stream_of(raw("content", '"a\u2028b"'), STOP), {"text": "a\u2028b"}),
    ("[R3]", stream_of(text("a")).replace(b', "', b',\ndata: "'), {"text": "a"}),
    ("[R3]", b"id: 1\n: c\nretry: 5\n" + stream_of(text("a")), {"text": "a"}),
    ("[R3]", stream_of(text("a"), STOP, done=False)[:-2], {"text": "a", "finish": "stop"}),
    ("[R4]", b"data:\n\ndata: null\n\ndata: : c\n\nevent: p\ndata: x\n\n" + stream_of(text("a")),
     {"text": "a"}),
    ("[R5]", stream_of(text("a")) [:-14] + b"event: error\ndata: x\n\n", {"error": "server_error"}),
    ("[R5]", b"event: chunk\n" + stream_of(text("a")), {"text": "a"}),
    ("[R6]", stream_of(text("a [DONE]")) + b"data: nonsense\n\n", {"text": "a [DONE]"}),
    # chunks
    ("[R7]", stream_of({"choices": [{"index": 1, "delta": {"content": "b"}},
                                    {"index": 0, "delta": {"content": "a"}}]}), {"text": "a"}),
    ("[R7]", stream_of({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}),
     {"text": "a"}),
    ("[R8]", stream_of({"choices": [{"message": {"content": "a"}}]}), {"text": "a"}),
    ("[R8]", stream_of(text("a"), {"choices": [{"message": {"content": "a"}}]}), {"text": "a"}),
    ("[R9]", stream_of(b'{"x":NaN,"choices":[{"delta":{"content":"a\x01\xff"}}]}'),
     {"text": "a\x01\ufffd"}),
    ("[R10]", stream_of({"choices": {"index": "0", "delta": {"content": 5, "tool_calls": "no"}}}),
     {"text": "5", "calls": []}),
    ("[R11]", stream_of(raw("content", '"\\ud83d"'), raw("content", '"\\ude00"')),
     {"text": "\U0001f600"}),
    ("[R11]", stream_of(raw("content", '"\\ud83d"'), text("a")), {"text": "\ufffda"}),
    ("[R12]", stream_of(text("a"), b"{'a'}"), {"text": "a", "error": "not_json"}),
    ("[R12]", stream_of(b"[1,2]"), {"error": "not_a_chunk"}),
    ("[R12]", stream_of(b"[" * 9_000), {"error": "too_deep"}),
    ("[R12]", stream_of({"object": "ping"}, text("a")), {"text": "a"}),
    # text and reasoning
    ("[R13]", stream_of(text([{"type": "text", "text": "a"}, {"type": "x"}, "b"])), {"text": "ab"}),
    ("[R13]", stream_of(text("<think>a</think>b")), {"text": "<think>a</think>b"}),
    ("[R14]", stream_of(delta(content="No", refusal="No")), {"text": "No", "refused": True}),
    ("[R15]", stream_of(delta(reasoning="a", reasoning_content="a"), delta(reasoning="b")),
     {"text": "", "reasoning": "ab"}),
    ("[R15]", stream_of(text([{"type": "thinking", "thinking": "a"}])), {"reasoning": "a"}),
    ("[R16]", stream_of(*(delta(reasoning_details=[{"type": "t", "text": t}]) for t in "ab")),
     {"reasoning": "ab", "data": {"reasoning_details": [{"type": "t", "text": "ab"}]}}),
    ("[R16]", stream_of(delta(reasoning="a", reasoning_details=[{"text": "a"}])),
     {"reasoning": "a"}),
    ("[R17]", stream_of(delta(content="a", extra_content={"v": 1})),
     {"text": "a", "data": {"extra_content": {"v": 1}}}),
    # calls
    ("[R18]", called(call_delta('{"a"', id="x", name="f"), call_delta(":1}", id="x")),
     {"calls": [("x", "f", A)]}),
    ("[R19]", called(CALL, call_delta(B, index=1, id="y", name="g"), call_delta(" ", id="x")),
     {"calls": [("x", "f", A + " "), ("y", "g", B)]}),
    ("[R19]", called(CALL, call_delta(B, index=1, id="x", name="g")),
     {"calls": [("x", "f", A), ("call_made_1", "g", B)]}),
    ("[R20]", called(CALL), {"calls": [("x", "f", A)]}),
    ("[R21]", called(call_delta("", name="f"), call_delta(A, id="late")),
     {"calls": [("late", "f", A)]}),
    ("[R22]", called(call_delta('{"a"', id="x", name="f"), call_delta(":1}", id="y")),
     {"calls": [("x", "f", A)]}),
    ("[R23]", called(CALL, call_delta(B, id="y", name="f")),
     {"calls": [("x", "f", A), ("y", "f", B)]}),
    ("[R24]", called(call_delta(A, name="f")), {"calls": [("call_made_1", "f", A)]}),
    ("[R24]", called(call_delta('{"a"', id="x", name="f"), call_delta(":1}", index=1)),
     {"calls": [("x", "f", A)]}),
    ("[R25]", called(call_delta(A, name="f"), call_delta(B, name="g")),
     {"calls": [("call_made_1", "f", A), ("call_made_2", "g", B)]}),
    ("[R25]", called(call_delta(A, name="f"), call_delta(B, name="f")),
     {"calls": [("call_made_1", "f", A), ("call_made_2", "f", B)]}),
    ("[R26]", called(CALL, call_delta(" ")), {"calls": [("x", "f", A + " ")]}),
    ("[R26]", called(CALL, call_delta(A, name="f")), {"calls": [("x", "f", A)]}),
    ("[R27]", called(call_delta(A, id="x", name="f"), call_delta(B, index=1, id="", name="g")),
     {"calls": [("x", "f", A), ("call_made_1", "g", B)]}),
    ("[R28]", called(call_delta("", id="x", name="get_"), call_delta('{"a"', name="f"),
                     call_delta(":1}", name="get_f")), {"calls": [("x", "get_f", A)]}),
    ("[R29]", called(call_delta("{'a'", id="x", name="f"), call_delta(": 1,}")),
     {"calls": [("x", "f", "{'a': 1,}")]}),
    ("[R30]", called(call_delta('{"a"', id="x", name="f"), call_delta('{"a":1'), call_delta(A)),
     {"calls": [("x", "f", A)]}),
    ("[R30]", called(call_delta('{"a":', id="x", name="f"), call_delta('{"a":1}'), call_delta("}")),
     {"calls": [("x", "f", '{"a":{"a":1}}')]}),
    ("[R31]", called(call_delta("{}", id="x", name="f"), call_delta(A)),
     {"calls": [("x", "f", A)]}),
    ("[R32]", called(call_delta({"a": 1}, id="x", name="f")), {"calls": [("x", "f", A)]}),
    ("[R33]", called(call_delta("", id="x", name="f")), {"calls": [("x", "f", "{}")]}),
    ("[R33]", called(call_delta("", id="x", name="f"), finish="length"),
     {"calls": [("x", "f", "")]}),
    ("[R34]", called(delta(function_call={"name": "f"}), delta(function_call={"arguments": A})),
     {"calls": [("call_made_1", "f", A)]}),
    ("[R34]", called(CALL, delta(function_call={"name": "f", "arguments": A})),
     {"calls": [("x", "f", A)]}),
    # the end
    ("[R35]", stream_of(text("a")), {"text": "a", "finish": None}),
    ("[R36]", stream_of(text("a"), STOP, done=False), {"text": "a", "finish": "stop"}),
    ("[R37]", RESULT_JSON, {"text": "a", "finish": None}),
    ("[R38]", stream_of(text("a"), done=False), {"text": "a", "error": "truncated"}),
    ("[R38]", RESULT_JSON[:-9], {"error": "truncated"}),
    ("[R40]", b"data: [DONE]\n\n", {"error": "no_choice"}),
    ("[R40]", stream_of({"choices": [{"index": 1, "delta": {"content": "b"}}]}),
     {"error": "no_choice"}),
    # finish reasons
    ("[R41]", ended("stop"), {"finish": "stop"}),
    ("[R41]", ended("eos"), {"finish": "stop"}),
    ("[R41]", called(CALL, finish="stop"), {"finish": "tool_calls"}),
    ("[R42]", called(CALL, finish="tool_use"), {"finish": "tool_calls"}),
    ("[R42]", ended("tool_calls"), {"finish": "stop"}),
    ("[R43]", called(CALL, finish="max_tokens"), {"finish": "length"}),
    ("[R44]", called(CALL, finish="safety"), {"finish": "content_filter"}),
    ("[R45]", ended("", None, "null"), {"finish": None}),
    ("[R46]", ended("stop", "length", "stop"), {"finish": "length"}),
    ("[R46]", ended("length", "content_filter"), {"finish": "content_filter"}),
    ("[R47]", ended("error"), {"error": "server_error"}),
    ("[R47]", ended("abort"), {"error": "aborted"}),
    # usage
    ("[R48]", stream_of(usage(prompt_tokens=3, completion_tokens=1), text("a"),
                        usage(prompt_tokens=3, completion_tokens=2),
                        usage(prompt_tokens=0, completion_tokens=0)), {"usage": (3, 2)}),
    ("[R49]", stream_of(text("a"), usage(prompt_tokens=3, total_tokens=5)), {"usage": (3, 2)}),
    ("[R49]", stream_of(text("a"), usage(prompt_tokens=3)), {"usage": None}),
    ("[R50]", stream_of(text("a"), usage(prompt_tokens=-3, completion_tokens=2)), {"usage": None}),
    # errors
    ("[R52]", stream_of({"error": {"code": 429}}), {"error": "rate_limit"}),
    ("[R52]", b'{"error":{"message":"context length"}}', {"error": "context_length"}),
    ("[R52]", stream_of({"object": "error", "message": "no", "code": 400}),
     {"error": "bad_request"}),
    ("[R53]", stream_of({**text("a"), "error": None}, {**text("b"), "error": {}}), {"text": "ab"}),
    ("[R54]", stream_of(text("a"), {**text("b"), "error": {"code": 500}}),
     {"text": "ab", "error": "server_error"}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "body", "expected"), EXAMPLES, ids=lambda value: str(value)[:40])
def test_rule_decides_its_example(rule: str, body: bytes, expected: dict[str, Any]) -> None:
    """What the rule's row on the page says comes out."""
    outcome = decoded([body])
    result = outcome.result
    tokens = result.usage and (result.usage.input_tokens, result.usage.output_tokens)
    data = result.provider_data and json.loads(result.provider_data.json)
    found = {
        "text": result.text,
        "reasoning": result.reasoning,
        "refused": result.refused,
        "calls": [(call.id, call.name, call.arguments) for call in result.tool_calls],
        "finish": result.finish_reason,
        "usage": tokens,
        "data": data,
        "error": outcome.error.reason if outcome.error is not None else None,
    }
    wanted = {"error": None, **expected}
    assert {name: found[name] for name in wanted} == wanted, rule


def test_extra_content_of_a_call_is_kept_with_it() -> None:
    """[R17] It goes back beside its call, and is no part of the arguments."""
    entry = {"id": "x", "function": {"name": "f", "arguments": A}, "extra_content": {"v": 1}}
    (call,) = decoded([called(delta(tool_calls=[entry]))]).result.tool_calls
    assert call.arguments == A
    assert call.provider_data is not None
    assert call.provider_data.json == '{"extra_content":{"v":1}}'


def test_entries_of_one_delta_without_index_have_their_places() -> None:
    """[R25] Two calls in one delta are two, also of one name."""
    entries = [{"function": {"name": "f", "arguments": arguments}} for arguments in (A, B)]
    calls = decoded([called(delta(tool_calls=entries))]).result.tool_calls
    assert [call.arguments for call in calls] == [A, B]


def test_broken_connection_is_no_end() -> None:
    """[R39] Also where a finish reason was told, since more may have been under way."""
    outcome = decoded([stream_of(text("a"), STOP, done=False)], is_aborted=True)
    assert outcome.error is not None
    assert outcome.error.code == "network"


def test_status_is_an_error_of_its_wording_or_its_own() -> None:
    """[R51] A known wording goes over the status."""
    for body, reason in (
        (b"{}", "bad_request"),
        (b'{"error":"prompt too long"}', "context_length"),
    ):
        outcome = decoded([body], status=400)
        assert outcome.error is not None
        assert outcome.error.reason == reason


@pytest.mark.parametrize(
    ("rule", "limit", "body"),
    [
        ("[R56]", "response_bytes_max", b": comment\n" * 9),
        ("[R57]", "line_bytes_max", b"data: " + b"x" * 40),
        ("[R58]", "event_bytes_max", b"data: xxxxxxxxxxxx\n" * 4 + b"\n"),
        ("[R59]", "event_lines_max", b"data: \n" * 40),
        ("[R60]", "events_max", b"data: null\n\n" * 40),
    ],
)
def test_body_over_a_limit_names_it(rule: str, limit: str, body: bytes) -> None:
    """The reason of the error is the limit's name."""
    outcome = drive(new_body(limits=BodyLimits(**{limit: 32})), [body])
    assert outcome.error is not None
    assert outcome.error.reason == limit, rule


def quotes(path: Path) -> set[str]:
    return set(RULE.findall(path.read_text(encoding="utf-8")))


def test_rules_are_numbered_without_gaps() -> None:
    """Each rule stands once, in order."""
    numbers = re.findall(r"^\| (\[R\d+\]) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert numbers == [f"[R{number}]" for number in range(1, len(numbers) + 1)]
    assert set(numbers) == quotes(PAGE)


def test_each_rule_is_quoted_and_each_quote_is_a_rule() -> None:
    """Page, tests and code speak of the same rules."""
    folders = (ROOT / "src" / "turngate" / "providers", ROOT / "tests")
    quoted = {rule for folder in folders for path in folder.rglob("*.py") for rule in quotes(path)}
    assert quoted == quotes(PAGE)

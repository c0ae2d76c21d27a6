"""Every stream case and capture through the pure pipeline, at every split."""

from __future__ import annotations

import json

import pytest

from tests.unit.providers.support import CAPTURES, CASES, Case, check, decoded

IDS = [case.id for case in CASES]
STREAMS = sorted(path for path in CAPTURES.glob("*.sse") if "-responses-" not in path.name)
FINISHED = [path for path in STREAMS if "cancelled" not in path.name]


def test_cases_are_all_there() -> None:
    """No case is lost to a wrong path or pattern."""
    assert len(CASES) == 79


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case_has_its_outcome(case: Case) -> None:
    """The body in one block gives what the case expects."""
    check(
        case,
        decoded([case.body], headers=case.headers, status=case.status, is_aborted=case.is_aborted),
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case_has_its_outcome_at_every_split(case: Case) -> None:
    """Cut in two at any byte, or in single bytes, the body gives the same."""
    body = case.body
    splits = [[body[:at], body[at:]] for at in range(1, len(body))]
    splits.append([body[at : at + 1] for at in range(len(body))])
    for blocks in splits:
        check(
            case,
            decoded(blocks, headers=case.headers, status=case.status, is_aborted=case.is_aborted),
        )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case_cut_at_any_byte_is_never_a_finished_answer(case: Case) -> None:
    """A prefix of the body ends in an error, unless a finish reason or the marker was in it."""
    if case.status != 200 or case.expect["error"] is not None:
        return
    body = case.body
    for size in range(len(body)):
        outcome = decoded([body[:size]], headers=case.headers)
        told = b'"finish_reason":"' in body[:size] or b"[DONE]" in body[:size]
        assert outcome.error is not None or told
        if outcome.error is not None:
            assert outcome.error.code in ("truncated", "protocol")


@pytest.mark.parametrize("path", FINISHED, ids=lambda path: path.name)
def test_capture_decodes_to_its_text(path: object) -> None:
    """A real server's stream gives the text that a plain reading of its lines gives."""
    body = path.read_bytes()  # type: ignore[attr-defined]
    text, finish = "", None
    for line in body.split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            if choice["index"] == 0:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
    for blocks in ([body], [body[at : at + 1] for at in range(len(body))]):
        outcome = decoded(blocks)
        assert outcome.error is None
        assert outcome.result.text == text
        assert outcome.result.finish_reason == finish
        assert (outcome.result.usage is None) == ("nousage" in path.name)  # type: ignore[attr-defined]


def test_capture_of_a_cancelled_stream_is_truncated() -> None:
    """A stream that was cut off keeps its text and is no finished answer."""
    outcome = decoded([(CAPTURES / "llamacpp-qwen05-cancelled.sse").read_bytes()])
    assert outcome.error is not None
    assert outcome.error.code == "truncated"
    assert outcome.result.text


@pytest.mark.parametrize("name", ["text", "toolcall", "parallel", "jsonschema"])
def test_capture_of_a_whole_answer_decodes_as_its_stream(name: str) -> None:
    """An answer that was not streamed has the text and the calls of the streamed one."""
    whole = decoded(
        [(CAPTURES / f"llamacpp-qwen05-{name}.json").read_bytes()],
        headers={"content-type": "application/json; charset=utf-8"},
    )
    streamed = decoded([(CAPTURES / f"llamacpp-qwen05-{name}.sse").read_bytes()])
    assert whole.error is None
    assert whole.result.text == streamed.result.text
    assert whole.result.finish_reason == streamed.result.finish_reason
    assert [(call.name, json.loads(call.arguments)) for call in whole.result.tool_calls] == [
        (call.name, json.loads(call.arguments)) for call in streamed.result.tool_calls
    ]


@pytest.mark.parametrize(
    ("name", "status", "code", "reason"),
    [
        ("badbody", 400, "provider", "bad_request"),
        ("badjson", 400, "provider", "bad_request"),
        ("badrole", 400, "provider", "bad_request"),
        ("badschema", 400, "provider", "bad_request"),
        ("badtools", 500, "provider", "server_error"),
        ("overflow", 400, "context_length", "context_length"),
    ],
)
def test_capture_of_an_error_has_its_kind(name: str, status: int, code: str, reason: str) -> None:
    """A real server's error bodies map to their kind and quote nothing."""
    body = (CAPTURES / f"llamacpp-qwen05-error-{name}.json").read_bytes()
    outcome = decoded([body], headers={"content-type": "application/json"}, status=status)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.reason) == (code, reason)
    assert json.loads(body)["error"]["message"] not in str(outcome.error)

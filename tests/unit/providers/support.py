"""Stream cases and captures as bytes, and the pure pipeline that decodes them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from turngate.completion import Fold, ModelPart, StreamEnd
from turngate.errors import ProviderError
from turngate.providers.answer import Answer
from turngate.providers.body import AnswerBody, BodyLimits
from turngate.providers.failures import http_failure, media_type_of
from turngate.results import ModelResult

DATA = Path(__file__).parents[2] / "data"
CAPTURES = DATA / "captures"


class Case(Struct, frozen=True, kw_only=True):
    """One ``s-*.json``: the response as it goes over the wire, and what has to come of it."""

    id: str
    status: int
    headers: dict[str, str]
    chunks: list[bytes]
    is_aborted: bool
    expect: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The body as a client sees it, decompressed."""
        body = b"".join(self.chunks)
        return zlib.decompress(body, 31) if "content-encoding" in self.headers else body


def load_cases() -> list[Case]:
    cases = []
    for path in sorted((DATA / "cases").glob("s-*.json")):
        raw = json.loads(path.read_text("utf-8"))
        response = raw["response"]
        chunks = [chunk.encode() for chunk in response.get("chunks", ())]
        chunks += [base64.b64decode(chunk) for chunk in response.get("chunks_b64", ())]
        cases.append(
            Case(
                id=raw["id"],
                status=response["status"],
                headers=response["headers"],
                chunks=chunks,
                is_aborted=response.get("abort", False),
                expect=raw["expect"],
            )
        )
    return cases


CASES = load_cases()


class Outcome(Struct, frozen=True, kw_only=True):
    """What one exchange gave: its parts folded, and its end or its error."""

    result: ModelResult
    error: ProviderError | None


def call_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"call_made_{next(numbers)}"


def new_body(media_type: str = "text/event-stream", limits: BodyLimits | None = None) -> AnswerBody:
    answer = Answer(provider="here", new_call_id=call_ids())
    limits = limits if limits is not None else BodyLimits()
    return AnswerBody(answer, media_type=media_type, limits=limits)


def drive(body: AnswerBody, blocks: Iterable[bytes], *, close: bool = True) -> Outcome:
    """The outcome of `blocks`; what `body` gave is added up part by part, and never taken back."""
    fold = Fold()
    end: StreamEnd | None = None
    failure: ProviderError | None = None
    parts: list[ModelPart] = []
    try:
        for block in blocks:
            if body.is_ended:
                break
            body.feed(block, parts)
        if not body.is_ended and close:
            body.close(parts)
    except ProviderError as error:
        failure = error
    for part in parts:
        fold.add(part)
    if body.is_ended and failure is None:
        end = body.end(model=None, request_id=None)
    return Outcome(result=fold.result(end), error=failure)


def decoded(
    blocks: Iterable[bytes],
    *,
    headers: Mapping[str, str] | None = None,
    status: int = 200,
    is_aborted: bool = False,
) -> Outcome:
    """The outcome of a whole response through the pure pipeline."""
    headers = headers if headers is not None else {"content-type": "text/event-stream"}
    if status != 200:
        error = http_failure(status=status, headers=headers, body=b"".join(blocks))
        return Outcome(result=Fold().result(), error=error)
    body = new_body(media_type_of(headers))
    outcome = drive(body, blocks, close=not is_aborted)
    if is_aborted and outcome.error is None and not body.is_ended:
        error = ProviderError("the connection broke off", code="network")
        return Outcome(result=outcome.result, error=error)
    return outcome


def stream_of(*chunks: object, done: bool = True) -> bytes:
    """An event stream of chunks: JSON values, or bytes that stand for themselves."""
    payloads = [c if isinstance(c, bytes) else json.dumps(c).encode() for c in chunks]
    if done:
        payloads.append(b"[DONE]")
    return b"".join(b"data: %s\n\n" % payload for payload in payloads)


def delta(finish: str | None = None, **members: object) -> dict[str, object]:
    """A chunk whose choice 0 has a delta of `members`."""
    choice = {"index": 0, "delta": members, "finish_reason": finish}
    return {"id": "cmpl-1", "model": "demo-1", "choices": [choice]}


def call_delta(
    arguments: object = None,
    *,
    index: object = 0,
    id: object = None,
    name: object = None,
) -> dict[str, object]:
    """A chunk with one tool delta; members that are None are left out."""
    function = {"name": name, "arguments": arguments}
    entry: dict[str, object] = {"index": index, "id": id}
    entry = {key: value for key, value in entry.items() if value is not None}
    entry["function"] = {key: value for key, value in function.items() if value is not None}
    return delta(tool_calls=[entry])


def check(case: Case, outcome: Outcome) -> None:
    """`outcome` is what `case` expects, or one of what it accepts too."""
    expect, result, error = case.expect, outcome.result, outcome.error
    accepted = expect.get("also_accept", {})

    def allowed(member: str) -> list[Any]:
        return [expect.get(member), *accepted.get(member, ())]

    assert (error.code if error else None) in allowed("error"), error
    assert result.text in allowed("text")
    if "reasoning" in expect:
        assert (result.reasoning or "") in allowed("reasoning")
    else:
        assert result.reasoning is None
    if "retry_after" in expect:
        assert error is not None
        assert error.retry_after_s in allowed("retry_after")
    if error is not None:
        return
    assert result.finish_reason in allowed("finish")
    usage = result.usage
    told = usage and {"input": usage.input_tokens, "output": usage.output_tokens}
    assert told in allowed("usage")
    check_calls(case, result)


def check_calls(case: Case, result: ModelResult) -> None:
    calls = case.expect["calls"]
    assert len(result.tool_calls) == len(calls)
    ids = [call.id for call in result.tool_calls]
    assert len(set(ids)) == len(ids)
    for made, wanted in zip(result.tool_calls, calls, strict=True):
        assert made.id if wanted["id"] == "<generated>" else made.id == wanted["id"]
        assert made.name == wanted["name"]
        if case.expect.get("arguments_compare") == "json":
            assert json.loads(made.arguments) == json.loads(wanted["arguments"])
        else:
            also = case.expect.get("also_accept", {}).get("arguments", ())
            assert made.arguments in [wanted["arguments"], *also]

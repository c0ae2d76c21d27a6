"""Damaged streams: for any bytes the outcome is a result or a typed error, and parts fold to it.

The captures and the cases are mutated at random, from a seed: bytes, events and JSON values.
A failure names its seed, and ``mutated(random.Random(seed))`` gives the same body again.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, get_args

import msgspec
import pytest

from tests.unit.providers.support import CAPTURES, CASES, new_body
from turngate.completion import ChatRequest, Fold, FunctionCallDelta, ModelPart, ReasoningDelta
from turngate.errors import ProviderCode, ProviderError
from turngate.messages import UserMessage
from turngate.providers import CompatibleModelProvider, ModelRunner, ProviderConfig
from turngate.providers.body import BodyLimits
from turngate.providers.failures import http_failure
from turngate.results import FinishReason, ModelResult

SEEDS = 20_000
SOAK_SEEDS = 500_000
BATCHES = 8

LIMITS = BodyLimits(
    response_bytes_max=200_000,
    line_bytes_max=60_000,
    event_bytes_max=50_000,
    event_lines_max=200,
    events_max=500,
)

# ── bodies ───────────────────────────────────────────────────────────────────────────────────

CORPUS = [case.body for case in CASES if len(case.body) < 50_000] + [
    path.read_bytes() for path in sorted(CAPTURES.iterdir()) if path.suffix in (".sse", ".json")
]
EVENTS = [[event + b"\n\n" for event in body.split(b"\n\n") if event] for body in CORPUS]
# Long captures say the same many times over: their two ends are enough.
EVENTS = [events if len(events) <= 24 else [*events[:12], *events[-12:]] for events in EVENTS]

# Texts of JSON values that servers do not send, and of some that are no JSON.
ODD_VALUES = [
    "null", "true", "false", "0", "-1", "1", "2", "1e400", "-1e400", "NaN", "0.5", "9" * 400,
    str(2**31), str(2**63), str(2**64), '""', '"0"', '" "', '"x"', '"[DONE]"', '"{"', '"{}"',
    '"\\ud83d"', '"\\ude00"', '"\\u0000"', '"\\u2028"', '"null"', '"stop"', '"length"', '"error"',
    "[]", "{}", "[[]]", "[null]", "[{}]", '[""]', '{"":{}}', '{"a":1}', '[{"text":"t"}]',
    '{"text":1}', '{"message":"m","code":429}', '[{"index":0}]', '{"delta":{"content":"c"}}',
    "[" * 3_000 + "]" * 3_000, '{"a":' * 3_000 + "1" + "}" * 3_000, "[" * 900 + "]" * 900,
    '["\\ud83d",' + "[" * 600 + "]" * 601, '{"\\ud83d":' + '{"a":' * 600 + "1" + "}" * 601,
    '"' + "y" * 70_000 + '"', "[" + "1," * 900 + "1]", '{"x"', "'", "",
]  # fmt: skip
ODD_BYTES = [
    b"\r", b"\n", b"\r\n", b"\n\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b":", b"{", b"}", b'"',
    b"\\", b"<", b"\xe2\x80\xa8", b"\x85", b"\x0b", b" ", b": c\n\n", b"id: 1\n", b"retry: 1\n",
    b"event: x\n", b"event: error\n", b"data:", b"data: \n\n", b"data: {}\n\n",
    b"data: [DONE]\n\n", b'data: {"error":{"message":"m"}}\n\n',
]  # fmt: skip

Mutation = Callable[[Random, list[bytes]], list[bytes]]


def flipped(random: Random, events: list[bytes]) -> list[bytes]:
    body = bytearray(b"".join(events))
    for _ in range(random.choice((1, 1, 2, 8))):
        body[random.randrange(len(body))] = random.randrange(256)
    return [bytes(body)]


def inserted(random: Random, events: list[bytes]) -> list[bytes]:
    body = b"".join(events)
    at = random.randrange(len(body) + 1)
    return [body[:at], random.choice(ODD_BYTES) * random.choice((1, 1, 2, 300)), body[at:]]


def deleted(random: Random, events: list[bytes]) -> list[bytes]:
    body = b"".join(events)
    at = random.randrange(len(body))
    return [body[:at], body[at + random.choice((1, 1, 2, 5, 40)) :]]


def truncated(random: Random, events: list[bytes]) -> list[bytes]:
    body = b"".join(events)
    return [body[: random.randrange(len(body))]]


def shuffled(random: Random, events: list[bytes]) -> list[bytes]:
    events = list(events)
    for _ in range(random.choice((1, 1, 3))):
        i, j = random.randrange(len(events)), random.randrange(len(events))
        match random.randrange(4):
            case 0:
                events[i:i] = [events[j]] * random.choice((1, 1, 30))
            case 1:
                events[i], events[j] = events[j], events[i]
            case 2:
                events[i] = random.choice(random.choice(EVENTS))
            case _:
                events[i:i] = random.choice(EVENTS)
    return events


def valued(random: Random, events: list[bytes]) -> list[bytes]:
    """One value of one event's JSON is another, of the same stream or an odd one."""
    at = random.randrange(len(events))
    head, brace, rest = events[at].partition(b"{")
    try:
        value = json.loads(brace + rest)
        holders = _holders(value)
        holder, key = random.choice(holders)
        if random.randrange(4) == 0:
            other, other_key = random.choice(holders)
            holder[key] = json.loads(json.dumps(other[other_key]))
            text = json.dumps(value)
        else:
            holder[key] = "\ufdd0"  # a character that stands nowhere else
            odd = random.choice(ODD_VALUES)
            text = json.dumps(value, ensure_ascii=random.random() < 0.5)
            text = text.replace('"\ufdd0"', odd).replace('"\\ufdd0"', odd)
    except (ValueError, RecursionError):  # a mutation before this one has left no JSON
        return inserted(random, events)
    return [*events[:at], head + text.encode("utf-8", "surrogatepass") + b"\n\n", *events[at + 1 :]]


def _holders(value: Any) -> list[tuple[Any, Any]]:
    """Each place of a value within `value`: what holds it, and its key there."""
    keys = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for _, key in list(found):
        if isinstance(value[key], dict | list):
            found += _holders(value[key])
    return found or [({"": value}, "")]


MUTATIONS: Sequence[Mutation] = (
    flipped, inserted, deleted, truncated, shuffled, valued, valued, valued
)  # fmt: skip


def mutated(random: Random) -> bytes:
    events = random.choice(EVENTS)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        events = [event for event in random.choice(MUTATIONS)(random, events) if event]
        if not events:
            return b""
    return b"".join(events)


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────


def outcome_of(blocks: Sequence[bytes]) -> tuple[list[ModelPart], ModelResult | ProviderError]:
    """What a body of `blocks` gives. Errors: none but a bug's."""
    body = new_body(limits=LIMITS)
    parts: list[ModelPart] = []
    try:
        for block in blocks:
            if not body.is_ended:
                body.feed(block, parts)
        body.close(parts)
    except ProviderError as error:
        return parts, error
    return parts, folded(parts).result(body.end(model=None, request_id=None))


def folded(parts: Sequence[ModelPart]) -> Fold:
    fold = Fold()
    for part in parts:
        fold.add(part)
    return fold


def check_parts(parts: Sequence[ModelPart]) -> None:
    """Parts are well-formed, and calls are numbered, named and identified in order."""
    ids: list[str] = []
    named: set[int] = set()
    for part in parts:
        match part:
            case str():
                assert part
            case ReasoningDelta(text=text):
                assert text
            case FunctionCallDelta(index=index, id=call_id, name=name):
                assert (call_id is not None) == (index == len(ids))
                if call_id is not None:
                    ids.append(call_id)
                assert index < len(ids)
                if name is not None:
                    assert name
                    assert index not in named
                    named.add(index)
    assert all(ids)
    assert len(set(ids)) == len(ids)
    msgspec.json.encode(parts)  # which no half character survives


def check_outcome(parts: Sequence[ModelPart], outcome: ModelResult | ProviderError) -> None:
    if isinstance(outcome, ProviderError):
        assert outcome.code in get_args(ProviderCode)
        assert outcome.reason
        assert len(str(outcome)) < 300
        return
    check_parts(parts)
    alone = folded(parts).result()
    assert (outcome.text, outcome.reasoning) == (alone.text, alone.reasoning)
    assert [(c.id, c.name, c.arguments) for c in outcome.tool_calls] == [
        (c.id, c.name, c.arguments) for c in alone.tool_calls
    ]
    assert outcome.finish_reason in (None, *get_args(FinishReason))
    if outcome.usage is not None:
        assert all(0 <= count < 1 << 53 for count in msgspec.structs.astuple(outcome.usage))
    msgspec.json.encode(outcome)


def in_pieces(random: Random, body: bytes) -> list[bytes]:
    cuts = sorted(random.randrange(len(body) + 1) for _ in range(random.choice((1, 3, 20))))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if a < b]


def run(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        try:
            body = mutated(random)
            parts, outcome = outcome_of([body])
            check_outcome(parts, outcome)
            again, other = outcome_of(in_pieces(random, body))
            assert folded(again).result() == folded(parts).result()
            assert_same(outcome, other)
            if isinstance(outcome, ProviderError):
                http_failure(status=400 + seed % 200, headers={}, body=body)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def assert_same(one: ModelResult | ProviderError, other: ModelResult | ProviderError) -> None:
    """The same outcome, whatever the split."""
    if isinstance(one, ProviderError):
        assert isinstance(other, ProviderError), other
        assert (other.code, other.reason) == (one.code, one.reason)
    else:
        assert other == one


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024


@pytest.mark.parametrize("batch", range(BATCHES))
def test_mutated_stream_gives_a_result_or_a_typed_error(batch: int) -> None:
    """At any split the same one, with parts that fold to it, and with no more memory."""
    size = SEEDS // BATCHES
    seeds = range(batch * size, (batch + 1) * size)
    run(seeds[: size // 4])
    before = peak_bytes()
    run(seeds[size // 4 :])
    assert peak_bytes() - before < 32 << 20


@pytest.mark.soak
def test_many_mutated_streams_give_results_or_typed_errors() -> None:
    """The same for other seeds, for minutes."""
    run(range(SEEDS, SEEDS + 10_000))
    before = peak_bytes()
    run(range(SEEDS + 10_000, SEEDS + SOAK_SEEDS))
    assert peak_bytes() - before < 32 << 20


# ── the whole provider, without a network ────────────────────────────────────────────────────


class Played:
    """A response whose body is `blocks`."""

    def __init__(self, blocks: list[bytes]) -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {"content-type": "text/event-stream"}
        self.is_left = False
        self._blocks = blocks

    async def read(self) -> bytes:
        return self._blocks.pop(0) if self._blocks else b""

    async def release(self) -> None:
        self.is_left = True

    def close(self) -> None:
        self.is_left = True


class Player:
    """A transport that answers each request with the next body."""

    def __init__(self) -> None:
        self.responses: list[Played] = []
        self.next: list[bytes] = []

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Played:
        self.responses.append(Played(self.next))
        return self.responses[-1]

    async def aclose(self) -> None:
        pass


async def test_mutated_stream_through_the_provider_gives_a_result_or_a_typed_error() -> None:
    """What is observed folds to the result or to the partial of the error; all is closed."""
    player = Player()
    config = ProviderConfig(
        base_url="http://localhost:1/v1",
        model="m",
        retries=0,
        **msgspec.structs.asdict(LIMITS),
    )
    runner = ModelRunner(CompatibleModelProvider(config, transport=player))
    request = ChatRequest(messages=(UserMessage(("hi",)),))
    for seed in range(1_000):
        random = Random(-1 - seed)
        body = mutated(random)
        player.next = in_pieces(random, body) if body else []
        parts: list[ModelPart] = []
        outcome: ModelResult | ProviderError
        try:
            outcome = await runner.complete(request, observe=parts.append)
        except ProviderError as error:
            outcome = error
        if isinstance(outcome, ProviderError):
            assert outcome.partial == (folded(parts).result() if parts else None), seed
        check_outcome(parts, outcome)
    assert len(player.responses) == 1_000
    assert all(response.is_left for response in player.responses)

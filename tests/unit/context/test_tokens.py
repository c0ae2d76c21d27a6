"""The token estimate: near the truth on English and code, never under half, and it learns."""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit import strategies
from tests.unit.context import accuracy
from turngate.completion import CallOptions, ChatRequest, OutputSchema
from turngate.context import TokenEstimator
from turngate.context.text_costs import text_costs
from turngate.messages import (
    AssistantMessage,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.protocols import TokenCounter
from turngate.results import ModelResult
from turngate.turn_builder import TurnBuilder
from turngate.turns import Turn
from turngate.values import ToolSpec, Usage

TEXTS = accuracy.kept_texts("texts.json")
ODD = accuracy.kept_texts("odd.json")
REQUESTS = accuracy.kept_requests()
CLOSE = [text for text in TEXTS if text.kind in ("english", "code")]
TEXT_BY_ID = {text.id: text.text for text in TEXTS}
ENGLISH, RUSSIAN = TEXT_BY_ID["english-essay"], TEXT_BY_ID["russian-vokzal"]
KINDS_OF_MESSAGES = [
    SystemMessage(ENGLISH),
    UserMessage((ENGLISH,)),
    AssistantMessage(text=ENGLISH),
    AssistantMessage(reasoning=ENGLISH),
    AssistantMessage(tool_calls=(ToolCall(id="c", name="f", arguments=ENGLISH),)),
    AssistantMessage(tool_calls=(ToolCall(id="c", name=ENGLISH, arguments="{}"),)),
    ToolMessage(call_id="c", content=ENGLISH),
    ToolMessage(call_id="c", content=("", ENGLISH)),
]


def request_of(*messages: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=messages, **fields)


def learn(
    estimator: TokenEstimator,
    request: ChatRequest,
    tokens: int,
    *,
    model: str | None = None,
    times: int = 1,
) -> None:
    for _ in range(times):
        usage = Usage(input_tokens=tokens, output_tokens=1)
        estimator.learn(request, usage, model=model)


def under_half(estimator: TokenEstimator, tokenizer: str, model: str | None = None) -> list[str]:
    """The kept texts, odd ones and others, of which the estimate is under half of the truth."""
    ratios = accuracy.text_ratios(estimator, [*TEXTS, *ODD], tokenizer, model)
    return [name for name, ratio in ratios.items() if ratio < 0.5]


# ── how near it is ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tokenizer", accuracy.TOKENIZERS)
@pytest.mark.parametrize("kept", CLOSE, ids=lambda kept: kept.id)
def test_estimate_starts_near_on_english_and_code(kept: accuracy.KeptText, tokenizer: str) -> None:
    """Within 25 % of what each tokenizer counts, before anything was learned."""
    estimate = TokenEstimator().count_text(kept.text)
    assert abs(estimate / kept.counts[tokenizer] - 1) <= 0.25


@pytest.mark.parametrize("tokenizer", accuracy.TOKENIZERS)
def test_estimate_is_never_under_half(tokenizer: str) -> None:
    """No script, encoding or noise that is kept costs more than twice the first estimate."""
    assert under_half(TokenEstimator(), tokenizer) == []


@pytest.mark.parametrize("tokenizer", accuracy.CHAT_TOKENIZERS)
def test_estimate_is_near_after_ten_calls(tokenizer: str) -> None:
    """The mean error over other requests is at most 10 % then, and less than it was."""
    fresh, before, after = TokenEstimator(), [], []
    for ten, rest in accuracy.orders(REQUESTS, tokenizer, number=8):
        before.append(accuracy.mean_error(fresh, rest, tokenizer))
        after.append(accuracy.mean_error(accuracy.learned(ten, tokenizer), rest, tokenizer))
    assert mean(after) <= 0.1
    assert mean(after) < mean(before)


@pytest.mark.parametrize("tokenizer", accuracy.TOKENIZERS)
def test_what_was_never_seen_stays_above_half(tokenizer: str) -> None:
    """English that costs as little as anyone can believe moves no script, nor noise, under it."""
    estimator = TokenEstimator()
    request = request_of(UserMessage((ENGLISH * 3,)))
    start = estimator.count_request(request)
    for share in (0.9, 0.8, 0.75, 0.7):
        learn(estimator, request, int(start * share), model="m", times=20)
    assert estimator.count_text(ENGLISH, model="m") < TokenEstimator().count_text(ENGLISH)
    assert under_half(estimator, tokenizer, "m") == []


@given(st.text(st.characters(exclude_categories=()), max_size=60))
@example("\ud800" * 20)
def test_estimate_grows_with_the_bytes_beyond_ascii(text: str) -> None:
    """Any text costs something, and nearly a half for each byte that a tokenizer may fall back
    to; lone surrogates are taken."""
    beyond = [char for char in text if not char.isascii()]
    size = len("".join(beyond).encode("utf-8", "surrogatepass"))
    estimate = TokenEstimator().count_text(text)
    assert estimate >= max(0.47 * size, bool(text))
    assert all(cost >= -1e-9 for cost in text_costs(text))


def test_long_texts_cost_their_parts() -> None:
    """The estimate has no ceiling, and its cache none that a long text could fill."""
    counter: TokenCounter = TokenEstimator()
    once = sum(counter.count_text(text.text + "\n") for text in TEXTS)
    thrice = counter.count_text("\n".join(text.text for text in TEXTS * 3))
    assert thrice == pytest.approx(3 * once, rel=0.02)


def test_a_text_counts_the_same_each_time() -> None:
    """What is kept of the texts counted last changes no count, also where little room is left."""
    kept, tight = TokenEstimator(), TokenEstimator(texts_max=2)
    texts = [text.text for text in TEXTS[:20]]
    fresh = [TokenEstimator().count_text(text) for text in texts]
    for counter in (kept, tight):
        assert [counter.count_text(text) for text in texts * 2] == fresh * 2
        assert [counter.count_text(text) for text in reversed(texts)] == fresh[::-1]
    request = request_of(*(UserMessage((text,)) for text in texts))
    assert tight.count_request(request) == TokenEstimator().count_request(request)


def test_a_turn_counts_by_what_it_holds() -> None:
    """What is kept of a turn is not taken for another of its id, nor kept when the ratios move."""
    counter = TokenEstimator()
    builder = TurnBuilder(new_id=lambda: "turn_1")
    turns = [builder.build_user_turn(prompt=text) for text in (RUSSIAN, ENGLISH, RUSSIAN * 2)]
    turns += [replace(turns[0], status="deleted"), replace(turns[0], role="tool")]
    fresh = [TokenEstimator().count_turn(turn) for turn in turns]
    assert [counter.count_turn(turn, model="m") for turn in turns * 2] == fresh * 2
    assert len(set(fresh[:4])) == 4
    assert fresh[4] == 0
    counts = [fresh[0]]
    for _ in range(2):
        learn(counter, request_of(UserMessage((RUSSIAN,))), fresh[0] // 2, model="m")
        counts.append(counter.count_turn(turns[0], model="m"))
    assert counts == sorted(set(counts), reverse=True)
    assert counter.count_turn(turns[0], model="other") == fresh[0]


def test_the_texts_counted_last_are_kept() -> None:
    """Memory is bounded: beyond the limit the text that was counted longest ago goes."""
    counter = TokenEstimator(texts_max=2)
    for text in (ENGLISH, RUSSIAN, ENGLISH, "third"):
        counter.count_text(text)
    assert list(counter._texts) == [hash(ENGLISH), hash("third")]


# ── what counts ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("message", KINDS_OF_MESSAGES, ids=lambda message: message.role)
def test_every_text_of_a_message_counts(message: Message) -> None:
    """Texts, reasoning, names, arguments and results cost what their text costs, and a frame."""
    counter = TokenEstimator()
    text = counter.count_text(ENGLISH)
    assert text + 4 <= counter.count_request(request_of(message)) <= text + 30


def test_messages_have_a_frame() -> None:
    """A conversation of many short messages costs more than its text."""
    counter = TokenEstimator()
    many = request_of(*(UserMessage(("ok",)) for _ in range(100)))
    one = request_of(UserMessage(("ok " * 100,)))
    assert counter.count_request(many) > counter.count_request(one) + 300


def test_schemas_count() -> None:
    """A tool costs its name, description and parameters, and the answer's schema its JSON."""
    counter = TokenEstimator()
    message = UserMessage(("hi",))
    plain = counter.count_request(request_of(message))
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    for schema in (
        {"tools": (ToolSpec(name="f", description=ENGLISH),)},
        {"tools": (ToolSpec(name="f", parameters={"description": ENGLISH}),)},
        {"output": OutputSchema(name="o", schema={**parameters, "description": ENGLISH})},
    ):
        request = request_of(message, **schema)
        assert counter.count_request(request) >= plain + counter.count_text(ENGLISH)


def image(width: int, height: int) -> bytes:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    return header + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\0" * 50


@pytest.mark.parametrize(
    ("media_type", "data", "tokens"),
    [
        ("image/png", image(750, 600), 600),
        ("image/png", image(10, 10), 85),
        ("image/png", image(9_000, 9_000), 1_600),
        ("image/png", b"no header", 1_000),
        ("IMAGE/PNG; x=y", image(750, 600) + b"\0" * 10_000, 600),
        ("application/pdf", b"\0" * 4_000, 1_000),
        ("text/plain; charset=utf-8", ENGLISH.encode(), TokenEstimator().count_text(ENGLISH)),
        ("application/json", b"[1]" * 100, TokenEstimator().count_text("[1]" * 100)),
        ("text/plain", b"\xff" * 100, TokenEstimator().count_text("\ufffd" * 100)),
    ],
)
def test_files_count(media_type: str, data: bytes, tokens: int) -> None:
    """An image costs by its pixels, a text by its text, and another file by its bytes."""
    counter = TokenEstimator()
    file = InlineFile(name="f", media_type=media_type, data=data)
    plain = counter.count_request(request_of(UserMessage(("hi",))))
    counted = counter.count_request(request_of(UserMessage(("hi", file))))
    assert abs(counted - plain - tokens) <= 2


@given(strategies.turns, st.booleans())
def test_turn_costs_what_its_messages_cost(turn: Turn, reasoning: bool) -> None:
    """A turn that becomes no message costs nothing, and any other about what they cost."""
    counter = TokenEstimator(reasoning=reasoning)
    messages = TurnBuilder().to_messages([turn], reasoning=reasoning)
    counted = counter.count_turn(turn)
    if not messages:
        assert counted == 0
    else:
        expected = counter.count_request(request_of(*messages)) - 3
        # Texts that are joined make one word of two.
        assert abs(counted - expected) <= 3 * len(turn.parts)


def test_reasoning_costs_where_it_is_sent() -> None:
    """By default the reasoning of a stored turn stays in the store."""
    result = ModelResult(
        text="Yes.", tool_calls=(), model=None, finish_reason=None, usage=None, reasoning=ENGLISH
    )
    (turn,) = TurnBuilder().build_assistant_turns(result=result)
    text = TokenEstimator().count_text(ENGLISH)
    assert TokenEstimator().count_turn(turn) < 15
    assert TokenEstimator(reasoning=True).count_turn(turn) > text


# ── what is learned ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.5, 1.6])
def test_a_script_is_learned(share: float) -> None:
    """Calls in one script bring its estimate to what they cost, and leave the others."""
    estimator = TokenEstimator()
    request = request_of(UserMessage((RUSSIAN,)))
    truth = int(estimator.count_request(request) * share)
    learn(estimator, request, truth, model="m", times=10)
    assert estimator.count_request(replace(request, model="m")) == pytest.approx(truth, rel=0.05)
    chinese = TEXT_BY_ID["chinese-chaguan"]
    fresh = TokenEstimator().count_text(chinese)
    assert estimator.count_text(chinese, model="m") == pytest.approx(fresh, rel=0.02)


@pytest.mark.parametrize(("share", "settled"), [(0.15, 0.15), (3.0, 3.0)])
def test_images_are_learned(share: float, settled: float) -> None:
    """A model whose images cost far less, or more, is soon known."""
    estimator = TokenEstimator()
    file = InlineFile(name="f", media_type="image/png", data=image(1_000, 900))
    request = request_of(UserMessage(("What is this?", file)), model="m")
    start = estimator.count_request(request)
    learn(estimator, request, int(start * share), model="m", times=10)
    assert estimator.count_request(request) == pytest.approx(start * settled, rel=0.1)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=0, output_tokens=5),
        Usage(input_tokens=-400, output_tokens=5),
        Usage(input_tokens=3, output_tokens=5),  # without the cached ones
        Usage(input_tokens=500, output_tokens=5, cached_tokens=900),
        Usage(input_tokens=1_000_000, output_tokens=5),
    ],
)
def test_an_absurd_count_is_left_out(usage: Usage) -> None:
    """No estimate moves by what can't have been counted for the request."""
    estimator = TokenEstimator()
    request = request_of(UserMessage((ENGLISH * 4,)), model="m")
    before = estimator.count_request(request)
    for _ in range(30):
        estimator.learn(request, usage, model="m")
    assert estimator.count_request(request) == before


def test_one_false_count_moves_little() -> None:
    """After twenty true counts, one that is half as much again moves the estimate by under 10 %."""
    estimator = TokenEstimator()
    request = request_of(UserMessage((ENGLISH,)), model="m")
    truth = int(estimator.count_request(request) * 1.1)
    learn(estimator, request, truth, model="m", times=20)
    learn(estimator, request, truth * 3 // 2, model="m")
    assert estimator.count_request(request) == pytest.approx(truth, rel=0.1)


def test_the_first_count_moves_the_estimate_by_half_at_most() -> None:
    """However much is in doubt, one report is not believed whole."""
    estimator = TokenEstimator()
    file = InlineFile(name="f", media_type="image/png", data=image(1_000, 900))
    request = request_of(UserMessage((file,)), model="m")
    start = estimator.count_request(request)
    learn(estimator, request, start * 4, model="m")
    assert start * 1.2 < estimator.count_request(request) <= start * 1.5 + 2


def test_a_model_learns_under_both_its_names() -> None:
    """The name that was asked for and the one that answered; no other model moves."""
    estimator = TokenEstimator()
    request = request_of(UserMessage((RUSSIAN,)), options=CallOptions(model="asked"), model="m")
    before = estimator.count_text(RUSSIAN)
    learn(estimator, request, 120, model="answered", times=10)
    assert estimator.count_text(RUSSIAN, model="asked") < before * 0.7
    assert estimator.count_text(RUSSIAN, model="answered") < before * 0.7
    assert estimator.count_text(RUSSIAN, model="m") == before
    assert estimator.count_text(RUSSIAN) == before
    assert estimator.count_request(request) < before


def test_the_models_used_last_are_kept() -> None:
    """Memory is bounded: beyond the limit the model that learned longest ago starts anew."""
    estimator = TokenEstimator(models_max=2)
    before = estimator.count_text(RUSSIAN)
    for model in ("a", "b", "a", "c"):
        learn(estimator, request_of(UserMessage((RUSSIAN,)), model=model), 120, model=model)
    assert estimator.count_text(RUSSIAN, model="b") == before
    assert estimator.count_text(RUSSIAN, model="a") < before
    assert estimator.count_text(RUSSIAN, model="c") < before


def test_every_sixteenth_usage_is_learned_from_later() -> None:
    """The first 32 usages of a model move its estimate, and then the 48th, the 64th …"""
    estimator = TokenEstimator()
    request = request_of(UserMessage((RUSSIAN,)), model="m")
    truth = estimator.count_request(request)
    moved = []
    for number in range(1, 82):
        before = estimator.count_text(RUSSIAN * 500, model="m")
        learn(estimator, request, truth * (2 + number % 2) // 3, model="m")
        if estimator.count_text(RUSSIAN * 500, model="m") != before:
            moved.append(number)
    assert moved == [*range(1, 33), 48, 64, 80]


counts = st.integers(-10, 100_000)


@given(st.lists(st.tuples(st.sampled_from(REQUESTS[:12] + REQUESTS[60:66]), counts), max_size=20))
def test_no_report_brings_an_estimate_out_of_bounds(
    reports: list[tuple[accuracy.KeptRequest, int]],
) -> None:
    """Whatever a server reports, English costs between 0.9 and 2 of what it cost at first."""
    estimator = TokenEstimator()
    for kept, tokens in reports:
        learn(estimator, kept.request, tokens, model=accuracy.MODEL)
    fresh = TokenEstimator().count_text(ENGLISH)
    assert 0.9 * fresh <= estimator.count_text(ENGLISH, model=accuracy.MODEL) <= 2 * fresh

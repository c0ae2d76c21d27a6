"""How near the token estimate comes to real tokenizers, over the kept counts.

``python -m tests.unit.context.accuracy`` prints it. A ratio is the estimate by the truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from msgspec import Struct

from turngate.completion import ChatRequest
from turngate.context import TokenEstimator
from turngate.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turngate.values import ToolSpec, Usage

DATA = Path(__file__).parents[2] / "data" / "tokens"
TOKENIZERS = ("smollm2", "tekken", "deepseek")
CHAT_TOKENIZERS = ("smollm2", "tekken")  # whose chat format is known, so that requests are counted
MODEL = "some-model"


class KeptText(Struct, frozen=True, kw_only=True):
    """One text, and how many tokens it has by each tokenizer."""

    id: str
    text: str
    counts: Mapping[str, int]
    kind: str = "odd"


class KeptRequest(Struct, frozen=True, kw_only=True):
    """One request, and how many tokens its prompt has in each tokenizer's chat format."""

    id: str
    request: ChatRequest
    counts: Mapping[str, int]


def kept_texts(name: str) -> list[KeptText]:
    return [KeptText(**row) for row in _rows(name)]


def kept_requests() -> list[KeptRequest]:
    return [
        KeptRequest(
            id=row["id"],
            request=ChatRequest(
                messages=tuple(map(_message, row["messages"])),
                tools=tuple(ToolSpec(**tool["function"]) for tool in row["tools"]),
                model=MODEL,
            ),
            counts=row["counts"],
        )
        for row in _rows("requests.json")
    ]


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return rows


def _message(wire: dict[str, Any]) -> Message:
    text = wire["content"] or ""
    calls = tuple(
        ToolCall(id=call["id"], **call["function"]) for call in wire.get("tool_calls", ())
    )
    by_role: dict[str, Callable[[], Message]] = {
        "system": lambda: SystemMessage(text),
        "user": lambda: UserMessage((text,)),
        "assistant": lambda: AssistantMessage(text=text, tool_calls=calls),
        "tool": lambda: ToolMessage(call_id=wire["tool_call_id"], content=text),
    }
    return by_role[wire["role"]]()


# ── what is measured ─────────────────────────────────────────────────────────────────────────


def text_ratios(
    estimator: TokenEstimator, texts: Sequence[KeptText], tokenizer: str, model: str | None = None
) -> dict[str, float]:
    """The ratio of each text that has tokens."""
    return {
        kept.id: estimator.count_text(kept.text, model=model) / kept.counts[tokenizer]
        for kept in texts
        if kept.text
    }


def learned(requests: Sequence[KeptRequest], tokenizer: str) -> TokenEstimator:
    """An estimator that made these calls of one model."""
    estimator = TokenEstimator()
    for kept in requests:
        usage = Usage(input_tokens=kept.counts[tokenizer], output_tokens=1)
        estimator.learn(kept.request, usage, model=MODEL)
    return estimator


def mean_error(estimator: TokenEstimator, requests: Sequence[KeptRequest], tokenizer: str) -> float:
    """The mean of how far the estimates are off, as a share of the truth."""
    return mean(
        abs(estimator.count_request(kept.request) / kept.counts[tokenizer] - 1) for kept in requests
    )


def orders(
    requests: Sequence[KeptRequest], tokenizer: str, *, number: int
) -> Iterator[tuple[list[KeptRequest], list[KeptRequest]]]:
    """Ten requests to learn from and the others to be judged by, in a number of fixed orders."""
    counted = [kept for kept in requests if tokenizer in kept.counts]
    for seed in range(number):
        shuffled = random.Random(seed).sample(counted, len(counted))
        yield shuffled[:10], shuffled[10:]


# ── the table ────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    texts, odd, requests = kept_texts("texts.json"), kept_texts("odd.json"), kept_requests()
    fresh = TokenEstimator()
    print("At the start, ratio of the estimate to the truth: least, all together, most")
    for tokenizer in TOKENIZERS:
        for kind in ("english", "code", "other"):
            some = [
                t for t in texts if (t.kind if t.kind in ("english", "code") else "other") == kind
            ]
            print(f"  {tokenizer:9} {kind:8} {_spread(fresh, some, tokenizer)}")
        ratios = text_ratios(fresh, odd, tokenizer)
        print(f"  {tokenizer:9} odd      least {min(ratios.values()):.2f} of {len(ratios)} texts")
    print("Requests, mean error: at the start, after ten calls (mean and worst of 20 orders)")
    for tokenizer in CHAT_TOKENIZERS:
        pairs = list(orders(requests, tokenizer, number=20))
        before = mean(mean_error(fresh, rest, tokenizer) for _, rest in pairs)
        after = [mean_error(learned(ten, tokenizer), rest, tokenizer) for ten, rest in pairs]
        print(f"  {tokenizer:9} {before:.1%}  {mean(after):.1%}  {max(after):.1%}")
    print("After ten calls, ratio: least, all together, most; odd texts under half")
    for tokenizer in CHAT_TOKENIZERS:
        estimator = learned(next(orders(requests, tokenizer, number=1))[0], tokenizer)
        for kind in sorted({text.kind for text in texts}):
            some = [text for text in texts if text.kind == kind]
            print(f"  {tokenizer:9} {kind:11} {_spread(estimator, some, tokenizer, MODEL)}")
        ratios = text_ratios(estimator, odd, tokenizer, MODEL)
        under = sorted((ratio, name) for name, ratio in ratios.items() if ratio < 0.5)
        print(f"  {tokenizer:9} odd: {len(under)} of {len(ratios)} under half, {under[:5]}")


def _spread(
    estimator: TokenEstimator, texts: Sequence[KeptText], tokenizer: str, model: str | None = None
) -> str:
    ratios = text_ratios(estimator, texts, tokenizer, model).values()
    estimated = sum(estimator.count_text(text.text, model=model) for text in texts)
    truth = sum(text.counts[tokenizer] for text in texts)
    return f"{min(ratios):.2f} {estimated / truth:.2f} {max(ratios):.2f}"


if __name__ == "__main__":
    main()

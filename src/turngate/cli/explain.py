"""``explain``: the budget of a model call, what it was shown, and how two of them differ.

It opens the file to read, and says what their receipts say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from rich.console import Console

from turngate.cli.receipts import ModelCall, Place, difference, found_calls, tried_again, with_turns
from turngate.cli.runs import run_shape, state_text
from turngate.cli.show import call_text, counted, joined, local_time, read, result_text, usage_text
from turngate.cli.terminal import json_shape, out_console, print_json, say
from turngate.gateway import Gateway
from turngate.records import LedgerRow, LeftOut, Receipt
from turngate.turns import FilePart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, Turn

_BAR_COLUMNS = 30
_LINE_CHARS = 64


def run_explain(
    *,
    db: str,
    tenant: str,
    call: str,
    model_call: int | None,
    diff: str | None,
    turns: bool,
    files: str | None,
    as_json: bool,
) -> None:
    async def load(gateway: Gateway) -> list[ModelCall]:
        found = await found_calls(gateway, tenant, call, model_call)
        if diff is not None:
            found = [found[-1], (await found_calls(gateway, tenant, diff))[-1]]
        else:
            found = [await tried_again(gateway, tenant, one) for one in found]
        return [await with_turns(gateway, tenant, one) if turns else one for one in found]

    found = read(db, load, files=files)
    if diff is not None:
        print_json(difference(*found)) if as_json else print_difference(out_console(), *found)
    elif as_json:
        shapes = [_shape(one) for one in found]
        print_json({"call": run_shape(found[0].call), "model_calls": shapes})
    else:
        print_call(out_console(), found)


def _shape(one: ModelCall) -> dict[str, Any]:
    """A model call as JSON; `turns` is null where they were not asked for."""
    turns = None
    if one.turns is not None:
        turns = [
            {"position": place, "id": turn.id, "role": turn.role, "line": _first_line(turn)}
            for place, turn in one.turns
        ]
    again = {"again": one.why_not is None, "why_not": one.why_not, "turns": turns}
    return {"number": one.number, **json_shape(one.row), **again}


def print_call(console: Console, found: Sequence[ModelCall]) -> None:
    """The call, and each of `found`: its budget, what it was shown, and what not."""
    call = found[0].call
    head = ("call ", "dim"), (call.id, "bold"), (f"   thread {call.thread}   ", "dim")
    say(console, *head, state_text(call))
    for one in found:
        facts = joined(one.row.outcome, one.row.model, local_time(one.row.created_at))
        say(console, f"\nmodel call {one.number} of {one.count}", (f"   {facts}", "dim"))
        if one.row.receipt is not None:
            _print_budget(console, one.row, one.row.receipt)
            _print_shown(console, one, one.row.receipt)
        else:
            _fact(console, "receipt", "none: its process died before anything came of it")


def _print_budget(console: Console, row: LedgerRow, receipt: Receipt) -> None:
    total = sum(receipt.tokens.values())
    scale = max(total, receipt.budget or 0, 1)
    for source, tokens in receipt.tokens.items():
        bar = "█" * max(1, round(tokens * _BAR_COLUMNS / scale))
        _fact(console, source, f"{tokens:>9,} {tokens / max(total, 1):>5.0%}  ", (bar, "cyan"))
    _fact(console, "estimated", f"{total:>9,}")
    if receipt.budget is not None:
        used = f"{total / receipt.budget:>5.0%}  used; the answer needs room too"
        _fact(console, "budget", f"{receipt.budget:>9,} {used}")
    _fact(console, "reported", usage_text(row.usage) if row.usage is not None else "no usage")


def _print_shown(console: Console, one: ModelCall, receipt: Receipt) -> None:
    own = ", and its own question" if receipt.current is not None else ""
    steps = f", {counted(receipt.steps, 'turn')} of its steps" if receipt.steps else ""
    turns = counted(receipt.length, "turn")
    _fact(console, "turns", f"{_spans(one.window_places)} of {turns}{own}{steps}")
    _print_turns(console, one.turns or ())
    _fact(console, "its tools", joined(", ".join(receipt.tools) or "none"))
    parts = one.call.user_turn.parts if one.call.user_turn is not None else ()
    names = {part.file.id: part.file.name for part in parts if isinstance(part, FilePart)}
    for file in receipt.files:
        _fact(console, "file", joined(file.id, file.shown, names.get(file.id)))
    for gone in receipt.left_out:
        _fact(console, "left out", _left_out(gone))
    if receipt.result_chars is not None:
        _fact(console, "shortened", f"tool results to {receipt.result_chars:,} characters")
    if receipt.waiting:
        _fact(console, "waiting", joined(f"for a review: {', '.join(receipt.waiting)}"))
    _fact(console, "hash", receipt.request_hash)
    _fact(console, "made again", one.why_not or "the same to the byte, from this file alone")


def _print_turns(console: Console, shown: Iterable[tuple[Place, Turn]]) -> None:
    for place, turn in shown:
        where = f"{place if place is not None else '-':<5} {turn.role:<10} "
        say(console, (f"{' ' * 16}{where}", "dim"), _first_line(turn))


def _fact(console: Console, label: str, *pieces: str | tuple[str, str]) -> None:
    say(console, (f"  {label:<14}", "dim"), *pieces)


def _left_out(gone: LeftOut) -> str:
    why = "below the window" if gone.why == "window" else gone.why
    return f"{gone.count:,} {gone.what.replace('_', ' ')}: {why}"


def _first_line(turn: Turn) -> str:
    """What a turn says, as one short line."""
    said: list[str] = []
    for part in turn.parts:
        match part:
            case TextPart():
                said.append(part.text)
            case ToolCallPart():
                said.append(call_text(part.name, part.arguments))
            case ToolResultPart():
                said.append(result_text(part.name, part.content, is_error=part.is_error))
            case FilePart():
                said.append(f"[file] {part.file.name}")
            case ReasoningPart():
                continue
            case _:
                assert_never(part)
    line = " ".join(" ".join(said).split())
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


def _spans(places: Iterable[int]) -> str:
    """``0-3, 7``: neighbours as one ("none": there are none)."""
    spans: list[list[int]] = []
    for place in sorted(places):
        if spans and place == spans[-1][-1] + 1:
            spans[-1][1:] = [place]
        else:
            spans.append([place])
    return ", ".join("-".join(map(str, span)) for span in spans) or "none"


def print_difference(console: Console, *pair: ModelCall) -> None:
    """The tokens of two model calls side by side, then all in which they differ."""
    parts = difference(*pair)
    for side, one in zip("AB", pair, strict=True):
        facts = joined(f"thread {one.call.thread}", local_time(one.row.created_at))
        say(console, (f"{side} ", "dim"), (one.name, "bold"), (f"   {facts}", "dim"))
    say(console)
    sums = [sum(one.receipt.tokens.values()) for one in pair]
    rows = {**parts["tokens"], "estimated": sums}
    rows |= {name: parts[name] for name in ("budget", "reported")}
    for source, (a, b) in rows.items():
        cells = [f"{tokens:>9,}" if tokens is not None else f"{'-':>9}" for tokens in (a, b)]
        change = f"{b - a:>+9,}" if a is not None and b is not None else ""
        _fact(console, source, *cells, change)
    say(console)
    if parts["same_request"]:
        _fact(console, "request", "the same to the byte")
    if parts["turns"] is None:
        _fact(console, "turns", "of two threads: their positions are not compared")
    if len(set(parts["instructions"])) > 1:
        _fact(console, "instructions", "not the same")
    for what in ("turns", "tools", "files", "waiting"):
        for side, one, alone in zip("AB", pair, parts[what] or ((), ()), strict=True):
            if alone:
                told = _spans(alone) if what == "turns" else joined(", ".join(alone))
                _fact(console, what, f"in {side} alone: {told}")
            if what == "turns":
                _print_turns(console, (each for each in one.turns or () if each[0] in alone))
    for side, one in zip("AB", pair, strict=True):
        for gone in one.receipt.left_out:
            _fact(console, "left out", f"of {side}: {_left_out(gone)}")
        if one.receipt.result_chars is not None:
            _fact(console, "shortened", f"in {side}: results to {one.receipt.result_chars:,}")

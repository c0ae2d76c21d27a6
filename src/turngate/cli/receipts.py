"""Model calls with their receipts, as ``explain`` reads them, and how two of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from turngate.cli.show import counted
from turngate.cli.terminal import json_shape
from turngate.errors import InvalidValue, TurngateError
from turngate.gateway import Gateway
from turngate.records import CallRecord, LedgerRow, Receipt, Scope
from turngate.turns import Turn

Place = int | None  # a position of the thread; None: the turn is in no thread


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """Number `number` of the `count` model calls of `call`, and what the file says of it now.

    `why_not` tells why its request can't be made again (None: it can). `turns` are those that were
    shown, each with its place, where they were asked for.
    """

    call: CallRecord
    row: LedgerRow
    number: int
    count: int
    why_not: str | None = None
    turns: tuple[tuple[Place, Turn], ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.call.id}:{self.number}"

    @property
    def receipt(self) -> Receipt:
        if self.row.receipt is None:
            raise InvalidValue(f"{self.name!r} has no receipt: its process died before its end")
        return self.row.receipt

    @property
    def window_places(self) -> range:
        """The positions of the window."""
        span = self.receipt.window
        return range(span.first, span.first + span.count) if span is not None else range(0)

    @property
    def own_places(self) -> list[Place]:
        """Where the call's own question and those of its steps that were shown stand by now."""
        spans = [(span.first, span.count) for span in self.call.earlier]
        if self.call.first is not None:
            spans.append((self.call.first, self.call.added))
        placed = [place for first, count in spans for place in range(first, first + count)]
        shown = self.receipt.steps + (self.receipt.current is not None)
        return [*placed, *[None] * shown][:shown]


async def found_calls(
    gateway: Gateway, tenant: str, name: str, number: int | None = None
) -> list[ModelCall]:
    """The model calls of ``CALL``, or the one that ``CALL:N`` or `number` names.

    Errors: `UnknownCall`; `InvalidValue` where there is no such model call.
    """
    call_id, colon, told = name.rpartition(":")
    if colon and told.isdecimal():
        number = int(told)
    else:
        call_id = name
    handle = gateway.tenant(tenant).call(call_id)
    call, rows = await handle.record(), await handle.model_calls()
    if not rows:
        raise InvalidValue(f"{call_id!r} has no model call: it is under way, or was blocked before")
    if number is not None and not 1 <= number <= len(rows):
        raise InvalidValue(f"{call_id!r} has {counted(len(rows), 'model call')}, and no {number}")
    found = [
        ModelCall(call=call, row=row, number=place, count=len(rows))
        for place, row in enumerate(rows, 1)
    ]
    return found if number is None else [found[number - 1]]


async def tried_again(gateway: Gateway, tenant: str, one: ModelCall) -> ModelCall:
    """`one`, once its request was made again, or could not be, from this file alone."""
    of_tenant = gateway.tenant(tenant)
    try:
        await of_tenant.call(one.call.id).request(one.row)
    except TurngateError as error:
        why = [str(error)]
        for file in one.row.receipt.files if one.row.receipt is not None else ():
            if file.shown in ("line", "gone"):
                continue
            try:
                await of_tenant.files.get(file.id)
            except TurngateError as gone:
                why.append(str(gone))
        return replace(one, why_not="; ".join(dict.fromkeys(why)))
    return one


async def with_turns(gateway: Gateway, tenant: str, one: ModelCall) -> ModelCall:
    """`one` with the turns that it was shown; those that were deleted since are left out."""
    if one.row.receipt is None:
        return one
    shown: list[tuple[Place, Turn]] = []
    if window := one.window_places:
        thread = gateway.tenant(tenant).thread(one.call.thread)
        page = await thread.turns(before=window.stop, limit=len(window))
        shown += enumerate(page.turns, page.first)
    steps = await gateway.deps.store.steps(Scope(tenant), one.call.id)
    own = [one.call.user_turn, *(step.turn for step in steps)]
    there = [turn for turn in own if turn is not None]
    shown += zip(one.own_places, there, strict=False)  # later steps were not shown
    return replace(one, turns=tuple(each for each in shown if each[1].status != "deleted"))


def difference(*pair: ModelCall) -> dict[str, Any]:
    """What is in one of two and not in the other, as JSON takes it: lists of two, in their order.

    Positions of two threads are not compared: `turns` is null then.
    """
    receipts = [one.receipt for one in pair]
    sources = dict.fromkeys(source for receipt in receipts for source in receipt.tokens)
    places = [{p for p in (*one.window_places, *one.own_places) if p is not None} for one in pair]
    threads = [one.call.thread for one in pair]
    return {
        "model_calls": [one.name for one in pair],
        "threads": threads,
        "same_request": len({receipt.request_hash for receipt in receipts}) == 1,
        "tokens": {source: [r.tokens.get(source, 0) for r in receipts] for source in sources},
        "budget": [receipt.budget for receipt in receipts],
        "reported": [one.row.usage.input_tokens if one.row.usage else None for one in pair],
        "turns": _alone(places) if threads[0] == threads[1] else None,
        "instructions": [receipt.instructions for receipt in receipts],
        "tools": _alone([set(receipt.tools) for receipt in receipts]),
        "files": _alone([{f"{file.id} {file.shown}" for file in r.files} for r in receipts]),
        "waiting": _alone([set(receipt.waiting) for receipt in receipts]),
        "result_chars": [receipt.result_chars for receipt in receipts],
        "left_out": [json_shape(receipt.left_out) for receipt in receipts],
    }


def _alone(pair: Sequence[set[Any]]) -> list[list[Any]]:
    """What each of two has that the other has not."""
    return [sorted(pair[0] - pair[1]), sorted(pair[1] - pair[0])]

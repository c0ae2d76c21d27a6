"""`add_results`: what a caller's own tools gave for the open calls of an ask."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turngate import identity
from turngate.errors import InvalidValue, ThreadMoved, UnknownToolCall
from turngate.gateway.deps import GatewayDeps
from turngate.records import Change, Scope
from turngate.turns import ToolCallPart, ToolResultPart, Turn
from turngate.values import storable_text

__all__ = ["add_results"]

_SEARCHED_TURNS = 400
_TRIES = 20


async def add_results(
    deps: GatewayDeps, scope: Scope, thread: str, results: Sequence[ToolResultPart]
) -> tuple[Turn, ...]:
    """The tool turns that were added for `results`, once they are durable.

    Shapes: ids are read from the end of the thread backwards, so the newest call of an id counts;
    the last 400 turns are searched. A result that is stored already adds nothing.
    Errors: `UnknownToolCall`, `InvalidValue` (another content is stored); nothing is stored then.
    """
    results = [
        msgspec.structs.replace(result, content=storable_text(result.content)) for result in results
    ]
    for tries_left in range(_TRIES, 0, -1):
        await _refuse_held(deps, scope, thread, results)
        page = await deps.store.load(scope, thread, limit=_SEARCHED_TURNS)
        new = _new_results(page.turns, results)
        if not new:
            return ()
        turns = tuple(deps.turn_builder.build_tool_turn(result=result) for result in new)
        change = Change(thread=thread, at=identity.now(), expected=page.length, turns=turns)
        try:
            await deps.store.commit(scope, change)
        except ThreadMoved:
            if tries_left == 1:
                raise
            continue
        return turns
    raise AssertionError("the last try returns or raises")


async def _refuse_held(
    deps: GatewayDeps, scope: Scope, thread: str, results: Sequence[ToolResultPart]
) -> None:
    """Refuse results for calls that a person decides on: their run gives them."""
    page = await deps.store.reviews(scope, thread=thread, limit=1000)
    for review in page.reviews:
        ids = [result.call_id for result in results]
        if review.tool_call is None or review.tool_call.id not in ids:
            continue
        if (await deps.store.call(scope, review.call)).state in ("active", "review"):
            raise UnknownToolCall(review.tool_call.id)


def _new_results(turns: Sequence[Turn], results: Sequence[ToolResultPart]) -> list[ToolResultPart]:
    """Those of `results` that the thread does not have yet."""
    new: dict[str, ToolResultPart] = {}
    for result in results:
        stored = new.get(result.call_id) or _stored_result(turns, result.call_id)
        if stored is None:
            new[result.call_id] = result
        elif (stored.content, stored.is_error) != (result.content, result.is_error):
            raise InvalidValue(f"call {result.call_id!r} has another result already")
    return list(new.values())


def _stored_result(turns: Sequence[Turn], call_id: str) -> ToolResultPart | None:
    """The result of the newest call of this id, or None while it is open."""
    answer: ToolResultPart | None = None
    for turn in reversed(turns):
        for part in turn.parts:
            if isinstance(part, ToolResultPart) and part.call_id == call_id:
                answer = part
            elif isinstance(part, ToolCallPart) and part.id == call_id:
                return answer
    raise UnknownToolCall(call_id)

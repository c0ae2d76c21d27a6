"""What a model call is shown, and the receipt that proves it.

    shown_context   the window and the files of a call, within the model's budget
    request_of      the request of one model call, and its receipt
    request_again   the request that a receipt stands for, byte for byte

A receipt holds ids, positions, hashes and counts, and no text. The thread only grows, so its
positions say which turns were shown; the request is made of them again in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turngate.completion import CallOptions, ChatRequest
from turngate.errors import InvalidValue
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.inlining import file_refs, inlined_files
from turngate.gateway.journal import Journal
from turngate.gateway.live import LiveCall
from turngate.gateway.recalling import recalled_again
from turngate.history import with_open_reviews
from turngate.messages import InlineFile, Message, UserMessage
from turngate.protocols import ContextInput, Recalled, Window
from turngate.records import (
    CallRecord,
    FileShown,
    LedgerRow,
    LeftOut,
    Receipt,
    Scope,
    text_hash,
)
from turngate.turns import Turn
from turngate.values import ToolSpec

__all__ = [
    "Shown",
    "request_again",
    "request_hash",
    "request_of",
    "shown_context",
    "told_text",
]

_SUMMARY_TOKENS = 1_200  # that a summary may take
_OUTPUT_SHARE = 8  # of the context: one part in so many is left for the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What all model calls of one call are shown, before what they add to it.

    `messages` is the window with the current turn, whose files are `files`; `waiting` are ids of
    tool calls in it that wait for a review. `told` are the instructions, and `recalled` is what
    the model is reminded of.
    """

    window: Window
    messages: tuple[Message, ...]
    current: Turn | None
    told: str | None
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()
    waiting: tuple[str, ...] = ()
    files: tuple[InlineFile | str, ...] = ()
    files_shown: tuple[FileShown, ...] = ()
    recalled: Recalled | None = None
    budget: int | None = None


async def shown_context(
    deps: GatewayDeps,
    scope: Scope,
    thread: str,
    *,
    current: Turn | None,
    told: str | None,
    tools: tuple[ToolSpec, ...],
    options: CallOptions,
    before: int | None = None,
    beside_review: bool = False,
    budget: int | None = None,
) -> Shown:
    """The window of a call and its files, from reads alone, within `budget` (None: the model's).

    What refusals have taught only makes a window shorter: where the current exchange alone is over
    that, it is sent as it is. Errors: `InvalidValue` where it is over a budget that was given.
    """
    model = options.model or deps.model
    is_given = budget is not None or deps.settings.context_tokens is not None
    inlined = await inlined_files(deps, scope, file_refs(current))
    files = tuple(file for _, file in inlined)
    budget = budget if budget is not None else deps.context_tokens(model)
    room = None
    if budget is not None:
        sent = (UserMessage(files),) if files else ()
        fixed = ChatRequest(messages=sent, tools=tools, options=options, model=options.model)
        answer = options.max_tokens or budget // _OUTPUT_SHARE
        room = budget - answer - deps.counter.count_request(fixed)
        room -= deps.counter.count_text(told or "", model=model)
        room -= _recall_room(deps)
    try:
        window = await deps.memory.window(
            scope, thread, current=current, before=before, tokens=room, model=model
        )
    except InvalidValue:
        if is_given or room is None:
            raise
        budget = None
        window = await deps.memory.window(scope, thread, current=current, before=before)
    messages = window.messages
    waiting: tuple[str, ...] = ()
    if beside_review:
        page = await deps.store.reviews(scope, thread=thread, state="open", limit=1000)
        waiting = tuple(r.tool_call.id for r in page.reviews if r.tool_call is not None)
        messages = tuple(with_open_reviews(messages, waiting))
    return Shown(
        window=window,
        messages=messages,
        current=current,
        told=told,
        tools=tools,
        options=options,
        waiting=waiting,
        files=files,
        files_shown=tuple(shown for shown, _ in inlined),
        budget=budget,
    )


def _recall_room(deps: GatewayDeps) -> int:
    """The tokens that are kept free for what a call is reminded of."""
    remember = deps.remember
    if remember is None:
        return 0
    return remember.fact_tokens + (_SUMMARY_TOKENS if remember.summary else 0)


async def told_text(deps: GatewayDeps, scope: Scope, call: CallRecord) -> str | None:
    """The instructions of `call`; a reviewer's note is told with them."""
    told = None
    if call.instructions is not None:
        told = await deps.store.text(scope, call.instructions)
    return "\n\n".join(text for text in (told, call.note) if text) or None


def request_of(
    deps: GatewayDeps, shown: Shown, steps: Sequence[Message] = (), *, step_turns: int = 0
) -> tuple[ChatRequest, Receipt]:
    """The request of one model call after `steps`, and its receipt."""
    request = _assembled(deps, shown, steps)
    return request, _receipt(deps, shown, request, steps, step_turns)


async def request_again(
    deps: GatewayDeps, scope: Scope, call: CallRecord, row: LedgerRow
) -> ChatRequest:
    """The request of the model call that `row` counts.

    Errors: `InvalidValue` where what was shown is no longer there whole, or the gateway makes
    other requests of it (another endpoint's demands, say).
    """
    receipt = row.receipt
    if receipt is None:
        raise InvalidValue(f"model call {row.id!r} has no receipt: it died before its end")
    current = call.user_turn
    if current is not None and current.status == "deleted":
        raise InvalidValue(f"the request of {row.id!r} can't be made again: its prompt was deleted")
    messages = await deps.memory.shown_again(
        scope,
        call.thread,
        shown=receipt.window,
        current=current,
        result_chars=receipt.result_chars,
    )
    told = None
    if receipt.instructions is not None:
        told = await deps.store.text(scope, receipt.instructions)
    steps = await deps.store.steps(scope, call.id)
    turns = Journal(deps, scope, call, LiveCall(call.id), steps).turns[: receipt.steps]
    shown = Shown(
        window=Window(messages=messages, length=receipt.length),
        messages=tuple(with_open_reviews(messages, receipt.waiting)),
        current=current,
        told=told,
        tools=tuple(tool for tool in call.tools if tool.name in receipt.tools),
        options=call.options,
        files=tuple(file for _, file in await inlined_files(deps, scope, file_refs(current))),
        recalled=await recalled_again(deps, scope, call),
    )
    added = deps.turn_builder.to_messages(turns, reasoning=deps.replay_reasoning)
    request = _assembled(deps, shown, added)
    if request_hash(request) != receipt.request_hash:
        raise InvalidValue(f"the request of {row.id!r} can't be made again as it was")
    return request


def request_hash(request: ChatRequest) -> str:
    """The SHA-256 of a request: of all that a provider is given."""
    return hashlib.sha256(msgspec.json.encode(request)).hexdigest()


def _assembled(deps: GatewayDeps, shown: Shown, steps: Sequence[Message]) -> ChatRequest:
    return deps.assembler.assemble(
        ContextInput(
            messages=shown.messages,
            steps=tuple(steps),
            instructions=shown.told,
            recalled=shown.recalled,
            inline_files=shown.files,
            is_silent=shown.current is not None and not shown.current.text,
            tools=shown.tools,
            options=shown.options,
            model=shown.options.model,
        )
    )


def _receipt(
    deps: GatewayDeps,
    shown: Shown,
    request: ChatRequest,
    steps: Sequence[Message],
    step_turns: int,
) -> Receipt:
    window, recalled = shown.window, shown.recalled or Recalled()
    before = window.shown.first if window.shown is not None else window.length
    left_out = [LeftOut(what="turns", count=before, why="window")] if before else []
    for way in ("line", "gone"):
        if count := sum(file.shown == way for file in shown.files_shown):
            why = "the model can't read them" if way == "line" else "they are gone"
            left_out.append(LeftOut(what="files", count=count, why=why))
    return Receipt(
        request_hash=request_hash(request),
        length=window.length,
        window=window.shown,
        current=shown.current.id if shown.current is not None else None,
        steps=step_turns,
        instructions=text_hash(shown.told) if shown.told else None,
        tools=tuple(tool.name for tool in shown.tools),
        waiting=shown.waiting,
        result_chars=window.result_chars,
        files=shown.files_shown,
        summary=recalled.summary.version if recalled.summary is not None else None,
        facts=tuple(fact.id for fact in recalled.facts),
        tokens=_tokens(deps, shown, steps),
        budget=shown.budget,
        left_out=tuple(left_out),
    )


def _tokens(deps: GatewayDeps, shown: Shown, steps: Sequence[Message]) -> dict[str, int]:
    """Estimates by source; a source that is not there has no entry."""
    model = shown.options.model or deps.model

    def cost(*messages: Message, tools: tuple[ToolSpec, ...] = ()) -> int:
        return deps.counter.count_request(ChatRequest(messages=messages, tools=tools, model=model))

    recalled = shown.recalled or Recalled()
    noted = [fact.text for fact in recalled.facts]
    summary = recalled.summary.text if recalled.summary is not None else ""
    sources = {
        "instructions": deps.counter.count_text(shown.told or "", model=model),
        "tools": cost(tools=shown.tools) if shown.tools else 0,
        "memory": deps.counter.count_text(summary, model=model),
        "facts": deps.counter.count_text("\n".join(noted), model=model),
        "window": shown.window.tokens,
        "files": cost(UserMessage(shown.files)) if shown.files else 0,
        "steps": cost(*steps) if steps else 0,
    }
    return {source: tokens for source, tokens in sources.items() if tokens}

"""A run: the loop model → tools → … → answer, each step journalled before the next.

    begin ─► [model step ─► tool_start ─► effects ─► tool_result]* ─► settle_run

The last model step and the settle are one commit. A run that another process takes over goes on
from its journal: `drive_run` starts the same way with and without steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from turngate import identity
from turngate.errors import PolicyStopped, ProviderError
from turngate.gateway.asks import cut_reason
from turngate.gateway.calls import NewCall, prepared_and_begun, request_of
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.journal import Journal
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.settle import (
    result_turn,
    settle_failed,
    settle_run,
    storable_result,
)
from turngate.gateway.toolbox import (
    OUTCOME_UNKNOWN,
    error_result,
    run_tool,
)
from turngate.messages import AssistantMessage, Message, ToolCall, ToolMessage
from turngate.protocols import Tool
from turngate.records import CallRecord, CallState, Scope, ToolContext
from turngate.results import ModelResult

__all__ = ["Run", "drive_run", "execute_run"]

_CALLS_A_REPLY_MAX = 32


@dataclass(slots=True, kw_only=True)
class Run:
    """One run in this process. `asking`: a model call is under way that no row counts yet."""

    deps: GatewayDeps
    scope: Scope
    call: CallRecord
    live: LiveCall
    journal: Journal
    window: tuple[Message, ...]
    tools: Mapping[str, Tool]
    asking: bool = False


async def execute_run(
    deps: GatewayDeps,
    new: NewCall,
    *,
    tools: Mapping[str, Tool],
    live: LiveCall | None = None,
) -> Outcome:
    """The outcome of a run, once it is durable; `tools` are those that it may call, by name.

    Errors: as for an ask; `ProviderError` and `PolicyStopped` only where the model failed before
    its first part and no tool exchange had finished.
    """
    live = live if live is not None else LiveCall(new.id)
    prepared, call = await prepared_and_begun(deps, new)
    try:
        live.begun()
        run = Run(
            deps=deps,
            scope=new.scope,
            call=call,
            live=live,
            journal=Journal(deps, new.scope, call, live),
            window=prepared.window,
            tools=tools,
        )
        return await drive_run(run)
    finally:
        deps.live.discard(call.id)


async def drive_run(run: Run) -> Outcome:
    """Take `run` from its journal to its outcome."""
    run.live.stop_after(_seconds_left(run), "time")
    try:
        end = await _rounds_with_events(run)
    except asyncio.CancelledError:
        reason = run.live.cancel_reason
        outcome = await _settle(
            run, state="incomplete", reason=reason or "cancelled", said=run.live.said
        )
        if reason is None:
            raise  # this very task was cancelled, not the call by a reader
        return outcome
    except (ProviderError, PolicyStopped) as error:
        if error.partial is None and not run.journal.steps:
            await settle_failed(run.deps, run.scope, run.call, reason=cut_reason(error))
            raise
        return await _settle(run, state="incomplete", reason=cut_reason(error), said=error.partial)
    except BaseException:
        await _settle(run, state="incomplete", reason="error", said=run.live.said)
        raise
    finally:
        run.live.stop_after(None)
    if isinstance(end, str):
        return await _settle(run, state="incomplete", reason=end, said=None)
    if end.finish_reason in ("length", "content_filter"):
        return await _settle(run, state="incomplete", reason=end.finish_reason, said=end)
    return await _settle(run, state="answered", reason=None, said=end)


async def _rounds_with_events(run: Run) -> ModelResult | str:
    """The rounds of `run`, while the events of a streamed one are stored as they come.

    None of them is on its way afterwards, so that the settle stores all that is left.
    """
    flushing = asyncio.create_task(run.journal.keep_events()) if run.call.streamed else None
    try:
        return await run.live.cancellable(_rounds(run))
    finally:
        if flushing is not None:
            flushing.cancel()
            await asyncio.wait({flushing})


async def _settle(
    run: Run, *, state: CallState, reason: str | None, said: ModelResult | None
) -> Outcome:
    return await settle_run(
        run.deps,
        run.scope,
        run.call,
        run.journal,
        state=state,
        reason=reason,
        said=said,
        asking=run.asking,
    )


async def _rounds(run: Run) -> ModelResult | str:
    """The final model result, or the name of the limit that ended the run."""
    while True:
        if run.journal.open_places:
            await _tool_round(run)
        limit = _limit_reached(run)
        if limit is not None:
            return limit
        result = storable_result(await _model_round(run))
        if not result.tool_calls or result.finish_reason in ("length", "content_filter"):
            return result
        turns = run.deps.turn_builder.build_assistant_turns(result=_without_usage(result))
        await run.journal.model_step(turns[0], result=result)
        run.asking = False


def _without_usage(result: ModelResult) -> ModelResult:
    """`result` for a turn within a run: usage stands on the run's last assistant turn alone."""
    return msgspec.structs.replace(result, usage=None)


async def _model_round(run: Run) -> ModelResult:
    messages = _messages_so_far(run)
    request = request_of(run.deps, run.call, (*run.window, *messages))
    run.live.new_step()
    run.asking = True
    return await run.deps.llm.complete(request, observe=run.live.observe)


def _messages_so_far(run: Run) -> list[Message]:
    reasoning = run.deps.replay_reasoning
    return run.deps.turn_builder.to_messages(run.journal.turns, reasoning=reasoning)


def _limit_reached(run: Run) -> str | None:
    """The name of the limit that the next model call would pass, or None."""
    limits, journal = run.call.limits, run.journal
    usage = journal.usage
    if journal.rounds >= limits.rounds_max:
        return "rounds"
    if journal.tool_calls > limits.calls_max:
        return "calls"
    spent = usage.input_tokens + usage.output_tokens if usage is not None else 0
    if limits.tokens_max is not None and spent >= limits.tokens_max:
        return "tokens"
    return None


def _seconds_left(run: Run) -> float:
    begun = run.call.created_at
    return run.call.limits.time_max_s - (identity.now() - begun).total_seconds()


# ── tools ────────────────────────────────────────────────────────────────────────────────────


async def _tool_round(run: Run) -> None:
    """Give every open call of the last model step its one result."""
    answer = next(
        message
        for message in reversed(_messages_so_far(run))
        if isinstance(message, AssistantMessage)
    )
    started = run.journal.started_places
    places = run.journal.open_places
    made_before = run.journal.tool_calls - len(answer.tool_calls)
    taken = min(_CALLS_A_REPLY_MAX, run.call.limits.calls_max - made_before)
    fresh = [place for place in places if place not in started and place < taken]
    if fresh:
        await run.journal.tools_started(fresh)
    try:
        async with asyncio.TaskGroup() as group:
            for place in places:
                call = answer.tool_calls[place]
                if place < taken:
                    group.create_task(_tool_call(run, place, call, before=place in started))
                else:
                    text = f"Not run: only {max(taken, 0)} calls of this reply are taken."
                    group.create_task(_ended(run, place, error_result(call, text)))
    except BaseExceptionGroup as errors:  # tools never raise, so this is the store's
        raise errors.exceptions[0] from None


async def _tool_call(run: Run, place: int, call: ToolCall, *, before: bool) -> None:
    """Run one call and journal its result; `before`: a dead process may have run it already."""
    tool = run.tools.get(call.name)
    if before and (tool is None or tool.effect == "unsafe"):
        result = error_result(call, OUTCOME_UNKNOWN)
    else:
        run.live.tool_started(call)
        context = ToolContext(
            tenant=run.scope.tenant,
            thread=run.call.thread,
            call_id=run.call.id,
            key=f"{run.call.id}-{run.journal.rounds}-{place}",
            user=run.call.user,
        )
        result = await run_tool(run.tools, call, context)
    await _ended(run, place, result)


async def _ended(run: Run, place: int, result: ToolMessage) -> None:
    """Make the call's one result durable, then show it."""
    await run.journal.tool_ended(place, result_turn(run.deps.turn_builder, result))
    run.live.tool_ended(result)

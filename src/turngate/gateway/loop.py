"""Asks and runs: model → judged → tools → … → answer, each step journalled before the next.

    begin ─► [model step ─► judged ─► tool_start ─► effects ─► tool_result]* ─► settle
                               │          └─ held: a person decides on calls ─► settle_review_pause
                               └─ blocked ─► settle_blocked, or held ─► settle_review_pause

An ask ends with its first model step, its calls unexecuted. The last model step and the settle are
one commit. A call that another process takes over, or that a decision lets go on, goes on from its
journal: `drive` starts the same way with and without steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from turngate import identity
from turngate.completion import ChatRequest
from turngate.errors import InvalidValue, PolicyStopped, PromptBlocked, ProviderError
from turngate.gateway.calls import NewCall, begin_blocked, prepared_and_begun
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.files import keep_result
from turngate.gateway.held import (
    Hold,
    approved_call,
    decisions,
    held_calls,
    is_used,
    let_run,
    needs_decision,
    settle_review_pause,
    with_own_ids,
)
from turngate.gateway.journal import Journal, tool_key
from turngate.gateway.judging import Judged, judged_step, without_words
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.receipts import Shown, request_of, shown_context
from turngate.gateway.settle import (
    result_turn,
    settle_ask,
    settle_blocked,
    settle_failed,
    settle_run,
    storable_result,
    summed,
)
from turngate.gateway.toolbox import OUTCOME_UNKNOWN, error_result, run_tool
from turngate.messages import AssistantMessage, Message, ToolCall, ToolMessage
from turngate.protocols import Tool
from turngate.records import CallRecord, Receipt, ReviewRecord, Scope, ToolContext
from turngate.results import ModelResult
from turngate.values import FileRef, Usage

__all__ = ["LEFT", "Run", "drive", "execute_ask", "execute_run"]

_CALLS_A_REPLY_MAX = 32
LEFT = "left"  # why a run is cancelled that is not ended: its gateway closes, another goes on
_CUT = ("length", "content_filter")


@dataclass(slots=True, kw_only=True)
class Run:
    """One call in this process.

    `shown` is what each model call is shown before the call's own steps, and `prepared` the first
    request of it with its receipt, until it is sent. `asked_after` is the
    number of model steps before the model call that is under way (None: none is), and `came` what
    it gave, once it is whole. `reviews` are those of the call, newest first.
    """

    deps: GatewayDeps
    scope: Scope
    call: CallRecord
    live: LiveCall
    journal: Journal
    shown: Shown
    tools: Mapping[str, Tool]
    reviews: Sequence[ReviewRecord] = ()
    prepared: tuple[ChatRequest, Receipt] | None = None
    asked_after: int | None = None
    came: ModelResult | None = None

    @property
    def asking(self) -> bool:
        """Whether a model call is under way, or has ended, that no row counts yet."""
        return self.asked_after == self.journal.rounds


async def execute_ask(deps: GatewayDeps, new: NewCall, *, live: LiveCall | None = None) -> Outcome:
    """The outcome of an ask, once it is durable; `live` shows the call to its readers meanwhile.

    Errors: what `prepare_call` and `begin_call` raise; `ProviderError` and `PolicyStopped` where
    the model failed before its first part (the thread is then as it was); `StoreError`.
    A cancelled task leaves the call settled as incomplete.
    """
    return await execute_run(deps, new, tools={}, live=live)


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
    try:
        prepared, call = await prepared_and_begun(deps, new)
    except PromptBlocked as blocked:
        outcome = await begin_blocked(deps, new, blocked)
        live.begun()
        return outcome
    try:
        live.begun()
        run = Run(
            deps=deps,
            scope=new.scope,
            call=call,
            live=live,
            journal=Journal(deps, new.scope, call, live),
            shown=prepared.shown,
            prepared=(prepared.request, prepared.receipt),
            tools=tools,
        )
        return await drive(run)
    finally:
        deps.live.discard(call.id)


async def drive(run: Run) -> Outcome:
    """Take `run` from its journal to its outcome, or to a person's review."""
    if run.call.kind == "run":
        run.live.stop_after(_seconds_left(run), "time")
    try:
        end = await _rounds_with_events(run)
    except asyncio.CancelledError:
        reason = run.live.cancel_reason
        if reason == LEFT:
            raise  # its journal is what the next process goes on from
        outcome = await _cut(run, reason or "cancelled", _said(run))
        if reason is None:
            raise  # this very task was cancelled, not the call by a reader
        return outcome
    except (ProviderError, PolicyStopped) as error:
        reason = "policy" if isinstance(error, PolicyStopped) else error.code
        if error.partial is None and _is_untouched(run):
            await settle_failed(run.deps, run.scope, run.call, run.journal, reason=reason)
            raise
        return await _cut(run, reason, error.partial)
    except BaseException:  # a provider's own bug, or the store's; what was said is kept
        said = _said(run)
        if _is_untouched(run) and not (said is not None and said.text):
            await settle_failed(run.deps, run.scope, run.call, run.journal, reason="error")
        else:
            await _cut(run, "error", said)
        raise
    finally:
        run.live.stop_after(None)
    return await _ended(run, end)


async def _ended(run: Run, end: Judged | list[Hold] | str) -> Outcome:
    """The settle that `end` calls for."""
    deps, scope, call = run.deps, run.scope, run.call
    if isinstance(end, str):
        return await _cut(run, end, None)
    waits = isinstance(end, list) or end.verdict == "review"
    if waits and call.local:
        deps.held_tools[call.id] = run.tools
    if isinstance(end, list):
        return await settle_review_pause(deps, scope, call, run.journal, holds=end)
    if end.verdict == "block":
        return await settle_blocked(deps, scope, call, run.journal, judged=end)
    if end.result.finish_reason in _CUT:
        passed = end if end.verdict == "allow" else Judged(result=without_words(end.result))
        return await settle_run(
            deps,
            scope,
            call,
            run.journal,
            state="incomplete",
            reason=end.result.finish_reason,
            judged=passed,
            asking=True,
        )
    if end.verdict == "review":
        return await settle_review_pause(deps, scope, call, run.journal, judged=end)
    if call.kind == "ask":
        return await settle_ask(deps, scope, call, run.journal, judged=end)
    return await settle_run(
        deps, scope, call, run.journal, state="answered", judged=end, asking=True
    )


async def _cut(run: Run, reason: str, said: ModelResult | None) -> Outcome:
    """The call as incomplete, with what may be kept of what was `said`."""
    if said is not None and run.deps.holds_text:  # it had not passed
        said = without_words(said)
    return await settle_run(
        run.deps,
        run.scope,
        run.call,
        run.journal,
        state="incomplete",
        reason=reason,
        judged=Judged(result=said) if said is not None else None,
        asking=run.asking,
    )


def _said(run: Run) -> ModelResult | None:
    """What the model call under way has said so far."""
    if not run.asking:
        return None
    return run.came if run.came is not None else run.live.said


def _is_untouched(run: Run) -> bool:
    """Whether nothing has come of the call yet."""
    return run.call.placed is None and not run.journal.steps


async def _rounds_with_events(run: Run) -> Judged | list[Hold] | str:
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


async def _rounds(run: Run) -> Judged | list[Hold] | str:
    """The last model step, the calls that a person decides on, or the limit that ended the run."""
    while True:
        if run.journal.open_places:
            holds = await _tool_round(run)
            if holds:
                return holds
        limit = _limit_reached(run)
        if limit is not None:
            return limit
        judged = await _model_round(run)
        result = judged.result
        is_last = not result.tool_calls or run.call.kind == "ask" or result.finish_reason in _CUT
        if is_last or judged.verdict != "allow":
            return judged
        result = await with_own_ids(run.deps, run.scope, run.call, result)
        turns = run.deps.turn_builder.build_assistant_turns(result=_without_usage(result))
        await run.journal.model_step(turns[0], judged=judged)


def _without_usage(result: ModelResult) -> ModelResult:
    """`result` for a turn within a run: usage stands on the run's last assistant turn alone."""
    return msgspec.structs.replace(result, usage=None)


async def _model_round(run: Run) -> Judged:
    try:
        result = await _asked(run)
    except ProviderError as error:
        if error.code != "context_length" or error.partial is not None:
            raise
        if not await _shown_less(run):
            raise
        result = await _asked(run)
        if run.shown.budget is not None:  # the shorter one has passed
            run.deps.learned_context[_model_of(run)] = run.shown.budget
    run.came = result
    if not run.deps.holds_text:
        return Judged(result=result)
    judged = await judged_step(run.deps, run.call, result)
    if judged.verdict == "allow":
        run.live.show(judged.result)
    return judged


def _model_of(run: Run) -> str | None:
    return run.call.options.model or run.deps.model


async def _asked(run: Run) -> ModelResult:
    """What one model call gave."""
    request, run.journal.receipt = run.prepared if run.prepared is not None else _request(run)
    run.prepared = None
    run.live.new_step()
    run.came, run.asked_after = None, run.journal.rounds
    observe = run.live.hold if run.deps.holds_text else run.live.observe
    result = storable_result(await run.deps.llm.complete(request, observe=observe))
    if result.usage is not None:
        run.deps.counter.learn(request, result.usage, model=result.model)
        _grow_budget(run, result.usage)
    return result


def _grow_budget(run: Run, usage: Usage) -> None:
    """Let a budget that a refusal taught grow by a tenth where a request near it has passed."""
    learned, model = run.deps.learned_context, _model_of(run)
    if model in learned and usage.input_tokens > learned[model] * 3 // 4:
        learned[model] += learned[model] // 10


def _request(run: Run) -> tuple[ChatRequest, Receipt]:
    """The next request, and its receipt."""
    step_turns = len(run.journal.turns)
    return request_of(run.deps, run.shown, _messages_so_far(run), step_turns=step_turns)


async def _shown_less(run: Run) -> bool:
    """Whether a request that was too long was made shorter; the refused attempt has its own row.

    If the shorter one passes, its budget is that of the model from then on.
    """
    deps, call, shown = run.deps, run.call, run.shown
    request, _ = _request(run)
    refused = deps.counter.count_request(request) + (call.options.max_tokens or 0)
    try:
        less = await shown_context(
            deps,
            run.scope,
            call.thread,
            current=call.user_turn,
            told=shown.told,
            tools=shown.tools,
            options=call.options,
            before=call.position,
            beside_review=bool(shown.waiting),
            budget=refused * 3 // 4,
        )
    except InvalidValue:  # the current exchange alone is too long
        return False
    is_less = len(less.messages) < len(shown.messages)
    if not is_less and less.window.result_chars == shown.window.result_chars:
        return False
    run.journal.owe(outcome="context_length")
    run.shown = replace(less, recalled=shown.recalled)
    return True


def _messages_so_far(run: Run) -> list[Message]:
    reasoning = run.deps.replay_reasoning
    return run.deps.turn_builder.to_messages(run.journal.turns, reasoning=reasoning)


def _limit_reached(run: Run) -> str | None:
    """The name of the limit that the next model call would pass, or None."""
    limits, journal = run.call.limits, run.journal
    usage = summed(run.call.spent, journal.usage)
    if journal.rounds >= limits.rounds_max:
        return "rounds"
    if journal.tool_calls > limits.calls_max:
        return "calls"
    spent = usage.input_tokens + usage.output_tokens if usage is not None else 0
    if limits.tokens_max is not None and spent >= limits.tokens_max:
        return "tokens"
    return None


def _seconds_left(run: Run) -> float:
    """Of the time since the call began, or since a person let it go on."""
    begun = run.call.resumed_at if run.call.resumed_at is not None else run.call.created_at
    return run.call.limits.time_max_s - (identity.now() - begun).total_seconds()


# ── tools ────────────────────────────────────────────────────────────────────────────────────


async def _tool_round(run: Run) -> list[Hold]:
    """Give every open call of the last model step its one result.

    Shapes: where a person has to decide on some of them, those; then nothing was run.
    """
    answer = next(
        message
        for message in reversed(_messages_so_far(run))
        if isinstance(message, AssistantMessage)
    )
    taken = _taken(run, answer)
    holds = await held_calls(
        run.deps, run.call, run.journal, run.reviews, answer, run.tools, taken=taken
    )
    if holds:
        return holds
    decided = decisions(run.journal, run.reviews)
    started = run.journal.started_places
    calls = {
        place: _call_to_run(run, place, answer, started, decided.get(place), taken=taken)
        for place in run.journal.open_places
    }
    fresh = [
        place
        for place, call in calls.items()
        if isinstance(call, ToolCall)
        and (
            place not in started or (place in decided and not is_used(run.journal, decided[place]))
        )
    ]
    if fresh:
        await run.journal.tools_started(fresh)
    try:
        async with asyncio.TaskGroup() as group:
            for place, call in calls.items():
                if isinstance(call, ToolCall):
                    group.create_task(_tool_call(run, place, answer.tool_calls[place], call))
                else:
                    group.create_task(_result(run, place, call))
    except BaseExceptionGroup as errors:  # tools never raise, so this is the store's
        raise errors.exceptions[0] from None
    return []


def _taken(run: Run, answer: AssistantMessage) -> int:
    """How many calls of the reply are taken; those after them are answered, and not run."""
    made_before = run.journal.tool_calls - len(answer.tool_calls)
    return max(min(_CALLS_A_REPLY_MAX, run.call.limits.calls_max - made_before), 0)


def _call_to_run(
    run: Run,
    place: int,
    answer: AssistantMessage,
    started: Set[int],
    decided: ReviewRecord | None,
    *,
    taken: int,
) -> ToolCall | ToolMessage:
    """The call at `place` as it is to be run, or the result of one that is not run."""
    made = answer.tool_calls[place]
    if place >= taken:
        return error_result(made, f"Not run: only {taken} calls of this reply are taken.")
    tool = run.tools.get(made.name)
    unused = decided is not None and not is_used(run.journal, decided)
    if place in started and not unused and (tool is None or tool.effect == "unsafe"):
        return error_result(made, OUTCOME_UNKNOWN)  # a dead process may have run it
    if decided is not None:
        proposed = let_run(run.journal, run.reviews, place, made, before=decided)
        return approved_call(run.call, run.journal, place, proposed, tool, decided)
    if place not in started and needs_decision(run.deps, run.journal, run.reviews, made):
        return error_result(made, "Not run: nobody has approved this call.")
    return made


async def _tool_call(run: Run, place: int, made: ToolCall, call: ToolCall) -> None:
    """Run `call`, which a reviewer may have given other arguments, and journal its result."""
    run.live.tool_started(call)
    key = tool_key(run.call.id, run.journal.rounds, place)
    context = ToolContext(
        tenant=run.scope.tenant,
        thread=run.call.thread,
        call_id=run.call.id,
        key=key,
        user=run.call.user,
    )

    async def keep(text: str) -> FileRef:
        return await keep_result(
            run.deps, run.scope, text, tool=call.name, call=run.call.id, key=key
        )

    result = await run_tool(run.tools, call, context, keep=keep)
    if call.arguments != made.arguments:
        told = f"[A reviewer changed the arguments to {call.arguments}]\n{result.content}"
        result = msgspec.structs.replace(result, content=told)
    await _result(run, place, result)


async def _result(run: Run, place: int, result: ToolMessage) -> None:
    """Make the call's one result durable, then show it."""
    await run.journal.tool_ended(place, result_turn(run.deps.turn_builder, result))
    run.live.tool_ended(result)

"""Verdicts: every check in its order, then the review rules. Whatever fails to judge, blocks.

A check that raises, hangs or gives something that is no verdict has not let anything pass: the
rule is then ``error`` or ``timeout``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

import msgspec

from turngate.errors import InvalidValue, PromptBlocked
from turngate.gateway.deps import GatewayDeps
from turngate.messages import ToolCall
from turngate.protocols import InputCheck, OutputCheck, ReviewRule
from turngate.records import Allow, Block, CallRecord, Prompt, Proposal, Replace, Review
from turngate.results import ModelResult
from turngate.values import storable_text

__all__ = [
    "Judged",
    "checked_prompt",
    "checks_by_kind",
    "judged_step",
    "rule_for_calls",
    "without_words",
]

T = TypeVar("T")
V = TypeVar("V")

DEFAULT_RULE = ReviewRule(
    name="review", answers=True
)  # the terms of a review that a check asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one model step.

    Shapes: `result` is what may be kept of it: all that the model said, or what a check put in
    place of it; after a block its usage alone. `by` is the check or rule that replaced, blocked or
    held it, and `rule` what that one named. `terms` are those of the review to open.
    """

    result: ModelResult
    verdict: Literal["allow", "block", "review"] = "allow"
    by: str | None = None
    rule: str | None = None
    terms: ReviewRule = DEFAULT_RULE


def checks_by_kind(
    checks: Sequence[InputCheck | OutputCheck], rules: Sequence[ReviewRule]
) -> tuple[tuple[InputCheck, ...], tuple[OutputCheck, ...]]:
    """The checks of prompts and those of answers. Errors: `InvalidValue` for a name that two of
    them or a rule share, for an object that judges nothing, and for a rule about no check."""
    if not all(isinstance(each, list | tuple) for each in (checks, rules)):
        raise InvalidValue("checks and reviews are lists")
    of_prompts: list[InputCheck] = []
    of_answers: list[OutputCheck] = []
    taken: set[object] = {"review", ""}
    for each in (*checks, *rules):
        name = getattr(each, "name", None)
        if not isinstance(name, str) or name in taken:
            raise InvalidValue(f"a check or rule needs a name of its own, and has {name!r}")
        taken.add(name)
    if not all(isinstance(rule, ReviewRule) for rule in rules):
        raise InvalidValue("reviews are ReviewRules; a check stands in checks=")
    for check in checks:
        if isinstance(check, ReviewRule | type):
            raise InvalidValue("checks are objects; a ReviewRule stands in reviews=")
        prompts, answers = hasattr(check, "check_prompt"), hasattr(check, "check_answer")
        if not prompts and not answers:
            raise InvalidValue(f"check {check.name!r} has no check_prompt and no check_answer")
        of_prompts += [cast("InputCheck", check)] if prompts else []
        of_answers += [cast("OutputCheck", check)] if answers else []
    known = {check.name for check in of_answers}
    for rule in rules:
        if not known.issuperset(rule.checks):
            raise InvalidValue(f"rule {rule.name!r} names a check of answers that is not there")
    return tuple(of_prompts), tuple(of_answers)


async def checked_prompt(deps: GatewayDeps, prompt: Prompt) -> str:
    """The text of `prompt` as the input checks let it pass. Errors: `PromptBlocked`."""
    for check in deps.input_checks:
        verdict = await _verdict(deps, check.check_prompt, prompt, (Allow, Block))
        if isinstance(verdict, Block):
            raise PromptBlocked(check=check.name, rule=verdict.rule)
        if verdict.text is not None:
            prompt = msgspec.structs.replace(prompt, text=storable_text(verdict.text))
    return prompt.text


async def judged_step(deps: GatewayDeps, call: CallRecord, result: ModelResult) -> Judged:
    """What the output checks make of `result`, and of an answer the review rules."""
    replaced_by: str | None = None
    held: Judged | None = None  # the first review that a check asks for; a later one may block
    for check in deps.output_checks:
        proposal = _proposal(call, result)
        verdict = await _verdict(
            deps, check.check_answer, proposal, (Allow, Replace, Block, Review)
        )
        if isinstance(verdict, Replace):
            result = msgspec.structs.replace(
                result, text=storable_text(verdict.text), reasoning=None, provider_data=None
            )
            replaced_by = check.name
        elif isinstance(verdict, Block):
            blocked = _blocked(deps, result, by=check.name, rule=verdict.rule)
            if blocked.verdict == "block":
                return blocked
            held = held or blocked
        elif isinstance(verdict, Review) and held is None:
            held = Judged(result=result, verdict="review", by=check.name, rule=verdict.reason)
    if held is not None:
        return replace(held, result=result)
    is_cut = result.finish_reason in ("length", "content_filter")
    if not result.tool_calls or call.kind == "ask" or is_cut:
        terms = await _rule_for_answer(deps, _proposal(call, result))
        if terms is not None:
            return Judged(
                result=result, verdict="review", by=terms.name, rule="answer", terms=terms
            )
    return Judged(result=result, by=replaced_by, rule="replaced" if replaced_by else None)


async def rule_for_calls(
    deps: GatewayDeps, call: CallRecord, text: str, calls: Sequence[ToolCall]
) -> ReviewRule | None:
    """The rule whose function holds all of `calls`, if one does."""
    proposal = Proposal(text=text, thread=call.thread, user=call.user, tool_calls=tuple(calls))
    for rule in deps.rules:
        if rule.when is not None and await _holds(deps, rule, proposal):
            return rule
    return None


def without_words(result: ModelResult) -> ModelResult:
    """`result` as a number of tokens: nothing of what was said is in it."""
    return msgspec.structs.replace(
        result, text="", reasoning=None, tool_calls=(), provider_data=None
    )


def _proposal(call: CallRecord, result: ModelResult) -> Proposal:
    return Proposal(
        text=result.text,
        thread=call.thread,
        user=call.user,
        reasoning=result.reasoning,
        tool_calls=result.tool_calls,
    )


def _blocked(deps: GatewayDeps, result: ModelResult, *, by: str, rule: str) -> Judged:
    """A block, or the review that a rule has in its place."""
    for terms in deps.rules:
        if by in terms.checks:
            return Judged(result=result, verdict="review", by=by, rule=rule, terms=terms)
    return Judged(result=without_words(result), verdict="block", by=by, rule=rule)


async def _rule_for_answer(deps: GatewayDeps, proposal: Proposal) -> ReviewRule | None:
    for rule in deps.rules:
        if rule.answers or (rule.when is not None and await _holds(deps, rule, proposal)):
            return rule
    return None


async def _holds(deps: GatewayDeps, rule: ReviewRule, proposal: Proposal) -> bool:
    """What the function of `rule` says; one that fails holds, so that a person looks at it."""

    async def say() -> bool:
        assert rule.when is not None
        held = rule.when(proposal)
        return bool(await held if inspect.isawaitable(held) else held)

    said = await _within(deps.settings.check_timeout_s, say())
    return True if isinstance(said, Block) else said


async def _verdict(
    deps: GatewayDeps, judge: Callable[[T], Awaitable[V]], what: T, allowed: tuple[type, ...]
) -> V | Block:
    async def say() -> V:
        return await judge(what)

    verdict = await _within(deps.settings.check_timeout_s, say())
    of_prompt = Replace not in allowed
    if not isinstance(verdict, allowed) or not _is_sound(verdict, of_prompt=of_prompt):
        return Block(rule="error")
    return verdict


def _is_sound(verdict: Any, *, of_prompt: bool) -> bool:
    """Whether the members of a verdict are of their types; only a prompt passes as another text."""
    if isinstance(verdict, Allow) and verdict.text is None:
        return True
    said: Any = verdict.rule if isinstance(verdict, Block) else None
    if isinstance(verdict, Review):
        said = verdict.reason
    elif isinstance(verdict, Replace) or (isinstance(verdict, Allow) and of_prompt):
        said = storable_text(verdict.text) if isinstance(verdict.text, str) else None
    return isinstance(said, str) and storable_text(said) == said


async def _within(seconds: float, judging: Coroutine[Any, Any, V]) -> V | Block:
    """What `judging` gives, or a block where it fails, hangs or is cancelled from inside.

    It has a task of its own, so that one that does not heed its cancellation passes nothing. What
    it gave or raised is no result of that task: a task shows its result in logs.
    """
    given: list[V] = []

    async def judged() -> None:
        with contextlib.suppress(Exception):
            given.append(await judging)

    task = asyncio.create_task(judged())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        return Block(rule="timeout")
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error  # an exit: not the check's to make up for
    return given[0] if given else Block(rule="error")

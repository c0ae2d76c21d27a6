"""The meetings of two actors: who meets, and what may come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.harness.checks import Rows
from tests.harness.interleavings import Env, Spec
from tests.harness.world import OWN, result_of
from turngate import ToolResultPart, identity
from turngate.errors import InvalidValue, ThreadBusy, UnknownCall
from turngate.gateway import Answered, Incomplete, NewCall, begin_call, prepare_call
from turngate.gateway.journal import guard_of
from turngate.records import CallRecord, Change, Guard, ToolNeed

__all__ = ["SPECS"]

Results = Sequence[Any]


# ── actors ───────────────────────────────────────────────────────────────────────────────────


async def ask_a(env: Env) -> Any:
    return await env.thread().ask("say a")


async def ask_b(env: Env) -> Any:
    return await env.thread().ask("say b")


async def ask_with_key(env: Env) -> Any:
    return await env.thread().ask("say k", key="k")


async def run_one_tool(env: Env) -> Any:
    return await env.thread().run("tools a safe", tools=["safe"])


async def run_no_tool(env: Env) -> Any:
    return await env.thread().run("tell a")


async def take_over_here(env: Env) -> Any:
    """Go on with what a dead process left, and say that it is ours now."""
    await env.gateways[0].recover()
    env.notes["recovered"].set()
    return await outcome(env)


async def run_with_key(env: Env) -> Any:
    await env.notes["recovered"].wait()
    return await env.thread().run("tell k", key="k")


async def cancel_active(env: Env) -> Any:
    call = await env.deps[0].store.active_call(env.scope, "t")
    return None if call is None else await env.tenant().call(call.id).cancel()


async def cancel(env: Env) -> Any:
    return await env.tenant().call(env.notes["call"]).cancel()


async def outcome(env: Env) -> Any:
    return await env.tenant().call(env.notes["call"]).outcome()


async def take_over(env: Env) -> Any:
    """What another process does as it opens the store, up to the run's end."""
    await env.gateways[1].recover()
    calls = (await env.deps[1].store.calls(env.scope)).calls
    live = [env.gateways[1].live(call.id) for call in calls]
    return [await running.task for running in live if running is not None]


async def add_right(env: Env) -> Any:
    return await env.thread().add_results([_result("o.0.0"), _result("o.0.1")])


async def add_first(env: Env) -> Any:
    return await env.thread().add_results([_result("o.0.0")])


async def add_second(env: Env) -> Any:
    return await env.thread().add_results([_result("o.0.1")])


async def add_again_and_more(env: Env) -> Any:
    return await env.thread().add_results([_result("o.0.1"), _result("o.0.0")])


async def add_other(env: Env) -> Any:
    other = ToolResultPart(call_id="o.0.0", content="o.0.0 outcome is unknown", name="own")
    return await env.thread().add_results([other])


def _result(slot: str) -> ToolResultPart:
    return ToolResultPart(call_id=slot, content=result_of(slot), name="own")


async def settle_first(env: Env) -> Any:
    return await _settle(env, env.notes["record"])


async def claim_and_settle(env: Env) -> Any:
    """Take the call over, then end it."""
    record = env.notes["record"]
    claimed = msgspec.structs.replace(record, owner="boot-new", epoch=1, recoveries=1)
    change = Change(thread="t", at=identity.now(), guard=guard_of(record), update=claimed)
    await env.deps[1].store.commit(env.scope, change)
    return await _settle(env, claimed)


async def settle_stale_epoch(env: Env) -> Any:
    """Write under the right owner's name and an epoch that is over."""
    record = env.notes["record"]
    guard = Guard(call=record.id, owner=record.owner, epoch=record.epoch - 1)
    ended = msgspec.structs.replace(record, state="incomplete", reason="stale")
    change = Change(thread="t", at=identity.now(), guard=guard, update=ended)
    return await env.deps[0].store.commit(env.scope, change)


async def _settle(env: Env, record: CallRecord) -> str:
    ended = msgspec.structs.replace(record, state="incomplete", reason=record.owner)
    change = Change(thread="t", at=identity.now(), guard=guard_of(record), update=ended)
    await env.deps[0].store.commit(env.scope, change)
    return record.owner


# ── what was before ──────────────────────────────────────────────────────────────────────────


async def open_calls(env: Env) -> None:
    """An ask whose two calls nobody has answered."""
    await env.thread().ask("own o 2", tools=[OWN])


async def _dead(env: Env, **of: Any) -> None:
    """A call whose process died right after it began."""
    deps = env.deps[1]
    needs = tuple(ToolNeed(tool.spec.name, tool.schema_hash) for tool in deps.tools.values())
    new = NewCall(
        **{"id": identity.new_id("call"), "scope": env.scope, "thread": "t", **of},
        needs=needs if of.get("kind") == "run" else (),
    )
    record = await begin_call(deps, await prepare_call(deps, new))
    deps.live.discard(record.id)
    # It is the claim of neither gateway: the process that made it is gone.
    gone = msgspec.structs.replace(record, owner="boot-gone", epoch=1, recoveries=1)
    change = Change(thread="t", at=identity.now(), guard=guard_of(record), update=gone)
    await deps.store.commit(env.scope, change)
    env.notes.update(call=record.id, record=gone)


async def dead_ask(env: Env) -> None:
    await _dead(env, prompt="say dead")


async def dead_keyed_ask(env: Env) -> None:
    await _dead(env, prompt="say k", key="k")


async def dead_run(env: Env) -> None:
    await _dead(env, prompt="tell dead", kind="run")


async def dead_keyed_run(env: Env) -> None:
    env.notes["recovered"] = asyncio.Event()
    await _dead(env, prompt="tell k", kind="run", key="k")


# ── what may come of it ──────────────────────────────────────────────────────────────────────


def one_or_both(env: Env, results: Results, rows: Rows) -> list[str]:
    """Each is answered or finds the thread busy; who was answered is in the thread."""
    answered = [r for r in results if isinstance(r, Answered)]
    others = [r for r in results if not isinstance(r, Answered | ThreadBusy)]
    faults = [f"R: {other!r}" for other in others]
    if not answered:
        faults.append("R: none of the two was answered")
    expected = sorted(f"say {answer.text[4:]}" for answer in answered)
    stored = sorted(text for text in rows.texts("t") if text in ("say a", "say b"))
    if stored != expected:
        faults.append(f"I2: answered were {expected}, stored are {stored}")
    return faults + all_ended(env, results, rows)


def all_ended(env: Env, results: Results, rows: Rows) -> list[str]:
    return [
        f"I2: call {call['id']} never ended"
        for call in rows.calls.values()
        if call["state"] == "active"
    ]


def same_outcome(env: Env, results: Results, rows: Rows) -> list[str]:
    """All that were told an outcome were told the same one, which is the stored one."""
    told = [result for result in results if result is not None]
    faults = [f"R: {r!r}" for r in told if not isinstance(r, Answered | Incomplete)]
    if not faults and any(result != told[0] for result in told):
        faults.append(f"R: {told[0]!r} and {told[1]!r}")
    return faults + all_ended(env, results, rows)


def same_call(env: Env, results: Results, rows: Rows) -> list[str]:
    """One key, one call, one user turn."""
    faults = same_outcome(env, results, rows)
    if len({getattr(result, "call_id", None) for result in results}) != 1 or len(rows.calls) != 1:
        faults.append(f"I7: key k gave {len(rows.calls)} calls")
    if rows.texts("t") != ["say k"]:
        faults.append(f"I7: the thread has the prompts {rows.texts('t')}")
    return faults


def joined(env: Env, results: Results, rows: Rows) -> list[str]:
    """Who comes with the key of a run that goes on here gets that run's answer."""
    faults = same_outcome(env, results, rows)
    if not all(isinstance(result, Answered) for result in results):
        faults.append(f"I7: a run that went on was ended by its key: {results}")
    return faults


def added_once(env: Env, results: Results, rows: Rows) -> list[str]:
    """Both calls have one result, and each was added by one of the two."""
    added = [turn.id for result in results if isinstance(result, tuple) for turn in result]
    stored = [turn["id"] for _, turn in rows.turns["t"] if turn["role"] == "tool"]
    if sorted(added) != sorted(stored) or len(stored) != 2:
        return [f"R: added were {added}, stored are {stored}"]
    return [f"R: {result!r}" for result in results if not isinstance(result, tuple)]


def one_is_refused(env: Env, results: Results, rows: Rows) -> list[str]:
    refused = [result for result in results if isinstance(result, InvalidValue)]
    stored = [turn for _, turn in rows.turns["t"] if turn["role"] == "tool"]
    if len(refused) != 1 or len(stored) != 1:
        return [f"R: {len(refused)} were refused, and {len(stored)} results are stored"]
    return []


def asked_and_added(env: Env, results: Results, rows: Rows) -> list[str]:
    answer, added = results
    faults = [] if isinstance(answer, Answered) else [f"R: {answer!r}"]
    if not isinstance(added, tuple) or len(added) != 2:
        faults.append(f"R: {added!r}")
    return faults + all_ended(env, results, rows)


def one_owner(env: Env, results: Results, rows: Rows) -> list[str]:
    """Of an owner and the one that takes over, one settles, and the other changes nothing."""
    first, taken = results
    faults = all_ended(env, results, rows)
    if not isinstance(first, Answered | UnknownCall):
        faults.append(f"R: the first owner got {first!r}")
    if not isinstance(taken, list | UnknownCall):
        faults.append(f"R: the second owner got {taken!r}")
    ends = [isinstance(first, Answered), isinstance(taken, list) and bool(taken)]
    if sum(ends) != 1:
        faults.append(f"I5: {sum(ends)} owners ended one call")
    if rows.texts("t") not in (["tell a"], ["tools a safe"]):
        faults.append(f"I6: the thread has the prompts {rows.texts('t')}")
    return faults


def one_settles(env: Env, results: Results, rows: Rows) -> list[str]:
    settled = [result for result in results if isinstance(result, str)]
    unknown = [result for result in results if isinstance(result, UnknownCall)]
    (call,) = rows.calls.values()
    if len(settled) != 1 or len(unknown) != 1 or call["reason"] != settled[0]:
        return [f"I5: {settled} settled, and stored is {call['reason']}"]
    return []


def stale_is_refused(env: Env, results: Results, rows: Rows) -> list[str]:
    faults = [] if isinstance(results[0], str) else [f"R: {results[0]!r}"]
    if not isinstance(results[1], UnknownCall):
        faults.append("I5: an owner whose epoch is over was heard")
    return faults


def some_end(env: Env, results: Results, rows: Rows) -> list[str]:
    """Cancelled or taken over and answered: whoever was told an outcome was told the stored one."""
    faults = all_ended(env, results, rows)
    told = [r for result in results for r in (result if isinstance(result, list) else [result])]
    told = [result for result in told if result is not None]
    faults += [f"R: {r!r}" for r in told if not isinstance(r, Answered | Incomplete | UnknownCall)]
    states = {("answered" if isinstance(r, Answered) else "incomplete") for r in told}
    stored = {call["state"] for call in rows.calls.values()}
    if not any(isinstance(r, UnknownCall) for r in told) and states != stored:
        faults.append(f"R: told {states}, stored {stored}")
    return faults


# Fewer gates than all, where all would make thousands of orders that differ in nothing.
COMMITS = ("commit", "model", "lost_calls")
FINDING = ("call", "active_call", "call_by_key", "commit", "model")
SPECS = (
    Spec("claim, claim", (ask_a, ask_b), one_or_both),
    Spec("claim, claim on a dead claim", (ask_a, ask_b), one_or_both, dead_ask, COMMITS),
    Spec("cancel, finish", (ask_a, cancel_active), same_outcome),
    Spec("cancel, finish a run", (run_one_tool, cancel_active), same_outcome, None, FINDING),
    Spec("cancel, cancel", (ask_a, cancel_active, cancel_active), same_outcome, None, FINDING),
    Spec("cancel, cancel a dead ask", (cancel, cancel), same_outcome, dead_ask, FINDING),
    Spec("outcome, cancel of a dead ask", (outcome, cancel), same_outcome, dead_ask, FINDING),
    Spec("outcome, outcome of a dead ask", (outcome, outcome), same_outcome, dead_ask, FINDING),
    Spec("results, the same results", (add_right, add_again_and_more), added_once, open_calls),
    Spec("results, more results", (add_first, add_second), added_once, open_calls),
    Spec("results, other results", (add_first, add_other), one_is_refused, open_calls),
    Spec("ask, results", (ask_a, add_right), asked_and_added, open_calls),
    Spec("settle, settle of a new owner", (settle_first, claim_and_settle), one_settles, dead_ask),
    Spec("settle, stale settle", (settle_first, settle_stale_epoch), stale_is_refused, dead_ask),
    Spec("same key, same key", (ask_with_key, ask_with_key), same_call),
    Spec(
        "same key of a dead ask", (ask_with_key, ask_with_key), same_call, dead_keyed_ask, FINDING
    ),
    Spec("same key, take-over", (take_over_here, run_with_key), joined, dead_keyed_run, FINDING),
    Spec("run, take-over", (run_no_tool, take_over), one_owner, None, COMMITS),
    Spec("run with a tool, take-over", (run_one_tool, take_over), one_owner, None, COMMITS),
    Spec("cancel, take-over of a dead run", (cancel, take_over), some_end, dead_run, COMMITS),
)

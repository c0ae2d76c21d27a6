"""``runs``: show them beside a running process, cancel one, resume what was left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from rich.console import Console

from turngate.cli.failures import CUT_OFF, PROVIDER_FAILED
from turngate.cli.opening import opened_endpoint, opened_gateway
from turngate.cli.show import counted, local_time, print_parts, read, usage_text, write
from turngate.cli.terminal import json_shape, out_console, print_block, print_json, print_list, say
from turngate.errors import TurngateError
from turngate.gateway import Gateway
from turngate.records import CallRecord, Scope, Step
from turngate.turns import ToolCallPart

_FIELDS = (
    "id", "kind", "thread", "state", "reason", "waiting_for", "recoveries", "created_at",
    "ended_at", "user", "key", "local", "limits", "text", "usage", "first", "added",
)  # fmt: skip


def run_list(
    *, db: str, tenant: str, thread: str | None, asks: bool, limit: int, as_json: bool
) -> None:
    async def newest(gateway: Gateway) -> list[CallRecord]:
        runs: list[CallRecord] = []
        cursor = None
        while True:
            page = await gateway.tenant(tenant).calls(thread=thread, after=cursor)
            runs += [call for call in page.calls if asks or call.kind != "ask"]
            cursor = page.next
            if cursor is None or len(runs) >= limit:
                return [await with_reviews(gateway, tenant, run) for run in runs[:limit]]

    runs = read(db, newest)
    if as_json:
        print_json({"runs": [run_shape(run) for run in runs]})
        return
    rows = (
        (run.id, run.kind, run.thread, local_time(run.created_at), state_text(run)) for run in runs
    )
    head = ("run", "kind", "thread", "begun", "state")
    print_list(out_console(), head, rows, empty=f"No runs of tenant {tenant!r} here.")


def run_show(*, db: str, tenant: str, run: str, as_json: bool) -> None:
    async def load(gateway: Gateway) -> tuple[CallRecord, Sequence[Step]]:
        record = await gateway.tenant(tenant).call(run).record()
        steps = await gateway.deps.store.steps(Scope(tenant), run)
        return await with_reviews(gateway, tenant, record), steps

    record, steps = read(db, load)
    if as_json:
        print_json({"run": run_shape(record), "steps": json_shape(steps)})
    else:
        print_run(out_console(), record, steps)


async def with_reviews(gateway: Gateway, tenant: str, call: CallRecord) -> CallRecord:
    """`call`; one that a person has to decide on waits for its open reviews, by their ids."""
    if call.state != "review":
        return call
    page = await gateway.tenant(tenant).reviews.list(call=call.id, limit=1000)
    waits_for = tuple(f"review {review.id}" for review in reversed(page.reviews))
    return msgspec.structs.replace(call, waiting_for=waits_for)


def run_cancel(*, db: str, tenant: str, run: str, as_json: bool) -> None:
    async def cancelled(gateway: Gateway) -> CallRecord:
        await gateway.tenant(tenant).call(run).cancel()
        return await gateway.tenant(tenant).call(run).record()

    read(db, lambda gateway: gateway.tenant(tenant).call(run).record())  # a wrong name is told
    _tell(write(db, cancelled), tenant, as_json=as_json)


def run_resume(*, db: str, url: str | None, model: str | None, as_json: bool) -> int:
    lost = read(db, lambda gateway: gateway.deps.store.lost_calls(gateway.deps.owner))
    if not lost:
        if not as_json:
            say(out_console(), ("Nothing was left behind here.", "dim"))
        return 0
    failed = False

    async def resumed() -> None:
        nonlocal failed
        async with opened_gateway(endpoint, db=db) as gateway:  # this takes them over
            for each in lost:
                call = gateway.tenant(each.scope.tenant).call(each.call.id)
                with suppress(TurngateError):  # the record says how it failed, or what it waits for
                    await call.outcome()
                record = await call.record()
                _tell(record, each.scope.tenant, as_json=as_json)
                failed |= record.state == "failed" or record.reason in CUT_OFF

    with opened_endpoint(url, model) as endpoint:
        asyncio.run(resumed())
    return PROVIDER_FAILED if failed else 0


# ── how it is shown ──────────────────────────────────────────────────────────────────────────


def _tell(run: CallRecord, tenant: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"tenant": tenant, **run_shape(run)})
    else:
        say(out_console(), f"{run.id}   tenant {tenant} · thread {run.thread}: {state_text(run)}")


def state_text(run: CallRecord) -> str:
    """``answered``, ``incomplete (cancelled)``, ``active, waits for track``, and so on."""
    waits = f", waits for {', '.join(run.waiting_for)}" if run.waiting_for else ""
    return run.state + (f" ({run.reason})" if run.reason else "") + waits


def run_shape(run: CallRecord) -> dict[str, Any]:
    """What a program may know of a run; of its tools the names."""
    asked = run.user_turn.text if run.user_turn is not None else None
    fields = {name: json_shape(getattr(run, name)) for name in _FIELDS}
    return {**fields, "asked": asked, "tools": [tool.name for tool in run.tools]}


def print_run(console: Console, run: CallRecord, steps: Sequence[Step]) -> None:
    """The run's facts, then what was asked, each step, and what was said at the end."""
    head = ("run ", "dim"), (run.id, "bold"), (f"   thread {run.thread}   ", "dim")
    say(console, *head, state_text(run))
    facts = [f"begun {local_time(run.created_at)}"]
    if run.ended_at is not None:
        facts.append(f"took {(run.ended_at - run.created_at).total_seconds():.1f} s")
    facts += [usage_text(run.usage)] if run.usage is not None else []
    facts += [f"recovered {counted(run.recoveries, 'time')}"] if run.recoveries else []
    facts += [f"tools {', '.join(tool.name for tool in run.tools)}"] if run.tools else []
    say(console, (f"      {' · '.join(facts)}", "dim"))
    if run.user_turn is not None:
        say(console, ("\n      asked", "bold cyan"))
        print_parts(console, run.user_turn)
    calls: list[str] = []
    unfinished: dict[int | None, str] = {}
    for step in steps:
        if step.kind == "tool_start":
            unfinished[step.place] = calls[step.place or 0]
            continue
        unfinished.pop(step.place, None)
        if step.turn is not None:
            used = f"   {usage_text(step.usage)}" if step.usage is not None else ""
            say(console, (f"\n{step.number:>4}  ", "dim"), (step.turn.role, "bold"), (used, "dim"))
            print_parts(console, step.turn)
        if step.kind == "model" and step.turn is not None:
            calls = [part.name for part in step.turn.parts if isinstance(part, ToolCallPart)]
    for name in unfinished.values():
        say(console, (f"\n      [{name}] was begun and has no result", "yellow"))
    if run.text:
        say(console, (f"\n      {'answer' if run.state == 'answered' else 'so far'}", "bold green"))
        print_block(console, run.text, indent=6)

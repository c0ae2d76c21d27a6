"""Whichever operation of the disk fails, what was acknowledged stays and work goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import bugs
from tests.harness.running import fast_folder, figures_of, start
from tests.harness.seeds import SEED
from tests.harness.world import TENANT, TOOLS, Log, World, result_of
from turngate import Gateway, identity
from turngate.bootstrap import create_gateway_deps
from turngate.errors import StoreError
from turngate.gateway import Answered, NewCall, Outcome, begin_call, prepare_call
from turngate.gateway.journal import Journal, guard_of
from turngate.gateway.judging import Judged
from turngate.gateway.live import LiveCall
from turngate.gateway.settle import result_turn
from turngate.messages import ToolCall, ToolMessage
from turngate.records import Change, Scope, Step, ToolNeed
from turngate.results import ModelResult
from turngate.stores.sqlite import SqliteStore

SCOPE = Scope(TENANT)


def fail_nth(tmp_path: Path, *, seed: int, work: str = "all") -> None:
    """Let each operation of the scenario fail once, and each be the first of many that fail."""
    with fast_folder(tmp_path) as folder:
        modes = [
            start("fail_nth", folder / mode, mode, "--seed", seed, "--work", work)
            for mode in ("once", "lasting")
        ]
        seen = figures_of(modes, within_s=3_600)
    print(
        f"failing disk: {seen['scenarios']} scenarios, {seen['failures']} failed operations,"
        f" {seen['errors']} errors told, {seen['acknowledged']} acknowledged,"
        f" {len(seen['faults'])} faults"
    )
    assert not seen["faults"], f"seed {seed}: " + "\n".join(seen["faults"][:10])
    assert seen["errors"]


def test_each_failing_operation_is_survived(tmp_path: Path) -> None:
    """N = 1, 2, 3 … until the whole scenario passes: a full disk, an error, a short write."""
    fail_nth(tmp_path, seed=SEED)


def test_each_failing_operation_around_a_review_is_survived(tmp_path: Path) -> None:
    """The same while answers and calls are held and decided on."""
    fail_nth(tmp_path, seed=SEED, work="reviews")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 20))
def test_each_failing_operation_is_survived_in_many_ways(tmp_path: Path, seed: int) -> None:
    """The same with other ways of failing at each operation."""
    fail_nth(tmp_path, seed=SEED + seed)
    fail_nth(tmp_path, seed=SEED + seed, work="reviews")


async def test_journal_with_an_unused_number_goes_on(tmp_path: Path) -> None:
    """A step whose commit failed leaves a gap; the next process goes on after the last number."""
    outcome, numbers = await gone_on_after_a_gap(tmp_path)
    assert isinstance(outcome, Answered)
    assert numbers == [0, 1, 2, 4, 5]
    roles = [turn.role for turn in outcome.turns]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


async def test_unused_number_sees_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that counts its steps writes over the last one, which the store refuses."""
    bugs.plant("step_number_from_count", monkeypatch.setattr)
    with pytest.raises(StoreError, match="UNIQUE"):
        await gone_on_after_a_gap(tmp_path)


async def gone_on_after_a_gap(tmp_path: Path) -> tuple[Outcome, list[int]]:
    """The outcome and the step numbers of a run whose first process left a number out."""
    world = World(Log(tmp_path / "log"), Log(tmp_path / "effects"), lambda point: None)
    store = await SqliteStore.open(tmp_path / "t.db")
    gone = create_gateway_deps(store=store, provider=world, tools=TOOLS)
    new = NewCall(
        id=identity.new_id("run"),
        scope=SCOPE,
        thread="t",
        prompt="tools x safe,safe",
        kind="run",
        needs=tuple(ToolNeed(tool.spec.name, tool.schema_hash) for tool in TOOLS),
    )
    call = await begin_call(gone, await prepare_call(gone, new))
    journal = Journal(gone, SCOPE, call, LiveCall(call.id))
    made = [
        ToolCall(id=f"x.0.{place}", name="safe", arguments=f'{{"slot": "x.0.{place}"}}')
        for place in range(2)
    ]
    said = ModelResult(
        text="", tool_calls=tuple(made), model="m1", finish_reason="tool_calls", usage=None
    )
    (turn,) = gone.turn_builder.build_assistant_turns(result=said)
    await journal.model_step(turn, judged=Judged(result=said))
    await journal.tools_started([0, 1])
    step = Step(number=4, kind="tool_result", place=1, turn=result_turn(gone.turn_builder, _done))
    change = Change(thread="t", at=identity.now(), guard=guard_of(call), steps=(step,))
    await store.commit(SCOPE, change)
    async with Gateway(create_gateway_deps(store=store, provider=world, tools=TOOLS)) as gateway:
        await gateway.recover()
        outcome = await gateway.tenant(TENANT).call(call.id).outcome()
    numbers = [step.number for step in await store.steps(SCOPE, call.id)]
    await store.aclose()
    return outcome, numbers


_done = ToolMessage(call_id="x.0.1", name="safe", content=result_of("x.0.1"))

PLANTED = [("commit_error_swallowed", "I1"), ("closed_connection_kept", "N2")]


@pytest.mark.parametrize(("bug", "invariant"), PLANTED)
def test_failing_disk_sees_a_planted_bug(tmp_path: Path, bug: str, invariant: str) -> None:
    """The same loop names the broken promise at the first operations that matter."""
    with fast_folder(tmp_path) as folder:
        failing = start(
            *("fail_nth", folder / "once", "once", "--seed", SEED, "--bug", bug),
            *("--until", invariant),
        )
        seen = figures_of([failing], within_s=300)
    print(f"{bug}: seen after {seen['scenarios']} scenarios")
    assert any(f": {invariant}" in fault for fault in seen["faults"]), seen["faults"]

"""Whatever moment a process is killed at, nothing that was promised is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.failpoints import POINTS, REVIEW_POINTS
from tests.harness.kill_loop import found_faults
from tests.harness.running import fast_folder, figures_of, start
from tests.harness.seeds import SEED
from tests.harness.world import GO_ON, TENANT, TOOLS, Log, World
from turngate import Gateway
from turngate.bootstrap import create_gateway_deps
from turngate.stores.sqlite import SqliteStore

KILLS = 20  # an episode


def kill_loop(tmp_path: Path, *, episodes: int) -> None:
    """Kill through `episodes` episodes, in two processes; no promise may be broken."""
    half = episodes // 2
    with fast_folder(tmp_path) as folder:
        loops = [
            start(
                *("kill_loop", folder / str(first), "--seed", SEED),
                *("--kills", KILLS, "--episodes", first, last),
            )
            for first, last in ((0, half), (half, episodes))
        ]
        seen = figures_of(loops, within_s=36_000)
    print(
        f"kill loop: {seen['kills']} kills, {seen['acknowledged']} acknowledged,"
        f" {seen['decided']} decided, {sum(seen['points'].values())} at named points,"
        f" {len(seen['faults'])} faults"
    )
    assert not seen["faults"], f"seed {SEED}: " + "\n".join(seen["faults"][:10])
    assert seen["acknowledged"]
    assert seen["decided"]
    reachable = {*POINTS, *(point for points in REVIEW_POINTS.values() for point in points)}
    assert set(seen["points"]) == reachable, "some points were never reached"


def test_nothing_promised_is_lost_by_kills(tmp_path: Path) -> None:
    """2,000 kills at named points and at random moments, over 100 databases."""
    kill_loop(tmp_path, episodes=100)


@pytest.mark.soak
def test_nothing_promised_is_lost_by_many_kills(tmp_path: Path) -> None:
    """50,000 kills at named points and at random moments, over 2,500 databases."""
    kill_loop(tmp_path, episodes=2500)


async def test_an_ask_that_goes_on_from_a_run_leaves_no_calls(tmp_path: Path) -> None:
    """A model calls only what it is offered, though the last prompt be that of a run that was cut:
    else calls would be open that nobody answers, and no promise would be broken."""
    log, effects = Log(tmp_path / "log"), Log(tmp_path / "effects")
    store = await SqliteStore.open(tmp_path / "t.db")
    provider = World(log, effects, lambda point: None)
    deps = create_gateway_deps(store=store, provider=provider, tools=TOOLS)
    async with Gateway(deps) as gateway:
        thread = gateway.tenant(TENANT).thread("t0")
        async with thread.stream_run("slowly a.1 keyed,unsafe", tools=TOOLS) as events:
            async for _ in events:
                break  # before its first step is whole
        outcome = await thread.ask(None, instructions=GO_ON)
    await store.aclose()
    log.close()
    effects.close()
    assert outcome.text == "re: a.1"
    assert not found_faults(tmp_path, finished=True)


PLANTED = [
    ("acknowledge_before_commit", "I1", ("settle.after_commit",)),
    ("settle_leaves_active", "I1", ("settle.after_commit",)),
    ("swapped_results", "I3", ("result.after_commit",)),
    ("result_dropped_at_settle", "I3", ("events.after_commit", "tool.after_effect")),
    ("effect_before_start", "I4", ("tool.after_effect",)),
    ("unsafe_run_again", "I4", ("tool.after_effect",)),
    ("epoch_not_raised", "I5", ("model.before_send",)),
    ("user_turn_twice", "I6", ("model.before_send",)),
    ("events_lost_on_flush", "I6", ("events.after_commit",)),
    ("key_not_stored", "I7", ("settle.after_commit",)),
    ("step_without_row", "I8", ("step.after_commit",)),
    ("dead_ask_asked_again", "I8", ("model.mid_stream",)),
]
TOOL = "review.tool.after_effect"
DECISION = "review.decision.after_commit"
PLANTED_IN_REVIEWS = [
    ("swapped_after_approval", "I10", "tools", TOOL),
    ("approval_forgotten", "I9", "tools", "review.goes_on"),
    ("edit_lost_with_its_process", "I10", "tools", TOOL),
    ("rejected_is_started", "I10", "tools", "review.start.after_commit"),
    ("decision_apart_from_effect", "I2", "tools", DECISION),
    ("decision_keeps_epoch", "I5", "tools", DECISION),
    ("held_text_in_events", "I11", "texts", "review.pause.after_commit"),
    ("blocked_text_kept", "I11", "texts", "review.pause.after_commit"),
]


@pytest.mark.parametrize(("bug", "invariant", "points"), PLANTED)
def test_kill_loop_sees_a_planted_bug(
    tmp_path: Path, bug: str, invariant: str, points: tuple[str, ...]
) -> None:
    """The same loop names the broken promise within a few kills."""
    assert_seen(tmp_path, bug, invariant, "plain", *points)


@pytest.mark.parametrize(("bug", "invariant", "mode", "point"), PLANTED_IN_REVIEWS)
def test_kill_loop_sees_a_planted_bug_of_reviews(
    tmp_path: Path, bug: str, invariant: str, mode: str, point: str
) -> None:
    """The same with faults of checks, blocks and reviews."""
    assert_seen(tmp_path, bug, invariant, mode, point)


def assert_seen(tmp_path: Path, bug: str, invariant: str, mode: str, *points: str) -> None:
    with fast_folder(tmp_path) as folder:
        loop = start(
            *("kill_loop", folder / "kills", "--seed", SEED, "--bug", bug, "--until", invariant),
            *("--mode", mode, "--kills", KILLS, "--episodes", 0, 15, "--points", *points),
        )
        seen = figures_of([loop], within_s=300)
    print(f"{bug}: seen after {seen['kills']} kills")
    assert any(f": {invariant}" in fault for fault in seen["faults"]), seen["faults"]

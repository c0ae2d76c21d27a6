"""A power cut at any moment costs no acknowledged commit and damages nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.running import fast_folder, figures_of, start
from tests.harness.seeds import SEED


def power_cuts(tmp_path: Path, *, cuts: int) -> None:
    """Cut the power `cuts` times, in two processes."""
    with fast_folder(tmp_path) as folder:
        halves = [
            start(
                *("power_cut", folder / str(half), "--seed", f"{SEED}-{half}"),
                *("--cuts", cuts // 2),
            )
            for half in range(2)
        ]
        seen = figures_of(halves, within_s=36_000)
    print(
        f"power cuts: {seen['cuts']} cuts, {seen['acknowledged']} acknowledged,"
        f" {len(seen['faults'])} faults"
    )
    assert not seen["faults"], f"seed {SEED}: " + "\n".join(seen["faults"][:10])
    assert seen["acknowledged"]


def test_no_acknowledged_commit_is_lost_by_power_cuts(tmp_path: Path) -> None:
    """5,000 cuts, each of which leaves a random part of what was not synced."""
    power_cuts(tmp_path, cuts=5_000)


@pytest.mark.soak
def test_no_acknowledged_commit_is_lost_by_many_power_cuts(tmp_path: Path) -> None:
    """200,000 cuts, each of which leaves a random part of what was not synced."""
    power_cuts(tmp_path, cuts=200_000)


@pytest.mark.parametrize(
    ("bug", "invariant"), [("synchronous_normal", "I1"), ("synchronous_off", "I")]
)
def test_power_cuts_see_a_planted_bug(tmp_path: Path, bug: str, invariant: str) -> None:
    """A log that is not synced at each commit loses some, or the whole file, within 200 cuts."""
    with fast_folder(tmp_path) as folder:
        cutting = start(
            *("power_cut", folder / "cuts", "--seed", SEED, "--cuts", 200, "--bug", bug)
        )
        seen = figures_of([cutting], within_s=300)
    print(f"{bug}: seen within {seen['cuts']} cuts")
    assert any(f": {invariant}" in fault for fault in seen["faults"]), seen["faults"]

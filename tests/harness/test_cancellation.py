"""A caller that is cancelled at any of its awaits leaves a free thread and whole turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import bugs
from tests.harness.cancellation import SCENES, Scene, cancel_everywhere, cancel_inside
from tests.harness.running import fast_folder


@pytest.mark.parametrize("way", ["once", "twice", "delayed"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_cancelled_anywhere_leaves_all_whole(tmp_path: Path, scene: Scene, way: str) -> None:
    """Each await in turn is where the caller is cancelled: once, twice, or a moment later."""
    with fast_folder(tmp_path) as folder:
        awaits, faults = await cancel_everywhere(
            scene, folder, twice=way == "twice", delayed=way == "delayed"
        )
    print(f"cancellation of {scene.name}, {way}: {awaits} awaits, {len(faults)} faults")
    assert not faults, "\n".join(faults[:10])
    assert awaits


@pytest.mark.parametrize("piece", ["_rounds", "_model_round", "_tool_round", "_tool_call"])
async def test_run_cancelled_anywhere_leaves_all_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    """A run that is cancelled at each await of its loop ends so, with its exchanges whole."""
    with fast_folder(tmp_path) as folder:
        awaits, faults = await cancel_inside(piece, folder, monkeypatch.setattr)
    print(f"cancellation inside {piece}: {awaits} awaits, {len(faults)} faults")
    assert not faults, "\n".join(faults[:10])
    assert awaits


async def test_cancellation_sees_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled caller that comes back before its call is settled finds its thread busy."""
    bugs.plant("cancel_not_awaited", monkeypatch.setattr)
    with fast_folder(tmp_path) as folder:
        _, faults = await cancel_everywhere(SCENES[0], folder)
    assert any(fault.startswith("I2") for fault in faults), faults


async def test_cancellation_inside_sees_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that drops the open calls of its last exchange leaves a history that does not pair."""
    bugs.plant("result_dropped_at_settle", monkeypatch.setattr)
    with fast_folder(tmp_path) as folder:
        _, faults = await cancel_inside("_rounds", folder, monkeypatch.setattr)
    assert any(": I3" in fault for fault in faults), faults

"""A file that was acknowledged survives kill -9 between any two steps of a put or a delete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def kill_loop(folder: Path, *, rounds: int, bug: str | None = None) -> tuple[int, str]:
    """Exit code and output of the kill loop in a process of its own."""
    command = [sys.executable, "-m", "tests.integration.files.killing", str(folder), str(rounds)]
    done = subprocess.run(
        [*command, "20261130", *([bug] if bug else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_acknowledged_files_survive_kill(tmp_path: Path) -> None:
    """[F14] 40 children die at ten named points: each row has its object, and a sweep the rest."""
    code, output = kill_loop(tmp_path, rounds=40)
    print(output)
    assert code == 0, output


@pytest.mark.soak
def test_acknowledged_files_survive_many_kills(tmp_path: Path) -> None:
    """[F14] The same for 1,000 children."""
    code, output = kill_loop(tmp_path, rounds=1000)
    print(output)
    assert code == 0, output


@pytest.mark.parametrize("bug", ["row_before_object", "shared_object_deleted"])
def test_kill_loop_sees_a_planted_bug(tmp_path: Path, bug: str) -> None:
    """The same loop goes red when a row comes first, or shared bytes go with their first file."""
    code, output = kill_loop(tmp_path, rounds=20, bug=bug)
    assert code == 1, output
    assert "has a row and not its whole object" in output

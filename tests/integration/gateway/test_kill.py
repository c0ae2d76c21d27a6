"""An acknowledged answer survives kill -9 at any moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def kill_loop(folder: Path, *, rounds: int, bug: str | None = None) -> tuple[int, str]:
    """Exit code and output of the kill loop in a process of its own."""
    command = [sys.executable, "-m", "tests.integration.gateway.killing", str(folder), str(rounds)]
    done = subprocess.run(
        [*command, "20261130", *([bug] if bug else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_acknowledged_answers_survive_kill(tmp_path: Path) -> None:
    """200 children are killed at random moments: all that was acknowledged is there, once."""
    code, output = kill_loop(tmp_path, rounds=200)
    print(output)
    assert code == 0, output


def test_kill_loop_sees_an_acknowledgement_before_the_commit(tmp_path: Path) -> None:
    """The same loop goes red when the store acknowledges before it commits."""
    code, output = kill_loop(tmp_path, rounds=40, bug="acknowledge_first")
    assert code == 1, output
    assert "was acknowledged and is not there whole" in output

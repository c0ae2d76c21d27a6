"""What is remembered survives kill -9 at any moment, whole, and is caught up with afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def kill_loop(folder: Path, *, rounds: int, bug: str | None = None) -> tuple[int, str]:
    """Exit code and output of the kill loop in a process of its own."""
    module = "tests.integration.gateway.killing_memory"
    command = [sys.executable, "-m", module, str(folder), str(rounds), "20261130"]
    done = subprocess.run(
        [*command, *([bug] if bug else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_helper_writes_survive_kill(tmp_path: Path) -> None:
    """50 children are killed amid helper calls: each wrote all of its own, or nothing."""
    code, output = kill_loop(tmp_path, rounds=50)
    print(output)
    assert code == 0, output


def test_kill_loop_sees_a_helper_write_in_two_commits(tmp_path: Path) -> None:
    """The same loop goes red when a helper's notes and its record are written apart."""
    code, output = kill_loop(tmp_path, rounds=50, bug="two_commits")
    assert code == 1, output
    assert "wrote something and is not there" in output


def test_kill_loop_sees_facts_that_are_forgotten_apart(tmp_path: Path) -> None:
    """And when a deletion takes the facts in one commit and the turn in another."""
    code, output = kill_loop(tmp_path, rounds=50, bug="forgotten_apart")
    assert code == 1, output
    assert "nothing of it is there" in output

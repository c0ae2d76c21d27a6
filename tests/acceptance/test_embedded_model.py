"""The whole program with a real model, as a user has it: `turngate` and its embedded model.

The tests look at what is stored and shown, and never at the model's words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine, events_until

CHAT = ("chat", "--thread", "kept", "--max-tokens", "24", "--json")


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line without any server named, so that it starts its own."""
    return CommandLine(tmp_path, {})


def test_a_thread_survives_the_death_of_its_process(cli: CommandLine) -> None:
    """What was settled before a kill -9 is there afterwards, and the thread goes on."""
    with cli.started(*CHAT) as process:
        assert process.stdin is not None
        process.stdin.write("What is the capital of France?\n")
        process.stdin.flush()
        settled = events_until(process, "settled")[-1]
        process.kill()  # SIGKILL: nothing of it runs any more
    assert settled["kind"] in ("answered", "incomplete")  # a long answer ends at the limit

    kept = cli.json("show", "kept")["turns"]
    assert [turn["id"] for turn in kept] == [turn["id"] for turn in settled["turns"]]
    assert [turn["role"] for turn in kept] == ["user", "assistant"]
    answer = kept[1]
    assert "".join(part["text"] for part in answer["parts"]) == settled["text"] != ""
    assert answer["model"] == "smollm2-135m"
    assert answer["usage"]["input_tokens"] > 0
    assert 0 < answer["usage"]["output_tokens"] <= 24

    ended = cli.run(*CHAT, typed="Which river flows through that city?\n")
    assert ended.returncode == 0, ended.stderr
    turns = cli.json("show", "kept")["turns"]
    assert turns[:2] == kept
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2
    # The second question was asked with the first exchange before it.
    assert turns[3]["usage"]["input_tokens"] > answer["usage"]["input_tokens"]


def test_a_kill_amid_an_answer_leaves_a_thread_that_goes_on(cli: CommandLine) -> None:
    """Nothing half-done is shown, and the next process can ask the thread at once."""
    with cli.started(*CHAT) as process:
        assert process.stdin is not None
        process.stdin.write("Tell me a long story.\n")
        process.stdin.flush()
        events_until(process, "text")
        process.kill()
    ended = cli.run(*CHAT, typed="What is the capital of France?\n")
    assert ended.returncode == 0, ended.stderr
    turns = cli.json("show", "kept")["turns"]
    # The question of the lost call is kept; its answer was never settled.
    assert [turn["role"] for turn in turns] == ["user", "user", "assistant"]


def test_the_model_can_be_stopped_as_soon_as_it_has_started(cli: CommandLine) -> None:
    """A command that fails or is interrupted right after the start ends at once."""
    code = (
        "from turngate.cli.embedded import embedded_model\n"
        "for _ in range(5):\n"
        "    with embedded_model() as model:\n"
        "        print(model.base_url)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 5
    assert ended.stderr == ""


def test_the_demo_ends_by_itself_without_a_terminal(cli: CommandLine) -> None:
    """A conversation is had, stored, read back and summed, and the file stays."""
    ended = cli.run("demo")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    shown = ended.stdout
    usages = re.findall(r"(\d+) tokens in(?: \(\d+ cached\))?, (\d+) out", shown)
    # Three answers, the same three read back, and their sum.
    assert len(usages) == 7
    assert usages[:3] == usages[3:6]
    assert [sum(int(usage[side]) for usage in usages[:3]) for side in (0, 1)] == [
        int(count) for count in usages[6]
    ]
    assert all(int(output) <= 48 for _, output in usages[:3])

    last = shown.splitlines()[-1]
    command = re.search(r"turngate (show demo-[0-9a-f]+ --db turngate-demo\.db)$", last)
    assert command is not None
    again = cli.json(*command[1].split())
    assert [turn["role"] for turn in again["turns"]] == ["user", "assistant"] * 3
    assert again["thread"]["length"] == 6

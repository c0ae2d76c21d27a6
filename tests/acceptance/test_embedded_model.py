"""The whole program with a real model, as a user has it: `turngate` and its embedded model.

The tests look at what is stored and shown, and never at the model's words.
"""

from __future__ import annotations

import json
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
        "from turngate.cli.opening import opened_endpoint\n"
        "for _ in range(5):\n"
        "    with opened_endpoint(None, None) as model:\n"
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
    """A conversation with a tool is had, stored, read back and summed, and the file stays."""
    ended = cli.run("demo")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    live, _, read_back = ended.stdout.partition("it holds:\n")
    command = re.search(
        r"turngate (show demo-[0-9a-f]+ --db turngate-demo\.db)$", ended.stdout[:-1]
    )
    assert command is not None
    again = cli.json(*command[1].split())
    turns = again["turns"]
    assert again["thread"]["length"] == len(turns)
    assert [turn["role"] for turn in turns[-4:]] == ["user", "assistant"] * 2

    # The model may call its tool or not, and what is shown says which.
    results = sum(turn["role"] == "tool" for turn in turns)
    for shown in (live, read_back):
        assert shown.count("[call] track_parcel(") == shown.count("[track_parcel") == results
    assert ("answered without the tool" in live) is (results == 0)

    usages = [turn["usage"] for turn in turns if turn["usage"] is not None]
    told = re.findall(r"(\d+) tokens in(?: \(\d+ cached\))?, (\d+) out", read_back)
    assert told[:-1] == [(str(u["input_tokens"]), str(u["output_tokens"])) for u in usages]
    assert [int(count) for count in told[-1]] == [
        sum(usage[side] for usage in usages) for side in ("input_tokens", "output_tokens")
    ]

    runs = cli.json("runs", "list", "--db", "turngate-demo.db")["runs"]
    (run,) = [run for run in runs if run["kind"] == "run"]
    assert run["added"] == len(turns) - 4
    assert run["tools"] == ["track_parcel"]

    # The model may take a fact from what a user said or not, and what is shown says which.
    facts = cli.json("facts", "list", "--db", "turngate-demo.db")["facts"]
    assert ("gave no fact that could be kept" in live) is (facts == [])
    assert ("Its receipt says" in live) is (facts != [])


# Asks the embedded model through the JSON schema: first it must call a tool, then it may.
_TOOLS = """
import asyncio, json
from typing import Literal
from turngate import CallOptions, RunLimits, tool
from turngate.cli.opening import opened_endpoint, opened_gateway

@tool(effect="safe")
def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    "Tells the weather of a city."
    return "18 degrees"

@tool(effect="safe")
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

async def main(endpoint):
    options = CallOptions(max_tokens=64, temperature=0, tool_choice="required")
    async with opened_gateway(endpoint, db="tools.db") as gateway:
        tenant = gateway.tenant("local")
        for prompt in ("What is 2 plus 3?", "How warm is it in Oslo?", "Hello!"):
            asked = await tenant.thread().ask(prompt, tools=[weather, add], options=options)
            calls = [[call.name, call.arguments] for call in asked.tool_calls]
            print(json.dumps({"kind": type(asked).__name__, "calls": calls}))
        free = CallOptions(max_tokens=64, temperature=0)
        limits = RunLimits(rounds_max=3)
        thread = tenant.thread("ran")
        ended = await thread.run("What is 2 plus 3?", tools=[add], options=free, limits=limits)
        print(json.dumps({"kind": type(ended).__name__, "reason": getattr(ended, "reason", None)}))

with opened_endpoint(None, None) as endpoint:
    asyncio.run(main(endpoint))
"""


def test_a_model_without_tools_calls_them_through_a_schema(cli: CommandLine) -> None:
    """Its calls always have a known name and arguments that fit, and runs end well-formed."""
    ended = subprocess.run(
        [sys.executable, "-c", _TOOLS],
        cwd=cli.folder,
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    *asked, ran = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(asked) == 3
    for each in asked:
        if each["kind"] == "Incomplete":  # a text without an end reached the token limit
            continue
        ((name, arguments),) = each["calls"]
        values = json.loads(arguments)
        if name == "add":
            assert [type(values[side]) for side in ("a", "b")] == [int, int]
        else:
            assert name == "weather"
            assert isinstance(values["city"], str)
    assert any(each["kind"] == "Answered" for each in asked)
    assert ran["reason"] in (None, "rounds", "length")
    turns = cli.json("show", "ran", "--db", "tools.db")["turns"]
    called = [p["id"] for turn in turns for p in turn["parts"] if p["type"] == "tool_call"]
    given = [p["call_id"] for turn in turns for p in turn["parts"] if p["type"] == "tool_result"]
    assert called == given


def test_a_demo_that_is_killed_in_its_run_goes_on(cli: CommandLine) -> None:
    """The run of a dead process is taken up by the next one, and ends one way or the other."""
    with cli.started("demo", "--db", "turngate.db") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("you "):
                break  # the run is begun, or about to be
        while not cli.json("runs", "list")["runs"]:
            assert process.poll() is None
        process.kill()
    (run,) = cli.json("runs", "list")["runs"]
    ended = cli.run("runs", "resume")
    assert ended.returncode == 0, ended.stderr
    after = cli.json("runs", "show", run["id"])["run"]
    assert after["state"] in ("answered", "incomplete")
    roles = [turn["role"] for turn in cli.json("show", run["thread"])["turns"]]
    assert roles[: after["added"]][0] == "user"
    # It had ended, or it goes on, unless a reader had seen a part of its answer.
    assert run["state"] != "active" or after["recoveries"] == 1 or after["reason"] == "interrupted"

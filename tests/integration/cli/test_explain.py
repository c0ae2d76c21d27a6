"""``turngate explain`` as a process, over a file that another program wrote."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command_line import CommandLine
from tests.integration.gateway.test_runs import answer, calls, double
from turngate import RecentWindow, Settings, Target, open_gateway
from turngate.checks import LengthCheck
from turngate.completion import ChatRequest
from turngate.gateway.receipts import request_hash
from turngate.testing import ScriptedProvider

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Written:
    """A file in `folder`: what its calls are, and the requests that were sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.early = self.late = self.run = self.file = ""
        self.requests: list[ChatRequest] = []
        asyncio.run(self._write())

    async def _write(self) -> None:
        scripts = [answer("one"), answer("two"), answer("three")]
        scripts += [calls(("double", '{"number":2}')), answer("4")]
        provider = ScriptedProvider(*scripts)
        async with open_gateway(
            self.folder / "turngate.db",
            provider=provider,
            tools=[double],
            instructions="Be kind.",
            window=RecentWindow(turns=4),
            settings=Settings(context_tokens=4000),
        ) as gateway:
            tenant = gateway.tenant("local")
            thread = tenant.thread("t")
            self.early = (await thread.ask("My name is Ann.")).call_id
            await thread.ask("What is new?")
            self.late = (await thread.ask("What is my name?", instructions="Be brief.")).call_id
            ref = await tenant.files.put(PNG, name="plan.png")
            self.file = ref.id
            self.run = (await thread.run("Twice 2?", tools=["double"], files=[ref])).call_id
        self.requests = provider.requests


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("explained"))


@pytest.fixture
def cli(once: Written, tmp_path: Path) -> CommandLine:
    """The command line in a folder with a copy of the file."""
    shutil.copytree(once.folder, tmp_path, dirs_exist_ok=True)
    return CommandLine(tmp_path, {})


def lines(cli: CommandLine, *arguments: str) -> list[str]:
    ended = cli.run("explain", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    return [" ".join(line.split()) for line in ended.stdout.splitlines()]


def test_each_model_call_of_a_run_is_explained(cli: CommandLine, once: Written) -> None:
    """Budget, turns, tools, files and hash of each; all are made again from the file alone."""
    shown = lines(cli, once.run)
    assert shown[0] == f"call {once.run} thread t answered"
    assert [line[:17] for line in shown if line.startswith("model call")] == [
        "model call 1 of 2",
        "model call 2 of 2",
    ]
    assert "turns 4-5 of 6 turns, and its own question" in shown
    assert "turns 4-5 of 6 turns, and its own question, 2 turns of its steps" in shown
    assert shown.count("left out 4 turns: below the window") == 2
    assert shown.count(f"file {once.file} · image · plan.png") == 2
    assert shown.count("its tools double") == 2
    assert shown.count("made again the same to the byte, from this file alone") == 2
    for request in once.requests[3:]:
        assert f"hash {request_hash(request)}" in shown


def test_turns_are_named_on_demand(cli: CommandLine, once: Written) -> None:
    """With --turns each turn that was shown has its position and its first words."""
    shown = lines(cli, f"{once.run}:2", "--turns")
    start = shown.index("4 user What is my name?")
    assert shown[start : start + 5] == [
        "4 user What is my name?",
        "5 assistant three",
        "6 user Twice 2? [file] plan.png",
        "7 assistant [call] double(number=2)",
        "8 tool [double] 4",
    ]
    assert "7 assistant [call] double(number=2)" not in lines(cli, f"{once.run}:1", "--turns")
    assert not any("What is my name?" in line for line in lines(cli, once.run))


def test_json_has_the_row_and_its_receipt(cli: CommandLine, once: Written) -> None:
    """All of a row, null where there is nothing, and whether its request could be made again."""
    found = cli.json("explain", once.run, "--model-call", "2")
    assert found["call"]["id"] == once.run
    (one,) = found["model_calls"]
    assert (one["number"], one["outcome"], one["again"]) == (2, "answered", True)
    assert (one["why_not"], one["turns"]) == (None, None)
    assert one["receipt"]["request_hash"] == request_hash(once.requests[4])
    assert one["receipt"]["window"] == {"first": 4, "count": 2}
    assert list(one["receipt"]["tokens"]) == ["instructions", "tools", "window", "files", "steps"]
    (one,) = cli.json("explain", f"{once.run}:2", "--turns")["model_calls"]
    assert [turn["position"] for turn in one["turns"]] == [4, 5, 6, 7, 8]


def test_difference_tells_what_was_forgotten(cli: CommandLine, once: Written) -> None:
    """The answer to "why did it forget?": the name was below the window."""
    parts = cli.json("explain", once.early, "--diff", once.late)
    assert parts["model_calls"] == [f"{once.early}:1", f"{once.late}:1"]
    assert parts["turns"] == [[0], [2, 3, 4]]
    assert parts["same_request"] is False
    assert parts["left_out"][1] == [{"what": "turns", "count": 2, "why": "window"}]
    shown = lines(cli, once.early, "--diff", once.late, "--turns")
    assert "turns in A alone: 0" in shown
    assert "0 user My name is Ann." in shown
    assert "instructions not the same" in shown
    assert "left out of B: 2 turns: below the window" in shown
    same = lines(cli, f"{once.run}:1", "--diff", f"{once.run}:1")
    assert "request the same to the byte" in same


def test_a_file_that_is_gone_is_the_reason(cli: CommandLine, once: Written) -> None:
    """Without the bytes that were shown the request is not made again, and the file is named."""
    assert cli.run("files", "delete", once.file).returncode == 0
    (one, _) = cli.json("explain", once.run)["model_calls"]
    assert one["again"] is False
    assert "can't be made again" in one["why_not"]
    assert once.file in one["why_not"]
    assert any(line.startswith("made again the request of") for line in lines(cli, once.run))


def test_files_may_be_elsewhere(cli: CommandLine, once: Written) -> None:
    """The place of the bytes is an option, as for the commands of files."""
    (cli.folder / "turngate.db.files").rename(cli.folder / "elsewhere")
    (one, _) = cli.json("explain", once.run)["model_calls"]
    assert one["again"] is False
    (one, _) = cli.json("explain", once.run, "--files", "elsewhere")["model_calls"]
    assert one["again"] is True


def test_another_endpoints_request_is_not_passed_off(tmp_path: Path) -> None:
    """What was made for demands that this program does not know is told as such."""

    class Demanding(ScriptedProvider):
        target = Target(call_id_pattern="[0-9]{9}")

    async def asked() -> str:
        provider = Demanding(calls(("double", '{"number":2}')), answer("4"))
        path = tmp_path / "turngate.db"
        async with open_gateway(path, provider=provider, tools=[double]) as gateway:
            thread = gateway.tenant("local").thread("t")
            return (await thread.run("Twice 2?", tools=["double"])).call_id

    cli = CommandLine(tmp_path, {})
    first, second = cli.json("explain", asyncio.run(asked()))["model_calls"]
    assert (first["again"], second["again"]) == (True, False)
    assert "as it was" in second["why_not"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nope"], "unknown_call"),
        (["RUN:3"], "invalid_value"),
        (["RUN", "--model-call", "3"], "invalid_value"),
        (["RUN", "--diff", "nope"], "unknown_call"),
        (["RUN", "--tenant", "acme"], "unknown_call"),
    ],
)
def test_what_is_not_there_ends_with_1(
    cli: CommandLine, once: Written, arguments: list[str], code: str
) -> None:
    """A wrong id, a wrong number and another tenant's call are errors, and no empty page."""
    called = [argument.replace("RUN", once.run) for argument in arguments]
    ended = cli.run("explain", *called, "--json")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert json.loads(ended.stderr)["error"]["code"] == code


def test_a_call_that_was_blocked_has_no_model_call(tmp_path: Path) -> None:
    """Its prompt went to no model, so there is nothing to explain."""

    async def asked() -> Any:
        checks = [LengthCheck(prompt_chars_max=2)]
        path = tmp_path / "turngate.db"
        async with open_gateway(path, provider=ScriptedProvider(), checks=checks) as gateway:
            return (await gateway.tenant("local").thread("t").ask("too long")).call_id

    ended = CommandLine(tmp_path, {}).run("explain", asyncio.run(asked()))
    assert ended.returncode == 1
    assert "no model call" in ended.stderr


def test_explaining_makes_no_database(tmp_path: Path) -> None:
    """A command that reads creates nothing."""
    assert CommandLine(tmp_path, {}).run("explain", "x", "--db", "nowhere.db").returncode == 4
    assert list(tmp_path.iterdir()) == []

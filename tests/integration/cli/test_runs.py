"""``turngate runs`` as a process, over a file in which dead processes left runs behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine, events_until
from tests.integration.cli.conftest import configured
from tests.integration.cli.scripted_server import ScriptedServer

# A model that calls the tool it is given, and a process that dies in the tool or right after it.
_DYING = """
import asyncio, os, signal, sys
from turngate import open_gateway, tool
from turngate.cli.opening import TOOLS
from turngate.providers import FunctionCallDelta, StreamEnd

thread, name, arguments = sys.argv[1:]

@tool
def send_mail(to: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

class CallsOnce:
    asked = 0
    async def stream(self, request):
        self.asked += 1
        if self.asked > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        yield FunctionCallDelta(index=0, id="c1", name=name, arguments=arguments)
        yield StreamEnd("tool_calls")

async def main():
    async with open_gateway("turngate.db", provider=CallsOnce(), tools=[send_mail, *TOOLS],
                            resume=False) as gateway:
        await gateway.tenant("local").thread(thread).run("Do it.", tools=[name])

asyncio.run(main())
"""


def left_behind(folder: Path, thread: str, name: str, arguments: str) -> None:
    """A run of a process that was killed."""
    ended = subprocess.run(
        [sys.executable, "-c", _DYING, thread, name, arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, server: ScriptedServer) -> Path:
    """A file with an ask, a run that this program can go on with, and one that it can't."""
    folder = tmp_path_factory.mktemp("left")
    asked = configured(folder, server).run("chat", "--thread", "asked", typed="hello\n")
    assert asked.returncode == 0, asked.stderr
    left_behind(folder, "parcel", "track_parcel", '{"number": 7}')
    left_behind(folder, "mail", "send_mail", '{"to": "ann"}')
    return folder


@pytest.fixture
def lost(cli: CommandLine, left: Path) -> CommandLine:
    """The command line in a folder with a copy of that file."""
    for path in left.glob("turngate.db*"):
        shutil.copy(path, cli.folder)
    return cli


def run_of(cli: CommandLine, thread: str) -> str:
    """The id of the only run of `thread`."""
    (run,) = cli.json("runs", "list", "--thread", thread)["runs"]
    return str(run["id"])


def test_runs_are_listed_newest_first(lost: CommandLine) -> None:
    """An ask is no run, and another tenant's list is empty."""
    runs = lost.json("runs", "list")["runs"]
    assert [run["thread"] for run in runs] == ["mail", "parcel"]
    assert [run["state"] for run in runs] == ["active", "active"]
    assert runs[0]["tools"] == ["send_mail"]
    assert runs[0]["asked"] == "Do it."
    assert [run["thread"] for run in lost.json("runs", "list", "--limit", "1")["runs"]] == ["mail"]
    assert lost.json("runs", "list", "--tenant", "acme") == {"runs": []}
    shown = lost.run("runs", "list")
    assert shown.stdout.split()[:5] == ["run", "kind", "thread", "begun", "state"]


def test_asks_are_listed_where_they_are_asked_for(talked: CommandLine) -> None:
    """Their ids are what `explain` takes."""
    assert talked.json("runs", "list")["runs"] == []
    asks = talked.json("runs", "list", "--asks", "--thread", "first")["runs"]
    assert [ask["asked"] for ask in asks] == ["three", "two", "one"]
    assert talked.json("explain", asks[0]["id"])["call"]["id"] == asks[0]["id"]


def test_a_run_is_shown_with_its_steps(lost: CommandLine) -> None:
    """A tool that was begun and has no result is told apart from one that ended."""
    parcel = lost.run("runs", "show", run_of(lost, "parcel")).stdout
    assert "[call] track_parcel(number=7)" in parcel
    assert "[track_parcel] Parcel 7 is in Oslo" in parcel
    assert "no result" not in parcel
    mail = lost.run("runs", "show", run_of(lost, "mail")).stdout
    assert "[send_mail] was begun and has no result" in mail
    document = lost.json("runs", "show", run_of(lost, "mail"))
    assert [step["kind"] for step in document["steps"]] == ["model", "tool_start"]
    assert document["run"]["recoveries"] == 0


def test_what_can_go_on_goes_on_and_the_rest_is_named(lost: CommandLine) -> None:
    """This program has the tool of its demo; a run with another one waits, and says for what."""
    ended = lost.run("runs", "resume")
    assert ended.returncode == 0, ended.stderr
    told = dict(line.rsplit(": ", 1) for line in ended.stdout.splitlines())
    assert sorted(told.values()) == ["active, waits for send_mail", "answered"]
    parcel = lost.json("runs", "show", run_of(lost, "parcel"))["run"]
    assert parcel["text"] == "You said: Parcel 7 is in Oslo and comes tomorrow."
    assert parcel["recoveries"] == 1
    turns = lost.json("show", "parcel")["turns"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert "recovered 1 time" in lost.run("runs", "show", parcel["id"]).stdout
    assert lost.json("runs", "show", run_of(lost, "mail"))["run"]["waiting_for"] == ["send_mail"]


def test_a_run_that_waits_can_be_cancelled(lost: CommandLine) -> None:
    """Its steps become turns, and the call whose end nobody knows gets a result that says so."""
    run = run_of(lost, "mail")
    ended = lost.run("runs", "cancel", run, "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["state"], told["reason"]) == ("incomplete", "cancelled")
    *_, result = lost.json("show", "mail")["turns"]
    assert result["role"] == "tool"
    assert result["parts"][0]["is_error"]
    again = lost.run("runs", "cancel", run)
    assert again.stdout == f"{run}   tenant local · thread mail: incomplete (cancelled)\n"


def test_a_model_that_fails_on_the_way_ends_with_3(lost: CommandLine) -> None:
    """The run keeps its steps, and a script learns of it."""
    ended = lost.run("runs", "resume", "--url", "http://127.0.0.1:9/v1", "--model", "m")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "incomplete (network)" in ended.stdout
    assert len(lost.json("show", "parcel")["turns"]) == 3


def test_nothing_to_resume_starts_no_model(cli: CommandLine) -> None:
    """A file that was left in order needs no server."""
    assert cli.run("chat", typed="hello\n").returncode == 0
    ended = cli.run("runs", "resume", "--url", "http://127.0.0.1:9/v1")
    assert (ended.returncode, ended.stdout) == (0, "Nothing was left behind here.\n")


@pytest.mark.parametrize("command", [["list"], ["show", "r"], ["cancel", "r"], ["resume"]])
def test_a_missing_file_ends_with_4_and_none_is_made(cli: CommandLine, command: list[str]) -> None:
    """Also the commands that write make no file."""
    ended = cli.run("runs", *command, "--db", "nowhere.db")
    assert ended.returncode == 4
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("command", ["show", "cancel"])
def test_an_unknown_run_ends_with_1(talked: CommandLine, command: str) -> None:
    """Another tenant's run is unknown in just the same way."""
    ended = talked.run("runs", command, "run_1")
    assert ended.returncode == 1
    assert "run_1" in ended.stderr


def test_beside_a_process_that_writes_runs_are_only_read(lost: CommandLine) -> None:
    """A run may be alive there, so that another process neither resumes nor cancels it."""
    with lost.started("chat", "--json") as chat:
        events_until(chat, "opened")
        assert len(lost.json("runs", "list")["runs"]) == 2
        assert lost.run("runs", "cancel", run_of(lost, "mail")).returncode == 4

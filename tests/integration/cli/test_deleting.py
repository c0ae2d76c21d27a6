"""``turngate delete`` as a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine
from turngate import open_gateway
from turngate.testing import ScriptedProvider


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line in a folder with a file in which Ann and Bob have talked."""

    async def talked() -> None:
        provider = ScriptedProvider(["ok"])
        async with open_gateway(tmp_path / "turngate.db", provider=provider) as gateway:
            for thread, user in (("t", "ann"), ("t", "bob"), ("own", "ann")):
                await gateway.tenant("local").thread(thread, user=user).ask(f"I am {user}.")

    asyncio.run(talked())
    return CommandLine(tmp_path, {})


def threads(cli: CommandLine) -> list[str]:
    return [thread["id"] for thread in cli.json("threads")["threads"]]


def test_turn_thread_and_user_are_deleted(cli: CommandLine) -> None:
    """Each is gone afterwards, and nothing else."""
    turn = cli.json("show", "t")["turns"][2]["id"]
    deleted = {"deleted": {"thread": "t", "turn": turn, "user": None}}
    assert cli.json("delete", "t", "--turn", turn, "--yes") == deleted
    shown = cli.json("show", "t")["turns"]
    assert [each["status"] for each in shown] == ["complete", "complete", "deleted", "complete"]
    assert "deleted" in cli.run("show", "t").stdout
    cli.json("delete", "--user", "ann", "--yes")
    assert threads(cli) == ["t"]
    assert [each["status"] for each in cli.json("show", "t")["turns"]][:2] == ["deleted"] * 2
    ended = cli.run("delete", "t", "--yes")
    assert ended.stdout == "thread 't' with its 4 turns is deleted\n"
    assert threads(cli) == []


def test_thread_of_failed_calls_alone_is_deleted(cli: CommandLine) -> None:
    """It is in no list, and what was asked is in the file all the same."""
    cli.environment["TURNGATE_URL"] = "http://127.0.0.1:9/v1"
    assert cli.run("chat", "--thread", "down", "--model", "m", typed="MAGPIE\n").returncode != 0
    assert (
        cli.run("delete", "down", "--yes").stdout == "thread 'down' with its 0 turns is deleted\n"
    )
    ended = cli.run("delete", "down", "--yes")
    assert ended.returncode == 1


def test_a_person_is_asked_first(cli: CommandLine) -> None:
    """On a terminal; anything but a yes deletes nothing."""
    for typed, left in (("n", ["own", "t"]), ("", ["own", "t"]), ("y", ["t"])):
        with cli.on_terminal("delete", "own") as terminal:
            terminal.wait_for("[y/N]")
            terminal.type(f"{typed}\r")
            assert terminal.ended() == (0 if typed == "y" else 1)
        assert threads(cli) == left


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("t",), 2, "usage"),
        ((), 2, "usage"),
        (("t", "--user", "ann", "--yes"), 2, "usage"),
        (("--turn", "x", "--yes"), 2, "usage"),
        (("nowhere", "--yes"), 1, "thread_not_found"),
        (("t", "--turn", "x", "--yes"), 1, "turn_not_found"),
        (("--user", "", "--yes"), 1, "invalid_value"),
        (("--db", "none.db", "--user", "ann", "--yes"), 4, "store"),
    ],
    ids=str,
)
def test_what_can_not_be_deleted_is_told(
    cli: CommandLine, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """Each refusal has its exit code and its error's code, and deletes nothing."""
    ended = cli.run("delete", *arguments, "--json")
    assert ended.returncode == code, ended.stderr
    assert f'"code": "{told}"' in ended.stderr
    assert threads(cli) == ["own", "t"]
    assert not (cli.folder / "none.db").exists()

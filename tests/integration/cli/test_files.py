"""``turngate files`` as a process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine
from tests.integration.files.support import age


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, {"TURNGATE_DB": "t.db"})


def put(cli: CommandLine, name: str, data: bytes, *more: str) -> str:
    """The id of a file of `data`."""
    (cli.folder / name).write_bytes(data)
    return str(cli.json("files", "put", name, *more)["id"])


def got(cli: CommandLine, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A ``get``, whose stdout is bytes."""
    return subprocess.run(
        [sys.executable, "-m", "turngate", "files", "get", *arguments],
        cwd=cli.folder,
        env=cli.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_file_goes_in_and_comes_out(cli: CommandLine) -> None:
    """By a path or by pipes, with the type that its name tells."""
    data = os.urandom(2_500_000)
    file_id = put(cli, "report.pdf", data)
    piped = got(cli, file_id)
    assert (piped.returncode, piped.stdout) == (0, data)
    assert got(cli, file_id, "--out", "copy.pdf").returncode == 0
    assert (cli.folder / "copy.pdf").read_bytes() == data
    (record,) = cli.json("files", "list")["files"]
    assert record["ref"] == {
        "id": file_id,
        "name": "report.pdf",
        "media_type": "application/pdf",
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    shown = cli.run("files", "list").stdout.splitlines()
    assert shown[0].split() == ["file", "name", "type", "bytes", "put"]
    assert shown[2].split()[:4] == [file_id, "report.pdf", "application/pdf", "2,500,000"]


def test_stdin_is_a_file_with_a_name(cli: CommandLine) -> None:
    """What is piped in needs a name, and may be told its type."""
    nameless = cli.run("files", "put", "-", typed="x")
    assert nameless.returncode == 2
    assert "--name" in nameless.stderr
    stored = cli.run(
        "files", "put", "-", "--name", "a", "--type", "text/x", "--json", typed="words"
    )
    ref = json.loads(stored.stdout)
    assert (ref["name"], ref["media_type"], ref["size_bytes"]) == ("a", "text/x", 5)


def test_lists_go_on_and_keep_tenants_apart(cli: CommandLine) -> None:
    """A page names the next one, and another tenant's list is its own."""
    ids = [put(cli, f"{number}.txt", b"x") for number in range(3)]
    theirs = put(cli, "theirs.txt", b"x", "--tenant", "acme")
    first = cli.json("files", "list", "--limit", "2")
    rest = cli.json("files", "list", "--after", first["next"])
    found = [record["ref"]["id"] for record in (*first["files"], *rest["files"])]
    assert (found, rest["next"]) == (ids[::-1], None)
    assert got(cli, theirs).returncode == 1
    assert got(cli, theirs, "--tenant", "acme").stdout == b"x"
    assert "No files" in cli.run("files", "list", "--tenant", "nobody").stdout


def test_a_deleted_file_is_gone(cli: CommandLine) -> None:
    """It can neither be got nor deleted again, and its bytes are gone."""
    file_id = put(cli, "a.txt", b"x")
    assert cli.run("files", "delete", file_id).stdout == f"{file_id} is deleted\n"
    again = cli.run("files", "delete", file_id, "--json")
    assert (again.returncode, json.loads(again.stderr)["error"]["code"]) == (1, "file_not_found")
    assert got(cli, file_id).returncode == 1
    assert list(cli.folder.glob("t.db.files/objects/*/*")) == []


def test_damage_leaves_the_target_as_it_was(cli: CommandLine) -> None:
    """Wrong bytes never stand under the name that was asked for."""
    file_id = put(cli, "a.txt", b"x")
    (place,) = cli.folder.glob("t.db.files/objects/*/*")
    place.write_bytes(b"y")
    (cli.folder / "target").write_text("before")
    ended = got(cli, file_id, "--out", "target")
    assert ended.returncode == 4
    assert b"damaged" in ended.stderr
    assert (cli.folder / "target").read_text() == "before"
    assert not list(cli.folder.glob(".turngate*"))


def test_a_sweep_tells_what_it_took(cli: CommandLine) -> None:
    """Old leftovers go, files stay."""
    file_id = put(cli, "a.txt", b"x")
    (cli.folder / "t.db.files/uploads/0#1").write_bytes(b"123")
    assert cli.json("files", "sweep") == {"objects": 0, "uploads": 0, "size_bytes": 0}
    age(cli.folder)
    assert "0 objects without a file and 1 unfinished uploads, 3 bytes" in cli.run(
        "files", "sweep", "--older-than", "1"
    ).stdout.replace("\n", " ")
    assert got(cli, file_id).stdout == b"x"


@pytest.mark.parametrize("command", ["list", "get x", "delete x", "sweep", "put nowhere.txt"])
def test_a_wrong_name_makes_no_database(cli: CommandLine, command: str) -> None:
    """What can't be met leaves nothing behind."""
    assert cli.run("files", *command.split()).returncode in (2, 4)
    assert list(cli.folder.iterdir()) == []


def test_files_may_live_elsewhere(cli: CommandLine) -> None:
    """A folder of your own, by option or environment."""
    file_id = put(cli, "a.txt", b"x", "--files", "elsewhere")
    assert (cli.folder / "elsewhere/objects").is_dir()
    cli.environment["TURNGATE_FILES"] = "elsewhere"
    assert got(cli, file_id).stdout == b"x"


def test_bytes_do_not_go_to_a_terminal(cli: CommandLine) -> None:
    """A terminal that is given bytes could be steered by them."""
    file_id = put(cli, "a.txt", b"evil")
    with cli.on_terminal("files", "get", file_id) as terminal:
        terminal.wait_for("--out")
        assert terminal.ended() == 2
        assert "evil" not in terminal.shown

"""``turngate threads`` and ``turngate show`` as processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.cli.command_line import CommandLine, events_until


def test_threads_are_listed_last_changed_first(talked: CommandLine) -> None:
    """A tenant's list has its own threads only."""
    listed = talked.json("threads")
    assert [thread["id"] for thread in listed["threads"]] == ["second", "first"]
    assert [thread["length"] for thread in listed["threads"]] == [2, 6]
    assert listed["next"] is None
    theirs = talked.json("threads", "--tenant", "acme")
    assert [thread["id"] for thread in theirs["threads"]] == ["third"]


def test_threads_come_in_pages(talked: CommandLine) -> None:
    """The cursor of a page opens the next one."""
    page = talked.json("threads", "--limit", "1")
    assert [thread["id"] for thread in page["threads"]] == ["second"]
    following = talked.json("threads", "--limit", "1", "--after", page["next"])
    assert [thread["id"] for thread in following["threads"]] == ["first"]
    shown = talked.run("threads", "--limit", "1")
    assert "--after" in shown.stdout


def test_threads_as_a_table(talked: CommandLine) -> None:
    """A person sees id, length and time in columns, without styles on a pipe."""
    ended = talked.run("threads")
    assert ended.returncode == 0
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    assert ended.stdout.split()[:5] == ["thread", "turns", "changed", "user", "title"]


def test_show_pages_backwards(talked: CommandLine) -> None:
    """The last turns come first; --before goes back from a position."""
    last = talked.json("show", "first", "--limit", "2")
    assert last["first"] == 4
    assert [turn["position"] for turn in last["turns"]] == [4, 5]
    earlier = talked.json("show", "first", "--limit", "2", "--before", "4")
    assert [turn["position"] for turn in earlier["turns"]] == [2, 3]
    assert earlier["turns"][1]["parts"] == [{"type": "text", "text": "You said: two"}]
    assert earlier["turns"][1]["model"] == "scripted-1"
    assert earlier["turns"][1]["usage"]["output_tokens"] == 5


def test_show_sums_the_usage(talked: CommandLine) -> None:
    """Each answer's usage stands beside it, and the sum at the end."""
    ended = talked.run("show", "first")
    assert ended.returncode == 0
    assert "10 tokens in, 5 out" in ended.stdout
    assert "sum of 3 answers: 90 tokens in, 15 out" in ended.stdout


@pytest.mark.parametrize("thread", ["missing", "third"])
def test_a_missing_thread_ends_with_1(talked: CommandLine, thread: str) -> None:
    """Another tenant's thread is missing in just the same way."""
    ended = talked.run("show", thread)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == f"error: there is no thread '{thread}'\n"


def test_a_missing_thread_as_json(talked: CommandLine) -> None:
    """The error is an object on stderr, and stdout stays empty."""
    ended = talked.run("show", "missing", "--json")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert json.loads(ended.stderr)["error"]["code"] == "thread_not_found"


@pytest.mark.parametrize("command", [["threads"], ["show", "t"]])
def test_reading_a_missing_file_ends_with_4_and_makes_none(
    cli: CommandLine, command: list[str]
) -> None:
    """A command that reads creates nothing."""
    ended = cli.run(*command, "--db", "nowhere.db")
    assert ended.returncode == 4
    assert "nowhere.db" in ended.stderr
    assert list(cli.folder.iterdir()) == []


def test_a_file_that_is_no_database_ends_with_4(cli: CommandLine) -> None:
    """What the database says is told in one line."""
    (cli.folder / "notes.db").write_text("not a database, but long enough to be read as one" * 99)
    ended = cli.run("threads", "--db", "notes.db")
    assert ended.returncode == 4
    assert "Traceback" not in ended.stderr


def test_show_beside_a_running_chat(cli: CommandLine) -> None:
    """Reading needs no pause of the writer, between its answers or amid one."""
    with cli.started("chat", "--thread", "t", "--json") as chat:
        assert chat.stdin is not None
        chat.stdin.write("hello\n")
        chat.stdin.flush()
        events_until(chat, "settled")
        assert len(cli.json("show", "t")["turns"]) == 2
        chat.stdin.write("slow\n")
        chat.stdin.flush()
        events_until(chat, "text")
        assert len(cli.json("show", "t")["turns"]) == 2
        assert chat.poll() is None


def test_a_reader_that_leaves_is_no_error(talked: CommandLine) -> None:
    """As in ``turngate show … | head``: nothing is said about the closed pipe."""
    with subprocess.Popen(
        [sys.executable, "-m", "turngate", "show", "first"],
        cwd=talked.folder,
        env=talked.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141

"""``turngate chat`` as a process, on pipes and on a terminal."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine, events_until
from tests.integration.cli.conftest import KEY
from tests.integration.cli.scripted_server import STALL_S, ScriptedServer

CTRL_C, CTRL_D = "\x03", "\x04"


def test_each_line_of_a_pipe_is_a_prompt(cli: CommandLine) -> None:
    """Stdout gets the answers alone; the thread is named on stderr."""
    ended = cli.run("chat", "--thread", "t", typed="hello\n\nworld\n")
    assert ended.returncode == 0
    assert ended.stdout == "You said: hello\nYou said: world\n"
    assert ended.stderr == "thread t in turngate.db\n"


def test_a_new_thread_is_made_and_named(cli: CommandLine) -> None:
    """Without --thread the conversation gets an id, by which it can be shown."""
    ended = cli.run("chat", typed="hello\n")
    named = re.search(r"thread (\S+) in", ended.stderr)
    assert named is not None
    assert len(cli.json("show", named[1])["turns"]) == 2


def test_a_thread_goes_on_where_it_was(cli: CommandLine, server: ScriptedServer) -> None:
    """The model is shown what an earlier process stored, and the instructions first."""
    cli.run("chat", "--thread", "t", typed="one\n")
    cli.run("chat", "--thread", "t", "--instructions", "Be brief.", typed="two\n")
    messages = server.requests[-1]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "Be brief."


def test_options_reach_the_model(cli: CommandLine, server: ScriptedServer) -> None:
    """The token limit and the model's name are what the server is asked for."""
    ended = cli.run("chat", "--max-tokens", "7", "--model", "scripted-1", typed="hello\n")
    assert ended.returncode == 0
    assert server.requests[-1]["max_tokens"] == 7
    assert server.requests[-1]["model"] == "scripted-1"


def test_events_as_json_lines(cli: CommandLine) -> None:
    """With --json each event is one object on a line, the settled call last."""
    ended = cli.run("chat", "--thread", "t", "--json", typed="think\n")
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [event["type"] for event in events] == [
        "opened",
        "asked",
        "reasoning",
        "text",
        "settled",
    ]
    assert events[0]["thread"] == "t"
    assert events[0]["tenant"] == "local"
    settled = events[-1]
    assert settled["kind"] == "answered"
    assert settled["text"] == "Done."
    assert [turn["role"] for turn in settled["turns"]] == ["user", "assistant"]
    assert settled["usage"]["output_tokens"] == 5
    assert ended.stderr == ""


def test_what_a_model_says_cannot_steer_the_terminal(cli: CommandLine) -> None:
    """Control characters are dropped and brackets are no markup, but the store keeps the text."""
    ended = cli.run("chat", "--thread", "t", typed="steer\n")
    assert ended.stdout == "]0;owned[red]clear[2Jed\n\n"
    assert "\x1b" not in cli.run("show", "t").stdout
    stored = cli.json("show", "t")["turns"][1]["parts"][0]["text"]
    assert stored == "\x1b]0;owned\x07[red]clear\x1b[2Jed\r\n"


def test_a_cut_answer_is_kept_and_ends_with_3(cli: CommandLine) -> None:
    """A script learns that the answer is not whole, and the thread has what came."""
    ended = cli.run("chat", "--thread", "t", typed="cut\nnever asked\n")
    assert ended.returncode == 3
    assert "Cut off" in ended.stderr
    turns = cli.json("show", "t")["turns"]
    assert [turn["status"] for turn in turns] == ["complete", "incomplete"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_ends_with_3_and_never_shows_the_key(cli: CommandLine, as_json: bool) -> None:
    """The server's error is told, without the key that the server repeats in it."""
    ended = cli.run("chat", *(["--json"] if as_json else []), typed="refuse\n")
    assert ended.returncode == 3
    assert KEY not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    if as_json:
        error = json.loads(ended.stderr)["error"]
        assert set(error) == {"code", "message", "hint"}


def test_a_server_that_is_not_there_ends_with_3(cli: CommandLine) -> None:
    """No connection is the model's side failing, in one line."""
    ended = cli.run("chat", "--url", "http://127.0.0.1:9/v1", "--model", "m", typed="hello\n")
    assert ended.returncode == 3
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_wrong_thread_id_is_told_before_anything_starts(cli: CommandLine, tmp_path: Path) -> None:
    """An id that no thread can have leaves no file behind."""
    ended = cli.run("chat", "--thread", "no spaces", typed="hello\n")
    assert ended.returncode == 1
    assert "thread id" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_with_4(cli: CommandLine) -> None:
    """One process writes the file; the other is told who."""
    with cli.started("chat", "--json") as first:
        events_until(first, "opened")
        ended = cli.run("chat", "--json", typed="hello\n")
    assert ended.returncode == 4
    assert json.loads(ended.stderr)["error"]["code"] == "store_in_use"


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(cli: CommandLine) -> None:
    """What was said is kept as an incomplete turn, and the terminal is left as it was found."""
    with cli.on_terminal("chat", "--thread", "t") as terminal:
        terminal.wait_for("you ")
        terminal.type("slow\r")
        terminal.wait_for("word5")
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped. What was said is kept.")
        terminal.wait_for("you ")
        terminal.type("hello\r")
        terminal.wait_for("You said: hello")
        terminal.wait_for("you ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        assert terminal.settings == terminal.settings_before
    turns = cli.json("show", "t")["turns"]
    assert [turn["status"] for turn in turns] == ["complete", "incomplete", "complete", "complete"]
    assert turns[1]["ended"] == "cancelled"
    assert turns[1]["parts"][0]["text"].startswith("word0 word1 word2 ")


def test_ctrl_c_before_the_first_word_stops_at_once(cli: CommandLine) -> None:
    """A model that says nothing can be left; the question is kept."""
    with cli.on_terminal("chat", "--thread", "t") as terminal:
        terminal.wait_for("you ")
        terminal.type("stall\r")
        terminal.wait_for("model ")
        time.sleep(0.5)  # the request is on its way
        started = time.monotonic()
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped. The question is kept.")
        assert time.monotonic() - started < STALL_S / 2
    assert [turn["role"] for turn in cli.json("show", "t")["turns"]] == ["user"]


def test_ctrl_c_at_the_prompt_leaves(cli: CommandLine) -> None:
    """At the prompt an interrupt is the way out, and no error."""
    with cli.on_terminal("chat") as terminal:
        terminal.wait_for("you ")
        terminal.type("half a li")
        terminal.wait_for("half a li")
        time.sleep(0.2)  # readline misses a signal that comes just before it waits for a key
        terminal.type(CTRL_C)
        assert terminal.ended() == 0
        assert terminal.settings == terminal.settings_before
        assert "Traceback" not in terminal.shown


def test_a_request_to_end_at_the_prompt_leaves_the_terminal_as_it_was(cli: CommandLine) -> None:
    """A shell that gets its terminal back can be typed in."""
    with cli.on_terminal("chat") as terminal:
        terminal.wait_for("you ")
        time.sleep(0.2)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 143
        assert terminal.settings == terminal.settings_before


def test_an_error_on_a_terminal_leaves_the_chat_open(cli: CommandLine) -> None:
    """After a failure the person is asked again."""
    with cli.on_terminal("chat") as terminal:
        terminal.wait_for("you ")
        terminal.type("refuse\r")
        shown = terminal.wait_for("error:")
        shown += terminal.wait_for("you ")
        terminal.type("hello\r")
        terminal.wait_for("You said: hello")
        assert KEY not in terminal.shown


def test_no_color_is_respected(cli: CommandLine) -> None:
    """NO_COLOR leaves no colour codes on a terminal, in the prompt either."""
    cli.environment["NO_COLOR"] = "1"
    with cli.on_terminal("chat") as terminal:
        terminal.wait_for("you ")
        terminal.type("hello\r")
        terminal.wait_for("You said: hello")
        terminal.wait_for("you ")
        assert re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.shown) is None


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_amid_an_answer_keeps_what_was_said(
    cli: CommandLine, number: signal.Signals, code: int
) -> None:
    """A process that is told to end settles its call before it does."""
    with cli.started("chat", "--thread", "t", "--json") as process:
        assert process.stdin is not None
        process.stdin.write("slow\n")
        process.stdin.flush()
        events_until(process, "text")
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == code
    turns = cli.json("show", "t")["turns"]
    assert [turn["status"] for turn in turns] == ["complete", "incomplete"]
    assert turns[1]["parts"][0]["text"].startswith("word0 ")

"""The command line's own surface: help, usage errors, and what it imports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from turngate.cli import commands, show
from turngate.cli import main as entry
from turngate.errors import ThreadNotFound

RUNS = ["runs list", "runs show", "runs cancel", "runs resume"]
DECISIONS = ["reviews approve", "reviews edit", "reviews reject", "reviews retry"]
REVIEWS = ["reviews list", "reviews show", *DECISIONS, "reviews decide", "reviews export"]
FACTS = [
    f"facts {name}" for name in ("list", "add", "edit", "approve", "reject", "forget", "history")
]
FILES = [f"files {name}" for name in ("list", "put", "get", "delete", "sweep")]
COMMANDS = ["demo", "chat", "threads", "show", "delete", "explain", *RUNS, *REVIEWS, *FILES, *FACTS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each help shows how the command is called, and whose threads it means."""
    assert entry.main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"turngate {command}" in shown.partition("Examples")[2]
    # Resuming and sweeping are for every tenant of the file.
    assert "'local'" in shown or command in ("runs resume", "files sweep")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The first page names every command."""
    assert entry.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command.split()[0] in shown for command in COMMANDS)


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is printed and nothing is done."""
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("turngate")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "t", "--limit", "0"],
        ["chat", "--nonsense"],
        ["nonsense"],
        ["runs", "cancel"],
        [],
        ["runs"],
        ["explain"],
        ["explain", "c", "--model-call", "0"],
        ["reviews", "retry", "r", "--by", "ann"],
        ["files"],
        ["files", "put"],
        ["files", "sweep", "--older-than", "0.5"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A call that can't be understood is told so, without a traceback."""
    assert entry.main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands on the command line is what is asked of the library."""
    asked: dict[str, object] = {}

    def run_show(**options: object) -> int:
        asked.update(options)
        return 0

    monkeypatch.setattr(show, "run_show", run_show)
    call = ["show", "t-1", "--tenant", "acme", "--db", "x.db", "--limit", "3", "--before", "9"]
    assert entry.main(call) == 0
    assert asked == {
        "db": "x.db",
        "tenant": "acme",
        "thread": "t-1",
        "limit": 3,
        "before": 9,
        "as_json": False,
    }


def test_an_error_of_the_library_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing thread ends the command with 1 and one line."""

    def run_show(**options: object) -> int:
        raise ThreadNotFound("t-1")

    monkeypatch.setattr(show, "run_show", run_show)
    assert entry.main(["show", "t-1"]) == 1
    assert capsys.readouterr().err == "error: there is no thread 't-1'\n"


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_imports_neither_http_nor_the_model() -> None:
    """Asking for help is quick: what a command needs is imported when it is run."""
    ended = python(
        "import sys; from turngate.cli.main import main; main(['--help']);"
        "print([m for m in ('aiohttp', 'xllamacpp', 'uvloop', 'turngate.cli.chat') "
        "if m in sys.modules], file=sys.stderr)"
    )
    assert ended.stderr.strip() == "[]"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_parts_are_named_in_one_line(missing: str) -> None:
    """Without its own packages the command says which extra to install."""
    ended = python(
        f"import sys; sys.modules[{missing!r}] = None;"
        "from turngate.cli.main import main; sys.exit(main(['--help']))"
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "pip install 'turngate[cli]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_every_command_has_the_options_of_its_function() -> None:
    """What a command hands on by name is what the function behind it takes."""
    groups = [group.typer_instance for group in commands.app.registered_groups]
    registered = [
        command.callback
        for group in (commands.app, *groups)
        if group is not None
        for command in group.registered_commands
    ]
    assert len(registered) == len(COMMANDS)
    for callback in registered:
        assert callback is not None
        bound = inspect.getclosurevars(callback).nonlocals
        module, function = bound["target"].split(".")
        called = getattr(import_module(f"turngate.cli.{module}"), function)
        options = [*inspect.signature(callback).parameters, *bound["fixed"]]
        inspect.signature(called).bind(**dict.fromkeys(options))

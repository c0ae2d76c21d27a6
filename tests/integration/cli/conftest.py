"""A scripted server, and the command line that is told to use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine
from tests.integration.cli.scripted_server import ScriptedServer, scripted_server

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def configured(folder: Path, server: ScriptedServer) -> CommandLine:
    return CommandLine(folder, {"TURNGATE_URL": server.base_url, "TURNGATE_API_KEY": KEY})


@pytest.fixture
def cli(tmp_path: Path, server: ScriptedServer) -> CommandLine:
    return configured(tmp_path, server)


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory, server: ScriptedServer) -> CommandLine:
    """A file to read: two threads of the tenant local, and one of another."""
    cli = configured(tmp_path_factory.mktemp("talked"), server)
    assert cli.run("chat", "--thread", "first", typed="one\ntwo\nthree\n").returncode == 0
    assert cli.run("chat", "--thread", "second", typed="hello\n").returncode == 0
    theirs = cli.run("chat", "--thread", "third", "--tenant", "acme", typed="hello\n")
    assert theirs.returncode == 0
    return cli

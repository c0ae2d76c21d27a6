"""Every Python example in the pages runs, and prints what its page says.

A ``python`` block is run, in the namespace that the blocks before it on its page have left;
`await` may stand at its top level. An ``output`` block is what the block before it printed.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from tests.docs.loopback import loopback_server
from tests.docs.pages import PAGES, ROOT, fences, page_id

SERVER_IN_THE_PAGES = "http://127.0.0.1:8080/v1"
PAGES_WITH_EXAMPLES = [page for page in PAGES if any(fences(page, "python"))]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with loopback_server() as url:
        yield url


class PageRun:
    """The examples of one page, run in order on one event loop."""

    def __init__(self, runner: asyncio.Runner, server_url: str) -> None:
        self._runner = runner
        self._server_url = server_url
        self._printed = ""

    def run(self, page: Path) -> int:
        """How many examples there were. Errors: what an example raises."""
        parsers = [CodeBlockParser("python", self._python), CodeBlockParser("output", self._output)]
        document = Sybil(parsers, path=str(ROOT)).parse(page)
        examples = list(document.examples())
        for example in examples:
            example.evaluate()
        return len(examples)

    def _python(self, example: Example) -> None:
        # The port of the pages may be taken, and is another one in each run.
        source = example.parsed.replace(SERVER_IN_THE_PAGES, self._server_url)
        with redirect_stdout(io.StringIO()) as printed:
            code = _code(source, example)
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(eval(code, example.namespace))
            else:
                exec(code, example.namespace)
        self._printed = printed.getvalue()

    def _output(self, example: Example) -> str | None:
        """Nothing if the page is right, else what is wrong."""
        printed, told = self._printed.rstrip("\n"), example.parsed.rstrip("\n")
        return None if printed == told else f"printed:\n{printed}\nbut the page says:\n{told}"


def _code(source: str, example: Example) -> CodeType:
    """`source` compiled, with the line numbers of its page."""
    padded = "\n" * (example.line + example.parsed.line_offset) + source
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(padded, example.path, "exec", flags=flags, dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=page_id)
def test_example_runs_and_prints_what_its_page_says(
    page: Path, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who copies the examples of a page gets what the page shows."""
    monkeypatch.chdir(tmp_path)
    with asyncio.Runner() as runner:
        blocks = len([*fences(page, "python"), *fences(page, "output")])
        assert PageRun(runner, server_url).run(page) == blocks


def test_examples_keep_the_house_style(tmp_path: Path) -> None:
    """The linter finds in the examples what it finds in the code; names may come from before."""
    where = {}
    for page in PAGES_WITH_EXAMPLES:
        for line, source in fences(page, "python"):
            name = f"{page_id(page).replace('/', '_').removesuffix('.md')}_{line}.py"
            (tmp_path / name).write_text(source, encoding="utf-8")
            where[name] = f"{page_id(page)}:{line}"
    # A block goes on from the one before it: its names, its imports, its `await`.
    ignored = "F401,F704,F811,F821,PLE1142,T20,N"
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    config = ["--config", str(ROOT / "pyproject.toml"), "--extend-ignore", ignored]
    checked = subprocess.run(
        [*command, *config, str(tmp_path)], capture_output=True, text=True, check=False
    )
    found = checked.stdout
    for name, place in where.items():
        found = found.replace(str(tmp_path / name), place)
    assert checked.returncode == 0, found + checked.stderr

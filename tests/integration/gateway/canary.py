"""Words that must be nowhere, and the places where they could be: the parts of test_canary.py.

Run as ``python -m tests.integration.gateway.canary FOLDER POINT`` it is a process that holds a
canary in a streamed run and dies at POINT.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec

from turngate import Usage, open_gateway, tool
from turngate.completion import ChatRequest, FunctionCallDelta, ModelPart, ReasoningDelta, StreamEnd
from turngate.records import Allow, Block, Change, Prompt, Proposal, Replace, Review, Scope
from turngate.stores.sqlite import SqliteStore
from turngate.testing import ScriptedProvider, ScriptStep

CANARY = "xyloz"  # begins each word that must be nowhere; a part of a stream holds such words whole
ALLOWED = "quokka"  # begins each word that the same search has to find
TENANT = "acme"

Said = ModelPart | StreamEnd
Verdict = Replace | Block | Review | Exception | float
"""What a `Judge` gives, an exception that it raises, or the seconds for which it hangs."""

USAGE = Usage(input_tokens=10, output_tokens=2)


def canary_calls(end: Literal["tool_calls", "length"] = "tool_calls") -> list[Said]:
    """A model step whose text, reasoning, call id, tool name and arguments hold canaries."""
    return [
        ReasoningDelta(f"{CANARY}reasoning "),
        f"{CANARY}text ",
        FunctionCallDelta(
            index=0,
            id=f"{CANARY}id",
            name=f"{CANARY}tool",
            arguments=f'{{"{CANARY}name": "{CANARY}value"}}',
        ),
        StreamEnd(end, usage=USAGE, model="m1"),
    ]


def canary_answer(end: Literal["stop", "length"] = "stop") -> list[Said]:
    """An answer whose text and reasoning hold canaries."""
    return [
        ReasoningDelta(f"{CANARY}reasoning "),
        f"{CANARY}text ",
        f"{CANARY}more",
        StreamEnd(end, usage=USAGE, model="m1"),
    ]


def allowed_calls(*numbers: int) -> list[Said]:
    """A model step that calls `double` with each number."""
    deltas = [
        FunctionCallDelta(index=i, id=f"c{i}", name="double", arguments=f'{{"number":{n}}}')
        for i, n in enumerate(numbers)
    ]
    return [f"{ALLOWED}step", *deltas, StreamEnd("tool_calls", usage=USAGE, model="m1")]


@tool(effect="safe")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Judge:
    """Gives `verdict` on what holds a canary, and lets all else pass."""

    name = "judge"

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        if CANARY not in prompt.text:
            return Allow()
        if isinstance(self.verdict, Replace):
            return Allow(self.verdict.text)
        if isinstance(self.verdict, Exception):
            raise RuntimeError(prompt.text) from self.verdict
        return Block("said")

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        if CANARY not in repr(answer):
            return Allow()
        if isinstance(self.verdict, Exception):
            raise RuntimeError(repr(answer)) from self.verdict
        if isinstance(self.verdict, float):
            await asyncio.sleep(self.verdict)
            return Allow()
        return self.verdict


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of every file in `folder`: the database, its log, its shared memory, its lock."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tables(folder: Path, *, but: str | None = None) -> dict[str, bytes]:
    """Every row of each table of the database, except of the table `but`."""
    found: dict[str, bytes] = {}
    with closing(sqlite3.connect(folder / "turngate.db")) as db:
        names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name != but:
                rows = db.execute(f"SELECT * FROM {name}").fetchall()  # our tables
                found[f"table {name}"] = repr(rows).encode()
    return found


def in_all_forms(values: Iterable[object]) -> dict[str, bytes]:
    """`values` in each form in which a program may print, send or keep them."""
    found: dict[str, bytes] = {}
    for number, value in enumerate(values):
        where = f"{number} {type(value).__name__}"
        found[f"repr of {where}"] = repr(value).encode()
        found[f"str of {where}"] = str(value).encode()
        found[f"pickle of {where}"] = pickle.dumps(value)
        if isinstance(value, BaseException):
            told = traceback.format_exception(value)
            found[f"traceback of {where}"] = "".join(told).encode()
            found[f"state of {where}"] = repr((value.args, vars(value))).encode()
        else:
            found[f"JSON of {where}"] = msgspec.json.encode(value)
    return found


def holding(word: str, places: dict[str, bytes]) -> list[str]:
    """The names of those `places` in which `word` stands."""
    return sorted(name for name, content in places.items() if word.encode() in content)


# ── a process that dies while it holds a canary ──────────────────────────────────────────────

POINTS = ("speaking", "judging", "before_commit", "after_commit")


class _Dying(Judge):
    def __init__(self, point: str) -> None:
        super().__init__(Block("said"))
        self.point = point

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        if self.point == "judging" and CANARY in answer.text:
            await asyncio.sleep(0.2)  # long enough for the events so far to be stored
            os._exit(9)
        return await super().check_answer(answer)


class _Speaking(ScriptedProvider):
    """Dies in the midst of the answer, after what a reader could have been shown was stored."""

    def __init__(self, *scripts: Sequence[ScriptStep], point: str) -> None:
        super().__init__(*scripts)
        self.point = point

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        async for part in super().stream(request):
            yield part
            if self.point == "speaking" and part == f"{CANARY}more":
                await asyncio.sleep(0.2)
                os._exit(9)


def _die_at_the_commit(point: str) -> None:
    commit = SqliteStore.commit

    async def dying(self: SqliteStore, scope: Scope, change: Change) -> int:
        is_end = change.update is not None and change.update.state == "blocked"
        if is_end and point == "before_commit":
            os._exit(9)
        length = await commit(self, scope, change)
        if is_end and point == "after_commit":
            os._exit(9)
        return length

    SqliteStore.commit = dying  # type: ignore[method-assign]


async def _child(folder: Path, point: str) -> None:
    _die_at_the_commit(point)
    provider = _Speaking(allowed_calls(21), canary_answer(), point=point)
    async with open_gateway(
        folder / "turngate.db", provider=provider, tools=[double], checks=[_Dying(point)]
    ) as gateway:
        thread = gateway.tenant(TENANT).thread("t")
        async with thread.stream_run(f"{ALLOWED}prompt", tools=["double"]) as events:
            async for _ in events:
                pass


if __name__ == "__main__":
    asyncio.run(_child(Path(sys.argv[1]), sys.argv[2]), debug=True)

"""A kill loop: children that ask, and a parent that kills them and reads what is left.

Run as ``python -m tests.integration.gateway.killing FOLDER ROUNDS SEED [BUG]``: it prints one line
per broken promise and exits with 1 if there is any. The parent imports once and forks, so that a
round costs little. BUG plants a fault in the children, to show that the loop would see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from turngate import TextPart, Turn, open_gateway
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.messages import UserMessage
from turngate.records import Change, Scope
from turngate.stores.sqlite import SqliteStore

THREADS_A_ROUND = 3
TENANT = "acme"


class Echo:
    """A model that answers ``re: <prompt>`` in two pieces."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        yield "re: "
        await asyncio.sleep(0)
        yield str(last.parts[0])
        yield StreamEnd("stop")


def plant(bug: str) -> None:
    """Make the store of this process faulty in the way of `bug`."""
    commit = SqliteStore.commit
    behind: set[asyncio.Task[int]] = set()

    async def acknowledge_first(self: SqliteStore, scope: Scope, change: Change) -> int:
        task = asyncio.create_task(commit(self, scope, change))
        behind.add(task)
        task.add_done_callback(behind.discard)
        return (change.expected or 0) + len(change.turns)

    if bug != "acknowledge_first":
        raise SystemExit(f"unknown bug {bug!r}")
    SqliteStore.commit = acknowledge_first  # type: ignore[method-assign]


async def child(db: Path, round_: int, out: int) -> None:
    """Ask for ever; say ``? token`` before an ask and ``! token`` once it is acknowledged."""
    async with open_gateway(db, provider=Echo()) as gateway:
        os.write(out, b"ready\n")

        async def ask_on(name: str) -> None:
            thread = gateway.tenant(TENANT).thread(name)
            for number in range(10_000):
                token = f"{name}/{number}"
                os.write(out, f"? {token}\n".encode())
                (await thread.ask(token)).expect()
                os.write(out, f"! {token}\n".encode())

        async with asyncio.TaskGroup() as group:
            for thread in range(THREADS_A_ROUND):
                group.create_task(ask_on(f"r{round_}-{thread}"))


def killed_round(db: Path, round_: int, delay_s: float, bug: str | None) -> list[str]:
    """What a child said before it was killed `delay_s` after it was ready."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with contextlib.suppress(BaseException):
            if bug is not None:
                plant(bug)
            asyncio.run(child(db, round_, writing))
        os._exit(1)
    os.close(writing)
    said = b""
    with os.fdopen(reading, "rb") as pipe:
        said += pipe.readline()
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
        said += pipe.read()
    os.waitpid(pid, 0)
    return said.decode().splitlines()


def text_of(turn: Turn) -> str:
    return "".join(part.text for part in turn.parts if isinstance(part, TextPart))


async def faults_after(db: Path, round_: int, said: list[str]) -> list[str]:
    """The promises that the file breaks after the child of `round_` was killed."""
    if not said or said[0] != "ready":
        return [f"round {round_}: the child never became ready"]
    asked = {line[2:] for line in said if line.startswith("? ")}
    # The last line may be cut; a cut acknowledgement counts as none.
    acknowledged = {line[2:] for line in said if line.startswith("! ")} & asked
    faults: list[str] = []
    async with open_gateway(db, provider=Echo()) as gateway:
        for number in range(THREADS_A_ROUND):
            name = f"r{round_}-{number}"
            page = await gateway.tenant(TENANT).thread(name).turns(limit=10_000)
            texts = [text_of(turn) for turn in page.turns]
            faults += [
                f"{token} was acknowledged and is not there whole"
                for token in acknowledged
                if token.startswith(f"{name}/")
                and (texts.count(token), texts.count(f"re: {token}")) != (1, 1)
            ]
            faults += [f"{text} stands twice" for text in set(texts) if texts.count(text) > 1]
            faults += [
                f"{text} is an answer without its question before it"
                for before, text in zip(["", *texts], texts, strict=False)
                if text.startswith("re: ") and f"re: {before}" != text
            ]
            if page.first != 0 or page.length != len(page.turns):
                faults.append(f"{name} has gaps")
            (await gateway.tenant(TENANT).thread(name).ask("alive")).expect()
    return [f"round {round_}: {fault}" for fault in faults]


def main() -> int:
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    bug = sys.argv[4] if len(sys.argv) > 4 else None
    chance = random.Random(seed)
    acknowledged = 0
    faults: list[str] = []
    for round_ in range(rounds):
        db = folder / "turngate.db"
        said = killed_round(db, round_, chance.uniform(0.0, 0.05), bug)
        acknowledged += sum(line.startswith("! ") for line in said)
        faults += asyncio.run(faults_after(db, round_, said))
    print(f"{rounds} kills, {acknowledged} acknowledged answers, {len(faults)} faults")
    print("\n".join(faults[:10]))
    return 1 if faults or not acknowledged else 0


if __name__ == "__main__":
    raise SystemExit(main())

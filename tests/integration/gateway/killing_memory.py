"""A kill loop over helper calls and deletions: children that ask, remember and delete, and a parent
that kills them.

Run as ``python -m tests.integration.gateway.killing_memory FOLDER ROUNDS SEED [BUG]``: it prints
one line per broken promise and exits with 1 if there is any. All rounds are of one file and of the
same threads, so that what one child left is what the next goes on from.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.integration.gateway.killing import TENANT, Echo
from tests.integration.gateway.remembering import Helper, Told, fact
from tests.integration.stores.raw import ledger_of, raw_rows
from turngate import Gateway, RecentWindow, open_gateway
from turngate.errors import ThreadBusy, ThreadNotFound
from turngate.protocols import Remember
from turngate.records import CallRecord, Change, FactRecord, Scope, SummaryRecord
from turngate.stores.sqlite import SqliteStore

THREADS = 3
DELETED = ("d0", "d1")  # from these, turns and all are deleted


def facts(told: Told) -> list[Told]:
    """A fact for each number that is said; each tenth corrects a known one."""
    found = []
    known = [entry["id"] for entry in told["known_facts"]]
    for turn in told["turns"]:
        number = turn["text"].removeprefix("User: number ")
        if "turn" in turn and number.isdecimal():
            corrects = known[0] if known and int(number) % 10 == 0 else None
            found.append(fact(turn["turn"], f"Number {number}.", corrects=corrects))
    return found


def summary(told: Told) -> str:
    """The lines that all versions so far were made of, counted."""
    before = int(told["summary_so_far"] or 0)
    return str(before + len(told["transcript"].splitlines()))


def gateway_over(db: Path) -> contextlib.AbstractAsyncContextManager[Gateway]:
    remember = Remember(helper=Helper(facts=facts, summary=summary), step=4)
    return open_gateway(db, provider=Echo(), window=RecentWindow(turns=6), remember=remember)


def plant(bug: str) -> None:
    """Make writes of this process come in two commits, as a careless program would."""
    if bug not in ("two_commits", "forgotten_apart"):
        raise SystemExit(f"unknown bug {bug!r}")
    commit = SqliteStore.commit

    async def in_two(self: SqliteStore, scope: Scope, change: Change) -> int:
        first = change
        if bug == "two_commits" and change.begin and (change.facts or change.summary):
            first = msgspec.structs.replace(change, begin=None, ledger=(), learnt=None)
        if bug == "forgotten_apart" and change.erase:
            first = msgspec.structs.replace(change, erase=None)
        if first is not change:
            await commit(self, scope, first)
            change = msgspec.structs.replace(change, facts=(), summary=None)
        return await commit(self, scope, change)

    SqliteStore.commit = in_two  # type: ignore[method-assign]


async def child(db: Path, round_: int, out: int) -> None:
    async with gateway_over(db) as gateway:
        os.write(out, b"ready\n")

        async def ask_on(name: str) -> None:
            thread = gateway.tenant(TENANT).thread(name, user="ann")
            for number in range(10_000):
                (await thread.ask(f"number {round_ * 1000 + number}")).expect()

        async def delete_on(name: str) -> None:
            thread = gateway.tenant(TENANT).thread(name, user="ann")
            for number in range(10_000):
                own = DELETED.index(name) * 250 + 500
                (await thread.ask(f"number {round_ * 1000 + own + number}")).expect()
                with contextlib.suppress(ThreadBusy, ThreadNotFound):
                    turns = (await thread.turns()).turns
                    if number % 3 == 2:
                        await thread.delete()
                    else:
                        await thread.delete_turn(turns[-2 * (number % 2 + 1)].id)

        async with asyncio.TaskGroup() as group:
            for thread in range(THREADS):
                group.create_task(ask_on(f"t{thread}"))
            for name in DELETED:
                group.create_task(delete_on(name))


def killed_round(db: Path, round_: int, delay_s: float, bug: str | None) -> bool:
    """Whether a child was ready before it was killed, `delay_s` later."""
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
    with os.fdopen(reading, "rb") as pipe:
        ready = pipe.readline()
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return ready == b"ready\n"


def faults_in(db: Path) -> list[str]:
    """The promises that the file breaks."""
    bodies = {
        table: [body for (body,) in raw_rows(db, f"SELECT body FROM {table} WHERE tenant = 'acme'")]
        for table in ("calls", "facts", "summaries")
    }
    calls = {c.id: c for c in (msgspec.json.decode(b, type=CallRecord) for b in bodies["calls"])}
    gone = dict(raw_rows(db, "SELECT id, body FROM turns WHERE body LIKE '%\"deleted\"%'"))
    there = {turn for (turn,) in raw_rows(db, "SELECT id FROM turns")} - gone.keys()
    known = [msgspec.json.decode(body, type=FactRecord) for body in bodies["facts"]]
    rows = Counter(row.call for row in ledger_of(db, TENANT) if row.helper)
    return [
        *_faults_of_calls(calls, rows, known, bodies["summaries"]),
        *_faults_of_facts(db, calls, known),
        *_faults_of_summaries(db),
        *(
            f"{each.id} comes of {source.turn}, which is gone"
            for each in known
            for source in each.sources
            if source.turn not in there
        ),
        *(
            f"{call.id} still has the words of {call.user_turn.id}, which is deleted"
            for call in calls.values()
            if call.user_turn is not None and call.user_turn.id in gone and call.user_turn.parts
        ),
    ]


def _faults_of_calls(
    calls: dict[str, CallRecord],
    rows: Counter[str],
    known: list[FactRecord],
    summaries: list[str],
) -> list[str]:
    helpers = {call.id for call in calls.values() if call.kind in ("memory", "facts")}
    versions = [msgspec.json.decode(body, type=SummaryRecord) for body in summaries]
    written = {each.call for each in known if each.text} | {each.call for each in versions}
    faults = [f"{call} has {rows[call]} ledger rows" for call in helpers if rows[call] != 1]
    faults += [f"{call} wrote something and is not there" for call in written - helpers - {None}]
    return faults


def _faults_of_facts(db: Path, calls: dict[str, CallRecord], known: list[FactRecord]) -> list[str]:
    by_id = {each.id: each for each in known}
    live = Counter(each.text for each in known if each.state == "active")
    faults = [f"{text} is there {count} times" for text, count in live.items() if count > 1]
    faults += [
        f"{each.id} is superseded by one that is not there"
        for each in known
        if each.state == "superseded" and each.superseded_by not in by_id
    ]
    faults += [
        f"{each.id} stands beside {each.supersedes}, which it corrects"
        for each in known
        if each.state == "active" and each.supersedes and by_id[each.supersedes].state == "active"
    ]
    learnt = dict(raw_rows(db, "SELECT thread, upto FROM learnt"))
    texts = {each.text for each in known}
    for thread, position, body in raw_rows(db, "SELECT thread, position, body FROM turns"):
        number = body.partition("number ")[2].partition('"')[0]
        was_learnt = '"role":"user"' in body and position < learnt.get(thread, 0)
        if was_learnt and '"deleted"' not in body and f"Number {number}." not in texts:
            faults.append(f"{thread} was learnt beyond {position}, and nothing of it is there")
    found = {fact for (fact,) in raw_rows(db, "SELECT fact FROM fact_words")}
    if found != {each.id for each in known if each.state == "active"}:
        faults.append("the index holds other facts than those that are active")
    return faults


def _faults_of_summaries(db: Path) -> list[str]:
    faults = []
    last: dict[str, tuple[int, int]] = {}
    for thread, version, upto, body in raw_rows(
        db, "SELECT thread, version, upto, body FROM summaries ORDER BY thread, version"
    ):
        before = last.get(thread, (0, 0))
        if version != before[0] + 1 or upto <= before[1]:
            faults.append(f"{thread} has version {version} up to {upto} after {before}")
        counted = msgspec.json.decode(body, type=SummaryRecord).text
        if thread not in DELETED and counted != str(upto):
            faults.append(f"version {version} of {thread} is not made of {upto} turns")
        last[thread] = (version, upto)
    return faults


async def caught_up(db: Path) -> list[str]:
    """What is still not remembered once a process lives on."""
    async with gateway_over(db) as gateway:
        for name in (*(f"t{number}" for number in range(THREADS)), *DELETED):
            thread = gateway.tenant(TENANT).thread(name, user="ann")
            (await thread.ask("number 1")).expect()
            await gateway.remembered()
        behind = raw_rows(
            db,
            "SELECT t.id FROM threads t LEFT JOIN learnt l"
            " ON l.tenant = t.tenant AND l.thread = t.id"
            " WHERE l.upto IS NULL OR l.upto <> t.length",
        )
    return [f"{thread} is not learnt to its end" for (thread,) in behind]


def main() -> int:
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    bug = sys.argv[4] if len(sys.argv) > 4 else None
    chance = random.Random(seed)
    db = folder / "turngate.db"
    faults: list[str] = []
    for round_ in range(1, rounds + 1):
        if not killed_round(db, round_, chance.uniform(0.02, 0.2), bug):
            faults.append(f"round {round_}: the child never became ready")
        faults += [f"round {round_}: {fault}" for fault in faults_in(db)]
        if faults:
            break
    if not faults:
        faults += asyncio.run(caught_up(db)) + faults_in(db)
    (helpers,) = raw_rows(
        db, "SELECT count(*) FROM calls WHERE id LIKE 'memory%' OR id LIKE 'facts%'"
    )
    (deletions,) = raw_rows(db, "SELECT coalesce(sum(count), 0) FROM erasures")
    print(f"{rounds} kills, {helpers[0]} helper calls, {deletions[0]} deletions", end=", ")
    print(f"{len(faults)} faults")
    print("\n".join(faults[:10]))
    return 1 if faults or not helpers[0] or not deletions[0] else 0


if __name__ == "__main__":
    raise SystemExit(main())

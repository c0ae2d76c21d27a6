"""Deleting a turn, a thread, or all of a user: what holds their words, or came of them alone.

    turn     what is left is that there was one; what its call has of it goes, and what was learnt
    thread   all of it but the ledger, which counts what was used
    user     threads that are the user's alone; in others the turns of the user's calls; all facts

Each thread is erased in one commit, which a call that has not ended refuses. Helper calls and new
calls that read the thread before it are turned away by it (`Change.erasures`), so that nothing that
was deleted comes back. Deleting again finds nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field

import msgspec

from turngate import identity
from turngate.errors import (
    FileNotFound,
    RecallMoved,
    RequestError,
    StoreError,
    ThreadBusy,
    ThreadMoved,
    TurnNotFound,
)
from turngate.gateway.calls import released
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.forgetting import facts_without
from turngate.records import (
    CallRecord,
    Change,
    Erasure,
    FileRecord,
    ReviewRecord,
    Scope,
    Span,
    Step,
)
from turngate.turns import ToolResultPart, Turn

__all__ = ["delete_thread", "delete_turn", "delete_user"]

_TRIES = 20
_PAGE = 1000
_FILE_ID = re.compile(r"file_[0-9a-f]{32}")


def _nobody(call: CallRecord) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to go of one thread: all of it, or some turns, and calls with all that they hold."""

    whole: bool = False
    turns: Collection[str] = ()
    calls: Callable[[CallRecord], bool] = _nobody
    user: str | None = None


@dataclass(slots=True)
class _Found:
    """What holds the words that are to go, collected call by call; `turns` by their positions."""

    length: int
    turns: dict[int, Turn] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    steps: list[tuple[str, Step]] = field(default_factory=list)
    reviews: list[ReviewRecord] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def turn_ids(self) -> set[str]:
        return {turn.id for turn in self.turns.values()}

    def erasure(self, wanted: _Wanted) -> Erasure:
        files, texts = tuple(self.files), tuple(self.texts)
        if wanted.whole:
            return Erasure(whole=True, files=files, texts=texts)
        return Erasure(
            turns=tuple(map(_tombstone, self.turns.values())),
            calls=tuple(self.calls),
            steps=tuple(self.steps),
            reviews=tuple(self.reviews),
            files=files,
            texts=texts,
            user=wanted.user,
        )


async def delete_turn(deps: GatewayDeps, scope: Scope, thread: str, turn: str) -> None:
    """Errors: `TurnNotFound`; `ThreadBusy`; `StoreError`."""
    await _erased(deps, scope, thread, _Wanted(turns={turn}))


async def delete_thread(deps: GatewayDeps, scope: Scope, thread: str) -> None:
    """Errors: `ThreadNotFound`; `ThreadBusy`; `StoreError`."""
    if not (await deps.store.calls(scope, thread=thread, limit=1)).calls:
        await deps.store.thread(scope, thread)
    await _erased(deps, scope, thread, _Wanted(whole=True))


async def delete_user(deps: GatewayDeps, scope: Scope, user: str) -> None:
    """Thread after thread, as long as there are some; where it is interrupted, it can be repeated.

    Reads the records of all calls and threads of the tenant. Errors: `ThreadBusy`, with that thread
    and those after it still to do; `StoreError`.
    """
    for _ in range(_TRIES):
        threads = await _threads_of(deps, scope, user)
        if not threads:
            return
        for thread, alone in threads.items():
            if alone:
                wanted = _Wanted(whole=True)
            else:
                wanted = _Wanted(calls=lambda call: call.user == user, user=user)
            await _erased(deps, scope, thread, wanted)
    raise RequestError(
        f"calls of user {user!r} keep coming", hint="Let none begin any more, and delete again."
    )


async def _threads_of(deps: GatewayDeps, scope: Scope, user: str) -> dict[str, bool]:
    """The threads that name the user or have calls of theirs, and whether they are theirs alone."""
    named: set[str] = set()
    others: set[str] = set()
    after = None
    while True:
        page = await deps.store.threads(scope, after=after, limit=_PAGE)
        named.update(thread.id for thread in page.threads if thread.user == user)
        after = page.next
        await asyncio.sleep(0)
        if after is None:
            break
    async for call in _calls(deps, scope):
        if call.user == user:
            named.add(call.thread)
        elif call.kind in ("ask", "run"):
            others.add(call.thread)
    return {thread: thread not in others for thread in sorted(named)}


async def _erased(deps: GatewayDeps, scope: Scope, thread: str, wanted: _Wanted) -> None:
    """Returns once what is wanted is gone."""
    for left in reversed(range(_TRIES)):
        erasures = await deps.store.erasures(scope, thread)
        found = await _found(deps, scope, thread, wanted)
        of = None if wanted.whole else found.turn_ids
        try:
            async with facts_without(deps, scope, thread, of) as (facts, _):
                change = Change(
                    thread=thread,
                    at=identity.now(),
                    expected=found.length,
                    erasures=erasures,
                    facts=facts,
                    forget_summaries=min(found.turns, default=None),
                    erase=found.erasure(wanted),
                )
                await deps.store.commit(scope, change)
        except (RecallMoved, ThreadMoved):
            if not left:
                raise
        except ThreadBusy as busy:
            if not left or not await released(deps, scope, busy):
                raise
        else:
            await _remove_objects(deps, scope, found.files.values())
            return


# ── what holds the words ─────────────────────────────────────────────────────────────────────


async def _found(deps: GatewayDeps, scope: Scope, thread: str, wanted: _Wanted) -> _Found:
    """What is to go of the thread. Errors: `TurnNotFound`."""
    calls = [call async for call in _calls(deps, scope, thread)]
    owned = {position for call in calls for position in _positions(call)}
    of_calls = {p for call in calls if wanted.calls(call) for p in _positions(call)}
    found = _Found(length=(await deps.store.load(scope, thread, limit=1)).length)
    for first in range(0, found.length, _PAGE):
        before = min(first + _PAGE, found.length)
        page = await deps.store.load(scope, thread, before=before, limit=before - first)
        for position, turn in enumerate(page.turns, page.first):
            # Results that a program added belong to the calls before them.
            if turn.role == "tool" and position not in owned and position - 1 in of_calls:
                of_calls.add(position)
            if wanted.whole or position in of_calls or turn.id in wanted.turns:
                found.turns[position] = turn
    for missing in set(wanted.turns) - found.turn_ids:
        raise TurnNotFound(thread, missing)
    for call in calls:
        everything = wanted.whole or wanted.calls(call)
        if everything or not found.turns.keys().isdisjoint(_positions(call)):
            await _collect(deps, scope, found, call, everything=everything)
            await asyncio.sleep(0)  # the reads of one call are short, those of a thread are not
    return found


async def _collect(
    deps: GatewayDeps, scope: Scope, found: _Found, call: CallRecord, *, everything: bool
) -> None:
    """Add what `call` holds of the turns that go, or `everything` that was said in it."""
    turns = [found.turns[p] for p in _positions(call) if p in found.turns]
    ids = {turn.id for turn in turns}
    asked = call.user_turn
    said = [turn for turn in turns if asked is None or turn.id != asked.id]
    left = msgspec.structs.replace(call, user=None) if everything else call
    if asked is not None and (everything or asked.id in ids):
        left = msgspec.structs.replace(left, user_turn=_tombstone(asked), body_hash=None)
    if everything or said:
        left = msgspec.structs.replace(left, text="", note=None)
        page = await deps.store.reviews(scope, call=call.id, limit=_PAGE)
        found.reviews += map(_without_words, page.reviews)
        for row in await deps.store.ledger(scope, call.id):
            told = row.receipt.instructions if row.receipt is not None else None
            if told is not None and told != call.instructions:  # it has a reviewer's note
                found.texts.add(told)
    found.calls.append(left)
    for step in await deps.store.steps(scope, call.id):
        if step.turn is not None and (everything or step.turn.id in ids):
            left_of_it = msgspec.structs.replace(step, turn=_tombstone(step.turn))
            found.steps.append((call.id, left_of_it))
            said.append(step.turn)
    await _collect_files(deps, scope, found, call, said)


async def _collect_files(
    deps: GatewayDeps, scope: Scope, found: _Found, call: CallRecord, said: Collection[Turn]
) -> None:
    """Add the files with whole results of `call`, which the results in `said` name."""
    contents = [p.content for turn in said for p in turn.parts if isinstance(p, ToolResultPart)]
    for file_id in {each for content in contents for each in _FILE_ID.findall(content)}:
        with contextlib.suppress(FileNotFound):
            record = await deps.store.file(scope, file_id)
            if record.call == call.id:
                found.files[file_id] = record


async def _remove_objects(deps: GatewayDeps, scope: Scope, records: Collection[FileRecord]) -> None:
    """Remove the bytes that no file has any more; what this leaves, a sweep removes."""
    if deps.files is None or not records:
        return
    names = {record.object for record in records}
    used = await deps.store.objects_in_use(scope, names)
    with contextlib.suppress(StoreError):
        for name in names - used:
            await deps.files.delete(scope, name)


async def _calls(
    deps: GatewayDeps, scope: Scope, thread: str | None = None
) -> AsyncIterator[CallRecord]:
    after = None
    while True:
        page = await deps.store.calls(scope, thread=thread, after=after, limit=200)
        for call in page.calls:
            yield call
        after = page.next
        if after is None:
            return
        await asyncio.sleep(0)


def _positions(call: CallRecord) -> Iterator[int]:
    last = (Span(call.first, call.added),) if call.first is not None else ()
    for span in (*call.earlier, *last):
        yield from range(span.first, span.first + span.count)


# ── what is left ─────────────────────────────────────────────────────────────────────────────


def _tombstone(turn: Turn) -> Turn:
    """That there was a turn, of whose side, and when."""
    return Turn(
        id=turn.id,
        role=turn.role,
        parts=(),
        created_at=turn.created_at,
        status="deleted",
        retry_of=turn.retry_of,
    )


def _without_words(review: ReviewRecord) -> ReviewRecord:
    """Who decided, when and how; nothing of what was said."""
    made = review.tool_call
    return msgspec.structs.replace(
        review,
        reason="",
        answer=None,
        tool_call=None if made is None else msgspec.structs.replace(made, arguments=""),
        call_hash=None,
        why=None,
        text=None,
        arguments=None,
        note=None,
    )

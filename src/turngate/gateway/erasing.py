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
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
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
    ThreadNotFound,
    TurnNotFound,
)
from turngate.gateway.calls import released
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.files import result_file_id
from turngate.gateway.forgetting import facts_without
from turngate.gateway.journal import begun_tools
from turngate.gateway.receipts import told_text
from turngate.messages import ToolCall
from turngate.records import (
    CallRecord,
    Change,
    Erasure,
    FileRecord,
    ReviewRecord,
    Scope,
    Span,
    Step,
    text_hash,
)
from turngate.turns import ToolCallPart, ToolResultPart, Turn

__all__ = ["delete_thread", "delete_turn", "delete_user"]

_TRIES = 20
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to go of one thread: all of it, some turns, or what `user` has said in it."""

    whole: bool = False
    turns: Collection[str] = ()
    user: str | None = None

    def of_user(self, call: CallRecord) -> bool:
        return self.user is not None and call.user == self.user


@dataclass(slots=True)
class _Found:
    """What holds the words that are to go, collected call by call; `turns` by their positions.

    `gone` are the positions of what was deleted before.
    """

    length: int
    whole: bool
    turns: dict[int, Turn] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    calls: list[CallRecord] = field(default_factory=list)
    steps: list[tuple[str, Step]] = field(default_factory=list)
    reviews: list[ReviewRecord] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    files: dict[str, FileRecord] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)  # calls of which all words go
    is_there: bool = False  # some call still has words of it

    @property
    def turn_ids(self) -> set[str]:
        return {turn.id for turn in self.turns.values()}

    @property
    def is_gone(self) -> bool:
        """Whether all of it was deleted before."""
        return self.turns.keys() <= self.gone and not (self.whole or self.is_there or self.files)

    def erasure(self, wanted: _Wanted) -> Erasure:
        files, texts = tuple(self.files), tuple(self.texts)
        if self.whole:
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
        for thread in sorted(threads):
            await _erased(deps, scope, thread, _Wanted(user=user))
    raise RequestError(
        f"calls of user {user!r} keep coming", hint="Let none begin any more, and delete again."
    )


async def _threads_of(deps: GatewayDeps, scope: Scope, user: str) -> set[str]:
    """The threads that name the user, or have calls of theirs."""
    named: set[str] = set()
    after = None
    while True:
        page = await deps.store.threads(scope, after=after, limit=_PAGE)
        named.update(thread.id for thread in page.threads if thread.user == user)
        after = page.next
        await asyncio.sleep(0)
        if after is None:
            break
    return named | {call.thread async for call in _calls(deps, scope) if call.user == user}


async def _erased(deps: GatewayDeps, scope: Scope, thread: str, wanted: _Wanted) -> None:
    """Returns once what is wanted is gone."""
    for left in reversed(range(_TRIES)):
        erasures = await deps.store.erasures(scope, thread)
        try:
            found = await _found(deps, scope, thread, wanted)
            if wanted.turns and found.is_gone:
                return
            of = None if found.whole else found.turn_ids
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
    """What is to go of the thread.

    The length is read first: whoever joins the thread after that has the commit refused. Errors:
    `TurnNotFound`; `ThreadBusy` for a call that has not ended.
    """
    length = (await deps.store.load(scope, thread, limit=1)).length
    calls = [call async for call in _calls(deps, scope, thread)]
    for call in calls:
        if call.state in ("active", "review"):
            raise ThreadBusy(thread, call_id=call.id, in_review=call.state == "review")
    found = _Found(length=length, whole=wanted.whole)
    if wanted.user is not None:
        found.whole = await _is_alone(deps, scope, thread, wanted.user, calls)
    await _find_turns(deps, scope, thread, wanted, calls, found)
    asked = {call.user_turn.id for call in calls if call.user_turn is not None}
    for missing in set(wanted.turns) - found.turn_ids - asked:
        raise TurnNotFound(thread, missing)
    for call in calls:
        await _collect(deps, scope, found, call, wanted)
        await asyncio.sleep(0)  # the reads of one call are short, those of a thread are not
    if found.texts:
        await _spare_texts(deps, scope, found)
    return found


async def _is_alone(
    deps: GatewayDeps, scope: Scope, thread: str, user: str, calls: Sequence[CallRecord]
) -> bool:
    """Whether the thread is the user's alone: nobody else has called in it, or is named by it."""
    users: set[str | None] = {call.user for call in calls if call.kind in ("ask", "run")}
    with contextlib.suppress(ThreadNotFound):
        named = (await deps.store.thread(scope, thread)).user
        users |= {named} - {None}
    return users <= {user}


async def _find_turns(
    deps: GatewayDeps,
    scope: Scope,
    thread: str,
    wanted: _Wanted,
    calls: Sequence[CallRecord],
    found: _Found,
) -> None:
    """Add the turns that go. The results of a turn's tool calls go with it: those of its own call,
    and those that a program added to the newest call of an id."""
    owner = {position: call for call in calls for position in _positions(call)}
    # Where a tool call stands, by the call whose turn made it (None: whichever did last), and id.
    made: dict[tuple[str | None, str], int] = {}
    for first in range(0, found.length, _PAGE):
        before = min(first + _PAGE, found.length)
        page = await deps.store.load(scope, thread, before=before, limit=before - first)
        for position, turn in enumerate(page.turns, page.first):
            call = owner.get(position)
            by = call.id if call is not None else None
            answered = {made.get((by, each)) for each in _answered(turn)}
            if (
                found.whole
                or (call is not None and wanted.of_user(call))
                or turn.id in wanted.turns
                or not answered.isdisjoint(found.turns)
            ):
                found.turns[position] = turn
            if turn.status == "deleted":
                found.gone.add(position)
            for part in turn.parts:
                if isinstance(part, ToolCallPart):
                    made[by, part.id] = made[None, part.id] = position


async def _collect(
    deps: GatewayDeps, scope: Scope, found: _Found, call: CallRecord, wanted: _Wanted
) -> None:
    """Add what `call` holds of the turns that go, or all that was said in it."""
    places = list(_positions(call))
    turns = {p: found.turns[p] for p in places if p in found.turns}
    asked = call.user_turn
    asks_it = asked is not None and asked.id in wanted.turns
    everything = found.whole or wanted.of_user(call)
    if not (everything or turns or asks_it):
        return
    everything = everything or (found.turns.keys() | found.gone).issuperset(places)
    ids = {turn.id for turn in turns.values()} | ({asked.id} if asked and asks_it else set())
    left = msgspec.structs.replace(call, user=None) if wanted.of_user(call) else call
    if everything:
        found.emptied.add(call.id)
        left = msgspec.structs.replace(left, instructions=None)
    if asked is not None and (everything or asked.id in ids):
        left = msgspec.structs.replace(left, user_turn=_tombstone(asked), body_hash=None)
    if everything or (places and places[-1] in turns):
        left = msgspec.structs.replace(left, text="")
    said = everything or any(turn.role == "assistant" for turn in turns.values())
    if said:
        left = msgspec.structs.replace(left, note=None)
        found.texts |= await _told_texts(deps, scope, call, everything=everything)
    found.calls.append(left)
    found.is_there = found.is_there or left != call
    answered = {each for turn in turns.values() for each in _answered(turn)}
    for review in (await deps.store.reviews(scope, call=call.id, limit=_PAGE)).reviews:
        if said or (review.tool_call is not None and review.tool_call.id in answered):
            found.reviews.append(_without_words(review))
    steps = await deps.store.steps(scope, call.id)
    for step in steps:
        if step.turn is not None and (everything or step.turn.id in ids):
            left_of_it = msgspec.structs.replace(step, turn=_tombstone(step.turn))
            found.steps.append((call.id, left_of_it))
    for key, made, of in begun_tools(call.id, steps):
        unwritten = made is not None and len(of) == 1 and made.id in answered
        if everything or not of.isdisjoint(ids) or unwritten:
            with contextlib.suppress(FileNotFound):
                record = await deps.store.file(scope, result_file_id(key))
                found.files[record.ref.id] = record


async def _told_texts(
    deps: GatewayDeps, scope: Scope, call: CallRecord, *, everything: bool
) -> set[str]:
    """The hashes of what the model was told with a reviewer's note; of `everything` the
    instructions too."""
    rows = await deps.store.ledger(scope, call.id)
    told = {row.receipt.instructions for row in rows if row.receipt is not None}
    if call.note is not None:
        text = await told_text(deps, scope, call)
        told.add(text_hash(text) if text else None)
    told = told | {call.instructions} if everything else told - {call.instructions}
    return {each for each in told if each is not None}


async def _spare_texts(deps: GatewayDeps, scope: Scope, found: _Found) -> None:
    """Take out the texts that other calls were told too."""
    unnoted = {call.id for call in found.calls if call.note is None}
    async for call in _calls(deps, scope):
        if call.id in found.emptied:
            continue
        found.texts.discard(call.instructions or "")
        if call.note is not None and call.id not in unnoted:
            found.texts -= await _told_texts(deps, scope, call, everything=False)
        if not found.texts:
            return


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


def _answered(turn: Turn) -> Iterator[str]:
    """The ids of the tool calls whose results the turn has."""
    return (part.call_id for part in turn.parts if isinstance(part, ToolResultPart))


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
        tool_call=None if made is None else ToolCall(id=made.id, name=made.name, arguments=""),
        call_hash=None,
        why=None,
        text=None,
        arguments=None,
        note=None,
    )

"""What holds the words that a deletion takes from a thread, and what is left of each.

A turn's words stand in its row, in the record and the journal of its call, in reviews of that
call, in texts that its model was told, and in the file with the whole of a tool's long result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from turngate.errors import FileNotFound, ThreadBusy, ThreadNotFound, TurnNotFound
from turngate.gateway.deps import GatewayDeps
from turngate.gateway.files import result_file_id
from turngate.gateway.journal import begun_tools
from turngate.gateway.receipts import told_text
from turngate.messages import ToolCall
from turngate.records import (
    CallRecord,
    Erasure,
    FileRecord,
    ReviewRecord,
    Scope,
    Step,
    text_hash,
)
from turngate.turns import ToolCallPart, ToolResultPart, Turn

__all__ = ["Copies", "Wanted", "calls_of"]

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to go of one thread: all of it, some turns, or what `user` has said in it."""

    whole: bool = False
    turns: Collection[str] = ()
    user: str | None = None

    def of_user(self, call: CallRecord) -> bool:
        return self.user is not None and call.user == self.user


class Copies:
    """What holds the words that are to go of a thread of this `length`: ``find``, then the rest.

    `whole`: all of the thread goes. `turns` go by their positions, `files` by their ids.
    """

    def __init__(self, deps: GatewayDeps, scope: Scope, thread: str, wanted: Wanted) -> None:
        self._deps = deps
        self._scope = scope
        self._thread = thread
        self._wanted = wanted
        self.length = 0
        self.whole = wanted.whole
        self.turns: dict[int, Turn] = {}
        self.files: dict[str, FileRecord] = {}
        self._deleted: set[int] = set()  # the positions of what was deleted before
        self._calls: list[CallRecord] = []
        self._emptied: set[str] = set()  # those of which all words go
        self._steps: list[tuple[str, Step]] = []
        self._reviews: list[ReviewRecord] = []
        self._texts: set[str] = set()
        self._found_words = False

    @property
    def turn_ids(self) -> set[str]:
        return {turn.id for turn in self.turns.values()}

    @property
    def is_gone(self) -> bool:
        """Whether all of it was deleted before."""
        found = self.whole or self.files or self._found_words
        return not found and self.turns.keys() <= self._deleted

    @property
    def erasure(self) -> Erasure:
        """What takes the place of all that was found."""
        files, texts = tuple(self.files), tuple(self._texts)
        if self.whole:
            return Erasure(whole=True, files=files, texts=texts)
        return Erasure(
            turns=tuple(map(_tombstone, self.turns.values())),
            calls=tuple(self._calls),
            steps=tuple(self._steps),
            reviews=tuple(self._reviews),
            files=files,
            texts=texts,
            user=self._wanted.user,
        )

    async def find(self) -> None:
        """Read the thread and its calls.

        The length is read first: whoever joins the thread after that has the commit refused.
        Errors: `TurnNotFound`; `ThreadBusy` for a call that has not ended.
        """
        store = self._deps.store
        self.length = (await store.load(self._scope, self._thread, limit=1)).length
        calls = [call async for call in calls_of(self._deps, self._scope, self._thread)]
        for call in calls:
            if call.state in ("active", "review"):
                held = call.state == "review"
                raise ThreadBusy(self._thread, call_id=call.id, in_review=held)
        if self._wanted.user is not None:
            self.whole = await self._is_alone(self._wanted.user, calls)
        await self._find_turns(calls)
        asked = {call.user_turn.id for call in calls if call.user_turn is not None}
        for missing in set(self._wanted.turns) - self.turn_ids - asked:
            raise TurnNotFound(self._thread, missing)
        for call in calls:
            await self._collect(call)
            await asyncio.sleep(0)  # the reads of one call are short, those of a thread are not
        if self._texts:
            await self._spare_texts()

    async def _is_alone(self, user: str, calls: Sequence[CallRecord]) -> bool:
        """Whether nobody else has called in the thread, or is named by it."""
        users: set[str | None] = {call.user for call in calls if call.kind in ("ask", "run")}
        with contextlib.suppress(ThreadNotFound):
            users.add((await self._deps.store.thread(self._scope, self._thread)).user or user)
        return users <= {user}

    async def _find_turns(self, calls: Sequence[CallRecord]) -> None:
        """The results of a turn's tool calls go with it: those of its own call, and those that a
        program added to the newest call of an id."""
        owner = {position: call for call in calls for position in _positions(call)}
        # Where tool calls stand, by the call whose turn made them (None: the last one), and id.
        made: dict[tuple[str | None, str], int] = {}
        for first in range(0, self.length, _PAGE):
            before = min(first + _PAGE, self.length)
            page = await self._deps.store.load(
                self._scope, self._thread, before=before, limit=before - first
            )
            for position, turn in enumerate(page.turns, page.first):
                call = owner.get(position)
                by = call.id if call is not None else None
                of_user = call is not None and self._wanted.of_user(call)
                answers = {made.get((by, each)) for each in _answered(turn)}
                if (
                    self.whole
                    or of_user
                    or turn.id in self._wanted.turns
                    or answers & self.turns.keys()
                ):
                    self.turns[position] = turn
                if turn.status == "deleted":
                    self._deleted.add(position)
                for part in turn.parts:
                    if isinstance(part, ToolCallPart):
                        made[by, part.id] = made[None, part.id] = position

    # ── of one call ──────────────────────────────────────────────────────────────────────────

    async def _collect(self, call: CallRecord) -> None:
        """Add what `call` holds of the turns that go, or all that was said in it.

        All of it goes too once no turn of it is left.
        """
        places = list(_positions(call))
        turns = [self.turns[place] for place in places if place in self.turns]
        if call.user_turn is not None and call.user_turn.id in self._wanted.turns:
            turns.append(call.user_turn)
        everything = self.whole or self._wanted.of_user(call)
        if not (everything or turns):
            return
        everything = everything or (self.turns.keys() | self._deleted).issuperset(places)
        ends = bool(places) and places[-1] in self.turns
        said = everything or any(turn.role == "assistant" for turn in turns)
        if everything:
            self._emptied.add(call.id)
        if said:
            self._texts |= await self._told_texts(call, everything=everything)
        left = self._left_of(call, turns, everything=everything, ends=everything or ends, said=said)
        self._calls.append(left)
        self._found_words = self._found_words or left != call
        answered = {each for turn in turns for each in _answered(turn)}
        page = await self._deps.store.reviews(self._scope, call=call.id, limit=_PAGE)
        for review in page.reviews:
            if said or (review.tool_call is not None and review.tool_call.id in answered):
                self._reviews.append(_without_words(review))
        await self._collect_steps(call, {turn.id for turn in turns}, answered, everything)

    def _left_of(
        self, call: CallRecord, turns: Sequence[Turn], *, everything: bool, ends: bool, said: bool
    ) -> CallRecord:
        """The record of `call` without the words of these turns; it `ends` with one of them."""
        changes: dict[str, object] = {}
        if self._wanted.of_user(call):
            changes["user"] = None
        if everything:
            changes["instructions"] = None
        if ends:
            changes["text"] = ""
        if said:
            changes["note"] = None
        asked = call.user_turn
        if asked is not None and (everything or any(turn.id == asked.id for turn in turns)):
            changes |= {"user_turn": _tombstone(asked), "body_hash": None}
        return msgspec.structs.replace(call, **changes)

    async def _collect_steps(
        self, call: CallRecord, ids: set[str], answered: set[str], everything: bool
    ) -> None:
        """Add the journalled turns that go, and the files of results of theirs."""
        steps = await self._deps.store.steps(self._scope, call.id)
        for step in steps:
            if step.turn is not None and (everything or step.turn.id in ids):
                left = msgspec.structs.replace(step, turn=_tombstone(step.turn))
                self._steps.append((call.id, left))
        for key, made, of in begun_tools(call.id, steps):
            unwritten = made is not None and len(of) == 1 and made.id in answered
            if everything or not of.isdisjoint(ids) or unwritten:
                with contextlib.suppress(FileNotFound):
                    file_id = result_file_id(key)
                    self.files[file_id] = await self._deps.store.file(self._scope, file_id)

    # ── texts that calls share ───────────────────────────────────────────────────────────────

    async def _told_texts(self, call: CallRecord, *, everything: bool) -> set[str]:
        """The hashes of what the model was told with a reviewer's note; of `everything` the
        instructions too."""
        rows = await self._deps.store.ledger(self._scope, call.id)
        told = {row.receipt.instructions for row in rows if row.receipt is not None}
        if call.note is not None:
            text = await told_text(self._deps, self._scope, call)
            told.add(text_hash(text) if text else None)
        told = told | {call.instructions} if everything else told - {call.instructions}
        return {each for each in told if each is not None}

    async def _spare_texts(self) -> None:
        """Take out the texts that other calls were told too."""
        unnoted = {call.id for call in self._calls if call.note is None}
        async for call in calls_of(self._deps, self._scope):
            if call.id in self._emptied:
                continue
            self._texts.discard(call.instructions or "")
            if call.note is not None and call.id not in unnoted:
                self._texts -= await self._told_texts(call, everything=False)
            if not self._texts:
                return


async def calls_of(
    deps: GatewayDeps, scope: Scope, thread: str | None = None
) -> AsyncIterator[CallRecord]:
    """All calls of the tenant, or of one thread, newest first."""
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
    for span in call.spans:
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

"""Any order of asks, runs, decisions, cancellations and restarts keeps a small model's promises."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.harness import bugs
from tests.harness.checks import faults_of
from tests.harness.judges import HELD_MARKS, checks_of, rules_of
from tests.harness.review_checks import leaked_bytes
from tests.harness.rows import read_rows, text_of
from tests.harness.running import _MEMORY
from tests.harness.world import TENANT, TOOLS, Log, World
from turngate import Gateway
from turngate.bootstrap import create_gateway_deps
from turngate.errors import ReviewDecided, StoreError, ThreadBusy
from turngate.gateway import Answered, AwaitingReview, Blocked, Incomplete, Outcome
from turngate.records import ReviewRecord
from turngate.stores.sqlite import SqliteStore

STATES: dict[type, str] = {
    Answered: "answered",
    AwaitingReview: "review",
    Blocked: "blocked",
    Incomplete: "incomplete",
}
Pending = Literal["refuse", "go_on"]
HOLDING = tuple(mark for mark in HELD_MARKS if mark not in ("-late", "-soon"))
NAMES = tuple(tool.spec.name for tool in TOOLS)


class Reviewed(RuleBasedStateMachine):
    """One thread. The model is what it was told: a call's state, its open reviews, the answers.

    After each step all that the harness looks for must hold, and the thread's user turns and its
    calls' states must be those of the model.
    """

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        folder = _MEMORY if _MEMORY.is_dir() else None
        self._temporary = tempfile.TemporaryDirectory(dir=folder, prefix="turngate-")
        self._folder = Path(self._temporary.name)
        self._log = Log(self._folder / "log")
        self._effects = Log(self._folder / "effects")
        self._number = 0
        self.states: dict[str, str] = {}
        self.open: dict[str, set[str]] = {}
        self.prompts: list[str] = []
        self._do(self._opened())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, 10))

    async def _opened(self) -> None:
        world = World(self._log, self._effects, lambda point: None)
        self._store = await SqliteStore.open(self._folder / "t.db")
        self._gateway = Gateway(
            create_gateway_deps(
                store=self._store,
                provider=world,
                tools=TOOLS,
                checks=checks_of("texts", lambda point: None),
                reviews=[rule for rule in rules_of("texts") if rule.name not in ("late", "soon")],
            )
        )
        await self._gateway.recover()

    @property
    def _waiting(self) -> list[str]:
        return [call for call, state in self.states.items() if state == "review"]

    def _took(self, outcome: Outcome, prompt: str | None = None) -> None:
        """The model takes over what it was told, and notes it for the checks."""
        state = STATES[type(outcome)]
        self.states[outcome.call_id] = state
        self.open[outcome.call_id] = set(getattr(outcome, "reviews", ()))
        if prompt is not None and not (isinstance(outcome, Blocked) and not outcome.turns):
            self.prompts.append(prompt.replace("-raw", "-said"))
        turns = [turn.id for turn in outcome.turns]
        self._log.note(ended=outcome.call_id, state=state, text=outcome.text, turns=turns)

    def _asks(self, kind: str, mark: str, rest: str, pending: Pending) -> Any:
        self._number += 1
        prompt = f"{kind} n{self._number}{mark} {rest}".strip()
        thread = self._gateway.tenant(TENANT).thread("t")
        try:
            if kind == "say":
                outcome = self._do(thread.ask(prompt, pending=pending))
            else:
                outcome = self._do(thread.run(prompt, tools=NAMES, pending=pending))
        except ThreadBusy:
            assert pending == "refuse", "a call beside a waiting one was refused"
            assert self._waiting, "the thread is busy with nothing"
            return multiple()
        if pending == "refuse" and mark != "-stop":
            assert not self._waiting, "a call was begun beside a waiting one"
        self._took(outcome, prompt)
        if mark in HOLDING and kind == "say":
            assert isinstance(outcome, AwaitingReview)
        if mark in ("-block", "-stop"):
            assert isinstance(outcome, Blocked)
        return outcome.call_id

    # ── what may be done ─────────────────────────────────────────────────────────────────────

    @rule(
        target=calls,
        mark=st.sampled_from(("", *HOLDING, "-block", "-swap", "-stop", "-raw")),
        pending=st.sampled_from(("refuse", "go_on")),
    )
    def ask(self, mark: str, pending: Pending) -> Any:
        return self._asks("say", mark, "", pending)

    @rule(
        target=calls,
        mark=st.sampled_from(("", "-hold")),
        tools=st.sampled_from(("pay", "pay,safe|book", "safe", "look,pay", "unsafe|look")),
        pending=st.sampled_from(("refuse", "go_on")),
    )
    def run(self, mark: str, tools: str, pending: Pending) -> Any:
        return self._asks("tools", mark, tools, pending)

    @precondition(lambda self: self._waiting)
    @rule(
        way=st.sampled_from(("approve", "edit", "reject", "retry")),
        which=st.integers(0, 5),
        beside=st.booleans(),
    )
    def decide(self, way: str, which: int, beside: bool) -> None:
        """One decision, or two at once of which one is made."""
        reviews = sorted(review for call in self._waiting for review in self.open[call])
        review = self._do(self._gateway.tenant(TENANT).reviews.get(reviews[which % len(reviews)]))
        self._number += 1
        made = self._do(self._decided(review, way, beside=beside))
        assert len(made) == 1, f"{len(made)} decisions on one review"
        self.open[review.call].discard(review.id)
        self._log.note(decided=review.id, state=made[0].state, by=made[0].decided_by)
        if not self.open[review.call]:
            call = self._gateway.tenant(TENANT).call(review.call)
            self._took(self._do(call.outcome()))

    async def _decided(self, review: ReviewRecord, way: str, *, beside: bool) -> list[ReviewRecord]:
        reviews = self._gateway.tenant(TENANT).reviews
        by = f"person{self._number}"
        works = [reviews.approve(review.id, by="another")] if beside else []
        if way == "edit":
            slot = review.tool_call.id if review.tool_call is not None else ""
            arguments = f'{{"slot": "{slot}~{by}"}}' if slot else None
            text = None if slot else f"as {by}"
            works.append(reviews.edit(review.id, by=by, text=text, arguments=arguments))
        elif way == "retry" and review.tool_call is None:
            works.append(reviews.retry(review.id, f"note {by}", by=by))
        elif way == "reject":
            works.append(reviews.reject(review.id, by=by, why="no"))
        else:
            works.append(reviews.approve(review.id, by=by))
        found = await asyncio.gather(*works, return_exceptions=True)
        lost = [each for each in found if isinstance(each, BaseException)]
        assert all(isinstance(each, ReviewDecided) for each in lost), lost
        return [each for each in found if isinstance(each, ReviewRecord)]

    @rule(call=calls)
    def cancel(self, call: str) -> None:
        outcome = self._do(self._gateway.tenant(TENANT).call(call).cancel())
        if self.states[call] == "review":
            assert isinstance(outcome, Incomplete)
        else:
            assert STATES[type(outcome)] == self.states[call], "an ended call was ended again"
        self._took(outcome)

    @rule()
    def reopen(self) -> None:
        """The gateway closes, and another one opens the file."""
        self._do(self._gateway.aclose())
        self._do(self._store.aclose())
        self._do(self._opened())

    @precondition(lambda self: not self._waiting)
    @rule(after=st.integers(0, 12), held=st.booleans())
    def die_while_asking(self, after: int, held: bool) -> None:
        """The store goes away amid a run, whose gateway is dropped; another one goes on with it."""
        self._number += 1
        prompt = f"tools n{self._number}{'-hold' if held else ''} safe,keyed|look"
        self._do(self._dropped(prompt, after))
        calls = self._do(self._store.calls(self._gateway.tenant(TENANT)._scope)).calls
        for call in calls:
            if call.id not in self.states and call.state != "failed":
                self._took(self._do(self._gateway.tenant(TENANT).call(call.id).outcome()), prompt)

    async def _dropped(self, prompt: str, after: int) -> None:
        """Begin a run, and take the store away from it after some turns of the loop."""
        thread = self._gateway.tenant(TENANT).thread("t")
        running = asyncio.ensure_future(thread.run(prompt, tools=NAMES))
        for _ in range(after * 4):
            await asyncio.sleep(0)
        await self._store.aclose()
        done, _ = await asyncio.wait({running}, timeout=5)
        assert done, "a run whose store is gone hangs"
        if isinstance(running.exception(), StoreError) or running.exception() is None:
            await self._opened()
            return
        raise AssertionError(repr(running.exception()))

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    @invariant()
    def nothing_is_broken(self) -> None:
        database = self._folder / "t.db"
        rows = read_rows(database)
        log, effects = Log.read(self._folder / "log"), Log.read(self._folder / "effects")
        faults = [*faults_of(rows, log, effects), *leaked_bytes(database)]
        assert not faults, "\n".join(faults)
        states = {call["id"]: call["state"] for call in rows.calls.values()}
        told = {call: state for call, state in states.items() if state != "failed"}
        assert told == self.states
        assert sorted(rows.texts("t")) == sorted(self.prompts)
        still = {review["id"] for review in rows.reviews.values() if review["state"] == "open"}
        assert still == {review for reviews in self.open.values() for review in reviews}
        for _, turn in rows.turns.get("t", []):
            assert text_of(turn) or turn["parts"], "an empty turn"

    def teardown(self) -> None:
        self._do(self._gateway.aclose())
        self._do(self._store.aclose())
        self._loop.close()
        self._log.close()
        self._effects.close()
        self._temporary.cleanup()


def played(examples: int, *, steps: int = 14, shrink: bool = True) -> None:
    run_state_machine_as_test(
        Reviewed,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_order_of_reviews_keeps_its_promises() -> None:
    """Sixty sequences of up to fourteen steps."""
    played(60)


@pytest.mark.soak
def test_any_order_of_reviews_keeps_its_promises_for_long() -> None:
    """Three thousand sequences of up to forty steps."""
    played(3_000, steps=40)


@pytest.mark.parametrize(
    ("bug", "invariant"), [("review_left_open", "I9"), ("user_turn_again_after_pause", "I6")]
)
def test_the_machine_sees_a_planted_bug(
    monkeypatch: pytest.MonkeyPatch, bug: str, invariant: str
) -> None:
    """The same sequences find a broken promise."""
    bugs.plant(bug, monkeypatch.setattr)
    with pytest.raises(AssertionError, match=invariant):
        played(30, shrink=False)

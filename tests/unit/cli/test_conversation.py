"""One question and its answer, seen from the main thread, over a fake of the gateway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, cast

import pytest

from turngate.cli.chat import command_for, converse
from turngate.cli.conversation import Exchange, ask
from turngate.cli.loop import LoopThread
from turngate.completion import CallOptions
from turngate.errors import ProviderError, TurngateError
from turngate.gateway import Answered, Event, Incomplete, Outcome, Settled, TextEvent, Thread

ANSWERED = Answered(call_id="call_1", text="Hello", turns=(), usage=None)
STOPPED = Incomplete(call_id="call_1", reason="cancelled", text="Hel", turns=(), usage=None)
OPTIONS = CallOptions()


class FakeStream:
    """Plays `script`: texts, an error to raise, and None to wait for a cancellation."""

    def __init__(self, script: list[str | TurngateError | None]) -> None:
        self._script = script
        self.outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is asyncio.CancelledError:
            await asyncio.sleep(0.05)  # the settle
            self.outcome = STOPPED

    async def __aiter__(self) -> AsyncIterator[Event]:
        for step in self._script:
            if step is None:
                await asyncio.Event().wait()
            elif isinstance(step, TurngateError):
                raise step
            else:
                yield TextEvent(step)
        self.outcome = ANSWERED
        yield Settled(ANSWERED)


class FakeThread:
    """A thread whose calls play one script after the other."""

    def __init__(self, *scripts: list[str | TurngateError | None]) -> None:
        self._scripts = iter(scripts)
        self.prompts: list[str] = []

    def stream_ask(self, prompt: str, *, options: CallOptions) -> FakeStream:
        self.prompts.append(prompt)
        return FakeStream(next(self._scripts))


def fake(*scripts: list[str | TurngateError | None]) -> Thread:
    return cast(Thread, FakeThread(*scripts))


class Recorder:
    """A voice that only remembers what it was told; `react` is called at each event."""

    def __init__(self, react: Callable[[], object] = lambda: None) -> None:
        self.told: list[str] = []
        self._react = react

    def opened(self, *, facts: dict[str, Any]) -> None:
        self.told.append("opened")

    def asked(self, prompt: str) -> None:
        self.told.append(f"asked {prompt}")

    def event(self, event: Event) -> None:
        self._react()

    def ended(self, exchange: Exchange) -> None:
        self.told.append("ended")

    def failed(self, error: TurngateError) -> None:
        self.told.append(f"failed {error.code}")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as running:
        yield running


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_events_come_in_order_and_then_the_outcome(loop: LoopThread) -> None:
    """What the stream yields is what is shown."""
    shown: list[Event] = []
    thread = fake(["Hel", "lo"])
    exchange = ask(loop, thread, "hi", options=OPTIONS, show=shown.append)
    assert shown == [TextEvent("Hel"), TextEvent("lo"), Settled(ANSWERED)]
    assert exchange.outcome == ANSWERED
    assert not exchange.stopped
    assert not exchange.cut_off


def test_an_interrupt_stops_the_answer_and_waits_for_the_settle(loop: LoopThread) -> None:
    """Ctrl-C ends the call, and its outcome is what was kept of it."""
    thread = fake(["Hel", None])
    exchange = ask(loop, thread, "hi", options=OPTIONS, show=lambda event: interrupt())
    assert exchange.stopped
    assert exchange.outcome == STOPPED


def test_after_an_answer_an_interrupt_means_what_it_meant(loop: LoopThread) -> None:
    """The handler is there during an answer only."""
    before = signal.getsignal(signal.SIGINT)
    ask(loop, fake(["Hi"]), "hi", options=OPTIONS, show=lambda event: None)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_second_interrupt_gives_up(loop: LoopThread) -> None:
    """If stopping takes too long, Ctrl-C once more ends the program."""
    interrupts = iter([interrupt, interrupt])
    with pytest.raises(KeyboardInterrupt):
        ask(
            loop,
            fake(["Hel", "lo", None]),
            "hi",
            options=OPTIONS,
            show=lambda event: next(interrupts)(),
        )


def test_an_error_of_the_call_is_raised(loop: LoopThread) -> None:
    """What keeps a call from its answer reaches the caller."""
    with pytest.raises(ProviderError):
        ask(
            loop,
            fake([ProviderError("refused", code="network")]),
            "hi",
            options=OPTIONS,
            show=lambda event: None,
        )


@pytest.mark.parametrize(
    ("reason", "cut_off"),
    [("network", True), ("policy", True), ("length", False), ("cancelled", False)],
)
def test_only_a_failure_of_the_models_side_is_a_cut(reason: str, cut_off: bool) -> None:
    """A token limit and a stop are ends that were asked for."""
    outcome = Incomplete(call_id="c", reason=reason, text="", turns=(), usage=None)
    assert Exchange(outcome=outcome, stopped=False, seconds=0).cut_off is cut_off


def test_a_script_ends_at_the_first_failure(loop: LoopThread) -> None:
    """Later prompts may lean on the answer that is missing, so they are not asked."""
    voice = Recorder()
    thread = fake(["Hi"], [ProviderError("refused", code="network")], ["never"])
    code = converse(loop, thread, ["one", "two", "three"], voice, options=OPTIONS)
    assert code == 3
    assert voice.told == ["asked one", "ended", "asked two", "failed network"]


def test_a_person_is_asked_again_after_a_failure(loop: LoopThread) -> None:
    """In an interactive chat a failure ends one answer and not the chat."""
    voice = Recorder()
    thread = fake([ProviderError("refused", code="network")], ["Hi"])
    code = converse(loop, thread, ["one", "two"], voice, options=OPTIONS, go_on=True)
    assert code == 0
    assert voice.told == ["asked one", "failed network", "asked two", "ended"]


def test_a_stopped_script_ends_with_130(loop: LoopThread) -> None:
    """Ctrl-C ends a script after the settle of the answer that it met."""
    voice = Recorder(react=interrupt)
    code = converse(loop, fake(["Hel", None]), ["one", "two"], voice, options=OPTIONS)
    assert code == 130
    assert voice.told == ["asked one", "ended"]


def test_the_command_that_goes_on_can_be_pasted() -> None:
    """Only what differs from the defaults is named, and it is quoted."""
    assert command_for("show", "t-1", db="turngate.db", tenant="local") == "turngate show t-1"
    assert command_for("chat --thread", "t-1", db="my talks.db", tenant="acme") == (
        "turngate chat --thread t-1 --db 'my talks.db' --tenant acme"
    )

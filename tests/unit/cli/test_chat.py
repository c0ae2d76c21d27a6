"""A conversation seen from the main thread, over a fake of the gateway, and how it is shown."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, cast

import msgspec
import pytest
from rich.console import Console

from turngate.cli.chat import JsonVoice, PersonVoice, Voice, command_for, converse, followed
from turngate.cli.loop import LoopThread
from turngate.completion import CallOptions
from turngate.errors import ProviderError, TurngateError
from turngate.gateway import (
    Answered,
    AwaitingReview,
    Blocked,
    CallStream,
    Event,
    Incomplete,
    Outcome,
    Thread,
)
from turngate.gateway.events import Held, ReasoningEvent, Settled, TextEvent, ToolEnded, ToolStarted
from turngate.records import TurnPage
from turngate.values import Usage

ANSWERED = Answered(call_id="call_1", text="Hello", turns=(), usage=None)
WAITING = AwaitingReview(call_id="call_1", reviews=("review_1", "review_2"), turns=(), usage=None)
BLOCKED = Blocked(call_id="call_1", by="pii", rule="card", turns=(), usage=None)
STOPPED = Incomplete(call_id="call_1", reason="cancelled", text="Hel", turns=(), usage=None)
OPTIONS = CallOptions()
FACTS = {"thread": "t", "length": 0, "tenant": "local", "db": "turngate.db", "model": None}

Script = list[str | TurngateError | None]


class FakeStream:
    """Plays `script`: texts, an error to raise, and None to wait for a cancellation."""

    def __init__(self, script: Script, outcome: Outcome = ANSWERED, *, settle_s: float) -> None:
        self._script = script
        self._outcome = outcome
        self._settle_s = settle_s
        self.outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is asyncio.CancelledError:
            await asyncio.sleep(self._settle_s)
            self.outcome = STOPPED

    async def __aiter__(self) -> AsyncIterator[Event]:
        for step in self._script:
            if step is None:
                await asyncio.Event().wait()
            elif isinstance(step, TurngateError):
                raise step
            else:
                yield TextEvent(step)
        self.outcome = self._outcome
        yield Settled(self._outcome)


def stream(script: Script, outcome: Outcome = ANSWERED, *, settle_s: float = 0.05) -> CallStream:
    return cast(CallStream, FakeStream(script, outcome, settle_s=settle_s))


class FakeThread:
    """A thread whose calls play one script after the other."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = iter(scripts)

    def stream_ask(self, prompt: str, *, options: CallOptions) -> CallStream:
        return stream(next(self._scripts))


def fake(*scripts: Script) -> Thread:
    return cast(Thread, FakeThread(*scripts))


class Recorder(Voice):
    """A voice that only remembers what it was told; `react` is called at each event."""

    def __init__(self, react: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.told: list[str] = []
        self.outcome: Outcome | None = None
        self._react = react

    def asked(self, prompt: str) -> None:
        self.told.append(f"asked {prompt}")

    def event(self, event: Event) -> None:
        if isinstance(event, TextEvent):
            self.told.append(event.text)
        self._react()

    def ended(self, outcome: Outcome | None, *, stopped: bool, seconds: float) -> None:
        self.told.append("stopped" if stopped else "ended")
        self.outcome = outcome

    def failed(self, error: TurngateError) -> None:
        self.told.append(f"failed {error.code}")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as running:
        yield running


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


# ── a call and its end ───────────────────────────────────────────────────────────────────────


def test_events_come_in_order_and_then_the_outcome(loop: LoopThread) -> None:
    """What the stream yields is what is shown."""
    voice = Recorder()
    assert followed(loop, stream(["Hel", "lo"]), voice) == 0
    assert voice.told == ["Hel", "lo", "ended"]
    assert voice.outcome == ANSWERED


def test_an_interrupt_stops_the_answer_and_waits_for_the_settle(loop: LoopThread) -> None:
    """Ctrl-C ends the call, and its outcome is what was kept of it."""
    voice = Recorder(react=interrupt)
    assert followed(loop, stream(["Hel", None]), voice) == 130
    assert voice.told == ["Hel", "stopped"]
    assert voice.outcome == STOPPED


def test_after_an_answer_an_interrupt_means_what_it_meant(loop: LoopThread) -> None:
    """An interrupt is held back during an answer only."""
    followed(loop, stream(["Hi"]), Recorder())
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_second_interrupt_gives_up(loop: LoopThread) -> None:
    """If stopping takes too long, Ctrl-C once more ends the program."""

    def twice() -> None:
        interrupt()
        asyncio.get_running_loop().call_later(0.3, interrupt)

    with pytest.raises(KeyboardInterrupt):
        followed(loop, stream(["Hel", None], settle_s=3.0), Recorder(react=twice))


@pytest.mark.parametrize(
    ("reason", "code"), [("network", 3), ("policy", 3), ("length", 0), ("cancelled", 0)]
)
def test_only_a_failure_of_the_models_side_is_a_cut(
    reason: str, code: int, loop: LoopThread
) -> None:
    """A token limit and a stop from elsewhere are ends that were asked for."""
    outcome = Incomplete(call_id="c", reason=reason, text="", turns=(), usage=None)
    assert followed(loop, stream(["Hi"], outcome), Recorder()) == code


def test_a_script_ends_at_the_first_failure(loop: LoopThread) -> None:
    """Later prompts may lean on the answer that is missing, so they are not asked."""
    voice = Recorder()
    thread = fake(["Hi"], [ProviderError("refused", code="network")], ["never"])
    assert converse(loop, thread, ["one", "two", "three"], voice, options=OPTIONS) == 3
    assert voice.told == ["asked one", "Hi", "ended", "asked two", "failed network"]


def test_a_person_is_asked_again_after_a_failure(loop: LoopThread) -> None:
    """In an interactive chat a failure ends one answer and not the chat."""
    voice = Recorder()
    thread = fake([ProviderError("refused", code="network")], ["Hi"])
    assert converse(loop, thread, ["one", "two"], voice, options=OPTIONS, go_on=True) == 0
    assert voice.told == ["asked one", "failed network", "asked two", "Hi", "ended"]


def test_a_stopped_script_ends_with_130(loop: LoopThread) -> None:
    """Ctrl-C ends a script after the settle of the answer that it met."""
    voice = Recorder(react=interrupt)
    assert converse(loop, fake(["Hel", None]), ["one", "two"], voice, options=OPTIONS) == 130
    assert voice.told == ["asked one", "Hel", "stopped"]


def test_the_command_that_goes_on_can_be_pasted() -> None:
    """Only what differs from the defaults is named, and it is quoted."""
    assert command_for("show", "t-1", db="turngate.db") == "turngate show t-1"
    assert command_for("chat --thread", "t-1", db="my talks.db", tenant="acme") == (
        "turngate chat --thread t-1 --db 'my talks.db' --tenant acme"
    )


# ── how it is shown ──────────────────────────────────────────────────────────────────────────


def told(voice: Voice, outcome: Outcome | None, *, stopped: bool = False) -> None:
    """One short conversation."""
    voice.opened(FACTS)
    voice.asked("hi")
    voice.event(ReasoningEvent("Let me\x1b see."))
    voice.event(ToolStarted(call_id="c1", name="track", arguments='{"parcel": "7\\u001b"}'))
    voice.event(ToolEnded(call_id="c1", name="track", content="\x1b[2JOslo"))
    voice.event(TextEvent("Hel\x1b[2J"))
    voice.event(TextEvent("lo [b]"))
    voice.ended(outcome, stopped=stopped, seconds=1.25)


def person(*, echo: bool = False, terminal: bool = False) -> tuple[PersonVoice, io.StringIO]:
    voice, stream = PersonVoice(echo=echo), io.StringIO()
    voice.console = Console(
        file=stream, force_terminal=terminal, color_system=None, width=200, highlight=False
    )
    return voice, stream


def incomplete(reason: str, text: str = "Hel") -> Incomplete:
    return Incomplete(call_id="call_1", reason=reason, text=text, turns=(), usage=None)


def test_a_person_sees_labels_tools_text_and_usage() -> None:
    """The answer stands under its label, each tool call on a line, what it used below."""
    voice, shown = person(echo=True)
    usage = Usage(input_tokens=21, output_tokens=8)
    told(voice, Answered(call_id="call_1", text="Hello", turns=(), usage=usage))
    assert shown.getvalue() == (
        "model   the server's own\n"
        "db      turngate.db\n"
        "thread  t   new\n\n"
        "you     hi\n"
        "model   Let me see.\n"
        '        [call] track(parcel="7\\u001b")\n'
        "        [track] [2JOslo\n"
        "        Hel[2Jlo [b]\n"
        "        21 tokens in, 8 out · 1.2 s\n\n"
    )


def test_a_persons_terminal_is_written_only_what_is_visible() -> None:
    """On a terminal too, the only escapes are the program's own styles."""
    voice, shown = person(terminal=True)
    told(voice, ANSWERED)
    assert "\x1b" not in shown.getvalue()


@pytest.mark.parametrize(
    ("outcome", "stopped", "note"),
    [
        (incomplete("cancelled"), True, "Stopped. What was said is kept."),
        (incomplete("cancelled", ""), True, "Stopped. The question is kept."),
        (incomplete("length"), False, "Cut at the token limit. What was said is kept."),
        (incomplete("content_filter"), False, "Cut off (content_filter). What was said is kept."),
        (incomplete("network"), False, "Cut off (network). What was said is kept."),
        (None, True, "Stopped before the question was sent."),
        (WAITING, False, "A person decides on it first: review_1, review_2"),
        (BLOCKED, False, "Blocked by pii (card). Nothing is kept."),
    ],
)
def test_an_answer_that_is_not_whole_is_said_to_be(
    outcome: Outcome | None, stopped: bool, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person and a script are both told why it ended, and what is kept."""
    voice, shown = person()
    told(voice, outcome, stopped=stopped)
    assert note in shown.getvalue()
    told(Voice(), outcome, stopped=stopped)
    assert note in capsys.readouterr().err


def test_a_blocked_answer_leaves_its_question(page: TurnPage) -> None:
    """What is kept is told for a blocked answer as for one that was cut; a hold is one line."""
    voice, shown = person()
    voice.asked("hi")
    voice.event(Held())
    voice.event(TextEvent("Hello"))
    voice.ended(msgspec.structs.replace(BLOCKED, turns=page.turns[:1]), stopped=False, seconds=0)
    assert "model   (held back until it is judged)\n        Hello\n" in shown.getvalue()
    assert "Blocked by pii (card). The question is kept." in shown.getvalue()


def test_calls_that_nobody_runs_are_named(page: TurnPage) -> None:
    """A model that asks for a tool is not shown as one that said nothing."""
    voice, shown = person()
    told(voice, Answered(call_id="c", text="", turns=(page.turns[1],), usage=None))
    assert "The model wants to call track" in shown.getvalue()


def test_a_pipe_gets_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Reasoning, tools, usage and names are no part of what a script reads."""
    told(Voice(), ANSWERED)
    out, err = capsys.readouterr()
    assert out == "Hel[2Jlo [b]\n"
    assert err == "thread t in turngate.db\n"


def test_a_program_gets_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The exact text is in the JSON, escaped; a call that had not begun is settled too."""
    told(JsonVoice(), ANSWERED)
    told(JsonVoice(), incomplete("length"))
    told(JsonVoice(), None, stopped=True)
    told(JsonVoice(), WAITING)
    told(JsonVoice(), BLOCKED)
    events: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().out.splitlines()
    ]
    kinds = ["opened", "asked", "reasoning", "tool_started", "tool_ended"]
    kinds += ["text", "text", "settled"]
    assert [event["type"] for event in events] == kinds * 5
    assert events[0] == {"type": "opened", **FACTS}
    assert events[5] == {"type": "text", "text": "Hel\x1b[2J"}
    ends = [event for event in events if event["type"] == "settled"]
    assert {frozenset(end) for end in ends} == {
        frozenset(
            {"type", "kind", "reason", "by", "rule", "reviews", "call_id", "text", "turns", "usage"}
        )
    }
    assert ends[3]["reviews"] == ["review_1", "review_2"]
    assert (ends[4]["by"], ends[4]["rule"]) == ("pii", "card")
    assert [(end["kind"], end["reason"]) for end in ends] == [
        ("answered", None),
        ("incomplete", "length"),
        ("incomplete", "cancelled"),
        ("awaiting_review", None),
        ("blocked", None),
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_failure_goes_to_stderr(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """In the form that the rest of the conversation has."""
    voice = JsonVoice() if as_json else Voice()
    voice.failed(ProviderError("refused", code="network"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("{" if as_json else "error: refused")

"""How a conversation is shown to a person, to a pipe and to a program."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from turngate.cli.conversation import Exchange
from turngate.cli.terminal import console_on
from turngate.cli.voices import JsonVoice, PersonVoice, PipeVoice, Voice
from turngate.errors import ProviderError
from turngate.gateway import Answered, Incomplete, Outcome, ReasoningEvent, TextEvent
from turngate.records import TurnPage
from turngate.values import Usage

FACTS = {"thread": "t", "length": 0, "tenant": "local", "db": "turngate.db", "model": None}
USAGE = Usage(input_tokens=21, output_tokens=8)


def told(voice: Voice, outcome: Outcome | None, *, stopped: bool = False) -> None:
    """One short conversation."""
    voice.opened(facts=FACTS)
    voice.asked("hi")
    voice.event(ReasoningEvent("Let me\x1b see."))
    voice.event(TextEvent("Hel\x1b[2J"))
    voice.event(TextEvent("lo [b]"))
    voice.ended(Exchange(outcome=outcome, stopped=stopped, seconds=1.25))


def answered() -> Answered:
    return Answered(call_id="call_1", text="Hello", turns=(), usage=USAGE)


def incomplete(reason: str, text: str = "Hel") -> Incomplete:
    return Incomplete(call_id="call_1", reason=reason, text=text, turns=(), usage=None)


def test_a_person_sees_labels_text_and_usage() -> None:
    """The answer stands under its label, what it used below it."""
    stream = io.StringIO()
    told(PersonVoice(console_on(stream), echo=True), answered())
    assert stream.getvalue() == (
        "model   the server's own\n"
        "db      turngate.db\n"
        "thread  t   new\n\n"
        "you     hi\n"
        "model   Let me see.\n"
        "        Hel[2Jlo [b]\n"
        "        21 tokens in, 8 out · 1.2 s\n\n"
    )


def test_a_persons_terminal_is_written_only_what_is_visible() -> None:
    """On a terminal too, the only escapes are the program's own styles."""
    stream = io.StringIO()
    told(PersonVoice(Console(file=stream, force_terminal=True, color_system=None)), answered())
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("outcome", "stopped", "note"),
    [
        (incomplete("cancelled"), True, "Stopped. What was said is kept."),
        (incomplete("cancelled", ""), True, "Stopped. The question is kept."),
        (incomplete("length"), False, "Cut at the token limit. What was said is kept."),
        (incomplete("content_filter"), False, "Cut by the server's content filter."),
        (incomplete("network"), False, "Cut off (network). What was said is kept."),
        (None, True, "Stopped before the question was sent."),
    ],
)
def test_an_answer_that_is_not_whole_is_said_to_be(
    outcome: Outcome | None, stopped: bool, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person and a script are both told why it ended, and what is kept."""
    stream = io.StringIO()
    told(PersonVoice(console_on(stream)), outcome, stopped=stopped)
    assert note in stream.getvalue()
    told(PipeVoice(), outcome, stopped=stopped)
    assert note in capsys.readouterr().err


def test_calls_that_nobody_runs_are_named(page: TurnPage) -> None:
    """A model that asks for a tool is not shown as one that said nothing."""
    stream = io.StringIO()
    outcome = Answered(call_id="c", text="", turns=(page.turns[1],), usage=None)
    told(PersonVoice(console_on(stream)), outcome)
    assert "The model wants to call track" in stream.getvalue()


def test_a_pipe_gets_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Reasoning, usage and names are no part of what a script reads."""
    told(PipeVoice(), answered())
    out, err = capsys.readouterr()
    assert out == "Hel[2Jlo [b]\n"
    assert err == "thread t in turngate.db\n"


def test_a_program_gets_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The exact text is in the JSON, escaped; a call that had not begun is settled too."""
    told(JsonVoice(), answered())
    told(JsonVoice(), None, stopped=True)
    lines = capsys.readouterr().out.splitlines()
    events = [json.loads(line) for line in lines]
    kinds = ["opened", "asked", "reasoning", "text", "text", "settled"]
    assert [event["type"] for event in events] == kinds * 2
    assert events[0] == {"type": "opened", **FACTS}
    assert events[3] == {"type": "text", "text": "Hel\x1b[2J"}
    assert (events[5]["kind"], events[11]["kind"]) == ("answered", "incomplete")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_failure_goes_to_stderr(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """In the form that the rest of the conversation has."""
    voice: Voice = JsonVoice() if as_json else PipeVoice()
    voice.failed(ProviderError("refused", code="network"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("{" if as_json else "error: refused")

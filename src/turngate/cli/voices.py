"""How a conversation is shown while it goes on: to a person, to a pipe, or as JSON lines."""

from __future__ import annotations

from typing import Any, Protocol, assert_never

import msgspec
from rich.console import Console
from rich.text import Text

from turngate.cli.conversation import Exchange
from turngate.cli.failures import show_error
from turngate.cli.rendering import ROLE_STYLES, usage_text
from turngate.cli.shapes import json_text, settled_shape
from turngate.cli.terminal import Wrap, error_console, out_console, visible
from turngate.errors import TurngateError
from turngate.gateway import (
    Answered,
    Event,
    ReasoningEvent,
    Settled,
    TextEvent,
    ToolEnded,
    ToolStarted,
)

__all__ = ["JsonVoice", "PersonVoice", "PipeVoice", "Voice"]

_LABEL_COLUMNS = 8


class Voice(Protocol):
    """Calls in order: ``opened (asked event* (ended | failed))*``."""

    def opened(self, *, facts: dict[str, Any]) -> None:
        """Say where the conversation is kept and who answers; `facts` are named as in JSON."""

    def asked(self, prompt: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def ended(self, exchange: Exchange) -> None: ...

    def failed(self, error: TurngateError) -> None: ...


class PersonVoice:
    """For a terminal: labels, folding, usage. `echo` shows prompts that nobody typed."""

    def __init__(self, console: Console | None = None, *, echo: bool = False) -> None:
        self._console = console if console is not None else out_console()
        self._echo = echo
        self._wrap: Wrap | None = None
        self._thinking = False

    def opened(self, *, facts: dict[str, Any]) -> None:
        for name in ("model", "db", "thread"):
            line = Text.assemble((f"{name:<{_LABEL_COLUMNS}}", "dim"))
            line.append(visible(str(facts[name] or "the server's own")))
            if name == "thread":
                turns = facts["length"]
                line.append(f"   {turns} turns so far" if turns else "   new", style="dim")
            self._console.print(line, soft_wrap=True)
        self._console.print()

    def asked(self, prompt: str) -> None:
        if self._echo:
            self._label("you", ROLE_STYLES["user"])
            self._write(self._folding().add(visible(prompt)) + self._folded())
            self._console.print()
        self._label("model", ROLE_STYLES["assistant"])
        self._thinking = False

    def event(self, event: Event) -> None:
        match event:
            case TextEvent():
                if self._thinking:  # the answer begins on a line of its own
                    self._write(self._folded() + "\n" + " " * _LABEL_COLUMNS)
                    self._thinking = False
                self._write(self._folding().add(visible(event.text)))
            case ReasoningEvent():
                self._thinking = True
                self._write(self._folding().add(visible(event.text)), style="dim italic")
            case ToolStarted():
                self._tool_line(f"{event.name} {event.arguments}")
            case ToolEnded():
                self._tool_line(f"{event.name} -> {event.content}")
            case Settled():
                pass  # `ended` says it
            case _:
                assert_never(event)

    def ended(self, exchange: Exchange) -> None:
        self._write(self._folded())
        self._console.print()
        note = _note(exchange)
        if note is not None:
            self._below(note, "yellow")
        usage = exchange.outcome.usage if exchange.outcome is not None else None
        counted = f"{usage_text(usage)} · " if usage is not None else ""
        self._below(f"{counted}{exchange.seconds:.1f} s", "dim")
        self._console.print()

    def failed(self, error: TurngateError) -> None:
        self._write(self._folded())
        self._console.print()
        show_error(error.code, str(error), error.hint, as_json=False)
        self._console.print()

    def _tool_line(self, text: str) -> None:
        """One dim line about a tool, on a line of its own."""
        self._write(self._folded())
        shown = visible(" ".join(text.split()))
        self._write(self._folding().add("\n" + shown) + self._folded() + "\n", style="dim")

    def _folding(self) -> Wrap:
        if self._wrap is None:
            # A line that fills the last column would be folded once more by some terminals.
            self._wrap = Wrap(width=self._console.width - 1, indent=_LABEL_COLUMNS)
        return self._wrap

    def _folded(self) -> str:
        rest = self._wrap.end() if self._wrap is not None else ""
        self._wrap = None
        return rest

    def _label(self, who: str, style: str) -> None:
        self._console.print(Text(f"{who:<{_LABEL_COLUMNS}}", style=style), end="")
        self._console.file.flush()

    def _below(self, text: str, style: str) -> None:
        self._console.print(Text(" " * _LABEL_COLUMNS + text, style=style), soft_wrap=True)

    def _write(self, text: str, style: str | None = None) -> None:
        if text:
            self._console.out(text, end="", style=style, highlight=False)
            self._console.file.flush()


class PipeVoice:
    """For scripts: answers alone on stdout, one after the other; all else on stderr."""

    def __init__(self) -> None:
        self._out = out_console()
        self._notes = error_console()

    def opened(self, *, facts: dict[str, Any]) -> None:
        self._note(f"thread {facts['thread']} in {facts['db']}")

    def asked(self, prompt: str) -> None:
        pass

    def event(self, event: Event) -> None:
        if isinstance(event, TextEvent):
            self._out.out(visible(event.text), end="", highlight=False)
            self._out.file.flush()

    def ended(self, exchange: Exchange) -> None:
        self._out.print()
        self._out.file.flush()
        note = _note(exchange)
        if note is not None:
            self._note(note)

    def failed(self, error: TurngateError) -> None:
        show_error(error.code, str(error), error.hint, as_json=False)

    def _note(self, text: str) -> None:
        self._notes.print(Text(visible(text)), soft_wrap=True)


class JsonVoice:
    """For programs: one JSON object a line on stdout, and errors as one on stderr."""

    def opened(self, *, facts: dict[str, Any]) -> None:
        self._line({"type": "opened", **facts})

    def asked(self, prompt: str) -> None:
        self._line({"type": "asked", "text": prompt})

    def event(self, event: Event) -> None:
        match event:
            case TextEvent():
                self._line({"type": "text", "text": event.text})
            case ReasoningEvent():
                self._line({"type": "reasoning", "text": event.text})
            case ToolStarted() | ToolEnded():
                self._line(msgspec.to_builtins(event))
            case Settled():
                pass  # `ended` says it, also of a call that was stopped
            case _:
                assert_never(event)

    def ended(self, exchange: Exchange) -> None:
        self._line(settled_shape(exchange.outcome))

    def failed(self, error: TurngateError) -> None:
        show_error(error.code, str(error), error.hint, as_json=True)

    def _line(self, value: dict[str, Any]) -> None:
        print(json_text(value), flush=True)


def _note(exchange: Exchange) -> str | None:
    """What must be said of an answer that is not whole, or None."""
    outcome = exchange.outcome
    if outcome is None:
        return "Stopped before the question was sent."
    if isinstance(outcome, Answered):
        calls = ", ".join(call.name for call in outcome.tool_calls)
        return f"The model wants to call {calls}; this program runs no tools." if calls else None
    kept = "What was said is kept." if outcome.text else "The question is kept."
    match outcome.reason:
        case "length":
            return f"Cut at the token limit. {kept}"
        case "content_filter":
            return f"Cut by the server's content filter. {kept}"
        case _ if exchange.stopped:
            return f"Stopped. {kept}"
        case reason:
            return f"Cut off ({reason}). {kept}"

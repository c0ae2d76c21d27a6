"""``chat``: a conversation with one thread, typed or read line by line from a pipe."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, assert_never

import msgspec

from turngate.cli.failures import CUT_OFF, INTERRUPTED, PROVIDER_FAILED, exit_code, show_error
from turngate.cli.loop import LoopThread, ending_on_signals
from turngate.cli.opening import Endpoint, opened_endpoint, opened_gateway
from turngate.cli.show import ROLE_STYLES, call_text, result_text, usage_text
from turngate.cli.terminal import json_shape, out_console, print_json, say
from turngate.completion import CallOptions
from turngate.errors import TurngateError
from turngate.gateway import (
    Answered,
    AwaitingReview,
    Blocked,
    CallStream,
    Event,
    Outcome,
    Thread,
    events,
)
from turngate.records import Scope, checked_thread_id

_LABEL = "{:<8}"
_EMBEDDED_TOKENS_MAX = 256
_KINDS: dict[type, str] = {
    Answered: "answered", AwaitingReview: "awaiting_review", Blocked: "blocked",
}  # fmt: skip


def run_chat(
    *,
    db: str,
    tenant: str,
    thread: str | None,
    url: str | None,
    model: str | None,
    instructions: str | None,
    max_tokens: int | None,
    as_json: bool,
) -> int:
    Scope(tenant)  # a wrong name is told before a model is started
    if thread is not None:
        checked_thread_id(thread)
    with (
        ending_on_signals(),
        opened_endpoint(url, model) as endpoint,
        LoopThread() as loop,
        loop.entered(opened_gateway(endpoint, db=db, instructions=instructions)) as gateway,
    ):
        handle = gateway.tenant(tenant).thread(thread)
        voice = JsonVoice() if as_json else PersonVoice() if is_interactive() else Voice()
        length = loop.wait(handle.turns(limit=1)).length
        facts = {"thread": handle.id, "length": length, "tenant": tenant, "db": db}
        voice.opened({**facts, "model": endpoint.model})
        options = chat_options(endpoint, max_tokens)
        if isinstance(voice, PersonVoice):
            return voice.chat(loop, handle, options, db=db, tenant=tenant)
        prompts = (line.removesuffix("\n") for line in sys.stdin if line.strip())
        return converse(loop, handle, prompts, voice, options=options)


def chat_options(endpoint: Endpoint, max_tokens: int | None = None) -> CallOptions:
    if max_tokens is None and endpoint.embedded:
        max_tokens = _EMBEDDED_TOKENS_MAX
    return CallOptions(max_tokens=max_tokens)


def is_interactive() -> bool:
    """Whether a person types and reads; else prompts come from, or answers go to, a program."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed_prompts() -> Iterator[str]:
    """The lines that a person types, without empty ones, until Ctrl-D or Ctrl-C."""
    with suppress(ImportError):
        import readline  # noqa: F401  # gives `input` editing and history
    while True:
        try:
            line = input(_LABEL.format("you"))
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.strip():
            yield line


def command_for(command: str, thread: str, *, db: str, tenant: str = "local") -> str:
    """The command line that takes up `thread` again, ready to be pasted."""
    words = ["turngate", *command.split(), thread]
    words += ["--db", db] if db != "turngate.db" else []
    words += ["--tenant", tenant] if tenant != "local" else []
    return shlex.join(words)


def converse(
    loop: LoopThread,
    thread: Thread,
    prompts: Iterable[str],
    voice: Voice,
    *,
    options: CallOptions,
    go_on: bool = False,
) -> int:
    """Ask each prompt in turn. A failure or a stop ends it, unless `go_on`, and gives the code."""
    for prompt in prompts:
        voice.asked(prompt)
        code = followed(loop, thread.stream_ask(prompt, options=options), voice)
        if code and not go_on:
            return code
    return 0


def followed(loop: LoopThread, stream: CallStream, voice: Voice) -> int:
    """Show a call from its start to its settle; gives the exit code. Ctrl-C stops it."""
    began = time.monotonic()

    async def was_stopped() -> bool:
        try:
            async with stream as told:
                async for event in told:
                    voice.event(event)
        except asyncio.CancelledError:  # leaving the stream has settled what was said
            return True
        return False

    try:
        stopped = loop.wait(was_stopped())
    except TurngateError as error:
        voice.failed(error)
        return exit_code(error)
    voice.ended(stream.outcome, stopped=stopped, seconds=time.monotonic() - began)
    if stopped:
        return INTERRUPTED
    return PROVIDER_FAILED if getattr(stream.outcome, "reason", None) in CUT_OFF else 0


def _note(outcome: Outcome | None, *, stopped: bool) -> str | None:
    """What must be said of an answer that is not whole, or None."""
    if outcome is None:
        return "Stopped before the question was sent."
    if isinstance(outcome, Answered):
        calls = ", ".join(call.name for call in outcome.tool_calls)
        return f"The model wants to call {calls}; this program runs no tools." if calls else None
    if isinstance(outcome, AwaitingReview):
        return f"A person decides on it first: {', '.join(outcome.reviews)}"
    if isinstance(outcome, Blocked):
        kept = "The question is kept." if outcome.turns else "Nothing is kept."
        return f"Blocked by {outcome.by} ({outcome.rule}). {kept}"
    why = "Stopped" if stopped else f"Cut off ({outcome.reason})"
    if outcome.reason == "length":
        why = "Cut at the token limit"
    return f"{why}. {'What was said' if outcome.text else 'The question'} is kept."


# ── how it is shown ──────────────────────────────────────────────────────────────────────────


class Voice:
    """Shows a conversation: ``opened (asked event* (ended | failed))*``.

    This one is for scripts: answers alone on stdout, one after the other; all else on stderr.
    """

    def __init__(self) -> None:
        self.console = out_console()

    def opened(self, facts: dict[str, Any]) -> None:
        """Say where the conversation is kept and who answers; `facts` are named as in JSON."""
        say(out_console(sys.stderr), f"thread {facts['thread']} in {facts['db']}")

    def asked(self, prompt: str) -> None:
        """A prompt is on its way."""

    def event(self, event: Event) -> None:
        if isinstance(event, events.TextEvent):
            say(self.console, event.text, end="")

    def ended(self, outcome: Outcome | None, *, stopped: bool, seconds: float) -> None:
        say(self.console, "")
        if (note := _note(outcome, stopped=stopped)) is not None:
            say(out_console(sys.stderr), note)

    def failed(self, error: TurngateError) -> None:
        show_error(error.code, str(error), error.hint, as_json=False)


class JsonVoice(Voice):
    """For programs: one JSON object a line on stdout, and errors as one on stderr."""

    def opened(self, facts: dict[str, Any]) -> None:
        print_json({"type": "opened", **facts})

    def asked(self, prompt: str) -> None:
        print_json({"type": "asked", "text": prompt})

    def event(self, event: Event) -> None:
        if not isinstance(event, events.Settled):  # `ended` says it, also where one was stopped
            print_json(msgspec.to_builtins(event))

    def ended(self, outcome: Outcome | None, *, stopped: bool, seconds: float) -> None:
        nothing: dict[str, Any] = {"call_id": None, "text": "", "turns": [], "usage": None}
        shape = json_shape(outcome) if outcome is not None else nothing
        kind = _KINDS.get(type(outcome), "incomplete")
        reason = "cancelled" if outcome is None else None
        bare: dict[str, Any] = {"reason": reason, "by": None, "rule": None, "reviews": []}
        print_json({"type": "settled", "kind": kind, **bare, **shape})

    def failed(self, error: TurngateError) -> None:
        show_error(error.code, str(error), error.hint, as_json=True)


class PersonVoice(Voice):
    """For a terminal: labels, reasoning and tools, usage. `echo` shows what nobody typed."""

    def __init__(self, *, echo: bool = False) -> None:
        super().__init__()
        self._echo = echo
        self._last: type[Event] | None = None  # the kind of event on the present line

    def chat(
        self, loop: LoopThread, thread: Thread, options: CallOptions, *, db: str, tenant: str
    ) -> int:
        """Questions typed by a person, until Ctrl-D or Ctrl-C at the prompt."""
        say(self.console, ("Ctrl-C stops an answer. Ctrl-D leaves.\n", "dim"))
        code = converse(loop, thread, _typed_prompts(), self, options=options, go_on=True)
        if loop.wait(thread.turns(limit=1)).length:
            command = command_for("chat --thread", thread.id, db=db, tenant=tenant)
            say(self.console, (f"To go on: {command}", "dim"))
        return code

    def opened(self, facts: dict[str, Any]) -> None:
        turns = f"{facts['length']} turns so far" if facts["length"] else "new"
        shown = {"model": facts["model"] or "the server's own", "db": facts["db"]}
        for name, fact in {**shown, "thread": f"{facts['thread']}   {turns}"}.items():
            say(self.console, (_LABEL.format(name), "dim"), fact)
        say(self.console, "")

    def asked(self, prompt: str) -> None:
        if self._echo:
            say(self.console, (_LABEL.format("you"), ROLE_STYLES["user"]), prompt)
        say(self.console, (_LABEL.format("model"), ROLE_STYLES["assistant"]), end="")
        self._last = None

    def event(self, event: Event) -> None:
        match event:
            case events.TextEvent():
                self._piece(event, event.text)
            case events.ReasoningEvent():
                self._piece(event, event.text, "dim italic")
            case events.ToolStarted():
                self._piece(event, call_text(event.name, event.arguments), "yellow")
            case events.ToolEnded():
                shown = result_text(event.name, event.content, is_error=event.is_error)
                self._piece(event, shown, "yellow")
            case events.Held():
                self._piece(event, "(held back until it is judged)", "dim")
            case events.Settled():
                pass  # `ended` says it
            case _:
                assert_never(event)

    def ended(self, outcome: Outcome | None, *, stopped: bool, seconds: float) -> None:
        say(self.console, "")
        if (note := _note(outcome, stopped=stopped)) is not None:
            say(self.console, _LABEL.format(""), (note, "yellow"))
        usage = outcome.usage if outcome is not None else None
        counted = f"{usage_text(usage)} · " if usage is not None else ""
        say(self.console, (f"{_LABEL.format('')}{counted}{seconds:.1f} s\n", "dim"))

    def failed(self, error: TurngateError) -> None:
        say(self.console, "")
        super().failed(error)

    def _piece(self, event: Event, text: str, style: str = "") -> None:
        """`text`; a tool, and another kind of event than the last, begins a line of its own."""
        whole = isinstance(event, events.ToolStarted | events.ToolEnded)
        if self._last is not None and (whole or self._last is not type(event)):
            say(self.console, "\n", _LABEL.format(""), end="")
        self._last = type(event)
        say(self.console, (text, style), end="")

"""``demo``: a conversation with one tool call, stored, closed, opened again and read back."""

from __future__ import annotations

import secrets
from pathlib import Path

from turngate.cli import chat
from turngate.cli.loop import LoopThread, ending_on_signals
from turngate.cli.opening import TOOLS, Endpoint, opened_endpoint, opened_gateway
from turngate.cli.show import print_turns, read_thread
from turngate.cli.terminal import out_console, say
from turngate.completion import CallOptions
from turngate.gateway import Event, ToolStarted
from turngate.records import RunLimits

__all__ = ["run_demo"]

TRACKED = "Where is my parcel? Its number is 55."  # no model knows that without a tool
PROMPTS = (
    "What is the capital of France?",
    "Which river flows through that city?",  # which city was said before
)
_OPTIONS = CallOptions(max_tokens=64, temperature=0)
_LIMITS = RunLimits(rounds_max=3)
_TENANT = "local"


def run_demo(*, db: str, url: str | None, model: str | None) -> int:
    thread = f"demo-{secrets.token_hex(4)}"
    console = out_console()
    say(console, "A conversation, stored as it goes. Starting the model ...")
    with ending_on_signals(), opened_endpoint(url, model) as endpoint, LoopThread() as loop:
        code = _asked(loop, endpoint, db=db, thread=thread)
        if code != 0:
            return code
        say(console, "The file is closed. Opened again, read-only, it holds:\n")
        record, page = read_thread(db, _TENANT, thread)
        print_turns(console, record, page, tenant=_TENANT)
        if not chat.is_interactive():
            say(console, f"\nTo see it again: {chat.command_for('show', thread, db=db)}")
            return 0
        say(console, "\nIt is your turn now: the thread goes on.")
        with loop.entered(opened_gateway(endpoint, db=db)) as gateway:
            handle, options = gateway.tenant(_TENANT).thread(thread), chat.chat_options(endpoint)
            return chat.PersonVoice().chat(loop, handle, options, db=db, tenant=_TENANT)


class _DemoVoice(chat.PersonVoice):
    """The voice for a person, which also counts the tool calls."""

    calls = 0

    def event(self, event: Event) -> None:
        self.calls += isinstance(event, ToolStarted)
        super().event(event)


def _asked(loop: LoopThread, endpoint: Endpoint, *, db: str, thread: str) -> int:
    """Ask the prompts through a gateway of their own, which is closed again; gives the code."""
    voice = _DemoVoice(echo=True)
    where = ", inside this process; no key, no network" if endpoint.embedded else ""
    named = f"{endpoint.model}{where}" if endpoint.model is not None else None
    voice.opened({"model": named, "db": str(Path(db).absolute()), "thread": thread, "length": 0})
    with loop.entered(opened_gateway(endpoint, db=db)) as gateway:
        handle = gateway.tenant(_TENANT).thread(thread)
        voice.asked(TRACKED)
        run = handle.stream_run(TRACKED, tools=TOOLS, options=_OPTIONS, limits=_LIMITS)
        code = chat.followed(loop, run, voice)
        if code == 0 and not voice.calls:
            say(voice.console, "The model answered without the tool that it was given.\n")
        return code or chat.converse(loop, handle, PROMPTS, voice, options=_OPTIONS)

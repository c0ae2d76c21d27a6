"""``demo``: a short conversation, stored, closed, opened again and read back."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from turngate.cli.chat import command_for, converse, interactive_chat, opened_thread
from turngate.cli.loop import LoopThread, ending_on_signals
from turngate.cli.options import DEFAULT_TENANT, Endpoint, opened_endpoint
from turngate.cli.prompts import is_interactive, kept_terminal
from turngate.cli.rendering import print_turns
from turngate.cli.show import read_thread
from turngate.cli.terminal import out_console, visible
from turngate.cli.voices import PersonVoice
from turngate.completion import CallOptions

__all__ = ["PROMPTS", "run_demo"]

# Each but the first can only be answered from what was said before.
PROMPTS = (
    "What is the capital of France?",
    "Which river flows through that city?",
    "What language do people speak there?",
)
_ASKED = CallOptions(max_tokens=48, temperature=0)
_GOING_ON = CallOptions(max_tokens=256, temperature=0)


def run_demo(*, db: str, url: str | None, model: str | None) -> int:
    thread = f"demo-{secrets.token_hex(4)}"
    console = out_console()
    _say(console, "A conversation, stored as it goes. Starting the model ...")
    with (
        ending_on_signals(),
        kept_terminal(),
        opened_endpoint(url, model) as endpoint,
        LoopThread() as loop,
    ):
        code = _asked(console, loop, endpoint, db=db, thread=thread)
        if code != 0:
            return code
        _say(console, "The file is closed. Opened again, read-only, it holds:\n")
        record, page = loop.wait(read_thread(db=db, tenant=DEFAULT_TENANT, thread=thread))
        print_turns(console, record, page, tenant=DEFAULT_TENANT)
        console.print()
        if not (is_interactive() and sys.stdout.isatty()):
            command = command_for("show", thread, db=db, tenant=DEFAULT_TENANT)
            _say(console, f"To see it again: {command}")
            return 0
        _say(console, "It is your turn now: the thread goes on.")
        with opened_thread(loop, endpoint, db=db, tenant=DEFAULT_TENANT, thread=thread) as handle:
            return interactive_chat(
                loop, handle, PersonVoice(), options=_GOING_ON, db=db, tenant=DEFAULT_TENANT
            )


def _asked(console: Console, loop: LoopThread, endpoint: Endpoint, *, db: str, thread: str) -> int:
    """Ask the prompts through a gateway of their own, which is closed again; gives the code."""
    voice = PersonVoice(console, echo=True)
    with opened_thread(loop, endpoint, db=db, tenant=DEFAULT_TENANT, thread=thread) as handle:
        facts = {"model": _model_fact(endpoint), "db": _file_fact(db), "thread": thread}
        voice.opened(facts={**facts, "length": 0})
        return converse(loop, handle, PROMPTS, voice, options=_ASKED)


def _model_fact(endpoint: Endpoint) -> str | None:
    if endpoint.embedded:
        return f"{endpoint.model}, inside this process; no key, no network"
    return endpoint.model


def _file_fact(db: str) -> str:
    with suppress(OSError):
        return str(Path(db).resolve())
    return db


def _say(console: Console, text: str) -> None:
    console.print(Text(visible(text)), soft_wrap=True)

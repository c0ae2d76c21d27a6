"""``chat``: a conversation with one thread, typed or read line by line from a pipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from turngate.bootstrap import open_gateway
from turngate.cli.conversation import ask
from turngate.cli.embedded import INSTRUCTIONS
from turngate.cli.failures import INTERRUPTED, PROVIDER_FAILED, exit_code
from turngate.cli.loop import LoopThread, ending_on_signals
from turngate.cli.options import DEFAULT_DB, DEFAULT_TENANT, Endpoint, opened_endpoint
from turngate.cli.prompts import is_interactive, kept_terminal, piped_prompts, typed_prompts
from turngate.cli.terminal import out_console
from turngate.cli.voices import JsonVoice, PersonVoice, PipeVoice, Voice
from turngate.completion import CallOptions
from turngate.context import RecentWindow
from turngate.errors import TurngateError
from turngate.gateway import Thread
from turngate.records import Scope, checked_thread_id

__all__ = ["command_for", "converse", "interactive_chat", "opened_thread", "run_chat"]

# Six answers of at most these tokens, with their questions, fit into the embedded model's context.
_EMBEDDED_TOKENS_MAX = 256
_EMBEDDED_WINDOW = RecentWindow(turns=12)


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
        kept_terminal(),
        opened_endpoint(url, model) as endpoint,
        LoopThread() as loop,
        opened_thread(
            loop, endpoint, db=db, tenant=tenant, thread=thread, instructions=instructions
        ) as handle,
    ):
        options = chat_options(endpoint, max_tokens)
        facts = {
            "thread": handle.id,
            "length": loop.wait(handle.turns(limit=1)).length,
            "tenant": tenant,
            "db": db,
            "model": endpoint.model,
        }
        voice = _voice(as_json)
        voice.opened(facts=facts)
        if not is_interactive():
            return converse(loop, handle, piped_prompts(), voice, options=options)
        return interactive_chat(
            loop, handle, voice, options=options, db=db, tenant=tenant, as_json=as_json
        )


@contextmanager
def opened_thread(
    loop: LoopThread,
    endpoint: Endpoint,
    *,
    db: str,
    tenant: str,
    thread: str | None,
    instructions: str | None = None,
) -> Iterator[Thread]:
    """A thread that can be asked, through a gateway that closes with this context.

    Shapes: `thread` None is a new one; `instructions` None leaves them to the endpoint.
    """
    if instructions is None and endpoint.embedded:
        instructions = INSTRUCTIONS
    gateway = open_gateway(
        db,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        model=endpoint.model,
        instructions=instructions,
        window=_EMBEDDED_WINDOW if endpoint.embedded else None,
    )
    with loop.entered(gateway) as opened:
        yield opened.tenant(tenant).thread(thread)


def chat_options(endpoint: Endpoint, max_tokens: int | None) -> CallOptions:
    if max_tokens is None and endpoint.embedded:
        max_tokens = _EMBEDDED_TOKENS_MAX
    return CallOptions(max_tokens=max_tokens)


def interactive_chat(
    loop: LoopThread,
    thread: Thread,
    voice: Voice,
    *,
    options: CallOptions,
    db: str,
    tenant: str,
    as_json: bool = False,
) -> int:
    """Questions typed by a person, until Ctrl-D or Ctrl-C at the prompt."""
    if not as_json:
        out_console().print(
            "[dim]Ctrl-C stops an answer. Ctrl-D leaves.[/]\n", highlight=False, soft_wrap=True
        )
    code = converse(loop, thread, typed_prompts(quiet=as_json), voice, options=options, go_on=True)
    if not as_json and loop.wait(thread.turns(limit=1)).length:
        command = command_for("chat --thread", thread.id, db=db, tenant=tenant)
        out_console().print(f"To go on: {command}", style="dim", markup=False, soft_wrap=True)
    return code


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
        try:
            exchange = ask(loop, thread, prompt, options=options, show=voice.event)
        except TurngateError as error:
            voice.failed(error)
            if not go_on:
                return exit_code(error)
            continue
        voice.ended(exchange)
        if not go_on and exchange.stopped:
            return INTERRUPTED
        if not go_on and exchange.cut_off:
            return PROVIDER_FAILED
    return 0


def command_for(command: str, thread: str, *, db: str, tenant: str) -> str:
    """The command line that takes up `thread` again, ready to be pasted."""
    words = ["turngate", *command.split(), thread]
    if db != DEFAULT_DB:
        words += ["--db", db]
    if tenant != DEFAULT_TENANT:
        words += ["--tenant", tenant]
    return shlex.join(words)


def _voice(as_json: bool) -> Voice:
    if as_json:
        return JsonVoice()
    return PersonVoice() if is_interactive() else PipeVoice()

"""``threads`` and ``show``: they open the file to read, also beside a program that writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, TypeVar, assert_never

from rich.console import Console

from turngate import turns
from turngate.bootstrap import open_gateway
from turngate.cli.terminal import json_shape, out_console, print_block, print_json, print_list, say
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.errors import RequestError
from turngate.gateway import Gateway
from turngate.records import ThreadPage, ThreadRecord, TurnPage
from turngate.turns import Part, Turn
from turngate.values import Usage

T = TypeVar("T")

ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}
_INDENT = 6


def read(db: str, load: Callable[[Gateway], Awaitable[T]], *, files: str | None = None) -> T:
    """What `load` gives, through a gateway that only reads."""
    return asyncio.run(_within(open_gateway(db, read_only=True, files=files), load))


def write(db: str, change: Callable[[Gateway], Awaitable[T]], *, files: str | None = None) -> T:
    """What `change` gives, through a gateway that writes, asks no model and takes nothing over.

    It makes the file if there is none: read something first. Errors: `StoreInUse`.
    """
    opened = open_gateway(db, provider=_NoModel(), files=files, resume=False)
    return asyncio.run(_within(opened, change))


async def _within(
    opened: AbstractAsyncContextManager[Gateway], work: Callable[[Gateway], Awaitable[T]]
) -> T:
    async with opened as gateway:
        return await work(gateway)


class _NoModel:
    """The endpoint of a gateway that asks nothing."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        raise RequestError("this command asks no model")


def run_threads(*, db: str, tenant: str, limit: int, after: str | None, as_json: bool) -> None:
    page = read(db, lambda gateway: gateway.tenant(tenant).threads(after=after, limit=limit))
    if as_json:
        print_json(json_shape(page))
    else:
        print_threads(out_console(), page, tenant=tenant)


def run_show(
    *, db: str, tenant: str, thread: str, limit: int, before: int | None, as_json: bool
) -> None:
    record, page = read_thread(db, tenant, thread, limit=limit, before=before)
    if as_json:
        print_json({"thread": json_shape(record), **page_shape(page)})
    else:
        print_turns(out_console(), record, page, tenant=tenant)


def page_shape(page: TurnPage) -> dict[str, Any]:
    """A page as JSON: the turns with their positions."""
    placed = enumerate(json_shape(page.turns), page.first)
    turns = [{"position": position, **turn} for position, turn in placed]
    return {"first": page.first, "turns": turns}


def read_thread(
    db: str, tenant: str, thread: str, *, limit: int = 50, before: int | None = None
) -> tuple[ThreadRecord, TurnPage]:
    """A thread and a page of its turns. Errors: `ThreadNotFound`, `StoreError`."""

    async def load(gateway: Gateway) -> tuple[ThreadRecord, TurnPage]:
        handle = gateway.tenant(tenant).thread(thread)
        return await handle.record(), await handle.turns(before=before, limit=limit)

    return read(db, load)


def print_threads(console: Console, page: ThreadPage, *, tenant: str) -> None:
    rows = (
        (t.id, str(t.length), local_time(t.updated_at), t.user or "", t.title or "")
        for t in page.threads
    )
    head = ("thread", "turns", "changed", "user", "title")
    empty = f"No threads of tenant {tenant!r} here."
    print_list(console, head, rows, empty=empty, after=page.next)


def print_turns(console: Console, record: ThreadRecord, page: TurnPage, *, tenant: str) -> None:
    """The thread's head line, its turns, and the sum of the usage that stands on them."""
    user = f"user {record.user}" if record.user is not None else None
    facts = joined(f"tenant {tenant}", counted(record.length, "turn"), user, record.title)
    say(console, ("thread ", "dim"), (record.id, "bold"), (f"   {facts}", "dim"))
    if page.turns and page.first > 0:
        earlier = f"{counted(page.first, 'earlier turn')}: --before {page.first}"
        say(console, (f"\n… {earlier}", "dim"))
    print_page(console, page)
    _print_sum(console, page.turns)


def print_page(console: Console, page: TurnPage) -> None:
    """The turns of `page`, each with its position and a head line of facts."""
    for position, turn in enumerate(page.turns, page.first):
        used = usage_text(turn.usage) if turn.usage is not None else None
        facts = joined(local_time(turn.created_at), turn.model, used)
        why = f" ({turn.ended})" if turn.ended is not None else ""
        status = f"   {turn.status}{why}" if turn.status != "complete" else ""
        head = (f"\n{position:>4}  ", "dim"), (turn.role, ROLE_STYLES[turn.role])
        say(console, *head, (f"   {facts}", "dim"), (status, "yellow"))
        print_parts(console, turn)


def print_parts(console: Console, turn: Turn) -> None:
    """The parts of `turn`, under the indent of its head line."""
    for part in turn.parts:
        text, style = _part_text(part)
        if text:
            print_block(console, text, indent=_INDENT, style=style)


def _part_text(part: Part) -> tuple[str, str]:
    """What is shown of a part, and its style."""
    match part:
        case turns.TextPart():
            return part.text, ""
        case turns.ReasoningPart():
            return part.text, "dim italic"
        case turns.FilePart():
            file = part.file
            return f"[file] {file.name} ({file.media_type}, {file.size_bytes:,} bytes)", "magenta"
        case turns.ToolCallPart():
            return call_text(part.name, part.arguments), "yellow"
        case turns.ToolResultPart():
            return result_text(part.name, part.content, is_error=part.is_error), "yellow"
        case _:
            assert_never(part)


def call_text(name: str, arguments: str) -> str:
    """``[call] track(number=7)``; arguments that are no JSON object stand as they are."""
    try:
        values = json.loads(arguments or "{}")
        shown = ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
    except (ValueError, AttributeError, RecursionError):
        shown = arguments
    return f"[call] {name}({shown})"


def result_text(name: str | None, content: str, *, is_error: bool) -> str:
    return f"[{name or 'tool'}{' failed' if is_error else ''}] {content}"


def usage_text(usage: Usage) -> str:
    """``21 tokens in, 8 out``, with what of it was cached or reasoning."""
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    reasoning = f" ({usage.reasoning_tokens} reasoning)" if usage.reasoning_tokens else ""
    return f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out{reasoning}"


def _print_sum(console: Console, shown: Iterable[Turn]) -> None:
    usages = [turn.usage for turn in shown if turn.usage is not None]
    if not usages:
        return
    unknown = sum(turn.status == "incomplete" and turn.usage is None for turn in shown)
    # A server that is left amid an answer tells no usage.
    without = f", without {counted(unknown, 'incomplete one')}" if unknown else ""
    total = usage_text(sum(usages[1:], start=usages[0]))
    label = f"\n{' ' * _INDENT}sum of {counted(len(usages), 'answer')}: "
    say(console, (label, "dim"), (total, "bold"), (without, "dim"))


def joined(*facts: str | None) -> str:
    """Those of `facts` that there are, on one line."""
    return " · ".join(" ".join(fact.split()) for fact in facts if fact is not None)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def local_time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")

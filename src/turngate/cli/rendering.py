"""Threads and turns as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turngate.cli.terminal import indented, visible
from turngate.records import ThreadPage, ThreadRecord, TurnPage
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from turngate.values import Usage

__all__ = ["ROLE_STYLES", "print_threads", "print_turns", "usage_text"]

ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}
_INDENT = 6


def usage_text(usage: Usage) -> str:
    """``21 tokens in, 8 out``, with what of it was cached or reasoning."""
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    reasoning = f" ({usage.reasoning_tokens} reasoning)" if usage.reasoning_tokens else ""
    return f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out{reasoning}"


def print_threads(console: Console, page: ThreadPage, *, tenant: str) -> None:
    if not page.threads:
        console.print(Text(f"No threads of tenant {visible(tenant)!r} here.", style="dim"))
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("thread", overflow="fold", style="cyan")
    table.add_column("turns", overflow="fold", justify="right")
    table.add_column("changed")
    table.add_column("user", overflow="fold")
    table.add_column("title", overflow="fold")
    for record in page.threads:
        table.add_row(
            _cell(record.id),
            str(record.length),
            _local_time(record.updated_at),
            _cell(record.user or ""),
            _cell(record.title or ""),
        )
    console.print(table)
    if page.next is not None:
        more = Text(f"There are more: --after {visible(page.next)}", style="dim")
        console.print(more, soft_wrap=True)


def print_turns(console: Console, record: ThreadRecord, page: TurnPage, *, tenant: str) -> None:
    """The thread's head line, its turns, and the sum of the usage that stands on them."""
    head = Text.assemble(("thread ", "dim"), (visible(record.id), "bold"))
    facts = [f"tenant {visible(tenant)}", _counted(record.length, "turn")]
    if record.user is not None:
        facts.append(f"user {_line(record.user)}")
    if record.title is not None:
        facts.append(_line(record.title))
    head.append("   " + " · ".join(facts), style="dim")
    _print_line(console, head)
    if page.turns and page.first > 0:
        earlier = f"{_counted(page.first, 'earlier turn')}: --before {page.first}"
        console.print(Text(f"\n… {earlier}", style="dim"), soft_wrap=True)
    for position, turn in enumerate(page.turns, page.first):
        console.print()
        _print_turn(console, turn, position)
    _print_sum(console, page.turns)


def _print_turn(console: Console, turn: Turn, position: int) -> None:
    head = Text.assemble((f"{position:>4}  ", "dim"))
    head.append(turn.role, style=ROLE_STYLES[turn.role])
    facts = [_local_time(turn.created_at)]
    if turn.model is not None:
        facts.append(_line(turn.model))
    if turn.usage is not None:
        facts.append(usage_text(turn.usage))
    head.append("   " + " · ".join(facts), style="dim")
    if turn.status == "incomplete":
        why = f" ({_line(turn.ended)})" if turn.ended is not None else ""
        head.append(f"   incomplete{why}", style="yellow")
    if turn.status == "deleted":
        head.append("   deleted", style="red")
    _print_line(console, head)
    for part in turn.parts:
        text, style = _part_text(part)
        if text:
            # Folding is done under the indent on a terminal, and not at all elsewhere.
            body = indented(text, console, by=_INDENT, style=style)
            console.print(body, soft_wrap=not console.is_terminal)


def _part_text(part: Part) -> tuple[str, str]:
    """What is shown of a part, and its style."""
    match part:
        case TextPart():
            return part.text, ""
        case ReasoningPart():
            return part.text, "dim italic"
        case FilePart():
            file = part.file
            return f"[file] {file.name} ({file.media_type}, {file.size_bytes:,} bytes)", "magenta"
        case ToolCallPart():
            return f"[call] {part.name} {part.arguments}", "yellow"
        case ToolResultPart():
            return f"[{'error' if part.is_error else 'result'}] {part.content}", "yellow"
        case _:
            assert_never(part)


def _print_sum(console: Console, turns: Sequence[Turn]) -> None:
    usages = [turn.usage for turn in turns if turn.usage is not None]
    if not usages:
        return
    total = sum(usages[1:], start=usages[0])
    unknown = sum(turn.status == "incomplete" and turn.usage is None for turn in turns)
    label = f"{' ' * _INDENT}sum of {_counted(len(usages), 'answer')}: "
    line = Text.assemble((label, "dim"), (usage_text(total), "bold"))
    if unknown:  # a server that is left amid an answer tells no usage
        line.append(f", without {_counted(unknown, 'incomplete one')}", style="dim")
    console.print()
    _print_line(console, line)


def _print_line(console: Console, line: Text) -> None:
    """`line`, folded between words on a terminal and left whole elsewhere."""
    console.print(line, soft_wrap=not console.is_terminal)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _local_time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _line(text: str) -> str:
    """`text` on one line."""
    return " ".join(visible(text).split())


def _cell(text: str) -> Text:
    return Text(_line(text))

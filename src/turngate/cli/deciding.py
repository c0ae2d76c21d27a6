"""A proposal on the terminal, exactly as it is, and what a person decides about it."""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from turngate.cli.chat import is_interactive
from turngate.cli.failures import WrongUsage
from turngate.cli.show import joined, local_time
from turngate.cli.terminal import print_block, revealed, say
from turngate.gateway.reviews import Decision
from turngate.records import ReviewRecord

_INDENT = 6
_ACTIONS: dict[str, Literal["approve", "edit", "reject", "retry"]] = {
    "[a]pprove": "approve", "[e]dit": "edit", "[r]eject": "reject", "[t]ry again": "retry",
}  # fmt: skip
_LEAVING = ("[s]kip", "[q]uit")


def checked_state(state: str, states: Sequence[str]) -> str | None:
    """The state that is asked for, None for any. Errors: `WrongUsage`."""
    if state not in (*states, "any"):
        raise WrongUsage(f"--state is {', '.join(states)}, or any")
    return None if state == "any" else state


def named(by: str | None, *, what: str) -> str:
    """Who decides: as told, or as typed now. Errors: `WrongUsage`."""
    if not by and is_interactive():
        by = input("your name: ").strip()
    if not by:
        raise WrongUsage(f"{what} needs a name", hint="Give --by, or set TURNGATE_REVIEWER.")
    return by


def state_and_by(review: ReviewRecord) -> str:
    """``approved by ann``."""
    return review.state + (f" by {review.decided_by}" if review.decided_by is not None else "")


def print_proposal(console: Console, review: ReviewRecord) -> None:
    """What the model proposed; what can't be seen in it is escaped, and that is said."""
    texts: list[tuple[str, str]] = []
    if review.answer is not None:
        texts = [(review.answer.reasoning or "", "dim italic"), (review.answer.text, "")]
    calls = review.answer.tool_calls if review.answer is not None else (review.tool_call,)
    for call in calls:
        if call is not None:
            texts += [(f"[call] {call.name}", "yellow"), (call.arguments, "")]
    for text, style in texts:
        if text:
            print_block(console, revealed(text), indent=_INDENT, style=style)
    if any(revealed(text) != text for text, _ in texts):
        _note(console, "It holds characters that can't be seen; here they are escaped.")
    if review.reason == "outcome_unknown":
        _note(console, "It may have run already: its process died in it. Approved, it runs again.")


def print_decision(console: Console, review: ReviewRecord) -> None:
    """Who decided what, when and why; of an edit the difference."""
    head = joined(revealed(state_and_by(review)))
    at = f", {local_time(review.decided_at)}" if review.decided_at is not None else ""
    why = f": {joined(revealed(review.why))}" if review.why else ""
    say(console, (f"\n      {head}", "bold cyan"), f"{at}{why}")
    if review.note:
        print_block(console, f"the model was told: {revealed(review.note)}", indent=_INDENT)
    edited = review.text if review.text is not None else review.arguments
    if edited is not None:
        before, after = (revealed(text).split("\n") for text in (_editable(review), edited))
        for line in difflib.unified_diff(before, after, "proposed", "edited", lineterm=""):
            style = {"+": "green", "-": "red"}.get(line[0], "dim")
            print_block(console, line, indent=_INDENT, style=style)


def _note(console: Console, text: str) -> None:
    say(console, (f"{' ' * _INDENT}{text}", "yellow"))


def _editable(review: ReviewRecord) -> str:
    """The text that an edit takes the place of."""
    if review.answer is not None:
        return review.answer.text
    return review.tool_call.arguments if review.tool_call is not None else ""


def asked_decision(review: ReviewRecord, *, by: str, leaving: bool = True) -> Decision | None:
    """What is typed at the terminal (None: nothing now). Errors: `EOFError` for leaving."""
    actions = dict(_ACTIONS)
    if review.kind == "tool_call" or not leaving:
        del actions["[t]ry again"]
    offered = (*actions, *(_LEAVING if leaving else ()))
    keys = [name[1] for name in offered]
    while True:
        key = input(f"{' '.join(offered)}: ").strip().lower()[:1]
        if key == "q" and key in keys:
            raise EOFError
        if key == "s" and key in keys:
            return None
        if key not in keys:
            continue
        decision = Decision(action=actions[offered[keys.index(key)]], by=by)
        if key == "e":
            edited = _edited(review)
            if edited in ("", _editable(review)):
                continue
            decision = with_edit(decision, review, edited)
        if key == "t":
            decision = replace(decision, note=input("tell the model: "))
        return replace(decision, why=input("why (or nothing): ") or None) if leaving else decision


def _edited(review: ReviewRecord) -> str:
    if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
        return edited_in_editor(review)
    return input("in its place: ")


def with_edit(decision: Decision, review: ReviewRecord, edited: str) -> Decision:
    if review.answer is not None:
        return replace(decision, text=edited)
    return replace(decision, arguments=edited)


def edited_in_editor(review: ReviewRecord) -> str:
    """The proposal as a person left it in an editor. Errors: `WrongUsage` where there is none."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise WrongUsage("no editor is named", hint="Set EDITOR, or give --text or --arguments.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "proposal.txt" if review.answer is not None else "proposal.json")
        path.write_bytes(f"{_editable(review)}\n".encode())
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
            return path.read_bytes().decode().removesuffix("\n")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise WrongUsage(f"the editor did not give a text: {error}") from error

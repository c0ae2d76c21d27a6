"""``demo``: a tool call, a review and a memory; all is stored, opened again and read back."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from turngate.cli import chat
from turngate.cli.deciding import asked_decision, print_decision, print_proposal
from turngate.cli.loop import LoopThread, ending_on_signals
from turngate.cli.opening import TOOLS, Endpoint, opened_endpoint, opened_gateway
from turngate.cli.show import counted, print_turns, read_thread
from turngate.cli.terminal import out_console, say
from turngate.completion import CallOptions
from turngate.gateway import AwaitingReview, Event, Outcome, ToolStarted
from turngate.gateway.reviews import Decision
from turngate.protocols import Remember, ReviewRule
from turngate.records import ReviewRecord, RunLimits, Scope

TRACKED = "Where is my parcel? Its number is 55."  # no model knows that without a tool
PROMPT = "What is the capital of France?"
HELD = "Which river flows through that city?"  # which city was said before
TOLD = "I am allergic to nuts, and I live in Oslo."
USED = "What must I not eat?"
_OPTIONS = CallOptions(max_tokens=64, temperature=0)
_LIMITS = RunLimits(rounds_max=3)
_TENANT = "local"
# A gateway of its own has this rule: beside it no answer can be shown as it comes.
_RULE = ReviewRule(name="demo", answers=True)
_REMEMBER = Remember(summary=False, options=CallOptions(max_tokens=200, temperature=0))


def run_demo(*, db: str, url: str | None, model: str | None, yes: bool) -> int:
    thread = f"demo-{secrets.token_hex(4)}"
    console = out_console()
    say(console, "A conversation, stored as it goes. Starting the model ...")
    with ending_on_signals(), opened_endpoint(url, model) as endpoint, LoopThread() as loop:
        code = _asked(loop, endpoint, db=db, thread=thread, yes=yes)
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
    """The voice for a person, which also counts the tool calls and keeps the last outcome."""

    calls = 0
    outcome: Outcome | None = None

    def event(self, event: Event) -> None:
        self.calls += isinstance(event, ToolStarted)
        super().event(event)

    def ended(self, outcome: Outcome | None, *, stopped: bool, seconds: float) -> None:
        self.outcome = outcome
        super().ended(outcome, stopped=stopped, seconds=seconds)


def _asked(loop: LoopThread, endpoint: Endpoint, *, db: str, thread: str, yes: bool) -> int:
    """Ask the prompts through gateways that are closed again; gives the code."""
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
        code = code or chat.converse(loop, handle, [PROMPT], voice, options=_OPTIONS)
    code = code or _reviewed(loop, endpoint, voice, db=db, thread=thread, yes=yes)
    return code or _remembered(loop, endpoint, voice, db=db, thread=thread)


def _reviewed(
    loop: LoopThread, endpoint: Endpoint, voice: _DemoVoice, *, db: str, thread: str, yes: bool
) -> int:
    """Ask under a rule that holds the answer, and have it decided on; gives the code."""
    say(voice.console, "The next answer is held: no one sees it before a person has decided.\n")
    with loop.entered(opened_gateway(endpoint, db=db, reviews=[_RULE])) as gateway:
        tenant = gateway.tenant(_TENANT)
        code = chat.converse(loop, tenant.thread(thread), [HELD], voice, options=_OPTIONS)
        if code or not isinstance(voice.outcome, AwaitingReview):
            return code
        review = loop.wait(tenant.reviews.get(voice.outcome.reviews[0]))
        say(voice.console, "Proposed, and in no thread yet:")
        print_proposal(voice.console, review)
        decision = Decision(action="approve", by="demo", why="nobody was to be asked")
        if not yes and chat.is_interactive():
            decision = _typed(review)
        review = loop.wait(gateway.decide(Scope(_TENANT), review.id, decision))
        print_decision(voice.console, review)
        say(voice.console, "")
        return 0


def _remembered(
    loop: LoopThread, endpoint: Endpoint, voice: _DemoVoice, *, db: str, thread: str
) -> int:
    """Say something of a user in one thread, and ask in another; gives the code."""
    say(voice.console, "What users say of themselves is kept, and shown in their other threads.\n")
    with loop.entered(opened_gateway(endpoint, db=db, remember=_REMEMBER)) as gateway:
        tenant = gateway.tenant(_TENANT)
        told = tenant.thread(f"{thread}-told", user=thread)
        if code := chat.converse(loop, told, [TOLD], voice, options=_OPTIONS):
            return code
        loop.wait(gateway.remembered())
        facts = loop.wait(tenant.facts.list(user=thread)).facts
        if not facts:
            calls = loop.wait(tenant.calls()).calls
            why = next((call.reason for call in calls if call.kind == "facts"), None)
            say(voice.console, f"The model gave no fact that could be kept ({why or 'none'}).\n")
            return 0
        kept = "; ".join(fact.text for fact in facts)
        say(voice.console, f"Kept as {facts[0].kind}: {kept}. In another thread of this user:\n")
        asked = tenant.thread(f"{thread}-asked", user=thread)
        code = chat.converse(loop, asked, [USED], voice, options=_OPTIONS)
        if code == 0 and voice.outcome is not None:
            rows = loop.wait(tenant.call(voice.outcome.call_id).model_calls())
            shown = len(rows[-1].receipt.facts) if rows[-1].receipt is not None else 0
            say(voice.console, f"Its receipt says that {counted(shown, 'fact')} were shown.\n")
        return code


def _typed(review: ReviewRecord) -> Decision:
    with suppress(EOFError):
        if (decision := asked_decision(review, by="you", leaving=False)) is not None:
            return decision
    return Decision(action="reject", by="you")

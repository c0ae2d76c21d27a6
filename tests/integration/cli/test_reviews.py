"""``turngate reviews`` as a process, over a file in which an answer and two tool calls wait."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command_line import CommandLine, events_until
from tests.integration.cli.conftest import configured
from tests.integration.cli.scripted_server import ScriptedServer
from turngate import open_gateway, tool
from turngate.completion import FunctionCallDelta, StreamEnd
from turngate.gateway import AwaitingReview
from turngate.protocols import ReviewRule
from turngate.records import ReviewState
from turngate.testing import ScriptedProvider

ASKED = "When does it come?"
PROPOSED = "It comes \u202eworromot\nfor sure."
RAW = '{"to": "ann",  "note": "a\u200bb"}'
SENT: list[str] = []

RULES = (
    ReviewRule(name="promises", when=lambda proposal: "comes" in proposal.text),
    ReviewRule(name="mail", tools=("send_mail",), default="approve"),
)


@tool
def send_mail(to: str, note: str = "") -> str:
    """Sends a mail."""
    SENT.append(to)
    return f"sent to {to}"


def mails(*arguments: str) -> list[object]:
    """One step of a model that sends as many mails as there are arguments."""
    calls = [
        FunctionCallDelta(index=index, id=f"c{index}", name="send_mail", arguments=each)
        for index, each in enumerate(arguments)
    ]
    return [*calls, StreamEnd("tool_calls")]


async def hold(db: Path) -> None:
    """An ask whose answer waits, and then a run of which two calls do."""
    provider = ScriptedProvider([PROPOSED], mails(RAW, '{"to": "bob"}'))
    async with open_gateway(db, provider=provider, tools=[send_mail], reviews=RULES) as gateway:
        tenant = gateway.tenant("local")
        assert isinstance(await tenant.thread("parcel").ask(ASKED), AwaitingReview)
        run = await tenant.thread("mail").run("Tell them.", tools=["send_mail"])
        assert isinstance(run, AwaitingReview)
        assert len(run.reviews) == 2


async def go_on(db: Path) -> list[str]:
    """What the run is told by its tools, in the program that has them; it calls one more."""
    provider = ScriptedProvider(mails('{"to": "zoe"}'))
    async with open_gateway(db, provider=provider, tools=[send_mail], reviews=RULES) as gateway:
        tenant = gateway.tenant("local")
        for call in (await tenant.calls(thread="mail")).calls:
            await tenant.call(call.id).outcome()
        turns = (await tenant.thread("mail").turns()).turns
        return [part.content for turn in turns for part in turn.parts if hasattr(part, "content")]


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("holding")
    asyncio.run(hold(folder / "turngate.db"))
    return folder


@pytest.fixture
def held(tmp_path: Path, server: ScriptedServer, holding: Path) -> CommandLine:
    """The command line in a folder with a copy of that file, and without an editor."""
    for path in holding.glob("turngate.db*"):
        shutil.copy(path, tmp_path)
    cli = configured(tmp_path, server)
    for name in ("EDITOR", "VISUAL"):
        cli.environment.pop(name, None)
    return cli


def ids(cli: CommandLine, thread: str, state: ReviewState = "open") -> list[str]:
    """The ids of the reviews of a thread, oldest first, as the library reads them."""

    async def read() -> list[str]:
        async with open_gateway(cli.folder / "turngate.db", read_only=True) as gateway:
            page = await gateway.tenant("local").reviews.list(thread=thread, state=state)
            return [review.id for review in reversed(page.reviews)]

    return asyncio.run(read())


def test_what_waits_is_listed_and_shown(held: CommandLine) -> None:
    """The list names what is proposed and by what it is held; other tenants have none of it."""
    shown = held.run("reviews", "list").stdout
    assert shown.split()[:6] == ["review", "thread", "proposed", "held", "by", "since"]
    assert shown.count("send_mail") == 2
    assert "promises" in shown
    page = held.json("reviews", "list", "--limit", "1")
    assert [review["kind"] for review in page["reviews"]] == ["tool_call"]
    rest = held.json("reviews", "list", "--after", page["next"])["reviews"]
    assert [review["thread"] for review in rest] == ["mail", "parcel"]
    assert held.json("reviews", "list", "--tenant", "acme")["reviews"] == []
    assert held.json("reviews", "list", "--state", "approved")["reviews"] == []
    assert held.run("reviews", "list", "--state", "shut").returncode == 2


def test_an_answer_is_shown_exactly_with_what_was_said_before(held: CommandLine) -> None:
    """A character that turns the text around is escaped, and the person is told so."""
    (review,) = ids(held, "parcel")
    shown = held.run("reviews", "show", review).stdout
    before, _, proposal = shown.partition("proposed\n")
    assert ASKED in before
    assert "held by promises (answer)" in before
    assert ": rejected" in before
    assert "      It comes \\u202eworromot\n      for sure.\n" in proposal
    assert "can't be seen" in proposal
    document = held.json("reviews", "show", review)
    assert document["review"]["answer"]["text"] == PROPOSED
    assert document["call"]["state"] == "review"
    assert [turn["position"] for turn in document["turns"]] == [0]


def test_a_tool_call_is_shown_with_its_raw_arguments(held: CommandLine) -> None:
    """What would be run is shown byte for byte, and what is done at the deadline."""
    shown = held.run("reviews", "show", ids(held, "mail")[0]).stdout
    assert '      [call] send_mail\n      {"to": "ann",  "note": "a\\u200bb"}\n' in shown
    assert ": approved" in shown
    (run,) = held.json("runs", "list")["runs"]
    assert run["state"] == "review"
    assert run["waiting_for"] == [f"review {review}" for review in ids(held, "mail")]
    assert "review, waits for review " in held.run("runs", "show", run["id"]).stdout


def test_an_approved_answer_is_in_the_thread(held: CommandLine) -> None:
    """It is settled without a model, and a second decision is told of the first."""
    (review,) = ids(held, "parcel")
    ended = held.run("reviews", "approve", review, "--by", "ann", "--why", "true")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{review}   approved by ann. The answer is in thread parcel.\n"
    turns = held.json("show", "parcel")["turns"]
    assert [turn["parts"][0]["text"] for turn in turns] == [ASKED, PROPOSED]
    again = held.run("reviews", "reject", review, "--by", "bob", "--json")
    assert again.returncode == 1
    assert json.loads(again.stderr)["error"]["code"] == "review_decided"
    shown = held.run("reviews", "show", review).stdout
    assert "approved by ann, " in shown
    assert shown.endswith(": true\n")
    assert shown.partition("proposed\n")[0].count("assistant") == 0


def test_an_edit_is_shown_as_a_difference(held: CommandLine) -> None:
    """The text of the edit is the thread's, and the original stays in the review."""
    (review,) = ids(held, "parcel")
    held.environment["TURNGATE_REVIEWER"] = "ann"
    text = "It comes on Monday.\nfor sure."
    document = held.json("reviews", "edit", review, "--text", text)
    assert (document["review"]["decided_by"], document["call"]["state"]) == ("ann", "answered")
    assert held.json("show", "parcel")["turns"][1]["parts"][0]["text"] == text
    shown = held.run("reviews", "show", review).stdout
    assert (
        "      -It comes \\u202eworromot\n      +It comes on Monday.\n       for sure.\n" in shown
    )


def test_a_rejected_answer_is_in_no_thread(held: CommandLine) -> None:
    """The question is kept, and a script may read who refused."""
    (review,) = ids(held, "parcel")
    ended = held.run("reviews", "reject", review, "--by", "ann")
    assert "Nothing of the answer is in thread parcel." in ended.stdout
    assert [turn["role"] for turn in held.json("show", "parcel")["turns"]] == ["user"]


def test_calls_go_on_in_the_program_that_has_the_tools(held: CommandLine) -> None:
    """No decision runs a tool here; with the last one the run is left for its program."""
    SENT.clear()
    first, second = ids(held, "mail")
    told = held.run("reviews", "edit", first, "--by", "ann", "--arguments", '{"to": "eve"}').stdout
    assert f"The call: review, waits for review {second}." in told
    told = held.run("reviews", "reject", second, "--by", "ann", "--why", "Not bob.").stdout
    assert "rejected by ann. The call goes on where the program that has its tools" in told
    assert SENT == []
    results = asyncio.run(go_on(held.folder / "turngate.db"))
    assert SENT == ["eve"]
    assert "sent to eve" in results[0]
    assert "Not bob." in results[1]
    # Each review is shown after what was said before it, and not what came later.
    roles = ["user", "assistant", "tool", "tool", "assistant"]
    for review, positions in ((first, [0, 1]), (ids(held, "mail")[0], [1, 2, 3, 4])):
        around = held.json("reviews", "show", review)["turns"]
        assert [turn["position"] for turn in around] == positions
        assert [turn["role"] for turn in around] == [roles[position] for position in positions]


def test_a_retry_leaves_the_call_for_its_program(held: CommandLine) -> None:
    """The note is kept; a tool call can't be tried again."""
    (review,) = ids(held, "parcel")
    assert held.run("reviews", "retry", review, "--by", "ann").returncode == 2
    document = held.json("reviews", "retry", review, "--by", "ann", "--note", "Name the day.")
    assert document["review"]["state"] == "retried"
    assert document["review"]["note"] == "Name the day."
    assert document["call"]["state"] == "active"
    assert "rule promises" in document["call"]["waiting_for"]
    wrong = held.run("reviews", "retry", ids(held, "mail")[0], "--by", "ann", "--note", "x")
    assert wrong.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["approve"], 2),  # nobody is named
        (["edit", "--by", "ann"], 1),
        (["edit", "--by", "ann", "--arguments", "{}"], 1),
        (["edit", "--by", "ann", "--editor"], 2),  # no editor is named
    ],
)
def test_half_a_decision_changes_nothing(
    held: CommandLine, arguments: list[str], code: int
) -> None:
    """It is told what is missing, and the review stays open."""
    (review,) = ids(held, "parcel")
    action, *options = arguments
    ended = held.run("reviews", action, review, *options)
    assert ended.returncode == code
    assert "error: " in ended.stderr
    assert ids(held, "parcel") == [review]


def test_an_edit_in_an_editor(held: CommandLine) -> None:
    """The editor gets the proposal, and what it leaves is the edit; one that fails is told."""
    (review,) = ids(held, "parcel")
    held.environment["EDITOR"] = "false"
    assert held.run("reviews", "edit", review, "--by", "ann", "--editor").returncode == 2
    held.environment["EDITOR"] = "sed -i s/sure/certain/"
    document = held.json("reviews", "edit", review, "--by", "ann", "--editor")
    assert document["review"]["text"] == PROPOSED.replace("sure", "certain")


def test_an_export_has_every_decision_oldest_first(held: CommandLine) -> None:
    """One object a line, with the proposal as it was; what is open is left out."""
    assert held.run("reviews", "export").stdout == ""
    (answer,), (first, _) = ids(held, "parcel"), ids(held, "mail")
    held.json("reviews", "edit", first, "--by", "bob", "--arguments", '{"to": "eve"}')
    held.json("reviews", "approve", answer, "--by", "ann", "--why", "true")
    lines = [json.loads(line) for line in held.run("reviews", "export").stdout.splitlines()]
    assert [line["id"] for line in lines] == [answer, first]
    assert set(lines[0]) == {
        "id", "call", "thread", "kind", "held_by", "reason", "proposal", "call_hash", "decision",
        "text", "arguments", "by", "at", "why", "note", "created_at",
    }  # fmt: skip
    assert lines[0]["proposal"]["text"] == PROPOSED
    assert (lines[0]["decision"], lines[0]["by"], lines[0]["why"]) == ("approved", "ann", "true")
    assert lines[1]["proposal"]["arguments"] == RAW
    assert lines[1]["arguments"] == '{"to": "eve"}'
    assert lines[1]["call_hash"]


def test_reviews_are_decided_one_by_one_at_a_terminal(held: CommandLine) -> None:
    """Oldest first: one is edited, one skipped, one mended after a slip, and the rest left."""
    (answer,), (first, second) = ids(held, "parcel"), ids(held, "mail")
    with held.on_terminal("reviews", "decide") as terminal:
        terminal.wait_for("your name: ")
        terminal.type("ann\r")
        assert "1 of 3" in terminal.wait_for("[t]ry again [s]kip [q]uit: ")
        terminal.type("x\r")  # no such key: it is asked again
        terminal.wait_for("[q]uit: ")
        terminal.type("e\r")
        terminal.wait_for("in its place: ")
        terminal.type("\r")  # an edit to nothing: the same
        terminal.wait_for("[q]uit: ")
        terminal.type("e\r")
        terminal.wait_for("in its place: ")
        terminal.type("It comes on Monday.\r")
        terminal.wait_for("why (or nothing): ")
        terminal.type("\r")
        terminal.wait_for("edited by ann. The answer is in thread parcel.")
        assert "[t]ry" not in terminal.wait_for("[q]uit: ")
        terminal.type("s\r")
        terminal.wait_for("3 of 3")
        terminal.wait_for("[q]uit: ")
        terminal.type("e\r")
        terminal.wait_for("in its place: ")
        terminal.type("no JSON\r")
        terminal.wait_for("why (or nothing): ")
        terminal.type("\r")
        terminal.wait_for("error: ")
        terminal.wait_for("[q]uit: ")
        terminal.type("r\r")
        terminal.wait_for("why (or nothing): ")
        terminal.type("Not bob.\r")
        terminal.wait_for("rejected by ann.")
        assert terminal.ended() == 0
        assert terminal.settings == terminal.settings_before
    assert ids(held, "mail") == [first]
    assert ids(held, "mail", "rejected") == [second]
    assert ids(held, "parcel", "edited") == [answer]


def test_leaving_decides_nothing(held: CommandLine) -> None:
    """Quit and the end of the input leave with 0; what was not reached stays open."""
    for typed in ("q\r", "\x04"):
        with held.on_terminal("reviews", "decide", "--by", "ann") as terminal:
            terminal.wait_for("[q]uit: ")
            terminal.type(typed)
            assert terminal.ended() == 0
    assert len(ids(held, "mail") + ids(held, "parcel")) == 3
    assert held.run("reviews", "decide", "--by", "ann").returncode == 2  # no terminal


def test_beside_a_process_that_writes_reviews_are_only_read(held: CommandLine) -> None:
    """The decision belongs where the file is written, and the person is told who writes it."""
    (review,) = ids(held, "parcel")
    with held.started("chat", "--json") as chat:
        events_until(chat, "opened")
        assert held.json("reviews", "show", review)["review"]["state"] == "open"
        ended = held.run("reviews", "approve", review, "--by", "ann", "--json")
    assert ended.returncode == 4
    assert json.loads(ended.stderr)["error"]["code"] == "store_in_use"
    assert ids(held, "parcel") == [review]


@pytest.mark.parametrize(
    "command", [["list"], ["show", "r"], ["approve", "r", "--by", "ann"], ["export"]]
)
def test_a_missing_file_ends_with_4_and_none_is_made(cli: CommandLine, command: list[str]) -> None:
    """Also the commands that write make no file."""
    assert cli.run("reviews", *command, "--db", "nowhere.db").returncode == 4
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("command", [["show"], ["approve", "--by", "ann"]])
def test_an_unknown_review_ends_with_1(held: CommandLine, command: list[str]) -> None:
    """Another tenant's review is unknown in just the same way."""
    action, *options = command
    (review,) = ids(held, "parcel")
    for name, tenant in (("review_1", "local"), (review, "acme")):
        ended = held.run("reviews", action, name, *options, "--tenant", tenant)
        assert ended.returncode == 1
        assert name in ended.stderr


# ── the review of the demo ───────────────────────────────────────────────────────────────────


def demo_texts(cli: CommandLine) -> list[Any]:
    """The role and the text of the turns that the demo's held question left."""
    threads = cli.json("threads", "--db", "turngate-demo.db")["threads"]
    (thread,) = [thread for thread in threads if thread["id"].count("-") == 1]
    turns = cli.json("show", thread["id"], "--db", "turngate-demo.db")["turns"]
    return [(turn["role"], turn["parts"][0]["text"]) for turn in turns[4:]]


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_a_demo_without_a_person_approves(cli: CommandLine, options: list[str]) -> None:
    """It never waits for one; the answer was held, and is in the thread then."""
    ended = cli.run("demo", *options)
    assert ended.returncode == 0, ended.stderr
    assert "approved by demo" in ended.stdout
    assert "gave no fact that could be kept (bad_answer)" in ended.stdout  # what was said, echoed
    _, answer = demo_texts(cli)
    assert answer == ("assistant", "You said: Which river flows through that city?")
    (review,) = cli.json("reviews", "list", "--state", "any", "--db", "turngate-demo.db")["reviews"]
    assert review["state"] == "approved"


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        (["a\r"], [("assistant", "You said: Which river flows through that city?")]),
        (["e\r", "The Seine.\r"], [("assistant", "The Seine.")]),
        (["r\r"], []),
        (["\x04"], []),
    ],
)
def test_a_person_decides_in_the_demo(
    cli: CommandLine, typed: list[str], left: list[tuple[str, str]]
) -> None:
    """What is typed is what becomes of the answer; leaving refuses it, and the demo goes on."""
    cli.environment.update(EDITOR="", VISUAL="")
    with cli.on_terminal("demo") as terminal:
        terminal.wait_for("[a]pprove [e]dit [r]eject: ")
        terminal.type(typed[0])
        for line in typed[1:]:
            terminal.wait_for("in its place: ")
            terminal.type(line)
        terminal.wait_for("It is your turn now")
        terminal.wait_for("you ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert demo_texts(cli)[1:] == left

"""Files in requests: bytes for their own call alone, a line after that, and no pointer ever."""

from __future__ import annotations

import copy
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.test_receipts import made_again, rows_of
from tests.integration.gateway.test_reviews import EVERY, held
from tests.integration.gateway.test_runs import answer, calls, results
from turngate import (
    Answered,
    Blocked,
    FilePart,
    FileRef,
    InlineFile,
    Target,
    UserMessage,
    tool,
)
from turngate.errors import FileNotFound, InvalidValue
from turngate.providers import chat_completion_messages
from turngate.records import Allow, Block, FileShown, Prompt
from turngate.testing import ScriptedProvider

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
PDF = b"%PDF-1.7 nothing else"


def last_parts(provider: ScriptedProvider, request: int = -1) -> tuple[Any, ...]:
    """The parts of the last user message of a request."""
    said = [m for m in provider.requests[request].messages if isinstance(m, UserMessage)]
    return tuple(said[-1].parts)


async def test_image_goes_with_its_own_call_alone(opened: Opener) -> None:
    """The bytes are in the first request; in the next one a line names the file."""
    async with opened(answer("A plan."), answer("Two.")) as (gateway, provider):
        tenant = gateway.tenant("acme")
        ref = await tenant.files.put(PNG, name="plan.png")
        thread = tenant.thread("t")
        outcome = await thread.ask("What is this?", files=[ref])
        await thread.ask("How many rooms?")
        (row,) = await rows_of(gateway, outcome.call_id)
        again = await made_again(gateway, outcome.call_id)
        page = await thread.turns()
    image = InlineFile(name="plan.png", media_type="image/png", data=PNG)
    assert last_parts(provider, 0) == ("What is this?", image)
    later = provider.requests[1].messages[0]
    assert isinstance(later, UserMessage)
    assert later.parts[0] == "What is this?"
    assert ref.id in str(later.parts[1])
    assert "not shown" in str(later.parts[1])
    assert page.turns[0].parts[1] == FilePart(ref)
    assert row.receipt is not None
    assert row.receipt.files == (FileShown(ref.id, "image"),)
    assert again == provider.requests[:1]


async def test_question_may_be_a_file_alone(opened: Opener) -> None:
    """Without a prompt the request has the picture and no empty text."""
    async with opened(answer("A plan.")) as (gateway, provider):
        ref = await gateway.tenant("acme").files.put(PNG, name="plan.png")
        thread = gateway.tenant("acme").thread("t")
        await thread.ask("", files=[ref])
        await thread.ask(None, files=[ref])
    assert [type(part) for part in last_parts(provider, 0)] == [InlineFile]
    assert [type(part) for part in last_parts(provider, 1)] == [InlineFile]


async def test_text_file_is_shown_as_its_text(opened: Opener) -> None:
    """A text type needs no endpoint that takes files."""
    async with opened(answer("ok")) as (gateway, provider):
        ref = await gateway.tenant("acme").files.put(b"a,b\n1,2\n", name="t.csv")
        await gateway.tenant("acme").thread("t").ask("Sum?", files=[replace(ref)])
    prompt, text = last_parts(provider)
    assert prompt == "Sum?"
    assert "t.csv" in text
    assert text.endswith("a,b\n1,2\n")


@pytest.mark.parametrize(
    ("target", "name", "data", "shown"),
    [
        (Target(), "a.pdf", PDF, "line"),
        (Target(files=True), "a.pdf", PDF, "file"),
        (Target(images=False), "a.png", PNG, "line"),
        (Target(), "a.mp3", b"ID3" + b"\0" * 20, "line"),
        (Target(audio=True), "a.mp3", b"ID3" + b"\0" * 20, "audio"),
        (Target(), "a.txt", b"plain \0 not", "line"),
    ],
)
async def test_file_is_shown_as_the_endpoint_takes_it(
    opened: Opener, target: Target, name: str, data: bytes, shown: str
) -> None:
    """What an endpoint can't take is named in a line that says so."""
    async with opened(answer("ok")) as (gateway, provider):
        object.__setattr__(gateway.deps, "target", target)
        kinds = {".pdf": "application/pdf", ".png": "image/png", ".mp3": "audio/mpeg"}
        media_type = kinds.get(Path(name).suffix, "text/plain")
        ref = await gateway.tenant("acme").files.put(data, name=name, media_type=media_type)
        outcome = await gateway.tenant("acme").thread("t").ask("See?", files=[ref])
        (row,) = await rows_of(gateway, outcome.call_id)
    assert row.receipt is not None
    assert row.receipt.files == (FileShown(ref.id, shown),)  # type: ignore[arg-type]  # a parameter
    part = last_parts(provider)[1]
    assert isinstance(part, str) == (shown == "line")
    if shown == "line":
        assert name in part
        assert [gone.what for gone in row.receipt.left_out] == ["files"]


async def test_file_that_is_gone_is_said(opened: Opener) -> None:
    """A file that is deleted before its run goes on is named as gone, and the run is answered."""
    refs: list[FileRef] = []
    files: list[Any] = []

    @tool(effect="safe")
    async def look() -> str:
        """Look."""
        await files[0].delete(refs[0].id)
        return "seen"

    async with opened(calls(("look", "{}")), answer("ok"), answer("x"), tools=[look]) as (
        gateway,
        provider,
    ):
        tenant = gateway.tenant("acme")
        files.append(tenant.files)
        refs.append(await tenant.files.put(PNG, name="plan.png"))
        outcome = await tenant.thread("t").run("See?", files=refs, tools=["look"])
        assert isinstance(outcome, Answered)
        later = await tenant.thread("t").ask("And now?")
    assert isinstance(later, Answered)
    first = provider.requests[2].messages[0]
    assert isinstance(first, UserMessage)
    assert first.parts[0] == "See?"
    assert "plan.png" in str(first.parts[1])


async def test_foreign_and_altered_pointers_are_refused(opened: Opener) -> None:
    """A pointer of another tenant names nothing, and one that was altered is no pointer."""
    async with opened(answer("ok")) as (gateway, provider):
        ref = await gateway.tenant("acme").files.put(PNG, name="plan.png")
        with pytest.raises(FileNotFound):
            await gateway.tenant("evil").thread("t").ask("See?", files=[ref])
        altered = replace(ref, media_type="text/plain")
        with pytest.raises(InvalidValue):
            await gateway.tenant("acme").thread("t").ask("See?", files=[altered])
        with pytest.raises(InvalidValue):
            await gateway.tenant("acme").thread("t").ask("See?", files=["x"])  # type: ignore[list-item]  # on purpose
    assert provider.requests == []


async def test_check_sees_the_files_of_a_prompt(opened: Opener) -> None:
    """An input check may judge by names and types, and block."""

    class NoPictures:
        name = "no-pictures"

        async def check_prompt(self, prompt: Prompt) -> Allow | Block:
            kinds = [file.media_type for file in prompt.files]
            return Block(rule="image") if "image/png" in kinds else Allow()

    async with opened(answer("ok"), checks=[NoPictures()]) as (gateway, _):
        ref = await gateway.tenant("acme").files.put(PNG, name="plan.png")
        outcome = await gateway.tenant("acme").thread("t").ask("See?", files=[ref])
    assert isinstance(outcome, Blocked)


async def test_key_stands_for_the_files_too(opened: Opener) -> None:
    """Another file under the same key is another request."""
    from turngate.errors import KeyReused

    async with opened(answer("ok")) as (gateway, _):
        tenant = gateway.tenant("acme")
        one = await tenant.files.put(PNG, name="one.png")
        two = await tenant.files.put(PNG, name="two.png")
        first = await tenant.thread("t").ask("See?", files=[one], key="k")
        assert await tenant.thread("t").ask("See?", files=[one], key="k") == first
        with pytest.raises(KeyReused):
            await tenant.thread("t").ask("See?", files=[two], key="k")


async def test_large_result_becomes_a_file_with_a_line(opened: Opener) -> None:
    """A result over its limit is stored whole; the model reads its head and the file's id."""

    @tool(effect="safe", output_chars_max=100)
    def dump() -> str:
        """Dump."""
        return "0123456789" * 50

    async with opened(calls(("dump", "{}")), answer("ok"), tools=[dump]) as (gateway, _):
        tenant = gateway.tenant("acme")
        outcome = await tenant.thread("t").run("go", tools=["dump"])
        (record,) = (await tenant.files.list()).files
        whole = await tenant.files.get(record.ref.id)
    ((_, content, _),) = results(outcome.turns)
    assert content.startswith("0123456789" * 10 + "\n[400 more characters were cut")
    assert record.ref.id in content
    assert whole == b"0123456789" * 50


async def test_no_byte_in_a_turn_and_no_pointer_in_a_message(opened: Opener) -> None:
    """Whatever a thread went through, its rows hold no bytes and its requests no pointers."""
    scripts = [calls(("look", "{}")), answer("one"), answer("two"), answer("three")]

    @tool(effect="safe")
    def look() -> str:
        """Look."""
        return "seen"

    async with opened(*scripts, tools=[look]) as (gateway, provider):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t")
        image = await tenant.files.put(PNG, name="plan.png")
        table = await tenant.files.put(b"canary,cell\n", name="t.csv", media_type="text/csv")
        await thread.run("See?", files=[image, table], tools=["look"])
        await thread.ask("And this?", files=[table])
        await thread.ask("Well?")
        page = await thread.turns()
    stored = str(page.turns)
    assert "canary" not in stored
    assert "PNG" not in stored
    for request in provider.requests:
        assert "FileRef" not in str(request)
        assert image.sha256 not in str(request)
        assert table.sha256 not in str(request)


# ── cases from the field ─────────────────────────────────────────────────────────────────────

CASES = Path(__file__).parents[2] / "data" / "cases"
BYTES = {"image/png": PNG, "application/pdf": PDF}
NEEDS_TEXT = Target(text_with_files=True)

Wire = list[dict[str, Any]]


async def replayed(opened: Opener, case_id: str, target: Target, way: str) -> Wire:
    """The messages of a case's last request, as the endpoint of `target` gets them.

    `way` says what happens to the files of its first turn: they are ``kept``, ``deleted`` before
    its next turn, or ``gone`` while its own answer is held and tried again, which ends it.
    """
    case = json.loads((CASES / f"{case_id}.json").read_text(encoding="utf-8"))
    said = [turn for turn in case["turns"] if turn["role"] == "assistant"]
    scripts = [answer(part["text"]) for turn in said for part in turn["parts"]]
    reviews = [EVERY] if way == "gone" else []
    async with opened(*scripts, answer("last"), reviews=reviews) as (gateway, provider):
        object.__setattr__(gateway.deps, "target", target)
        tenant = gateway.tenant("acme")
        for turn in [turn for turn in case["turns"] if turn["role"] == "user"]:
            refs = [
                await tenant.files.put(
                    BYTES[part["file"]["media_type"]],
                    name=part["file"]["name"],
                    media_type=part["file"]["media_type"],
                )
                for part in turn["parts"]
                if part["type"] == "file"
            ]
            prompt = "".join(part.get("text", "") for part in turn["parts"])
            outcome = await tenant.thread("t").ask(prompt, files=refs)
            for ref in refs if way != "kept" else ():
                await tenant.files.delete(ref.id)
            if way == "gone":
                await tenant.reviews.retry(held(outcome).reviews[0], "Again.", by="ann")
                held(await tenant.call(outcome.call_id).outcome())
                break
            assert isinstance(outcome, Answered)
    return chat_completion_messages(provider.requests[-1].messages, target=target)


def texts_of(message: dict[str, Any]) -> list[str]:
    """The texts of a wire message; of one with files those beside them."""
    content = message["content"]
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def user_texts(wire: Wire) -> list[str]:
    return [text for message in wire if message["role"] == "user" for text in texts_of(message)]


def has_picture(wire: Wire) -> bool:
    content = wire[0]["content"]
    images = [part for part in content if isinstance(part, dict) and part["type"] == "image_url"]
    return [b64decode(i["image_url"]["url"].partition(",")[2]) for i in images] == [PNG]


def has_neutral_text(wire: Wire) -> bool:
    return [0 < len(text) < 60 for text in texts_of(wire[0])] == [True] and has_picture(wire)


def names_what_is_missing(wire: Wire) -> bool:
    lines = [line for text in user_texts(wire) for line in text.splitlines() if "old.pdf" in line]
    marks = ("not shown any more", "it is gone", "can't read it")
    return len(lines) == 1 and len(lines[0]) < 150 and any(mark in lines[0] for mark in marks)


def still_goes_on(wire: Wire) -> bool:
    return [message["role"] for message in wire] == ["user", "assistant", "user"] and texts_of(
        wire[2]
    ) == ["and now?"]


ONLY, GONE = "h-file-only-user-turn", "h-file-that-is-gone"
STATEMENTS: dict[str, list[tuple[str, Target, Callable[[Wire], bool], Callable[[Wire], object]]]]
STATEMENTS = {
    ONLY: [
        (
            "the user message has a content list with the picture part",
            Target(),
            has_picture,
            lambda wire: wire[0].update(content=[]),
        ),
        (
            "no text part of zero length is sent",
            Target(),
            lambda wire: "" not in user_texts(wire),
            lambda wire: wire[0]["content"].append({"type": "text", "text": ""}),
        ),
        (
            "some endpoints need a text part: then a short neutral one is added",
            NEEDS_TEXT,
            has_neutral_text,
            lambda wire: wire[0]["content"].pop(0),
        ),
    ],
    GONE: [
        (
            "the text of the turn is still sent",
            Target(files=True),
            lambda wire: any("see this" in text for text in user_texts(wire)),
            lambda wire: wire.pop(0),
        ),
        (
            "a short mark tells the model that old.pdf is not available",
            Target(files=True),
            names_what_is_missing,
            lambda wire: wire[0].update(content="see this"),
        ),
        (
            "the old turn does not make the whole thread fail",
            Target(files=True),
            still_goes_on,
            lambda wire: wire.pop(),
        ),
    ],
}
EACH = [(case_id, *told) for case_id, each in STATEMENTS.items() for told in each]


@pytest.mark.parametrize(("case_id", "statement", "target", "holds", "spoil"), EACH)
async def test_case_statement_holds(
    opened: Opener,
    case_id: str,
    statement: str,
    target: Target,
    holds: Callable[[Wire], bool],
    spoil: Callable[[Wire], object],
) -> None:
    """Each statement holds on the wire, and its check fails on a wire that was spoiled for it."""
    way = "deleted" if case_id == GONE else "kept"
    wire = await replayed(opened, case_id, target, way)
    assert holds(wire)
    spoiled = copy.deepcopy(wire)
    spoil(spoiled)
    assert not holds(spoiled)


@pytest.mark.parametrize("case_id", STATEMENTS)
def test_each_statement_of_a_case_is_checked(case_id: str) -> None:
    """No statement is left out, and none is made up."""
    case = json.loads((CASES / f"{case_id}.json").read_text(encoding="utf-8"))
    assert [statement for statement, *_ in STATEMENTS[case_id]] == case["expect"]["properties"]


async def test_text_is_added_only_where_it_is_needed(opened: Opener) -> None:
    """A picture alone goes out alone to an endpoint that takes it so."""
    wire = await replayed(opened, ONLY, Target(), "kept")
    assert texts_of(wire[0]) == []


@pytest.mark.parametrize(
    ("target", "way", "mark"),
    [
        (Target(files=True), "deleted", "not shown any more"),
        (Target(files=True), "kept", "not shown any more"),
        (Target(files=True), "gone", "it is gone"),
        (Target(), "gone", "can't read it"),
    ],
)
async def test_file_that_is_not_shown_is_marked(
    opened: Opener, target: Target, way: str, mark: str
) -> None:
    """Whyever its bytes are not sent, the turn is, with a line that names the file."""
    wire = await replayed(opened, GONE, target, way)
    assert names_what_is_missing(wire)
    assert mark in str(wire)
    assert "see this" in str(wire[-1] if way == "gone" else wire[0])

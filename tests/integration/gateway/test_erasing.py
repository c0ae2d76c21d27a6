"""Deleting a turn, a thread, a user: nothing of their words is left, and all others stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.remembering import (
    Helper,
    Told,
    fact,
    facts_in,
    helper_calls,
    texts_in,
)
from tests.integration.gateway.test_runs import answer, calls
from tests.integration.stores.raw import ledger_of, raw_rows
from turngate import AwaitingReview, Gateway, ToolResultPart, open_gateway, tool
from turngate.context.windows import RecentWindow
from turngate.errors import (
    InvalidValue,
    KeyReused,
    StoreError,
    ThreadBusy,
    ThreadNotFound,
    TurnNotFound,
    UnknownCall,
)
from turngate.protocols import Remember, ReviewRule
from turngate.records import Scope
from turngate.testing import Pause, ScriptedProvider
from turngate.values import ToolSpec

MANY = "GOSHAWK " + "and others " * 100
HELD = ReviewRule(name="held", answers=True)


def learning(told: Told) -> list[Told]:
    """A fact for each word in capitals of the numbered turns."""
    found = []
    for turn in told["turns"]:
        marks = [word for word in turn["text"].replace(".", " ").split() if word.isupper()]
        if "turn" in turn:
            found += [fact(turn["turn"], f"Spoke of {mark}.") for mark in dict.fromkeys(marks)]
    return found


def remembering(**options: Any) -> dict[str, Any]:
    helper = Helper(facts=learning, summary=lambda told: told["transcript"][:200])
    return {"remember": Remember(helper=helper, step=1, **options)}


async def say(gateway: Gateway, text: str, *, thread: str = "t", user: str = "ann") -> None:
    (await gateway.tenant("acme").thread(thread, user=user).ask(text)).expect()
    await gateway.remembered()


def words_in(path: Path, *, but: tuple[str, ...] = ()) -> str:
    """Every value of every row of the database, the index of words with it."""
    tables = [
        name for (name,) in raw_rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    shadow = ("fact_words_data", "fact_words_idx", "fact_words_docsize", "fact_words_config")
    rows = []
    for table in tables:
        if table not in (*shadow, *but):
            rows += raw_rows(path, f'SELECT * FROM "{table}"')
    return repr(rows)


async def turn_ids(gateway: Gateway, role: str, thread: str = "t") -> list[str]:
    page = await gateway.tenant("acme").thread(thread).turns(limit=1000)
    return [turn.id for turn in page.turns if turn.role == role]


# ── a turn ───────────────────────────────────────────────────────────────────────────────────


async def test_deleted_prompt_is_nowhere_and_others_stay(opened: Opener, tmp_path: Path) -> None:
    """In no row: not in its call, no fact, no summary; and no later request has it."""
    path = tmp_path / "turngate.db"
    async with opened(["ok"], **remembering(), window=RecentWindow(turns=2)) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t", user="ann")
        await thread.ask("I like ALBATROSS and BUDGIE.", key="once")
        await gateway.remembered()
        await say(gateway, "I like BUDGIE", thread="u")
        await say(gateway, "I like CUCKOO")
        first, _ = await turn_ids(gateway, "user")
        assert "ALBATROSS" in words_in(path)
        await thread.delete_turn(first)
        assert "ALBATROSS" not in words_in(path)
        assert sorted(await texts_in(gateway)) == ["Spoke of BUDGIE.", "Spoke of CUCKOO."]
        (deleted, *others) = (await thread.turns()).turns
        assert (deleted.id, deleted.role, deleted.parts) == (first, "user", ())
        assert deleted.status == "deleted"
        assert all(turn.parts and turn.status == "complete" for turn in others)
        await say(gateway, "And?")
        assert "ALBATROSS" not in str(provider.requests[-1])
        assert "CUCKOO" in str(provider.requests[-1])
        with pytest.raises(KeyReused):  # its key stays used, whatever it is sent with
            await thread.ask("I like ALBATROSS and BUDGIE.", key="once")


async def test_deleted_reply_takes_its_copies_with_it(opened: Opener, tmp_path: Path) -> None:
    """Its journal, its stored events, the review of it, a reviewer's note, and its call's text."""
    path = tmp_path / "turngate.db"
    script = [answer("DODO at first"), answer("EAGLE then")]
    async with opened(*script, reviews=[HELD], instructions="Be kind.") as (gateway, _):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t", user="ann")
        async with thread.stream_run("Which bird?") as events:
            _ = [event async for event in events]
        (held,) = (await tenant.reviews.list(state="open")).reviews
        await tenant.reviews.retry(held.id, by="bea", note="No FALCON please.")
        await tenant.call(held.call).outcome()
        (again,) = (await tenant.reviews.list(state="open")).reviews
        await tenant.reviews.approve(again.id, by="bea")
        await tenant.call(held.call).outcome()
        (reply,) = await turn_ids(gateway, "assistant")
        before = words_in(path)
        assert all(bird in before for bird in ("DODO", "EAGLE", "FALCON"))
        await thread.delete_turn(reply)
        after = words_in(path)
        assert not [bird for bird in ("DODO", "EAGLE", "FALCON") if bird in after]
        assert "Which bird?" in after
        assert "Be kind." in after
        decided = (await tenant.reviews.list(state=None)).reviews
        assert {(each.decided_by, each.answer) for each in decided} == {("bea", None)}
        assert (await tenant.call(held.call).outcome()).expect().text == ""
        first, second = await tenant.call(held.call).model_calls()
        assert "Which bird?" in str(await tenant.call(held.call).request(first))
        with pytest.raises(InvalidValue, match="can't be made again"):
            await tenant.call(held.call).request(second)


async def test_deleted_result_takes_its_file_with_it(opened: Opener, tmp_path: Path) -> None:
    """A result that was too long for its turn; other files of the same bytes keep them."""

    @tool(effect="safe", output_chars_max=100)
    def birds() -> str:
        """All birds."""
        return MANY

    script = [calls(("birds", "{}")), answer("Many.")] * 2
    files = tmp_path / "files"
    async with opened(*script, tools=[birds], files=files, **remembering()) as (gateway, _):
        tenant = gateway.tenant("acme")
        own = await tenant.files.put(MANY.encode(), name="own.txt")
        for name in ("t", "u"):
            (await tenant.thread(name, user="ann").run("Which?", tools=["birds"])).expect()
            await gateway.remembered()
        kept = [f for f in (await tenant.files.list()).files if f.ref.name == "birds.txt"]
        assert [record.call is not None for record in kept] == [True, True]
        assert await texts_in(gateway) == ["Spoke of GOSHAWK."]
        (result,) = await turn_ids(gateway, "tool")
        await tenant.thread("t").delete_turn(result)
        names = [record.ref.name for record in (await tenant.files.list()).files]
        assert sorted(names) == ["birds.txt", "own.txt"]
        assert await tenant.files.get(own.id) == MANY.encode()
        assert await texts_in(gateway) == ["Spoke of GOSHAWK."]  # of the other thread still
        await tenant.thread("u").delete()
        await tenant.files.delete(own.id)
        assert await texts_in(gateway) == []
        assert "GOSHAWK" not in words_in(tmp_path / "turngate.db")
        assert not [each for each in files.rglob("*") if each.is_file()]
        (await tenant.thread("t", user="ann").ask("And?")).expect()  # a call without its result


async def test_turn_that_is_not_there(opened: Opener) -> None:
    """An unknown one, and one of another thread or tenant; and deleting twice is as once."""
    async with opened(["ok"]) as (gateway, _):
        tenant = gateway.tenant("acme")
        await say(gateway, "one")
        await say(gateway, "two", thread="u")
        (one,), (two,) = await turn_ids(gateway, "user"), await turn_ids(gateway, "user", "u")
        for thread, turn in ((tenant.thread("t"), two), (tenant.thread("t"), "x")):
            with pytest.raises(TurnNotFound, match=turn):
                await thread.delete_turn(turn)
        with pytest.raises(TurnNotFound):
            await gateway.tenant("bolt").thread("t").delete_turn(one)
        assert len((await tenant.thread("t").turns()).turns[0].parts) == 1
        await tenant.thread("t").delete_turn(one)
        once = (await tenant.thread("t").turns()).turns
        await tenant.thread("t").delete_turn(one)
        assert (await tenant.thread("t").turns()).turns == once


async def test_deleting_again_changes_nothing(opened: Opener) -> None:
    """No summary is written anew for it, and nobody is turned away."""
    async with opened(["ok"], **remembering(), window=RecentWindow(turns=2)) as (gateway, _):
        for text in ("one", "two", "three"):
            await say(gateway, text)
        thread = gateway.tenant("acme").thread("t", user="ann")
        (one, *_) = await turn_ids(gateway, "user")
        await thread.delete_turn(one)
        await say(gateway, "four")
        before = (await thread.record(), await thread.summary())
        assert before[1] is not None
        await thread.delete_turn(one)
        assert (await thread.record(), await thread.summary()) == before
        assert await gateway.deps.store.erasures(Scope("acme"), "t") == 1


async def test_prompt_of_a_failed_call_can_be_deleted(opened: Opener, tmp_path: Path) -> None:
    """It is in no thread, and is named by the call's record."""
    async with opened([RuntimeError("down")], answer("ok")) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        with pytest.raises(RuntimeError):
            await thread.ask("Is it a MAGPIE?")
        (failed,) = (await gateway.tenant("acme").calls()).calls
        assert failed.user_turn is not None
        await thread.delete_turn(failed.user_turn.id)
        assert "MAGPIE" not in words_in(tmp_path / "turngate.db")
        assert (await gateway.tenant("acme").call(failed.id).record()).state == "failed"


async def test_rejected_answer_goes_with_the_last_turn_of_its_call(
    opened: Opener, tmp_path: Path
) -> None:
    """What never came to stand in the thread is deleted with what did."""
    async with opened(answer("A NIGHTJAR"), reviews=[HELD]) as (gateway, _):
        tenant = gateway.tenant("acme")
        await tenant.thread("t").ask("Which?")
        (held,) = (await tenant.reviews.list(state="open")).reviews
        await tenant.reviews.reject(held.id, by="bea", why="No NIGHTJAR.")
        (asked,) = await turn_ids(gateway, "user")
        await tenant.thread("t").delete_turn(asked)
        assert "NIGHTJAR" not in words_in(tmp_path / "turngate.db")


async def test_result_goes_with_its_call_and_leaves_the_answer(opened: Opener) -> None:
    """The results of a deleted turn's calls are deleted with it; of a result's call the answer
    stays."""
    script = [calls(("look_up", "{}")), answer("An OWL.")] * 2

    @tool(effect="safe")
    def look_up() -> str:
        """Looks."""
        return "OWL"

    async with opened(*script, tools=[look_up]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t", user="ann")
        first = (await thread.run("Which?", tools=["look_up"])).expect()
        (await thread.run("And now?", tools=["look_up"])).expect()
        results = await turn_ids(gateway, "tool")
        await thread.delete_turn(results[0])
        assert (
            await gateway.tenant("acme").call(first.call_id).outcome()
        ).expect().text == "An OWL."
        made = (await thread.turns()).turns[5]
        assert made.parts[0].type == "tool_call"
        await thread.delete_turn(made.id)
        statuses = [turn.status for turn in (await thread.turns()).turns]
        assert [n for n, status in enumerate(statuses) if status == "deleted"] == [2, 5, 6]
        (await thread.ask("So?")).expect()
        shown = [type(message).__name__ for message in provider.requests[-1].messages]
        assert shown.count("ToolMessage") == 1  # of the first call, whose result is unknown now


async def test_later_calls_can_be_made_again(opened: Opener) -> None:
    """What was deleted before they were asked was not shown to them."""
    async with opened(["ok"]) as (gateway, _):
        tenant = gateway.tenant("acme")
        for text in ("one", "two", "three"):
            await say(gateway, text)
        (_, two, _) = await turn_ids(gateway, "user")
        await tenant.thread("t").delete_turn(two)
        last = (await tenant.thread("t", user="ann").ask("four")).expect()
        (row,) = await tenant.call(last.call_id).model_calls()
        assert "one" in str(await tenant.call(last.call_id).request(row))
        (third, second) = (await tenant.calls()).calls[1:3]
        for call, told in ((third, "as it was"), (second, "prompt was deleted")):
            (row,) = await tenant.call(call.id).model_calls()
            with pytest.raises(InvalidValue, match=told):
                await tenant.call(call.id).request(row)


async def test_texts_go_unless_another_call_was_told_them(opened: Opener, tmp_path: Path) -> None:
    """A call's own instructions and a reviewer's note, told or not yet."""
    path = tmp_path / "turngate.db"
    script = [answer("no"), answer("yes")]
    async with opened(*script * 2, answer("no"), reviews=[HELD]) as (gateway, _):
        tenant = gateway.tenant("acme")
        kept = ""
        for name in ("t", "u"):
            await tenant.thread(name).ask("Which?", instructions="About PLOVERS.")
            (held,) = (await tenant.reviews.list(state="open")).reviews
            await tenant.reviews.retry(held.id, by="bea", note="Not that RAVEN.")
            await tenant.call(held.call).outcome()
            (again,) = (await tenant.reviews.list(state="open")).reviews
            await tenant.reviews.approve(again.id, by="bea")
            kept = held.call
        await tenant.thread("t").delete()
        for row in await tenant.call(kept).model_calls():
            assert "PLOVERS" in str(await tenant.call(kept).request(row))
        await tenant.thread("v").ask("Which?", instructions="About PLOVERS.")
        (held,) = (await tenant.reviews.list(state="open")).reviews
        await tenant.reviews.retry(held.id, by="bea", note="Not that TERN.", resume=False)
        await tenant.call(held.call).cancel()
        (asked, reply) = (await tenant.thread("u").turns()).turns
        for turn in (asked, reply):  # all that it had: as if the thread were gone
            await tenant.thread("u").delete_turn(turn.id)
        await tenant.thread("v").delete()
        left = words_in(path)
        assert not [bird for bird in ("PLOVERS", "RAVEN", "TERN") if bird in left]


@pytest.mark.parametrize("whole", [True, False])
async def test_kept_file_goes_though_its_result_was_never_written(
    opened: Opener, tmp_path: Path, whole: bool
) -> None:
    """It is found by its tool call; one that a result only names stays."""

    @tool(effect="safe", output_chars_max=100)
    def birds() -> str:
        """All birds."""
        return told or MANY

    told = ""
    script = [calls(("birds", "{}")), answer("ok")] * 3
    async with opened(*script, tools=[birds], files=tmp_path / "files") as (gateway, _):
        tenant = gateway.tenant("acme")
        (await tenant.thread("t").run("Which?", tools=["birds"])).expect()
        (kept,) = (await tenant.files.list()).files
        told = f"[the whole result is file {kept.ref.id}]"
        (await tenant.thread("u").run("Which?", tools=["birds"])).expect()
        await tenant.thread("u").delete()
        assert [each.ref.id for each in (await tenant.files.list()).files] == [kept.ref.id]
        told = ""
        commit, failing = gateway.deps.store.commit, True

        async def once(scope: Scope, change: Any) -> int:
            if failing and any(step.kind == "tool_result" for step in change.steps):
                raise StoreError("no room")
            return await commit(scope, change)

        gateway.deps.store.commit = once  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await tenant.thread("v").run("Which?", tools=["birds"])
        failing = False
        assert len((await tenant.files.list()).files) == 2
        if whole:
            await tenant.thread("v").delete()
        else:
            await tenant.thread("v").ask(
                "And?"
            )  # settles the run, with a result that knows nothing
            (result,) = await turn_ids(gateway, "tool", "v")
            await tenant.thread("v").delete_turn(result)
        assert [each.ref.id for each in (await tenant.files.list()).files] == [kept.ref.id]


async def test_results_of_two_calls_with_the_same_ids_are_told_apart(opened: Opener) -> None:
    """Ann's run ends after Bob's reply, whose calls have the ids of hers."""

    @tool(effect="safe")
    def send() -> str:
        """Sends."""
        return "sent"

    @tool(effect="safe")
    def look() -> str:
        """Looks."""
        return "FALCON"

    made = calls(("send", "{}"), ("look", "{}"))
    script = [made, calls(("look", "{}"), ("look", "{}")), answer("done")]
    rules = [ReviewRule(name="sending", tools=("send",))]
    for what, left in (("user", "--dd---"), ("hers", "-d--dd-"), ("his", "---d---")):
        async with opened(*script, tools=[send, look], reviews=rules) as (gateway, _):
            tenant = gateway.tenant("acme")
            ann, bob = (tenant.thread(what, user=user) for user in ("ann", "bob"))
            held = await ann.run("Hello", tools=["send", "look"])
            assert isinstance(held, AwaitingReview)
            spec = ToolSpec(name="look")
            (await bob.ask("Hello", tools=[spec], pending="go_on")).expect()
            await tenant.reviews.approve(held.reviews[0], by="bea")
            await tenant.call(held.call_id).outcome()
            turns = (await ann.turns()).turns
            if what == "user":
                await tenant.delete_user("bob")
            else:
                await ann.delete_turn(turns[1 if what == "hers" else 3].id)
            marks = {"deleted": "d", "complete": "-"}
            assert "".join(marks[t.status] for t in (await ann.turns()).turns) == left


async def test_words_of_a_reviewer_go_with_the_result_that_tells_them(
    opened: Opener, tmp_path: Path
) -> None:
    """Why a call was rejected stands in its result, and in the review."""

    @tool
    def send() -> str:
        """Sends."""
        return "sent"

    script = [calls(("send", "{}")), answer("done")]
    rules = [ReviewRule(name="sending", tools=("send",))]
    async with opened(*script, tools=[send], reviews=rules) as (gateway, _):
        tenant = gateway.tenant("acme")
        held = await tenant.thread("t").run("Hello", tools=["send"])
        assert isinstance(held, AwaitingReview)
        await tenant.reviews.reject(held.reviews[0], by="bea", why="No OSPREY.")
        await tenant.call(held.call_id).outcome()
        (result,) = await turn_ids(gateway, "tool")
        await tenant.thread("t").delete_turn(result)
        assert "OSPREY" not in words_in(tmp_path / "turngate.db")
        assert (await tenant.reviews.get(held.reviews[0])).decided_by == "bea"


# ── a thread ─────────────────────────────────────────────────────────────────────────────────


async def test_deleted_thread_leaves_its_ledger_alone(opened: Opener, tmp_path: Path) -> None:
    """Nothing of it is in a row, its id begins anew, and another tenant's is as it was."""
    path = tmp_path / "turngate.db"
    async with opened(["ok HERON"], **remembering()) as (gateway, provider):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t", user="ann")
        for text in ("I like IBIS", "I like JACKDAW"):
            await say(gateway, text)
        await gateway.tenant("bolt").thread("t", user="ann").ask("I like KIWI")
        await gateway.remembered()
        spent = ledger_of(path, "acme")
        await thread.delete()
        left = words_in(path)
        assert not [bird for bird in ("IBIS", "JACKDAW") if bird in left]
        assert "KIWI" in left
        assert ledger_of(path, "acme") == spent
        assert (await tenant.threads()).threads == ()
        assert (await tenant.calls()).calls == ()
        with pytest.raises(ThreadNotFound):
            await thread.delete()
        with pytest.raises(UnknownCall):
            await tenant.call(spent[0].call).record()
        await say(gateway, "I like LARK")
        assert await texts_in(gateway) == ["Spoke of LARK."]
        assert "IBIS" not in str(provider.requests[-1])
        assert (await thread.turns()).length == 2


async def test_thread_of_a_failed_call_alone_can_be_deleted(opened: Opener, tmp_path: Path) -> None:
    """What a model never answered is in its record, and goes with it."""
    async with opened([RuntimeError("down")]) as (gateway, _):
        thread = gateway.tenant("acme").thread("t")
        with pytest.raises(RuntimeError):
            await thread.ask("Is it a MAGPIE?")
        assert "MAGPIE" in words_in(tmp_path / "turngate.db")
        await thread.delete()
        assert "MAGPIE" not in words_in(tmp_path / "turngate.db")


# ── a user ───────────────────────────────────────────────────────────────────────────────────


async def test_deleted_user_is_nowhere_and_others_stay(opened: Opener, tmp_path: Path) -> None:
    """Own threads go whole, a shared one keeps what others said, and all facts go."""
    path = tmp_path / "turngate.db"
    script = [answer("ok"), answer("ok"), calls(("look_up", "{}")), answer("ok")]
    async with opened(*script, **remembering()) as (gateway, _):
        tenant = gateway.tenant("acme")
        await say(gateway, "I like NIGHTJAR", thread="own")
        await say(gateway, "I like OSPREY", user="bob")
        thread = tenant.thread("t", user="ann")
        await thread.ask("I like PUFFIN", tools=[ToolSpec(name="look_up")])
        (call,) = (part for part in (await thread.turns()).turns[-1].parts if part.type != "text")
        assert call.type == "tool_call"
        await thread.add_results([ToolResultPart(call_id=call.id, content="It is a QUAIL")])
        await say(gateway, "I like ROBIN", user="bob")
        await tenant.facts.add("ann", "Spoke of STORK.", by="bea")
        await tenant.thread("begun", user="ann").create(title="TOUCAN")
        await tenant.delete_user("ann")
        left = words_in(path)
        gone = ("NIGHTJAR", "PUFFIN", "QUAIL", "STORK", "TOUCAN")
        assert not [bird for bird in gone if bird in left]
        assert await texts_in(gateway) == ["Spoke of OSPREY.", "Spoke of ROBIN."]
        assert [thread.id for thread in (await tenant.threads()).threads] == ["t"]
        assert "'ann'" not in words_in(path, but=("facts",))
        assert '"user":"ann"' not in words_in(path, but=("facts",))
        roles = [(turn.role, turn.status) for turn in (await thread.turns()).turns]
        assert roles == [
            ("user", "complete"),
            ("assistant", "complete"),
            ("user", "deleted"),
            ("assistant", "deleted"),
            ("tool", "deleted"),
            ("user", "complete"),
            ("assistant", "complete"),
        ]
        await tenant.delete_user("ann")
        assert {each.state for each in await facts_in(gateway, user="ann", state=None)} == {
            "forgotten"
        }
        with pytest.raises(InvalidValue):
            await tenant.delete_user("")


async def test_who_joins_a_thread_meanwhile_keeps_it(opened: Opener) -> None:
    """Whether a thread is the user's alone is judged with what is deleted, not before."""
    async with opened(["ok"]) as (gateway, _):
        tenant = gateway.tenant("acme")
        for thread in ("t", "u"):
            await say(gateway, "mine", thread=thread)
        commit, joined = gateway.deps.store.commit, False

        async def late(scope: Scope, change: Any) -> int:
            nonlocal joined
            if change.erase is not None and not joined:
                joined = True
                await tenant.thread(change.thread, user="bob").ask("BITTERN")
            return await commit(scope, change)

        gateway.deps.store.commit = late  # type: ignore[method-assign]
        await tenant.delete_user("ann")
        (left,) = (await tenant.threads()).threads
        turns = (await tenant.thread(left.id).turns()).turns
        assert [turn.status for turn in turns] == ["deleted"] * 2 + ["complete"] * 2


async def test_thread_that_names_another_user_is_not_the_users_alone(opened: Opener) -> None:
    """Bob gave it its title, and Ann alone has asked in it."""
    async with opened(["ok"]) as (gateway, _):
        tenant = gateway.tenant("acme")
        await say(gateway, "hello")
        await tenant.thread("t", user="bob").create(title="Mine")
        await tenant.delete_user("ann")
        (left,) = (await tenant.threads()).threads
        assert (left.title, left.user, left.length) == ("Mine", "bob", 2)


async def test_results_belong_to_the_user_whose_call_they_answer(opened: Opener) -> None:
    """Also where another user has spoken in between."""
    for gone, left in (("ann", "dd--d"), ("bob", "--dd-")):
        script = [calls(("look_up", "{}")), answer("ok")]
        async with opened(*script) as (gateway, _):
            tenant = gateway.tenant("acme")
            thread = tenant.thread(gone, user="ann")
            await thread.ask("Which?", tools=[ToolSpec(name="look_up")])
            (call,) = (await thread.turns()).turns[-1].parts
            assert call.type == "tool_call"
            await say(gateway, "hello", thread=gone, user="bob")
            await thread.add_results([ToolResultPart(call_id=call.id, content="QUAIL")])
            await tenant.delete_user(gone)
            marks = {"deleted": "d", "complete": "-"}
            assert "".join(marks[t.status] for t in (await thread.turns()).turns) == left


# ── what is under way ────────────────────────────────────────────────────────────────────────


async def test_call_that_has_not_ended_stands_in_the_way(opened: Opener, tmp_path: Path) -> None:
    """Nothing is deleted while a call is active or waits for a person; afterwards all is."""
    path = tmp_path / "turngate.db"
    pause = Pause()
    script = [answer("VULTURE"), [pause, *answer("late")], answer("WREN")]
    held = ReviewRule(name="wren", when=lambda proposal: "WREN" in proposal.text)
    async with opened(*script, reviews=[held]) as (gateway, _):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t", user="ann")
        await say(gateway, "one")
        before = words_in(path)
        asking = asyncio.create_task(thread.ask("two"))
        await pause.reached.wait()
        (one, _) = (await thread.turns()).turns
        for deleting in (thread.delete, lambda: thread.delete_turn(one.id)):
            with pytest.raises(ThreadBusy):
                await deleting()
        with pytest.raises(ThreadBusy):
            await tenant.delete_user("ann")
        assert "VULTURE" in before
        assert "VULTURE" in words_in(path)
        pause.release()
        await asking
        await thread.ask("three")
        with pytest.raises(ThreadBusy) as busy:
            await thread.delete()
        assert busy.value.in_review
        for deleting in (lambda: thread.delete_turn(one.id), lambda: tenant.delete_user("ann")):
            with pytest.raises(ThreadBusy) as busy:
                await deleting()
            assert busy.value.in_review
        await tenant.call(busy.value.call_id).cancel()
        await thread.delete()
    assert "VULTURE" not in words_in(path)
    assert "WREN" not in words_in(path)


async def test_claim_of_a_dead_process_is_settled_first(tmp_path: Path) -> None:
    """A call that nobody drives any more holds up no deletion."""
    path = tmp_path / "turngate.db"
    pause = Pause()
    provider = ScriptedProvider([pause, *answer("late")])
    async with open_gateway(path, provider=provider) as gateway:
        thread = gateway.tenant("acme").thread("t", user="ann")
        asking = asyncio.create_task(thread.ask("XENOPS"))
        await pause.reached.wait()
        (active,) = (await gateway.tenant("acme").calls()).calls
        gateway.deps.live.discard(active.id)  # as if its process were gone
        await gateway.tenant("acme").thread("t", user="bob").create()
        await gateway.tenant("acme").delete_user("ann")
        assert "XENOPS" not in words_in(path)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert "XENOPS" not in words_in(path)


class Slow(Helper):
    """A helper that answers once it may."""

    def __init__(self, **functions: Any) -> None:
        super().__init__(**functions)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Any) -> Any:
        self.asked.set()
        await self.may.wait()
        async for part in super().stream(request):
            yield part


@pytest.mark.parametrize("what", ["turn", "thread", "user", "forget"])
@pytest.mark.parametrize("kind", ["facts", "memory"])
async def test_nothing_comes_of_what_a_helper_was_shown_before(
    opened: Opener, tmp_path: Path, what: str, kind: str
) -> None:
    """A helper call that is under way when its turns go writes nothing, and keeps no name."""
    helper = Slow(facts=learning, summary=lambda told: told["transcript"])
    summary = kind == "memory"
    remember = Remember(helper=helper, facts=not summary, summary=summary, step=1)

    async with opened(["ok"], remember=remember, window=RecentWindow(turns=1)) as (gateway, _):
        tenant = gateway.tenant("acme")
        thread = tenant.thread("t", user="ann")
        (await thread.ask("I like YELLOWHAMMER")).expect()
        await asyncio.wait_for(helper.asked.wait(), 5)
        (turn,) = await turn_ids(gateway, "user")
        if what == "turn":
            await thread.delete_turn(turn)
        elif what == "thread":
            await thread.delete()
        elif what == "user":
            await tenant.delete_user("ann")
        else:
            await tenant.facts.forget(thread="t")
        helper.may.set()
        await gateway.remembered()
        assert await facts_in(gateway, state=None) == []
        assert await gateway.deps.store.summary(Scope("acme"), "t") is None
        (call,) = await helper_calls(gateway)
        assert (call.kind, call.state, call.reason) == (kind, "failed", "thread_moved")
        assert call.user is None
        if what != "forget":
            assert "YELLOWHAMMER" not in words_in(tmp_path / "turngate.db")
        if what == "thread":
            assert await gateway.deps.store.learnt(Scope("acme"), "t") is None


async def test_helper_of_another_thread_writes_nothing_that_was_forgotten(
    opened: Opener, tmp_path: Path
) -> None:
    """It was shown a note that is gone when it answers; the next one is not."""

    def facts(told: Told) -> list[Told]:
        known = "".join(entry["text"].removeprefix("Spoke of ") for entry in told["known_facts"])
        return (
            [fact(1, f"Spoke of CUCKOO and {known}"), *learning(told)] if known else learning(told)
        )

    helper = Slow(facts=facts)
    remember = Remember(helper=helper, summary=False)
    async with opened(["ok"], remember=remember) as (gateway, _):
        tenant = gateway.tenant("acme")
        helper.may.set()
        await say(gateway, "I like ALBATROSS")
        helper.may.clear()
        helper.asked.clear()
        (await tenant.thread("u", user="ann").ask("I like CUCKOO and ALBATROSS too")).expect()
        await asyncio.wait_for(helper.asked.wait(), 5)
        await tenant.thread("t").delete()
        helper.may.set()
        await gateway.remembered()
        assert await texts_in(gateway) == []
        assert [call.reason for call in await helper_calls(gateway)] == ["recall_moved"]
        await say(gateway, "Well.", thread="u")
        assert await texts_in(gateway) == ["Spoke of CUCKOO.", "Spoke of ALBATROSS."]


async def test_helper_that_fails_after_a_deletion_names_nobody(opened: Opener) -> None:
    """Whatever it fails of, the record of it is as of one that was turned away."""
    helper = Slow(facts=lambda told: "no JSON")
    async with opened(["ok"], remember=Remember(helper=helper, summary=False)) as (gateway, _):
        tenant = gateway.tenant("acme")
        (await tenant.thread("t", user="ann").ask("I like YAFFLES")).expect()
        await asyncio.wait_for(helper.asked.wait(), 5)
        await tenant.delete_user("ann")
        helper.may.set()
        await gateway.remembered()
        (call,) = await helper_calls(gateway)
    assert (call.user, call.reason) == (None, "thread_moved")


async def test_call_that_is_prepared_is_not_shown_what_went(opened: Opener) -> None:
    """A thread is read again where something was deleted between its reading and the claim."""
    async with opened(["ok"]) as (gateway, provider):
        thread = gateway.tenant("acme").thread("t", user="ann")
        await say(gateway, "ZOSTEROPS")
        (turn,) = await turn_ids(gateway, "user")
        memory, window = gateway.deps.memory, gateway.deps.memory.window
        deleted = False

        async def late(*args: Any, **options: Any) -> Any:
            nonlocal deleted
            found = await window(*args, **options)
            if not deleted:
                deleted = True
                await thread.delete_turn(turn)
            return found

        memory.window = late  # type: ignore[method-assign]
        (await thread.ask("And?")).expect()
    assert deleted
    assert "ZOSTEROPS" not in str(provider.requests[-1])

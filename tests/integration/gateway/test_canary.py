"""What was blocked stands nowhere: canaries are said, and then looked for in every place.

Each test takes the same look at the same places for a word that is allowed, and finds it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.gateway.canary import (
    ALLOWED,
    CANARY,
    POINTS,
    TENANT,
    USAGE,
    Judge,
    Said,
    Verdict,
    allowed_calls,
    canary_answer,
    canary_calls,
    double,
    files,
    holding,
    in_all_forms,
    tables,
)
from turngate import (
    AssistantMessage,
    AwaitingReview,
    Blocked,
    Gateway,
    Incomplete,
    Message,
    Settings,
    TurnBuilder,
    Usage,
    UserMessage,
    open_gateway,
    without_final_answer,
)
from turngate.completion import StreamEnd
from turngate.errors import KeyReused, ProviderError
from turngate.gateway import judging
from turngate.gateway.live import LiveCall
from turngate.gateway.outcomes import Outcome
from turngate.gateway.tenants import Thread
from turngate.records import Block, Replace, Review
from turngate.results import ModelResult
from turngate.testing import (
    CUT,
    Pause,
    Reply,
    ScriptedProvider,
    ScriptedUpstream,
    ScriptStep,
    chat_stream,
)

ROOT = Path(__file__).parents[3]
MODES = ["ask", "run", "stream_ask", "stream_run"]
AGAIN: list[Said] = [f"{ALLOWED}answer", StreamEnd("stop", usage=USAGE, model="m1")]


class Watch:
    """One database, and all that a program could see of what happened over it."""

    def __init__(
        self,
        folder: Path,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self.folder = folder / "data"
        self.folder.mkdir()
        self._copy = folder / "copy"
        self._caplog = caplog
        self._capfd = capfd
        self._output = {"stdout": "", "stderr": ""}
        self.values: list[object] = []
        caplog.set_level(logging.DEBUG)

    @asynccontextmanager
    async def opened(
        self, *scripts: Sequence[ScriptStep], **options: object
    ) -> AsyncIterator[tuple[Gateway, ScriptedProvider]]:
        """A gateway on a loop whose debug log tells of every callback."""
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 0
        logging.getLogger("some.library").debug("%s", f"{ALLOWED}log")
        print(f"{ALLOWED}out")
        print(f"{ALLOWED}err", file=sys.stderr)
        provider = ScriptedProvider(*scripts)
        options = {"provider": provider, "tools": [double], **options}
        async with open_gateway(
            self.folder / "turngate.db",
            **options,  # type: ignore[arg-type]  # each test names real options
        ) as gateway:
            yield gateway, provider
        loop.set_debug(False)

    async def call(self, thread: Thread, mode: str, prompt: str) -> Outcome:
        """The outcome of a call in `mode`, which is kept with its events."""
        outcome: Outcome | None
        if mode.startswith("stream"):
            stream = thread.stream_ask if mode == "stream_ask" else thread.stream_run
            async with stream(prompt, tools=["double"]) as events:
                async for event in events:
                    self.values.append(event)
            outcome = events.outcome
        else:
            call = thread.ask if mode == "ask" else thread.run
            outcome = await call(prompt, tools=["double"])
        assert outcome is not None
        self.values.append(outcome)
        return outcome

    async def read_back(self, gateway: Gateway, thread: Thread, call_id: str) -> None:
        """Keep all that can be read of a call and its thread, and what a next call is shown."""
        call = gateway.tenant(TENANT).call(call_id)
        self.values += [await call.outcome(), await call.record(), await thread.turns()]
        self.values += [event async for event in call.events()]

    def places(self, *, but: str | None = None) -> dict[str, bytes]:
        """All places by name; rows of the table `but`, and the files that hold them, are none."""
        # Copied by another process: to close a file of the database here would drop its locks.
        shutil.rmtree(self._copy, ignore_errors=True)
        subprocess.run(["cp", "-r", self.folder, self._copy], check=True)
        output = self._capfd.readouterr()
        self._output["stdout"] += output.out
        self._output["stderr"] += output.err
        records = [vars(record) for record in self._caplog.records]
        return (
            ({} if but is not None else files(self._copy))
            | tables(self._copy, but=but)
            | in_all_forms(self.values)
            | {"logs": f"{self._caplog.text}{records}".encode()}
            | {name: text.encode() for name, text in self._output.items()}
        )

    def assert_clean(self, *, but: str | None = None) -> None:
        """No canary is anywhere, and the allowed word is found where it has to be."""
        places = self.places(but=but)
        assert holding(CANARY, places) == []
        found = holding(ALLOWED, places)
        assert {"table turns", "logs", "stdout", "stderr"} <= set(found)
        assert but is not None or any(name.startswith("turngate.db") for name in found)
        assert any(name.startswith("repr of") for name in found)


@pytest.fixture
def watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Watch:
    return Watch(tmp_path, caplog, capfd)


async def again(watch: Watch, thread: Thread, provider: ScriptedProvider) -> None:
    """A next call on the thread, and what its model was shown."""
    watch.values.append((await thread.ask(f"{ALLOWED}again")).expect())
    watch.values.append(repr(provider.requests[-1]))


# ── prompts ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verdict", [Block("said"), ValueError("no")], ids=["block", "error"])
async def test_blocked_prompt_stands_nowhere(
    watch: Watch, mode: str, verdict: Block | Exception
) -> None:
    """Of a prompt that is blocked, or whose check fails, only that it was blocked is kept."""
    async with watch.opened(AGAIN, checks=[Judge(verdict)]) as (gateway, provider):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = await watch.call(thread, mode, f"{CANARY}prompt and more")
        assert isinstance(outcome, Blocked)
        assert (outcome.by, outcome.turns, outcome.text, outcome.usage) == ("judge", (), "", None)
        assert provider.requests == []
        assert (await thread.turns()).length == 0
        await watch.read_back(gateway, thread, outcome.call_id)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


async def test_blocked_prompt_with_a_key_stands_nowhere(watch: Watch) -> None:
    """A key keeps a hash of what was asked, and so gives the same outcome again."""
    async with watch.opened(AGAIN, checks=[Judge(Block("said"))]) as (gateway, provider):
        thread = gateway.tenant(TENANT).thread("t")
        outcomes = [await thread.ask(f"{CANARY}prompt", key="k") for _ in range(2)]
        assert outcomes[0] == outcomes[1]
        watch.values += [outcomes[0], outcomes_error(outcomes[0])]
        with pytest.raises(KeyReused) as caught:
            await thread.ask(f"{CANARY}other", key="k")
        watch.values.append(caught.value)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


def outcomes_error(outcome: Outcome) -> Exception:
    """What `expect()` raises of an outcome that is no answer."""
    with pytest.raises(Exception, match=outcome.call_id) as caught:
        outcome.expect()
    return caught.value


@pytest.mark.parametrize("mode", MODES)
async def test_replaced_prompt_stands_nowhere(watch: Watch, mode: str) -> None:
    """The prompt that a check put in place is stored and sent; the first one is gone."""
    checks = [Judge(Replace(f"{ALLOWED}prompt"))]
    async with watch.opened(AGAIN, checks=checks) as (gateway, provider):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = await watch.call(thread, mode, f"{CANARY}prompt")
        assert provider.requests[0].messages == (UserMessage((f"{ALLOWED}prompt",)),)
        await watch.read_back(gateway, thread, outcome.call_id)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


# ── answers ──────────────────────────────────────────────────────────────────────────────────

STEPS: dict[str, list[Said]] = {
    "answer": canary_answer(),
    "calls": canary_calls(),
    "calls that are cut": canary_calls("length"),
    "answer that is cut": canary_answer("length"),
}
VERDICTS: dict[str, Verdict] = {"block": Block("said"), "error": ValueError("no"), "timeout": 60.0}


def steps_before(mode: str) -> list[list[Said]]:
    """Tool steps that are finished before the step in question: of a run, one."""
    return [allowed_calls(21, 4)] if mode.endswith("run") else []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("step", STEPS)
async def test_blocked_answer_stands_nowhere(
    watch: Watch, mode: str, verdict: str, step: str
) -> None:
    """Of a model step that was blocked, or that a check failed to judge, only its usage is kept."""
    async with watch.opened(
        *steps_before(mode),
        STEPS[step],
        AGAIN,
        checks=[Judge(VERDICTS[verdict])],
        settings=Settings(check_timeout_s=0.02),
    ) as (gateway, provider):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = await watch.call(thread, mode, f"{ALLOWED}prompt")
        assert isinstance(outcome, Blocked | Incomplete)
        assert outcome.text == ""
        if "cut" not in step:
            rules = {"block": "said", "error": "error", "timeout": "timeout"}
            assert isinstance(outcome, Blocked)
            assert (outcome.by, outcome.rule) == ("judge", rules[verdict])
        asked = len(steps_before(mode)) + 1
        assert outcome.usage == Usage(input_tokens=10 * asked, output_tokens=2 * asked)
        watch.values.append(outcomes_error(outcome))
        await watch.read_back(gateway, thread, outcome.call_id)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


@pytest.mark.parametrize("mode", MODES)
async def test_replaced_answer_stands_nowhere(watch: Watch, mode: str) -> None:
    """What a check put in place is stored and shown; what the model said is gone."""
    checks = [Judge(Replace(f"{ALLOWED}instead"))]
    async with watch.opened(*steps_before(mode), canary_answer(), AGAIN, checks=checks) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = (await watch.call(thread, mode, f"{ALLOWED}prompt")).expect()
        assert outcome.text == f"{ALLOWED}instead"
        await watch.read_back(gateway, thread, outcome.call_id)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("decision", ["reject", "edit", "retry", "cancel"])
async def test_held_answer_that_does_not_pass_stands_in_its_review_alone(
    watch: Watch, mode: str, decision: str
) -> None:
    """A person may read what was held, in the review; no other row, log or value has it."""
    async with watch.opened(
        *steps_before(mode), canary_answer(), AGAIN, checks=[Judge(Review("unsure"))]
    ) as (gateway, provider):
        tenant = gateway.tenant(TENANT)
        thread = tenant.thread("t")
        outcome = await watch.call(thread, mode, f"{ALLOWED}prompt")
        assert isinstance(outcome, AwaitingReview)
        await watch.read_back(gateway, thread, outcome.call_id)
        watch.assert_clean(but="reviews")
        (review_id,) = outcome.reviews
        if decision == "reject":
            await tenant.reviews.reject(review_id, by="ann", why="no")
        elif decision == "edit":
            await tenant.reviews.edit(review_id, by="ann", text=f"{ALLOWED}edit")
        elif decision == "retry":
            await tenant.reviews.retry(review_id, "be kind", by="ann")
        else:
            await tenant.call(outcome.call_id).cancel()
        ended = await tenant.call(outcome.call_id).outcome()
        watch.values.append(ended)
        if decision in ("reject", "cancel"):
            watch.values.append(outcomes_error(ended))
        await watch.read_back(gateway, thread, outcome.call_id)
        await again(watch, thread, provider)
        watch.assert_clean(but="reviews")
        review = await tenant.reviews.get(review_id)
        assert review.answer is not None
        assert review.answer.text == f"{CANARY}text {CANARY}more"
        assert "table reviews" in holding(CANARY, watch.places())
    watch.assert_clean(but="reviews")


# ── what ends while it is held ───────────────────────────────────────────────────────────────

CUTS: dict[str, list[ScriptStep]] = {
    "provider error": [ProviderError("gone", code="network")],
    "cut": [CUT],
    "bug": [RuntimeError("a bug of the provider")],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", CUTS)
async def test_held_answer_that_is_cut_stands_nowhere(watch: Watch, mode: str, how: str) -> None:
    """What was not judged has not passed, so nothing of it is kept, in no error either."""
    cut = [*canary_answer()[:-1], *CUTS[how]]
    async with watch.opened(*steps_before(mode), cut, AGAIN, checks=[Judge(Block("said"))]) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant(TENANT).thread("t")
        try:
            outcome = await watch.call(thread, mode, f"{ALLOWED}prompt")
        except (ProviderError, RuntimeError) as error:
            watch.values.append(error)
        else:
            assert isinstance(outcome, Incomplete)
            assert outcome.text == ""
            watch.values.append(outcomes_error(outcome))
        (record, *_) = (await gateway.tenant(TENANT).calls()).calls
        await watch.read_back(gateway, thread, record.id)
        await again(watch, thread, provider)
        watch.assert_clean()
    watch.assert_clean()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["cancel", "leave", "close"])
async def test_held_answer_that_is_cancelled_stands_nowhere(
    watch: Watch, mode: str, how: str
) -> None:
    """A caller, a reader or a gateway that leaves while an answer is held leaves nothing of it."""
    pause = Pause()
    held = [*canary_answer()[:-1], pause]
    async with watch.opened(*steps_before(mode), held, AGAIN, checks=[Judge(Block("said"))]) as (
        gateway,
        provider,
    ):
        tenant = gateway.tenant(TENANT)
        thread = tenant.thread("t")
        calling = asyncio.create_task(watch.call(thread, mode, f"{ALLOWED}prompt"))
        await pause.reached.wait()
        await asyncio.sleep(0.07)  # longer than events wait to be stored
        (record, *_) = (await tenant.calls()).calls
        if how == "cancel":
            await tenant.call(record.id).cancel()
        elif how == "close":
            await gateway.aclose()
        else:
            calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            outcome = await calling
            assert isinstance(outcome, Incomplete)
            assert outcome.text == ""
        if how != "close":
            await watch.read_back(gateway, thread, record.id)
            await again(watch, thread, provider)
        watch.values.append(await gateway.deps.store.call(gateway.tenant(TENANT)._scope, record.id))
        watch.assert_clean()
    watch.assert_clean()


# ── over the wire ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
async def test_blocked_answer_of_a_server_stands_nowhere(watch: Watch, mode: str) -> None:
    """With the real provider and its HTTP client, their logs and buffers show nothing either."""
    bodies = [*([allowed_calls(3)] if mode.endswith("run") else []), canary_answer()]
    replies = [Reply(body=chat_stream(*body)) for body in bodies]
    async with ScriptedUpstream(*replies) as upstream:
        async with watch.opened(
            provider=None, base_url=upstream.base_url, model="m", checks=[Judge(Block("said"))]
        ) as (gateway, _):
            thread = gateway.tenant(TENANT).thread("t")
            outcome = await watch.call(thread, mode, f"{ALLOWED}prompt")
            assert isinstance(outcome, Blocked)
            assert len(upstream.requests) == len(bodies)
            await watch.read_back(gateway, thread, outcome.call_id)
            watch.assert_clean()
        watch.assert_clean()


# ── kill -9 ──────────────────────────────────────────────────────────────────────────────────


def dead_child(folder: Path, point: str) -> subprocess.CompletedProcess[bytes]:
    """What is left of a process that died at `point`, while it held a canary."""
    return subprocess.run(
        [sys.executable, "-m", "tests.integration.gateway.canary", folder, point],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("point", POINTS)
async def test_killed_process_leaves_nothing_of_what_it_held(watch: Watch, point: str) -> None:
    """A process that dies in a streamed run while an answer is held left no byte of it."""
    died = dead_child(watch.folder, point)
    assert died.returncode == 9, died.stderr.decode()
    assert CANARY.encode() not in died.stdout + died.stderr
    assert "turngate.db-wal" in files(watch.folder)
    found = holding(ALLOWED, files(watch.folder))
    assert found == ["turngate.db-wal"]
    assert holding(CANARY, files(watch.folder)) == []
    async with watch.opened(canary_answer(), AGAIN, checks=[Judge(Block("said"))]) as (
        gateway,
        provider,
    ):
        thread = gateway.tenant(TENANT).thread("t")
        (record,) = (await gateway.tenant(TENANT).calls()).calls
        outcome = await gateway.tenant(TENANT).call(record.id).outcome()
        assert isinstance(outcome, Blocked)
        assert [turn.role for turn in outcome.turns] == ["user", "assistant", "tool"]
        assert len(provider.requests) == (0 if point == "after_commit" else 1)
        await watch.read_back(gateway, thread, record.id)
        watch.assert_clean()
    watch.assert_clean()


# ── the look itself ──────────────────────────────────────────────────────────────────────────


def _with_words(result: ModelResult) -> ModelResult:
    return result


async def test_look_finds_events_that_were_shown_while_held(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that shows what it holds is found out by its events, rows and files."""
    monkeypatch.setattr(LiveCall, "hold", LiveCall.observe)
    async with watch.opened(canary_answer(), AGAIN, checks=[Judge(Block("said"))]) as (gateway, _):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = await watch.call(thread, "stream_run", f"{ALLOWED}prompt")
        assert isinstance(outcome, Blocked)
        found = holding(CANARY, watch.places())
    assert {"table events", "turngate.db-wal"} <= set(found)
    assert any(name.endswith("TextEvent") for name in found)


async def test_look_finds_words_that_a_blocked_step_keeps(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut answer that keeps its text is found in the thread, the call and the outcome."""
    monkeypatch.setattr("turngate.gateway.loop.without_words", _with_words)
    monkeypatch.setattr(judging, "without_words", _with_words)
    async with watch.opened(canary_answer("length"), AGAIN, checks=[Judge(Review("unsure"))]) as (
        gateway,
        _,
    ):
        thread = gateway.tenant(TENANT).thread("t")
        await watch.call(thread, "run", f"{ALLOWED}prompt")
        found = holding(CANARY, watch.places())
    assert {"table calls", "table turns", "turngate.db-wal"} <= set(found)
    assert any(name.startswith("pickle of") for name in found)


async def test_look_finds_what_is_logged(watch: Watch) -> None:
    """A word in an argument of a log record, or in what a program prints, is found."""
    async with watch.opened(AGAIN) as (gateway, _):
        await gateway.tenant(TENANT).thread("t").ask("hi")
        logging.getLogger("x").debug("%d pieces", 3, extra={"said": f"{CANARY}text"})
        print(f"{CANARY}text")
        error = RuntimeError("a plain one")
        error.__context__ = ValueError(f"{CANARY}text")
        watch.values.append(error)
        found = holding(CANARY, watch.places())
    assert found == ["logs", "stdout", "traceback of 0 RuntimeError"]


# ── what a blocked call keeps ────────────────────────────────────────────────────────────────

KEPT = {
    "an answer alone": [canary_answer()],
    "calls alone": [canary_calls()],
    "an answer after a step": [allowed_calls(1), canary_answer()],
    "an answer after two": [allowed_calls(1, 2), allowed_calls(3), canary_answer()],
    "calls after a step": [allowed_calls(1, 2), canary_calls()],
}


@pytest.mark.parametrize("mode", ["run", "stream_run"])
@pytest.mark.parametrize("scripts", KEPT.values(), ids=list(KEPT))
async def test_blocked_keeps_what_without_final_answer_keeps(
    watch: Watch, mode: str, scripts: list[list[Said]]
) -> None:
    """The thread gets the question and what is left of the run's messages without the blocked."""
    async with watch.opened(*scripts, AGAIN) as (gateway, _):
        full = await watch.call(gateway.tenant(TENANT).thread("full"), mode, "go")
    async with watch.opened(*scripts, AGAIN, checks=[Judge(Block("said"))]) as (gateway, _):
        thread = gateway.tenant(TENANT).thread("t")
        outcome = await watch.call(thread, mode, "go")
        stored = (await thread.turns()).turns
    assert isinstance(outcome, Blocked)
    assert stored == outcome.turns
    question, *said = messages_of(full)
    place = next(i for i, m in enumerate(said) if CANARY in repr(m))
    assert isinstance(said[place], AssistantMessage)
    assert messages_of(outcome) == [question, *without_final_answer(said[: place + 1])]


def messages_of(outcome: Outcome) -> list[Message]:
    return TurnBuilder().to_messages(outcome.turns)

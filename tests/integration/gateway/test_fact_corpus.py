"""Forty small conversations, with a helper that is told to believe everything it reads.

Each case of ``tests/data/facts`` has its exchanges, what the gullible helper answers for each, the
facts that must be there afterwards (and no others), and words that no fact and no request may hold.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.conftest import Opener
from tests.integration.gateway.remembering import Helper, Told, fact, facts_in, notes
from tests.integration.gateway.test_runs import answer, calls
from turngate import SystemMessage, tool
from turngate.protocols import Remember

CASES = sorted((Path(__file__).parents[2] / "data" / "facts").glob("*.json"))
INSTRUCTIONS = "Be kind."


def scripts_of(exchange: dict[str, Any]) -> list[list[Any]]:
    """What the model says in an exchange: a call of the tool where it has a result, the answer."""
    said = [answer(exchange["answer"])]
    return [calls(("look_up", "{}")), *said] if "result" in exchange else said


def test_there_are_forty() -> None:
    """A case that is lost would be missed by nobody else."""
    assert len(CASES) == 40


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def spec(request: pytest.FixtureRequest) -> Any:
    """One case."""
    return json.loads(request.param.read_text(encoding="utf-8"))


async def test_corpus(opened: Opener, spec: Any) -> None:
    """Just the facts that must be there are, each its user's own, and no plant reaches a model."""
    exchanges = spec["exchanges"]
    results = [exchange["result"] for exchange in exchanges if "result" in exchange]
    answers = [exchange["told"] for exchange in exchanges]

    @tool
    def look_up() -> str:
        """Looks the user up."""
        return str(results.pop(0))

    def told(given: Told) -> list[Told]:
        ids = {known["text"]: known["id"] for known in given["known_facts"]}
        return [
            fact(each["turn"], each["text"], each["kind"], ids.get(each.get("corrects", "")))
            for each in answers.pop(0)
        ]

    remember = Remember(
        helper=Helper(facts=told), summary=False, approve=spec.get("approve", "none")
    )
    scripts = [script for exchange in exchanges for script in scripts_of(exchange)]
    options: dict[str, Any] = {"remember": remember, "instructions": INSTRUCTIONS}
    async with opened(*scripts, answer("ok"), tools=[look_up], **options) as (gateway, provider):
        tenant = gateway.tenant("acme")
        for exchange in exchanges:
            thread = tenant.thread(exchange["thread"], user=exchange["user"])
            (await thread.run(exchange["prompt"], tools=["look_up"])).expect()
            await gateway.remembered()
        found = await facts_in(gateway, state=None)
        answers[:] = [[], []]
        probes: dict[str, str] = {}
        for user in ("ann", "bob"):
            (await tenant.thread(f"probe-{user}", user=user).ask("Who am I?")).expect()
            probes[user] = notes(provider.requests[-1])
            await gateway.remembered()

    keys = ("user", "text", "trusted", "state")
    assert sorted(tuple(getattr(each, key) for key in keys) for each in found) == sorted(
        tuple(each[key] for key in keys) for each in spec["must"]
    )
    for each in found:
        line = json.dumps(each.text, ensure_ascii=False)
        assert (line in probes[each.user]) is (each.state == "active")
        others = [other for other in found if other.user != each.user and other.text == each.text]
        assert others or not any(line in probes[user] for user in probes if user != each.user)
    for word in spec["must_not"]:
        assert not any(word in each.text for each in found)
        assert not any(word in probe for probe in probes.values())
    for request in provider.requests:
        system = [m.text for m in request.messages if isinstance(m, SystemMessage)]
        assert system == [INSTRUCTIONS]

"""Memory and facts with a real model: the plumbing, never the model's words.

A model of this size takes poor notes. What is held here is what must be so whatever it says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.integration.gateway.remembering import facts_in, helper_calls, notes
from tests.integration.stores.raw import ledger_of
from turngate import CallOptions, RecentWindow, SystemMessage, open_gateway
from turngate.cli.opening import opened_endpoint
from turngate.facts import refused_because
from turngate.protocols import Remember
from turngate.providers import CompatibleModelProvider, ProviderConfig
from turngate.records import FactKind
from turngate.testing import ScriptedProvider

CASES = sorted((Path(__file__).parents[1] / "data" / "facts").glob("*.json"))


async def test_notes_of_the_embedded_model_keep_every_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two conversations of the corpus: each helper call is on record, and each fact is one."""
    for name in ("TURNGATE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    answers = ScriptedProvider(["I see."])
    with opened_endpoint(None, None) as model:
        config = ProviderConfig(
            base_url=model.base_url, api_key=model.api_key, model=model.model, retries=0
        )
        async with CompatibleModelProvider(config) as helper:
            remember = Remember(helper=helper, step=2, options=CallOptions(max_tokens=96))
            options: dict[str, Any] = {
                "provider": answers,
                "remember": remember,
                "window": RecentWindow(turns=2),
            }
            async with open_gateway(tmp_path / "turngate.db", **options) as gateway:
                for case in (CASES[0], CASES[5]):
                    for exchange in json.loads(case.read_text(encoding="utf-8"))["exchanges"]:
                        thread = gateway.tenant("acme").thread(case.stem, user=case.stem)
                        (await thread.ask(exchange["prompt"])).expect()
                        await gateway.remembered()
                found = await facts_in(gateway, state=None)
                records = await helper_calls(gateway)
                summary = await gateway.tenant("acme").thread(CASES[5].stem).summary()

    rows = {row.call: row for row in ledger_of(tmp_path / "turngate.db", "acme") if row.helper}
    assert {record.kind for record in records} == {"memory", "facts"}
    assert rows.keys() == {record.id for record in records}
    for record in records:
        assert record.state in ("answered", "failed")
        assert (record.reason is None) is (record.state == "answered")
        assert record.usage is not None or record.state == "failed"
    for fact in found:
        assert fact.kind in get_args(FactKind)
        assert refused_because(fact.text) is None
        assert {source.thread for source in fact.sources} == {fact.user}
        assert fact.trusted
    assert summary is None or 0 < len(summary.text) <= 4_000
    for request in answers.requests:
        assert not any(isinstance(message, SystemMessage) for message in request.messages)
        assert notes(request) == "" or notes(request).startswith("[Kept notes.")
    states = [(record.kind, record.state, record.reason) for record in records]
    print(states, [fact.text for fact in found], summary)

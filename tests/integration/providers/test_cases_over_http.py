"""Each stream case over a real connection, through the public face."""

from __future__ import annotations

import pytest

from tests.integration.providers.upstream import Response, Upstream
from tests.unit.providers.support import CASES, Case, Outcome, check
from turngate.completion import Fold
from turngate.errors import ProviderError
from turngate.providers import CompatibleModelProvider, ModelRunner, ProviderConfig
from turngate.results import ModelResult


def response_of(case: Case, *, pause_s: float) -> Response:
    # Cases of a hundred chunks go out without pauses: the pauses are not what they are about.
    return Response(
        status=case.status,
        headers=case.headers,
        blocks=case.chunks,
        abort=case.is_aborted,
        pause_s=pause_s if len(case.chunks) < 20 else 0.0,
    )


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_case_has_its_outcome_over_http(case: Case) -> None:
    """Streamed, invoked and cut by the network as in the case, the outcome is the expected one."""
    async with Upstream(response_of(case, pause_s=0.002)) as upstream:
        config = ProviderConfig(
            base_url=upstream.url, model="demo-1", retries=0, api_key="sk-secret"
        )
        async with CompatibleModelProvider(config) as provider:
            outcome, folded = await exchange(ModelRunner(provider))
    check(case, outcome)
    # The law: the parts alone give text, reasoning and calls of the result.
    assert folded.text == outcome.result.text
    assert folded.reasoning == outcome.result.reasoning
    assert [(c.id, c.name, c.arguments) for c in folded.tool_calls] == [
        (c.id, c.name, c.arguments) for c in outcome.result.tool_calls
    ]
    if outcome.error is not None:
        assert "sk-secret" not in str(outcome.error)
        assert outcome.error.status == case.status
        assert outcome.error.partial == (folded if folded != Fold().result() else None)


async def exchange(runner: ModelRunner) -> tuple[Outcome, ModelResult]:
    """The outcome of one exchange, and the fold of the parts that it yielded."""
    fold = Fold()
    failure: ProviderError | None = None
    stream = runner.stream("hi")
    try:
        async with stream:
            async for part in stream:
                fold.add(part)
    except ProviderError as error:
        failure = error
    result = stream.result if stream.result is not None else fold.result()
    return Outcome(result=result, error=failure), fold.result()

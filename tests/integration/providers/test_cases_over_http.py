"""Each stream case over a real connection, through the public face."""

from __future__ import annotations

import pytest

from tests.integration.providers.upstream import Response, Upstream
from tests.unit.providers.support import CASES, Case, Outcome, check
from turngate.completion import Fold
from turngate.errors import ProviderError
from turngate.providers import CompatibleModelProvider, ModelRunner, ProviderConfig


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
    config = {"model": "demo-1", "retries": 0, "api_key": "sk-secret"}
    async with (
        Upstream(response_of(case, pause_s=0.002)) as upstream,
        CompatibleModelProvider(ProviderConfig(base_url=upstream.url, **config)) as provider,
    ):
        fold = Fold()
        try:
            async with ModelRunner(provider).stream("hi") as stream:
                async for part in stream:
                    fold.add(part)
            assert stream.result is not None
            outcome = Outcome(result=stream.result, error=None)
        except ProviderError as error:
            assert "sk-secret" not in str(error)
            assert error.status == case.status
            assert (error.partial is None) == fold.is_empty
            outcome = Outcome(result=fold.result(), error=error)
        check(case, outcome)
        # The law: the parts alone give text, reasoning and calls of the result.
        folded = fold.result()
        assert folded.text == outcome.result.text
        assert folded.reasoning == outcome.result.reasoning
        assert [(c.id, c.name, c.arguments) for c in folded.tool_calls] == [
            (c.id, c.name, c.arguments) for c in outcome.result.tool_calls
        ]

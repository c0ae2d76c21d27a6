"""A gateway over a real SQLite file and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from turngate import Gateway, open_gateway
from turngate.testing import ScriptedProvider, ScriptStep

Opener = Callable[..., AbstractAsyncContextManager[tuple[Gateway, ScriptedProvider]]]


@pytest.fixture
def opened(tmp_path: Path) -> Opener:
    """Opens the test's one database with a provider that plays the given scripts."""

    @asynccontextmanager
    async def open_(
        *scripts: list[ScriptStep], **options: object
    ) -> AsyncIterator[tuple[Gateway, ScriptedProvider]]:
        provider = ScriptedProvider(*scripts)
        async with open_gateway(
            tmp_path / "turngate.db",
            provider=provider,
            **options,  # type: ignore[arg-type]  # each test names real options
        ) as gateway:
            yield gateway, provider

    return open_

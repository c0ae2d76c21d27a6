"""The SQLite store keeps the rules of every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.store_suite import StoreSuite
from tests.conformance.store_values import Stores
from tests.integration.stores.faulty import slow_commits
from tests.integration.stores.raw import ledger_of
from turngate.records import LedgerRow, Scope
from turngate.stores.sqlite import SqliteStore


class SqliteStores:
    """Stores on one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[SqliteStore] = []

    async def open(self, *, commit_s: float = 0.0) -> SqliteStore:
        store = await SqliteStore.open(self.path, connect=slow_commits(commit_s))
        self.opened.append(store)
        return store

    async def ledger(self, scope: Scope) -> list[LedgerRow]:
        return ledger_of(self.path, scope.tenant)


class TestSqliteStore(StoreSuite):
    """Each rule, on a file of its own."""

    @pytest.fixture
    async def stores(self, tmp_path: Path) -> AsyncIterator[Stores]:
        stores = SqliteStores(tmp_path / "turngate.db")
        yield stores
        for store in stores.opened:
            await store.aclose()

"""The SQL text itself: tenants, portability, and no statement forgotten."""

from __future__ import annotations

import re

import pytest

from turngate.stores import statements
from turngate.stores.statements import MIGRATIONS

TEXTS = {
    name: getattr(statements, name)
    for name in statements.__all__
    if isinstance(getattr(statements, name), str)
}
# A process looks for its predecessors' calls in every tenant, and the schema has none.
UNSCOPED = {"LOST_CALLS", "SCHEMA_VERSION", "RECORD_MIGRATION"}


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - UNSCOPED))
def test_a_statement_names_its_tenant(name: str) -> None:
    """A statement either inserts the tenant or selects by it."""
    text = TEXTS[name]
    inserted = re.search(r"INSERT INTO \w+ \(tenant,", text)
    selected = re.search(r"WHERE tenant = \?", text)
    assert inserted or selected


def test_each_key_begins_with_the_tenant() -> None:
    """No table and no index has a key in which tenants could meet."""
    schema = "\n".join(statement for step in MIGRATIONS for statement in step)
    keys = re.findall(r"PRIMARY KEY \((\w+)", schema) + re.findall(r" ON \w+ \((\w+)", schema)
    assert set(keys) == {"tenant"}
    assert len(keys) == 12


@pytest.mark.parametrize(
    "word", ["AUTOINCREMENT", "ROWID", "OR REPLACE", "OR IGNORE", "strftime", "json_", "STRICT"]
)
def test_statements_are_portable(word: str) -> None:
    """No word stands in them that one database alone knows."""
    every = [*TEXTS.values(), *(statement for step in MIGRATIONS for statement in step)]
    assert not [text for text in every if word.lower() in text.lower()]

"""The SQL text itself: tenants, portability, and no statement forgotten."""

from __future__ import annotations

import re

import pytest

from turngate.stores import statements
from turngate.stores.statements import MIGRATIONS


def _texts() -> dict[str, str]:
    """Every statement by its name; one of a dict of statements by its key too."""
    found: dict[str, str] = {}
    for name in statements.__all__:
        value = getattr(statements, name)
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name}[{', '.join(key)}]": text for key, text in value.items()}
        else:
            assert name == "MIGRATIONS", f"what {name} is, no test knows"
    return found


TEXTS = _texts()
# A process looks for its predecessors' calls, and for the reviews whose deadline is over, in every
# tenant, and gives each with its scope; a sweep of files asks for the tenants that have some. The
# schema has no tenant.
UNSCOPED = {
    "LOST_CALLS",
    "OVERDUE_REVIEWS",
    "TENANTS_WITH_FILES",
    "SCHEMA_VERSION",
    "RECORD_MIGRATION",
}


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - UNSCOPED))
def test_a_statement_names_its_tenant(name: str) -> None:
    """A statement either inserts the tenant or selects by it."""
    text = TEXTS[name]
    inserted = re.search(r"INSERT INTO \w+ \(tenant,", text)
    selected = re.search(r"WHERE tenant = \?", text)
    assert inserted or selected


def test_unscoped_statements_give_the_tenant_of_each_row() -> None:
    """What is read in every tenant says whose it is, and walks on from a tenant and a key."""
    for name in ("LOST_CALLS", "OVERDUE_REVIEWS"):
        assert re.search(r"SELECT tenant, ", TEXTS[name])
        assert re.search(r"\(tenant, \w+\) > \(\?, \?\)\nORDER BY tenant, ", TEXTS[name])
    assert TEXTS.keys() >= UNSCOPED


def test_each_filter_of_reviews_is_in_its_statement() -> None:
    """A page of reviews is filtered by just the columns that its statement is named by."""
    for columns, text in statements.REVIEWS.items():
        filtered = re.findall(r"AND (\w+) = \?", text)
        assert filtered == list(columns)
        assert text.count("?") == 1 + len(columns) + 3  # the tenant, the columns, cursor and limit


def test_each_key_begins_with_the_tenant() -> None:
    """No table and no index has a key in which tenants could meet."""
    schema = "\n".join(statement for step in MIGRATIONS for statement in step)
    keys = re.findall(r"PRIMARY KEY \((\w+)", schema) + re.findall(r" ON \w+ \((\w+)", schema)
    assert set(keys) == {"tenant"}
    # Each table and index has one, but for the one table that is about the schema itself.
    made = re.findall(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", schema)
    assert len(keys) == len(set(made)) - 1 >= 19


@pytest.mark.parametrize(
    "word", ["AUTOINCREMENT", "ROWID", "OR REPLACE", "OR IGNORE", "strftime", "json_", "STRICT"]
)
def test_statements_are_portable(word: str) -> None:
    """No word stands in them that one database alone knows."""
    every = [*TEXTS.values(), *(statement for step in MIGRATIONS for statement in step)]
    assert not [text for text in every if word.lower() in text.lower()]

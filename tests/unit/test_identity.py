"""New ids and the clock."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, timedelta

from turngate import identity


def test_new_id_is_a_prefix_and_a_uuid_of_version_seven() -> None:
    """The digits after the prefix are a UUID with version and variant set."""
    for _ in range(200):
        made = identity.new_id("turn")
        assert re.fullmatch("turn_[0-9a-f]{32}", made)
        value = uuid.UUID(made.removeprefix("turn_"))
        assert (value.version, value.variant) == (7, uuid.RFC_4122)


def test_new_id_carries_the_present_millisecond() -> None:
    """The first 48 bits are the time of its making, as the standard says."""
    before = identity.now()
    value = uuid.UUID(identity.new_id("run").removeprefix("run_"))
    made_ms = value.int >> 80
    assert before.timestamp() * 1_000 - 1 <= made_ms <= identity.now().timestamp() * 1_000 + 1


def test_new_ids_differ() -> None:
    """Ids that are made within one millisecond differ too."""
    assert len({identity.new_id("turn") for _ in range(50_000)}) == 50_000


def test_now_is_aware_and_utc() -> None:
    """The clock's time has the zone UTC and does not stand still."""
    moment = identity.now()
    assert moment.tzinfo is UTC
    assert moment.utcoffset() == timedelta(0)
    assert identity.now() >= moment

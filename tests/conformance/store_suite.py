"""The rules of docs/reference/store.md, for any store.

A store runs them in a subclass of `StoreSuite` with a fixture `stores` that gives a `Stores`. The
rules that need faults or counts of one database, S23 to S30, are in tests/integration/stores.
"""

from __future__ import annotations

from tests.conformance.suite_appending import AppendingRules
from tests.conformance.suite_calls import CallRules
from tests.conformance.suite_closing import ClosingRules
from tests.conformance.suite_erasing import ErasingRules
from tests.conformance.suite_file_rows import FileRowRules
from tests.conformance.suite_memory import MemoryRules
from tests.conformance.suite_reading import ReadingRules
from tests.conformance.suite_reviews import ReviewRules
from tests.conformance.suite_states import CallStateRules
from tests.conformance.suite_threads import ThreadRules

__all__ = ["StoreSuite"]


class StoreSuite(
    AppendingRules,
    ReadingRules,
    ThreadRules,
    CallRules,
    FileRowRules,
    ReviewRules,
    CallStateRules,
    ClosingRules,
    MemoryRules,
    ErasingRules,
):
    """One test or more for each rule of every store."""

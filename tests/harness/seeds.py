"""The seed of every harness: fixed, printed on failure, and overridden by HARNESS_SEED."""

from __future__ import annotations

import os

__all__ = ["SEED"]

SEED = int(os.environ.get("HARNESS_SEED", "20261130"))

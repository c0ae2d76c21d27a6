"""New ids and the clock: the only module of the core that is not a function of its arguments."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

__all__ = ["new_id", "now"]


def new_id(prefix: str) -> str:
    """A fresh id ``prefix_<32 hex digits>`` whose digits are a UUID of version 7 (RFC 9562).

    It is unique within a tenant. Nothing may read a time or an order from it.
    """
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return f"{prefix}_{value:032x}"


def now() -> datetime:
    """The present moment, aware, in UTC, to the microsecond."""
    return datetime.now(UTC)

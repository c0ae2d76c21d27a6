"""Settings of a gateway, as values; nothing here reads a file or the environment."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Settings"]


class Settings(Struct, frozen=True, kw_only=True):
    """What a gateway may be told beside its store and its model.

    Units: `store_wait_s` is how long a write waits for another program's lock, in seconds;
    `prepare_tries_max` how often a call is prepared again because the thread moved.
    """

    store_wait_s: float = 5.0
    prepare_tries_max: int = 5

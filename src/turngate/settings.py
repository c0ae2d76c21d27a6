"""Settings of a gateway, as values; nothing here reads a file or the environment."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Settings"]


class Settings(Struct, frozen=True, kw_only=True):
    """What a gateway may be told beside its store and its model.

    Units: `store_wait_s` is how long a write waits for another program's lock, in seconds;
    `prepare_tries_max` how often a call is prepared again because the thread moved;
    `check_timeout_s` how long one check may judge, before it counts as a block;
    `context_tokens` how many tokens the model's context has (None: what its refusals teach).
    `file_bytes_max` is the size of the largest file that is taken, in bytes.
    """

    store_wait_s: float = 5.0
    prepare_tries_max: int = 5
    check_timeout_s: float = 30.0
    context_tokens: int | None = None
    file_bytes_max: int = 100_000_000

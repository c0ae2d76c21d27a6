"""One writing process to a database: a lock that the system drops when the process ends.

The lock is held on a file of its own beside the database, ``<database>.lock``, since programs
that open the database itself would drop a lock there. The file stays; what counts is the lock.

Legal order: ``acquire release?``. A process that is killed releases by dying.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from turngate.errors import StoreError, StoreInUse
from turngate.identity import now

_OWNER_BYTES_MAX = 4096


class _Owner(Struct, frozen=True, kw_only=True):
    """Who holds the lock, as the lock file's JSON text; `since` is an ISO 8601 time."""

    pid: int
    host: str
    since: str


class WriterLock:
    """The right to write to one database, from `acquire` to `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, database: Path) -> WriterLock:
        """The lock of `database`, at once.

        Errors: `StoreInUse` names the process that holds it and since when; `StoreError` if the
        folder takes no lock file.
        """
        path = database.with_name(database.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"can't open the lock file {path}: {error.strerror}",
                hint="The database's folder must exist and be writable.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _owner_text(os.pread(descriptor, _OWNER_BYTES_MAX, 0))
            os.close(descriptor)
            raise StoreInUse(str(database), owner=holder) from error
        except OSError as error:  # some network file systems have no locks at all
            os.close(descriptor)
            raise StoreError(
                f"can't lock {path}: {error.strerror}",
                hint="Keep the database on a local disk.",
            ) from error
        since = now().isoformat(timespec="seconds")
        owner = _Owner(pid=os.getpid(), host=socket.gethostname(), since=since)
        _write(descriptor, msgspec.json.encode(owner))
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; doing so again does nothing."""
        if self._descriptor is not None:
            _write(self._descriptor, b"")  # so that no dead owner is named later
            os.close(self._descriptor)
            self._descriptor = None


def _write(descriptor: int, content: bytes) -> None:
    """Name the owner. The lock holds without it, so a full disk is no reason to fail."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)


def _owner_text(content: bytes) -> str:
    try:
        owner = msgspec.json.decode(content, type=_Owner)
    except msgspec.MsgspecError:
        return "it has not said which"
    return f"process {owner.pid} on {owner.host}, since {owner.since}"

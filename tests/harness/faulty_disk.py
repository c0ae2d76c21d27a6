"""A disk that can lose power or refuse: SQLite over a VFS of our own, behind the driver's face.

`Disk` counts every operation of the files below it that writes, and asks its `on_operation` before
each. It knows which 512-byte sectors are not synced yet, so that `after_power_cut` can make the
files that a power cut would leave: of what was not synced, any part may be old or new.

`Connection` has as much of the face of `sqlite3.Connection` as the store uses.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

__all__ = ["Connection", "Disk", "Operation"]

SECTOR = 512
_KINDS = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


class Operation:
    """One operation that is about to happen: its `kind` (``open write sync truncate``)."""

    def __init__(self, number: int, kind: str, name: str) -> None:
        self.number = number
        self.kind = kind
        self.name = name


class _State:
    """One file: its size at the last sync, and the old bytes of each sector written since."""

    def __init__(self, path: Path, size: int, *, made: bool) -> None:
        self.path = path
        self.synced_size = size
        self.old: dict[int, bytes] = {}
        self.made = made  # since the last sync: it may not be in its folder


class Disk(apsw.VFS):
    """The files of one database. `on_operation` may raise to make an operation fail.

    It may also return a number: a write then stops after so many bytes, and fails.
    """

    count = 0

    def __init__(self, *, checkpoint_pages: int | None = None) -> None:
        Disk.count += 1
        self._checkpoint_pages = checkpoint_pages
        self.vfs_name = f"faulty-{Disk.count}"
        self.operations = 0
        self.states: dict[str, _State] = {}
        self.on_operation: Callable[[Operation], int | None] = lambda operation: None
        super().__init__(self.vfs_name, "")

    def connect(self, path: str, **options: Any) -> sqlite3.Connection:
        """What takes the place of `sqlite3.connect` for a store."""
        connection: Any = Connection(
            path, vfs=self.vfs_name, checkpoint_pages=self._checkpoint_pages, **options
        )
        return connection  # type: ignore[no-any-return]  # as much of one as the store uses

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802  # SQLite's name
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.about_to("delete", filename)
        super().xDelete(filename, syncdir)
        self.states.pop(filename, None)

    def excepthook(self, *error: Any) -> bool:
        """A failure that SQLite has no one to tell of is none of ours either."""
        return True

    def about_to(self, kind: str, name: str) -> int | None:
        self.operations += 1
        return self.on_operation(Operation(self.operations, kind, name))

    def after_power_cut(self, folder: Path, chance: random.Random) -> None:
        """Copy the files to `folder` as a power cut at this moment may leave them."""
        for state in self.states.values():
            if not state.path.exists() or (state.made and chance.random() < 0.5):
                continue
            copy = folder / state.path.name
            shutil.copyfile(state.path, copy)
            with copy.open("r+b") as file:
                for sector, old in state.old.items():
                    if chance.random() < 0.5:
                        file.seek(sector * SECTOR)
                        file.write(old)
                size = copy.stat().st_size
                if size > state.synced_size and chance.random() < 0.3:
                    file.truncate(chance.randrange(state.synced_size, size + 1))


class _File(apsw.VFSFile):
    """One open file of a `Disk`."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._state: _State | None = None
        path = Path(self._name) if self._name else None
        if path is not None and flags[0] & _KINDS and not flags[0] & apsw.SQLITE_OPEN_READONLY:
            disk.about_to("open", self._name)
            made = not path.exists()
            super().__init__("", name, flags)
            size = 0 if made else path.stat().st_size
            self._state = disk.states.setdefault(self._name, _State(path, size, made=made))
        else:
            super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._state is None:
            super().xWrite(data, offset)
            return
        cut = self._disk.about_to("write", self._name)
        self._keep_old(offset, len(data))
        if cut is not None:
            super().xWrite(data[:cut], offset)
            raise apsw.exception_for(apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        if self._state is not None:
            self._disk.about_to("truncate", self._name)
            self._keep_old(newsize, super().xFileSize() - newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._state is not None:
            self._disk.about_to("sync", self._name)
        super().xSync(flags)
        if self._state is not None:
            self._state.old.clear()
            self._state.synced_size = super().xFileSize()
            self._state.made = False

    def _keep_old(self, offset: int, length: int) -> None:
        """Remember the sectors that are about to change, as the disk surely has them."""
        assert self._state is not None
        old = self._state.old
        for sector in range(offset // SECTOR, (offset + max(length, 0) + SECTOR - 1) // SECTOR):
            if sector in old:
                continue
            start = sector * SECTOR
            there = max(0, min(SECTOR, super().xFileSize() - start))
            content = super().xRead(there, start) if there else b""
            old[sector] = content.ljust(SECTOR, b"\0")


# ── the driver's face ────────────────────────────────────────────────────────────────────────

_CLASSES: tuple[tuple[type[apsw.Error], type[sqlite3.Error]], ...] = (
    (apsw.ConstraintError, sqlite3.IntegrityError),
    (apsw.MismatchError, sqlite3.IntegrityError),
    (apsw.TooBigError, sqlite3.DataError),
    (apsw.CorruptError, sqlite3.DatabaseError),
    (apsw.NotADBError, sqlite3.DatabaseError),
    (apsw.MisuseError, sqlite3.ProgrammingError),
    (apsw.ConnectionClosedError, sqlite3.ProgrammingError),
)


def _driver_error(error: apsw.Error) -> sqlite3.Error:
    """`error` as the driver of the standard library would raise it."""
    kind: type[sqlite3.Error] = sqlite3.OperationalError
    for theirs, ours in _CLASSES:
        if isinstance(error, theirs):
            kind = ours
    raised = kind(str(error))
    code: int = getattr(error, "extendedresult", 0) or getattr(error, "result", 0) or 1
    names = apsw.mapping_extended_result_codes if code > 255 else apsw.mapping_result_codes
    raised.sqlite_errorcode = code
    raised.sqlite_errorname = str(names.get(code, "SQLITE_ERROR"))
    return raised


class Cursor:
    """The rows of one statement, all of them at hand."""

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows = list(rows)
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows


class Connection:
    """One connection through a VFS. `checkpoint_pages` has the log moved sooner than asked for."""

    def __init__(
        self,
        path: str,
        *,
        vfs: str,
        checkpoint_pages: int | None = None,
        timeout: float = 5.0,
        uri: bool = False,
        **_: Any,
    ) -> None:
        self._checkpoint_pages = checkpoint_pages
        flags = apsw.SQLITE_OPEN_URI if uri else 0
        flags |= apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._db = self._told(lambda: apsw.Connection(path, flags=flags, vfs=vfs))
        self._db.set_busy_timeout(round(timeout * 1000))

    @property
    def in_transaction(self) -> bool:
        return bool(self._db.in_transaction)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        if self._checkpoint_pages is not None and "wal_autocheckpoint" in sql:
            sql = f"PRAGMA wal_autocheckpoint = {self._checkpoint_pages}"
        rows = self._told(lambda: self._db.execute(sql, parameters).fetchall())
        return Cursor(rows, self._db.changes())

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> Cursor:
        return Cursor(self._told(lambda: self._db.executemany(sql, parameters).fetchall()), -1)

    def close(self) -> None:
        # Of a failing disk SQLite's own close tells nothing; what is closed is closed.
        with contextlib.suppress(apsw.IOError, apsw.FullError, apsw.CantOpenError):
            self._db.close()

    def _told(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except apsw.Error as error:
            raise _driver_error(error) from error
        except OSError as error:  # a failing `open` of the system
            raise sqlite3.OperationalError(str(error)) from error

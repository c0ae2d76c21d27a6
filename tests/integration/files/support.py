"""What the tests of files share: a gateway over files, and what stands in its folder."""

from __future__ import annotations

import os
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from turngate import Gateway, Settings, open_gateway
from turngate.protocols import FileStore
from turngate.testing import ScriptedProvider

DAY_S = 86_400


def gateway_over(
    folder: Path, *, files: FileStore | str | Path | None = None, bytes_max: int = 20_000_000
) -> AbstractAsyncContextManager[Gateway]:
    """A gateway over the database ``t.db`` of `folder`."""
    settings = Settings(file_bytes_max=bytes_max)
    return open_gateway(
        folder / "t.db", provider=ScriptedProvider(), files=files, settings=settings
    )


def objects_in(folder: Path) -> dict[str, bytes]:
    """Every object's bytes, by its name."""
    return {path.name: path.read_bytes() for path in folder.glob("t.db.files/objects/*/*")}


def uploads_in(folder: Path) -> list[Path]:
    return list(folder.glob("t.db.files/uploads/*"))


def age(folder: Path) -> None:
    """Make every file of the file store two days old."""
    past = time.time() - 2 * DAY_S
    for path in folder.glob("t.db.files/**/*"):
        os.utime(path, (past, past))

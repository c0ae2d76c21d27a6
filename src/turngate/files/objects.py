"""The bytes of files in a folder, or in a bucket of S3 and its like, by way of obstore.

    uploads/<token>                            an upload that is not finished
    objects/<tenant>/<sha256>-<token>          an object; <tenant> is a hash of the tenant's name

Each put writes an object of its own, under a name with a new token, so that a name never comes
back. An object's life is: upload, (folder: fsync), rename, (folder: fsync of the folder), and only
then does somebody store a row that names it. From that follows:

- A row's object is whole, whenever the power fails.
- An object without a row is garbage once its put has given up. A put gives up long before
  `SWEPT_AFTER_S_MIN`, and a sweep removes nothing younger than that. So no sweep, in this process
  or in another, removes an object for which a row is still to come.
- A second row may come to name an object only while a first one does, which the database decides
  in the very transaction that stores the second. The object goes after its last row, and nobody
  can have come to it in between. So a put of the same bytes never loses to a delete: it either
  shares an object that stays, or keeps its own.

What a crash leaves between two steps is an upload, or an object without a row: both are for the
sweep. Legal order: ``(any call)* aclose``. Nothing is opened or made before the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from turngate import identity
from turngate.errors import InvalidValue, RequestError, StoreError
from turngate.records import Scope, StoredObject, Swept

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectFiles"]

PIECE_BYTES = 1 << 20  # read in one go
PART_BYTES = 5 << 20  # uploaded in one go: the smallest part that S3 takes
PAGE_OBJECTS = 1000  # listed in one go

_UPLOADS, _OBJECTS = "uploads", "objects"

Fsync = Callable[[int], None]


def full_fsync(descriptor: int) -> None:
    """Have the disk keep what was written; on macOS an fsync alone does not."""
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, command)


# Its plain functions, each in a worker thread. Those that are coroutines leave threads of their
# own behind, which drop Python objects while the interpreter ends: a process then dies of it.
_thread = asyncio.to_thread


class ObjectFiles:
    """Objects at a `place`, as `turngate.protocols.FileStore` says.

    A path is a folder, which is made at the first put; a URL (``s3://bucket/prefix``, ``gs://``,
    ``az://``) takes its keys and endpoint from the environment, as obstore does. One place belongs
    to one database.
    """

    def __init__(self, place: str | Path, *, fsync: Fsync = full_fsync) -> None:
        url = isinstance(place, str) and "://" in place
        self._url = str(place) if url else None
        self._folder = None if url else Path(place).absolute()
        self._fsync = fsync
        self._opened: ObjectStore | None = None
        self._closed = False
        self._kept: set[str] = set()  # folders whose place on the disk this process has seen to

    async def put(self, scope: Scope, chunks: AsyncIterator[bytes]) -> StoredObject:
        self._check_open()
        import obstore

        await self._made(_UPLOADS)
        objects = self._objects()
        token = identity.new_id("object").partition("_")[2]
        upload = f"{_UPLOADS}/{token}"
        left = [upload]
        try:
            sha256, size = await self._uploaded(objects, upload, chunks)
            stored = StoredObject(name=f"{sha256}-{token}", sha256=sha256, size_bytes=size)
            home = f"{_OBJECTS}/{self.tenant_key(scope)}"
            await self._synced(upload)
            await self._made(home)
            left.append(f"{home}/{stored.name}")
            with self._own_errors():
                await _thread(obstore.rename, objects, upload, f"{home}/{stored.name}")
            await self._synced(home)
        except BaseException:
            with contextlib.suppress(Exception):  # a sweep finds what can't be removed now
                await self._deleted(left)
            raise
        return stored

    async def read(self, scope: Scope, stored: StoredObject) -> AsyncIterator[bytes]:
        self._check_open()
        import obstore

        digest, size, held = hashlib.sha256(), 0, b""
        with self._own_errors():
            found = await _thread(obstore.get, self._objects(), self._key(scope, stored.name))
        pieces = iter(found.stream(min_chunk_size=PIECE_BYTES))
        while True:
            with self._own_errors():
                piece = await _thread(next, pieces, b"")
            if not piece:
                break
            digest.update(piece)
            size += len(piece)
            if size > stored.size_bytes:
                break
            if held:
                yield held
            held = bytes(piece)
        if (size, digest.hexdigest()) != (stored.size_bytes, stored.sha256):
            raise StoreError(
                f"the object {stored.name} in {self._name} is damaged",
                hint="Restore it from a backup, or put the file again.",
            )
        if held:
            yield held

    async def delete(self, scope: Scope, name: str) -> None:
        await self._deleted([self._key(scope, name)])

    def tenant_key(self, scope: Scope) -> str:
        """The folder of a tenant: 32 hex digits, whatever characters its name has."""
        return hashlib.sha256(scope.tenant.encode()).hexdigest()[:32]

    async def sweep(
        self,
        in_use: Callable[[str, Collection[str]], Awaitable[set[str]]],
        *,
        before: datetime,
    ) -> Swept:
        self._check_open()
        if self._folder is not None and not await _thread(self._folder.is_dir):
            return Swept()  # nothing was ever put
        count = size = 0
        async for page in self._pages(_OBJECTS):
            of_tenant: dict[str, dict[str, int]] = {}
            for key, size_bytes, modified_at in page:
                _, tenant, name = key.rsplit("/", 2)
                if modified_at < before:
                    of_tenant.setdefault(tenant, {})[name] = size_bytes
            for tenant, names in of_tenant.items():
                unused = names.keys() - await in_use(tenant, names)
                await self._deleted([f"{_OBJECTS}/{tenant}/{name}" for name in unused])
                count += len(unused)
                size += sum(names[name] for name in unused)
        uploads = [each for each in await self._uploads() if each[2] < before]
        await self._deleted([key for key, _, _ in uploads])
        size += sum(size_bytes for _, size_bytes, _ in uploads)
        return Swept(objects=count, uploads=len(uploads), size_bytes=size)

    async def aclose(self) -> None:
        """Close; later calls are a `StoreError`."""
        self._closed, self._opened = True, None

    # ------------------------------------------------------------------------------- pieces

    @property
    def _name(self) -> str:
        return self._url if self._url is not None else str(self._folder)

    def _key(self, scope: Scope, name: str) -> str:
        return f"{_OBJECTS}/{self.tenant_key(scope)}/{name}"

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the file store {self._name} is closed")
        if find_spec("obstore") is None:
            raise RequestError(
                "files need a part that is not installed: obstore",
                hint="pip install 'turngate[files]'",
            )

    def _objects(self) -> ObjectStore:
        """The obstore store. Errors: `StoreError`, `InvalidValue` for a URL, `RequestError`."""
        self._check_open()
        if self._opened is None:
            from obstore.exceptions import BaseError
            from obstore.store import LocalStore, from_url

            with self._own_errors():
                if self._folder is not None:
                    self._opened = LocalStore(self._folder)
                    return self._opened
                try:
                    self._opened = from_url(self._name)
                except (BaseError, ValueError) as error:
                    told = str(error).splitlines()[0]
                    raise InvalidValue(f"{self._name!r} names no file store: {told}") from error
        return self._opened

    async def _uploaded(
        self, objects: ObjectStore, upload: str, chunks: AsyncIterator[bytes]
    ) -> tuple[str, int]:
        """The hash and the size of what was written."""
        import obstore

        digest, size = hashlib.sha256(), 0
        writer = await _thread(obstore.open_writer, objects, upload, buffer_size=PART_BYTES)
        try:
            async for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                with self._own_errors():
                    await _thread(writer.write, chunk)
        except BaseException as error:
            with contextlib.suppress(Exception):  # it takes back what it has written
                await _thread(writer.__exit__, type(error), error, error.__traceback__)
            raise
        with self._own_errors():
            await _thread(writer.close)
        return digest.hexdigest(), size

    async def _pages(self, prefix: str) -> AsyncIterator[list[tuple[str, int, datetime]]]:
        """What is listed below `prefix`: key, size in bytes, time of the last writing."""
        import obstore

        pages = iter(obstore.list(self._objects(), prefix=prefix, chunk_size=PAGE_OBJECTS))
        while True:
            with self._own_errors():
                page = await _thread(next, pages, None)
            if page is None:
                return
            yield [(meta["path"], meta["size"], meta["last_modified"]) for meta in page]

    async def _uploads(self) -> list[tuple[str, int, datetime]]:
        """Every upload that is not finished."""
        if self._folder is None:
            return [each async for page in self._pages(_UPLOADS) for each in page]
        with self._own_errors():
            return await _thread(_files_in, self._folder, _UPLOADS)

    async def _deleted(self, keys: Collection[str]) -> None:
        self._check_open()
        import obstore

        with self._own_errors():
            if self._folder is not None:
                # An upload that was killed has a name that obstore takes for none of its own.
                await _thread(_unlink, [self._folder / key for key in keys])
                return
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    await _thread(obstore.delete, self._objects(), key)

    # -------------------------------------------------------- durability, which folders need

    async def _made(self, folder: str) -> None:
        """Make a folder below ours, durably; a bucket has none."""
        if self._folder is None or folder in self._kept:
            return
        with self._own_errors():
            await _thread(self._make, self._folder, folder)
        self._kept.add(folder)

    def _make(self, root: Path, below: str) -> None:
        # What is there may be the work of a process that died before it reached the disk.
        if not root.parent.is_dir():
            raise StoreError(
                f"there is no folder {root.parent} for the file store", hint="Make it first."
            )
        path = root
        for part in ("", *below.split("/")):  # the root itself first
            path = path / part
            path.mkdir(exist_ok=True)
            self._sync(path.parent)

    async def _synced(self, key: str) -> None:
        """Have the disk keep a file, or a folder's entries. A bucket has done so by itself."""
        if self._folder is not None:
            with self._own_errors():
                await _thread(self._sync, self._folder / key)

    def _sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Errors of obstore and of the system as a `StoreError`."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise StoreError(
                f"an object is missing in {self._name}", hint="Restore it from a backup."
            ) from error
        except (BaseError, OSError) as error:
            # The first line: what follows is for those who debug obstore.
            told = (str(error).splitlines() or [type(error).__name__])[0]
            raise StoreError(f"the file store {self._name} failed: {told}") from error


def _files_in(root: Path, folder: str) -> list[tuple[str, int, datetime]]:
    """Every file of a folder below `root`, also such as obstore does not list."""
    found: list[tuple[str, int, datetime]] = []
    for path in (root / folder).iterdir() if (root / folder).is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # finished meanwhile
            facts = path.stat()
            at = datetime.fromtimestamp(facts.st_mtime, UTC)
            found.append((f"{folder}/{path.name}", facts.st_size, at))
    return found


def _unlink(paths: Collection[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)

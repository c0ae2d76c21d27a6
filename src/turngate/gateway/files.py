"""A tenant's files: the bytes in the file store, and one row for each file in the database.

A put stores the object first and the row last; a delete removes the row first and the object last.
So a row's bytes are there whenever a process dies, and what it leaves is an object without a row,
which `swept_files` removes. Why no order of puts, deletes and sweeps loses a file:
`turngate.files.objects`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec

from turngate import identity
from turngate.errors import FileNotFound, InvalidValue, RequestError, StoreError
from turngate.gateway.deps import GatewayDeps
from turngate.media import HEAD_BYTES, OCTETS, checked_media_type, sniffed_type
from turngate.protocols import FileStore
from turngate.records import FilePage, FileRecord, Scope, StoredObject, Swept
from turngate.values import FileRef, storable_text

__all__ = [
    "SWEPT_AFTER_S",
    "SWEPT_AFTER_S_MIN",
    "Files",
    "keep_result",
    "result_file_id",
    "swept_files",
]

SWEPT_AFTER_S = 86_400.0
SWEPT_AFTER_S_MIN = 3_600.0
# From the object to its row. A sweep waits twice as long at least, so it meets no row to come.
ROW_WITHIN_S = SWEPT_AFTER_S_MIN / 2

PIECE_BYTES = 1 << 20
NAME_CHARS_MAX = 255

FileData = bytes | bytearray | memoryview | Path | AsyncIterator[bytes]


class Files:
    """One tenant's files."""

    def __init__(self, deps: GatewayDeps, scope: Scope) -> None:
        self._deps = deps
        self._rows = deps.store
        self._scope = scope

    async def put(self, data: FileData, *, name: str, media_type: str | None = None) -> FileRef:
        """The pointer to a new file, once its bytes and its row are durable.

        Shapes: `data` are bytes, the path of a file, or an asynchronous iterator of bytes, which
        is never whole in memory. `name` is 1 to 255 characters of display text and names no place.
        `media_type` is taken as it is told; without one it is what the first bytes say, else
        ``application/octet-stream``. Files of equal bytes share their room.
        Errors: `InvalidValue` for more than `Settings.file_bytes_max` bytes, a path that can't be
        read, a name or a type that is not well-formed; `StoreError`. No file is there then.
        """
        return await self._put(data, name, media_type, file_id=identity.new_id("file"))

    async def _put(
        self,
        data: FileData,
        name: str,
        media_type: str | None,
        *,
        file_id: str,
        call: str | None = None,
    ) -> FileRef:
        store = self._store
        name, claimed = _checked_name(name), _checked_claim(media_type)
        measured = _Measured(self._deps.settings.file_bytes_max)
        async with contextlib.aclosing(measured.pieces(data)) as pieces:
            stored = await store.put(self._scope, pieces)
        sniffed = sniffed_type(measured.head)
        record = FileRecord(
            ref=FileRef(
                id=file_id,
                name=name,
                media_type=claimed or sniffed or OCTETS,
                size_bytes=stored.size_bytes,
                sha256=stored.sha256,
            ),
            object=stored.name,
            created_at=identity.now(),
            call=call,
            claimed_type=claimed,
            sniffed_type=sniffed,
        )
        if await self._shared(record):
            with contextlib.suppress(StoreError):  # the file is stored; a sweep takes the rest
                await store.delete(self._scope, stored.name)
            return record.ref
        if time.monotonic() - measured.ended > ROW_WITHIN_S:
            raise StoreError("the file took too long from its last byte to its row")
        # Where this fails, a row may be there all the same, so the object stays.
        await self._rows.add_file(self._scope, record)
        return record.ref

    async def get(self, file_id: str) -> bytes:
        """All bytes of a file, checked. Errors: as for `open`."""
        return b"".join([piece async for piece in self.open(file_id)])

    async def open(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a file in pieces; the last one comes when all have been checked.

        Errors: `FileNotFound`; `StoreError` where the stored bytes are not those that were put.
        """
        record = await self.record(file_id)
        try:
            async for piece in self._store.read(self._scope, record.stored):
                yield piece
        except StoreError:
            await self.record(file_id)  # it may have been deleted meanwhile
            raise

    async def record(self, file_id: str) -> FileRecord:
        """What is stored of a file beside its bytes. Errors: `FileNotFound`."""
        return await self._rows.file(self._scope, file_id)

    async def list(self, *, after: str | None = None, limit: int = 50) -> FilePage:
        """The tenant's files, newest first; `after` is a page's `next`."""
        return await self._rows.files(self._scope, after=after, limit=limit)

    async def delete(self, file_id: str) -> None:
        """Remove a file; turns keep their pointer to it.

        Errors: `FileNotFound`; `StoreError`. Where it tells of the file store, the file is gone
        all the same, and a sweep removes the bytes.
        """
        store = self._store
        last = await self._rows.remove_file(self._scope, file_id)
        if last is not None:
            await store.delete(self._scope, last.object)

    @property
    def _store(self) -> FileStore:
        return _file_store(self._deps)

    async def _shared(self, record: FileRecord) -> bool:
        """Whether `record` is stored, with the object of an earlier file of the same bytes.

        That object is read first: bytes that were put are not to rest on an object that is damaged.
        """
        earlier = await self._rows.file_of_bytes(self._scope, record.ref.sha256)
        if earlier is None or not await self._whole(earlier.stored):
            return False
        sharing = msgspec.structs.replace(record, object=earlier.object)
        return await self._rows.add_file(self._scope, sharing, shared=True)

    async def _whole(self, stored: StoredObject) -> bool:
        try:
            async for _ in self._store.read(self._scope, stored):
                pass
        except StoreError:
            return False
        return True


async def keep_result(
    deps: GatewayDeps, scope: Scope, text: str, *, tool: str, call: str, key: str
) -> FileRef:
    """A tool's whole result as a file of `call`, in the place of what an earlier try has kept."""
    files, file_id = Files(deps, scope), result_file_id(key)
    with contextlib.suppress(FileNotFound):
        await files.delete(file_id)
    return await files._put(text.encode(), f"{tool}.txt", "text/plain", file_id=file_id, call=call)


def result_file_id(key: str) -> str:
    """The id of the file with the whole result of the tool call of this key, if there is one."""
    return f"file_{hashlib.sha256(key.encode()).hexdigest()[:32]}"


async def swept_files(deps: GatewayDeps, *, older_than_s: float) -> Swept:
    """What was removed: objects that no file has, and unfinished uploads, both of every tenant.

    Errors: `InvalidValue` for an age at which a put may still be under way; `StoreError`.
    """
    if not older_than_s >= SWEPT_AFTER_S_MIN:
        raise InvalidValue(f"a sweep takes what is {SWEPT_AFTER_S_MIN:g} s old or older")
    store = _file_store(deps)
    scopes = {store.tenant_key(scope): scope for scope in await deps.store.tenants_with_files()}

    async def in_use(tenant_key: str, names: Collection[str]) -> set[str]:
        scope = scopes.get(tenant_key)
        return await deps.store.objects_in_use(scope, names) if scope is not None else set()

    return await store.sweep(in_use, before=identity.now() - timedelta(seconds=older_than_s))


def _file_store(deps: GatewayDeps) -> FileStore:
    if deps.files is None:
        raise RequestError("this gateway has no file store", hint="Open it with files=…")
    return deps.files


# ── what comes in ────────────────────────────────────────────────────────────────────────────


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidValue(f"a file's name is 1 to {NAME_CHARS_MAX} characters")
    return storable_text(name)


def _checked_claim(media_type: object) -> str | None:
    if media_type is None:
        return None
    if not isinstance(media_type, str) or checked_media_type(media_type) is None:
        raise InvalidValue("a media type has the form type/subtype")
    return media_type


class _Measured:
    """Bytes on their way in: at most `bytes_max`, their `head`, and when they had `ended`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.head = b""
        self.ended = 0.0

    async def pieces(self, data: FileData) -> AsyncGenerator[bytes, None]:
        size = 0
        async with contextlib.aclosing(_pieces(data)) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > self._bytes_max:
                    raise InvalidValue(f"a file has at most {self._bytes_max} bytes")
                if len(self.head) < HEAD_BYTES:
                    self.head += piece[: HEAD_BYTES - len(self.head)]
                yield piece
        self.ended = time.monotonic()


async def _pieces(data: FileData) -> AsyncGenerator[bytes, None]:
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PIECE_BYTES):
            yield bytes(view[start : start + PIECE_BYTES])
    elif isinstance(data, Path):
        with _path_errors(data):
            file = await asyncio.to_thread(data.open, "rb")
        with file:
            while True:
                with _path_errors(data):
                    piece = await asyncio.to_thread(file.read, PIECE_BYTES)
                if not piece:
                    return
                yield piece
    elif hasattr(data, "__aiter__"):
        async for each in data:
            if not isinstance(each, bytes | bytearray | memoryview):
                raise InvalidValue(f"a file comes as bytes, and no {type(each).__name__}")
            yield bytes(each)
    else:
        raise InvalidValue("a file comes as bytes, a Path, or an asynchronous iterator of bytes")


@contextlib.contextmanager
def _path_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidValue(f"can't read {path}: {error.strerror}") from error

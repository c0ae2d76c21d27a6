"""Rules F7 to F13 of docs/reference/files.md, for any `FileStore`.

A store runs them in a subclass of `FileSuite` with a fixture `files` that gives an empty one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Collection
from datetime import timedelta

import pytest

from tests.conformance.store_values import A, B
from turngate import identity
from turngate.errors import StoreError
from turngate.protocols import FileStore
from turngate.records import Scope, StoredObject, Swept

__all__ = ["FileSuite", "chunks", "read", "sweep_all"]

PIECE = 1 << 20


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def read(files: FileStore, stored: StoredObject, *, scope: Scope = A) -> bytes:
    return b"".join([piece async for piece in files.read(scope, stored)])


async def sweep_all(files: FileStore, *, keep: Collection[str] = ()) -> Swept:
    """Sweep as if everything were old; the names in `keep` are in use."""

    async def in_use(tenant_key: str, names: Collection[str]) -> set[str]:
        assert tenant_key in {files.tenant_key(A), files.tenant_key(B)}
        return set(names) & set(keep)

    return await files.sweep(in_use, before=identity.now() + timedelta(hours=1))


class FileSuite:
    """One test or more for each rule of every file store."""

    @pytest.mark.parametrize("sizes", [(), (1,), (3, 0, 5), (PIECE,), (PIECE + 1, 9 * PIECE, 7)])
    async def test_what_was_put_is_read(self, files: FileStore, sizes: tuple[int, ...]) -> None:
        """[F7] Bytes of any size and in any pieces come back, with their size and hash."""
        pieces = [os.urandom(size) for size in sizes]
        data = b"".join(pieces)
        stored = await files.put(A, chunks(*pieces))
        assert stored.size_bytes == len(data)
        assert stored.sha256 == hashlib.sha256(data).hexdigest()
        assert await read(files, stored) == data

    async def test_a_large_object_comes_in_pieces(self, files: FileStore) -> None:
        """[F7] No object is whole in memory."""
        stored = await files.put(A, chunks(*[bytes(PIECE)] * 20))
        sizes = [len(piece) async for piece in files.read(A, stored)]
        assert sum(sizes) == 20 * PIECE
        assert max(sizes) <= 10 * PIECE

    async def test_no_two_puts_get_one_name(self, files: FileStore) -> None:
        """[F8] The same bytes twice, at once and after a removal, are different objects."""
        both = await asyncio.gather(*(files.put(A, chunks(b"same")) for _ in range(4)))
        await files.delete(A, both[0].name)
        again = await files.put(A, chunks(b"same"))
        assert len({stored.name for stored in (*both, again)}) == 5
        assert await read(files, both[1]) == await read(files, again) == b"same"

    async def test_an_object_is_its_tenants_alone(self, files: FileStore) -> None:
        """[F8] Another tenant can neither read nor delete it, even by its very name."""
        stored = await files.put(A, chunks(b"secret"))
        with pytest.raises(StoreError):
            await read(files, stored, scope=B)
        await files.delete(B, stored.name)
        assert await read(files, stored) == b"secret"

    @pytest.mark.parametrize("tenant", ["..", "/etc", "a/b", "ü", ".", "C:\\x", "x" * 128])
    async def test_any_tenant_has_a_place_of_its_own(self, files: FileStore, tenant: str) -> None:
        """[F8] The name of a tenant is no part of a place."""
        scope = Scope(tenant)
        stored = await files.put(scope, chunks(b"x"))
        assert await read(files, stored, scope=scope) == b"x"
        assert tenant not in files.tenant_key(scope)

    async def test_an_upload_that_fails_leaves_nothing(self, files: FileStore) -> None:
        """[F9] What the source raises is raised, and no object is there."""

        async def broken() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield bytes(PIECE)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await files.put(A, broken())
        assert await sweep_all(files) == Swept()

    async def test_an_upload_that_is_cancelled_leaves_nothing(self, files: FileStore) -> None:
        """[F9] The caller is cancelled while its source is silent."""
        silent = asyncio.Event()

        async def stuck() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield bytes(PIECE)
            silent.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(files.put(A, stuck()))
        await silent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await sweep_all(files) == Swept()

    @pytest.mark.parametrize("size", [1, PIECE, 3 * PIECE + 1])
    @pytest.mark.parametrize("wrong", ["sha256", "shorter", "longer"])
    async def test_an_object_that_is_not_what_was_put_is_an_error(
        self, files: FileStore, size: int, wrong: str
    ) -> None:
        """[F10] Neither a wrong hash nor a wrong size passes, and the last piece never comes."""
        stored = await files.put(A, chunks(os.urandom(size)))
        told = StoredObject(
            name=stored.name,
            sha256="0" * 64 if wrong == "sha256" else stored.sha256,
            size_bytes=size + {"sha256": 0, "shorter": -1, "longer": 1}[wrong],
        )
        given = 0

        async def take() -> None:
            nonlocal given
            async for piece in files.read(A, told):
                given += len(piece)

        with pytest.raises(StoreError, match="damaged"):
            await take()
        assert given < size

    async def test_a_deleted_object_is_gone(self, files: FileStore) -> None:
        """[F11] Reading it is an error, deleting it again is none."""
        stored = await files.put(A, chunks(b"x"))
        await files.delete(A, stored.name)
        await files.delete(A, stored.name)
        with pytest.raises(StoreError, match="missing"):
            await read(files, stored)

    async def test_a_sweep_takes_what_nobody_uses(self, files: FileStore) -> None:
        """[F12] It keeps what is in use or young, and tells what it took."""
        ours = await files.put(A, chunks(b"ours"))
        await files.put(A, chunks(b"garbage"))
        await files.put(B, chunks(b"more"))

        async def unasked(tenant_key: str, names: Collection[str]) -> set[str]:
            raise AssertionError("nothing is old")

        young = await files.sweep(unasked, before=identity.now() - timedelta(hours=1))
        assert young == Swept()
        assert await sweep_all(files, keep=[ours.name]) == Swept(objects=2, size_bytes=11)
        assert await read(files, ours) == b"ours"
        assert await sweep_all(files, keep=[ours.name]) == Swept()

    async def test_a_closed_store_is_an_error(self, files: FileStore) -> None:
        """[F13] Each call after `aclose` says so, and closing again does nothing."""
        stored = await files.put(A, chunks(b"x"))
        await files.aclose()
        await files.aclose()
        for call in (files.put(A, chunks(b"y")), read(files, stored), files.delete(A, "x")):
            with pytest.raises(StoreError, match="closed"):
                await call
        with pytest.raises(StoreError, match="closed"):
            await sweep_all(files)

"""Rules F1 to F6: the rows of files, for any `ThreadStore`."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.conformance.store_values import AT, A, B, Stores
from turngate.errors import FileNotFound, InvalidValue
from turngate.protocols import ThreadStore
from turngate.records import FileRecord
from turngate.values import FileRef


def file_record(id: str = "file_1", *, sha256: str = "ab" * 32, object: str = "o-1") -> FileRecord:
    """A record with both types."""
    return FileRecord(
        ref=FileRef(id=id, name="a/ü.md", media_type="text/x", size_bytes=3, sha256=sha256),
        object=object,
        created_at=AT,
        claimed_type="text/x",
        sniffed_type="text/plain",
    )


async def listed(store: ThreadStore, *, limit: int = 50) -> list[str]:
    """The ids of all files of A, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await store.files(A, after=cursor, limit=limit)
        found += [record.ref.id for record in page.files]
        cursor = page.next
        if cursor is None:
            return found
        assert len(page.files) == limit


class FileRowRules:
    """Rows, without an object behind them."""

    async def test_a_file_is_read_as_it_was_added(self, stores: Stores) -> None:
        """[F1] Every field comes back, also from the next store on the same data."""
        store = await stores.open()
        plain = msgspec.structs.replace(file_record("f2"), claimed_type=None, sniffed_type=None)
        assert await store.add_file(A, file_record())
        assert await store.add_file(A, plain)
        await store.aclose()
        store = await stores.open()
        assert await store.file(A, "file_1") == file_record()
        assert await store.file(A, "f2") == plain

    async def test_an_id_is_taken_once(self, stores: Stores) -> None:
        """[F1] The same id again is refused, shared or not, and the first record stays."""
        store = await stores.open()
        await store.add_file(A, file_record())
        for shared in (False, True):
            with pytest.raises(InvalidValue, match="file_1"):
                await store.add_file(A, file_record(sha256="cd" * 32), shared=shared)
        assert await store.file(A, "file_1") == file_record()

    @pytest.mark.parametrize("file_id", ["", "a\0b", "\ud800"])
    async def test_an_id_that_no_column_holds_is_refused(
        self, stores: Stores, file_id: str
    ) -> None:
        """[F1] What is no text for a database is an error before it is touched."""
        store = await stores.open()
        with pytest.raises(InvalidValue):
            await store.add_file(A, file_record(file_id))

    async def test_another_tenants_file_does_not_exist(self, stores: Stores) -> None:
        """[F2] By id, by hash, by object and by listing, and it can't be removed."""
        store = await stores.open()
        await store.add_file(A, file_record())
        for scope, file_id in ((B, "file_1"), (A, "file_2")):
            with pytest.raises(FileNotFound):
                await store.file(scope, file_id)
            with pytest.raises(FileNotFound):
                await store.remove_file(scope, file_id)
        assert (await store.files(B)).files == ()
        assert await store.file_of_bytes(B, "ab" * 32) is None
        assert await store.objects_in_use(B, ["o-1"]) == set()
        assert not await store.add_file(B, file_record("mine"), shared=True)
        await store.add_file(B, file_record(object="o-2"))
        assert (await store.file(A, "file_1")).object == "o-1"

    @pytest.mark.parametrize("limit", [1, 3, 7, 8, 1000])
    async def test_files_are_listed_newest_first(self, stores: Stores, limit: int) -> None:
        """[F3] Pages of any size put together are the whole listing, whatever the clock says."""
        store = await stores.open()
        for number in range(7):
            await store.add_file(A, file_record(f"f{number}"))
        await store.remove_file(A, "f3")
        assert await listed(store, limit=limit) == ["f6", "f5", "f4", "f2", "f1", "f0"]

    async def test_an_impossible_page_of_files_is_refused(self, stores: Stores) -> None:
        """[F3] A limit outside 1 to 1000, and a cursor that no listing gave."""
        store = await stores.open()
        for limit in (0, 1001):
            with pytest.raises(InvalidValue):
                await store.files(A, limit=limit)
        with pytest.raises(InvalidValue):
            await store.files(A, after="nonsense")

    async def test_the_last_file_of_an_object_says_so(self, stores: Stores) -> None:
        """[F4] Removing gives the record just where the object has no file any more."""
        store = await stores.open()
        await store.add_file(A, file_record("f1"))
        await store.add_file(A, file_record("f2"), shared=True)
        await store.add_file(A, file_record("f3", object="o-2"))
        assert await store.objects_in_use(A, ["o-1", "o-2", "o-3"]) == {"o-1", "o-2"}
        assert await store.remove_file(A, "f1") is None
        assert await store.remove_file(A, "f2") == file_record("f2")
        with pytest.raises(FileNotFound):
            await store.remove_file(A, "f2")
        assert await store.objects_in_use(A, ["o-1", "o-2"]) == {"o-2"}

    async def test_of_many_removals_one_succeeds(self, stores: Stores) -> None:
        """[F4] A file is removed once, and of the files of an object one is the last."""
        store = await stores.open()
        for number in range(4):
            await store.add_file(A, file_record(f"f{number}"))
        removals = [store.remove_file(A, f"f{number % 4}") for number in range(8)]
        found = await asyncio.gather(*removals, return_exceptions=True)
        assert sum(isinstance(each, FileNotFound) for each in found) == 4
        assert sum(isinstance(each, FileRecord) for each in found) == 1

    async def test_an_object_is_shared_only_while_a_file_has_it(self, stores: Stores) -> None:
        """[F5] After its last file nobody comes to it, and nothing is stored."""
        store = await stores.open()
        await store.add_file(A, file_record("f1"))
        assert await store.file_of_bytes(A, "ab" * 32) == file_record("f1")
        await store.remove_file(A, "f1")
        assert not await store.add_file(A, file_record("f2"), shared=True)
        assert await store.file_of_bytes(A, "ab" * 32) is None
        assert await listed(store) == []

    async def test_sharing_and_removing_at_once_leave_no_file_without_its_object(
        self, stores: Stores
    ) -> None:
        """[F5] Either the sharer came first and the object stays, or it is told to keep its own."""
        store = await stores.open(commit_s=0.002)
        for number in range(10):
            old, new = f"old{number}", f"new{number}"
            await store.add_file(A, file_record(old))
            calls = [store.remove_file(A, old), store.add_file(A, file_record(new), shared=True)]
            removed, added = await asyncio.gather(*(calls if number % 2 else reversed(calls)))
            if not number % 2:
                removed, added = added, removed
            assert (removed is None) == added
            if added:
                await store.remove_file(A, new)

    async def test_tenants_with_files_are_those_that_have_one(self, stores: Stores) -> None:
        """[F6] A tenant is named once, and not after its last file."""
        store = await stores.open()
        assert list(await store.tenants_with_files()) == []
        for file_id in ("f1", "f2"):
            await store.add_file(A, file_record(file_id))
        await store.add_file(B, file_record())
        assert set(await store.tenants_with_files()) == {A, B}
        await store.remove_file(B, "file_1")
        assert list(await store.tenants_with_files()) == [A]

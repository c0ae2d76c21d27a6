"""A tenant's files through a gateway, in a real folder beside a real database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.files.support import age, gateway_over, objects_in, uploads_in
from tests.integration.stores.raw import entries
from turngate import open_gateway
from turngate.errors import FileNotFound, InvalidValue, RequestError, StoreError
from turngate.files import ObjectFiles
from turngate.files import objects as objects_module
from turngate.gateway import files as files_module
from turngate.records import Scope, StoredObject, Swept
from turngate.testing import ScriptedProvider

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


async def test_bytes_a_path_and_an_iterator_are_the_same_file(tmp_path: Path) -> None:
    """However the bytes come, they are there once, and each file has its own pointer."""
    source = tmp_path / "source.bin"
    data = os.urandom(3_000_000)
    source.write_bytes(data)
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        refs = [
            await files.put(data, name="a"),
            await files.put(source, name="b"),
            await files.put(pieces(data[:7], data[7:2_000_000], data[2_000_000:]), name="c"),
            await files.put(memoryview(data), name="d"),
        ]
        assert len({ref.id for ref in refs}) == 4
        assert len({(ref.sha256, ref.size_bytes) for ref in refs}) == 1
        for ref in refs:
            assert await files.get(ref.id) == data
    assert list(objects_in(tmp_path).values()) == [data]
    assert uploads_in(tmp_path) == []


async def test_nothing_is_made_before_the_first_put(tmp_path: Path) -> None:
    """A program without files has no folder for them."""
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        assert (await files.list()).files == ()
        assert await gateway.sweep_files() == Swept()
    assert not (tmp_path / "t.db.files").exists()


@pytest.mark.parametrize(
    ("data", "claimed", "told", "sniffed"),
    [
        (PNG, None, "image/png", "image/png"),
        (PNG, "text/plain", "text/plain", "image/png"),
        (b"# Title", "text/markdown; charset=utf-8", "text/markdown; charset=utf-8", "text/plain"),
        (b"\x00\x01", None, "application/octet-stream", None),
        (b"", None, "application/octet-stream", None),
    ],
)
async def test_the_claimed_type_stands_beside_the_sniffed_one(
    tmp_path: Path, data: bytes, claimed: str | None, told: str, sniffed: str | None
) -> None:
    """The pointer has the claim, else what the bytes say, else nothing special."""
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        ref = await files.put(data, name="x", media_type=claimed)
        record = await files.record(ref.id)
        assert ref.media_type == told
        assert (record.ref, record.claimed_type, record.sniffed_type) == (ref, claimed, sniffed)
        assert (await files.list()).files == (record,)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs", "a/b\\c", "..", "ü\u202e", "C:"])
async def test_a_name_is_display_text_and_no_place(tmp_path: Path, name: str) -> None:
    """Any name is kept as it is, and no file of that name is made anywhere."""
    async with gateway_over(tmp_path) as gateway:
        ref = await gateway.tenant("../..").files.put(b"x", name=name)
        assert ref.name == name
    made = {path.name for path in entries(tmp_path)}
    assert made == {"t.db", "t.db.lock", "t.db.files"}
    assert list(objects_in(tmp_path).values()) == [b"x"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"name": None},
        {"name": "x", "media_type": "no type"},
        {"name": "x", "media_type": "text/plain\nX: 1"},
        {"name": "x", "data": "text"},
        {"name": "x", "data": Path("/does/not/exist")},
        {"name": "x", "data": Path("/")},
        {"name": "x", "data": pieces(b"x", "text")},  # type: ignore[arg-type]
        {"name": "x", "data": pieces(bytes(600), bytes(401))},
        {"name": "x", "data": bytes(1001)},
    ],
)
async def test_what_is_no_file_is_refused_and_leaves_nothing(
    tmp_path: Path, arguments: dict[str, object]
) -> None:
    """A name, a type or bytes outside their form are an error that names it."""
    async with gateway_over(tmp_path, bytes_max=1000) as gateway:
        files = gateway.tenant("acme").files
        with pytest.raises(InvalidValue):
            await files.put(**{"data": b"x", **arguments})  # type: ignore[arg-type]
        assert (await files.list()).files == ()
        assert (await files.put(bytes(1000), name="just")).size_bytes == 1000
    assert len(objects_in(tmp_path)) == 1
    assert uploads_in(tmp_path) == []


async def test_no_tenant_sees_anothers_file(tmp_path: Path) -> None:
    """Equal bytes of two tenants are two objects, and neither's id means anything to the other."""
    async with gateway_over(tmp_path) as gateway:
        acme, bolt = gateway.tenant("acme").files, gateway.tenant("bolt").files
        ours, theirs = await acme.put(b"same", name="a"), await bolt.put(b"same", name="b")
        assert len(objects_in(tmp_path)) == 2
        for call in (bolt.get(ours.id), bolt.record(ours.id), bolt.delete(ours.id)):
            with pytest.raises(FileNotFound):
                await call
        assert [record.ref for record in (await bolt.list()).files] == [theirs]
        await bolt.delete(theirs.id)
        assert await acme.get(ours.id) == b"same"


async def test_shared_bytes_go_with_their_last_file(tmp_path: Path) -> None:
    """A delete removes the file at once, and the bytes when nobody else has them."""
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        one, two = await files.put(b"same", name="a"), await files.put(b"same", name="b")
        await files.delete(one.id)
        with pytest.raises(FileNotFound):
            await files.get(one.id)
        with pytest.raises(FileNotFound):
            await files.delete(one.id)
        assert await files.get(two.id) == b"same"
        await files.delete(two.id)
        assert objects_in(tmp_path) == {}


async def test_puts_and_deletes_of_the_same_bytes_lose_nothing(tmp_path: Path) -> None:
    """Whatever the order of the steps, a file that was acknowledged has its bytes."""
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files

        async def churn(number: int) -> str:
            for _ in range(6):
                ref = await files.put(b"same", name=f"{number}")
                await asyncio.sleep(0)
                assert await files.get(ref.id) == b"same"
                await files.delete(ref.id)
            return (await files.put(b"same", name=f"{number}")).id

        kept = await asyncio.gather(*(churn(number) for number in range(6)))
        for file_id in kept:
            assert await files.get(file_id) == b"same"
        for file_id in kept:
            await files.delete(file_id)
        age(tmp_path)
        await gateway.sweep_files()
    assert objects_in(tmp_path) == {}


async def test_damage_is_an_error_and_the_file_can_be_put_again(tmp_path: Path) -> None:
    """Wrong bytes are never given, and a new put of the right ones does not rest on them."""
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        ref = await files.put(b"good bytes", name="a")
        (name,) = objects_in(tmp_path)
        (place,) = (tmp_path / "t.db.files/objects").glob(f"*/{name}")
        for damage in (b"bad. bytes", b"good byte", b"good bytes.", b""):
            place.write_bytes(damage)
            with pytest.raises(StoreError, match="damaged"):
                await files.get(ref.id)
        again = await files.put(b"good bytes", name="a")
        assert await files.get(again.id) == b"good bytes"
        place.unlink()
        with pytest.raises(StoreError, match="missing"):
            await files.get(ref.id)


async def test_a_file_deleted_while_it_is_read_is_not_found(tmp_path: Path) -> None:
    """The reader is told what happened to the file, and not what happened to its bytes."""

    class SlowFiles(ObjectFiles):
        async def read(self, scope: Scope, stored: StoredObject) -> AsyncIterator[bytes]:
            await files.delete(ref.id)
            async for piece in super().read(scope, stored):
                yield piece

    async with gateway_over(tmp_path, files=SlowFiles(tmp_path / "t.db.files")) as gateway:
        files = gateway.tenant("acme").files
        ref = await files.put(b"x", name="a")
        with pytest.raises(FileNotFound):
            await files.get(ref.id)


async def test_a_gateway_without_a_file_store_says_so(tmp_path: Path) -> None:
    """A file store of nobody takes no file."""
    async with gateway_over(tmp_path) as gateway:
        object.__setattr__(gateway.deps, "files", None)
        with pytest.raises(RequestError, match="no file store"):
            await gateway.tenant("acme").files.put(b"x", name="a")


async def test_a_reading_gateway_reads_files_and_takes_none(tmp_path: Path) -> None:
    """Beside a writer the files can be read, and an upload leaves no row."""
    async with gateway_over(tmp_path) as gateway:
        ref = await gateway.tenant("acme").files.put(b"x", name="a")
        async with open_gateway(tmp_path / "t.db", read_only=True) as reader:
            files = reader.tenant("acme").files
            assert await files.get(ref.id) == b"x"
            with pytest.raises(StoreError, match="reading only"):
                await files.put(b"y", name="b")
            with pytest.raises(StoreError, match="reading only"):
                await files.delete(ref.id)


async def test_the_folder_is_beside_the_database_whatever_name_opened_it(tmp_path: Path) -> None:
    """A link to the database leads to the same files."""
    async with gateway_over(tmp_path) as gateway:
        ref = await gateway.tenant("acme").files.put(b"x", name="a")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/other.db").symlink_to(tmp_path / "t.db")
    async with open_gateway(tmp_path / "links/other.db", provider=ScriptedProvider()) as gateway:
        assert await gateway.tenant("acme").files.get(ref.id) == b"x"


@pytest.mark.parametrize("url", ["ftp://x/y", "s3://", "://"])
async def test_a_url_that_names_no_store_is_refused(tmp_path: Path, url: str) -> None:
    """What obstore does not know is told by its name."""
    async with gateway_over(tmp_path, files=url) as gateway:
        with pytest.raises((InvalidValue, StoreError)):
            await gateway.tenant("acme").files.put(b"x", name="a")


async def test_a_folder_below_none_is_told_as_such(tmp_path: Path) -> None:
    """Only the last folder of the path is made; that others miss is no damage."""
    async with gateway_over(tmp_path, files=str(tmp_path / "a/b/c")) as gateway:
        with pytest.raises(StoreError, match=r"no folder .*/a/b for the file store"):
            await gateway.tenant("acme").files.put(b"x", name="a")
    assert not (tmp_path / "a").exists()


# ── sweeping ─────────────────────────────────────────────────────────────────────────────────


async def test_a_sweep_takes_what_crashes_left_and_nothing_else(tmp_path: Path) -> None:
    """[F12] Old objects without a file go, of any tenant, and old uploads of any name."""
    async with gateway_over(tmp_path) as gateway:
        kept = await gateway.tenant("acme").files.put(b"kept", name="a")
        folder = tmp_path / "t.db.files"
        acme = next(folder.glob("objects/*"))
        (acme / "orphan").write_bytes(b"12345")
        (folder / "objects/unknown").mkdir()
        (folder / "objects/unknown/orphan").write_bytes(b"123")
        (folder / "uploads/0af").write_bytes(b"12")
        (folder / "uploads/0af#1").write_bytes(b"1")
        assert await gateway.sweep_files() == Swept()  # all of it is young
        age(tmp_path)
        (folder / "uploads/young").write_bytes(b"1")
        assert await gateway.sweep_files() == Swept(objects=2, uploads=2, size_bytes=11)
        assert await gateway.sweep_files() == Swept()
        assert await gateway.tenant("acme").files.get(kept.id) == b"kept"
        assert [path.name for path in uploads_in(tmp_path)] == ["young"]


@pytest.mark.parametrize("age_s", [0.0, 3599.0, -1.0, float("nan")])
async def test_a_sweep_spares_what_may_be_under_way(tmp_path: Path, age_s: float) -> None:
    """[F12] An age at which a put could still store its row is refused."""
    async with gateway_over(tmp_path) as gateway:
        with pytest.raises(InvalidValue):
            await gateway.sweep_files(older_than_s=age_s)


async def test_a_put_gives_up_before_a_sweep_can_take_its_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[F12] A put that took too long stores no row, since its object may be gone by then."""
    monkeypatch.setattr(files_module, "ROW_WITHIN_S", -1.0)
    async with gateway_over(tmp_path) as gateway:
        files = gateway.tenant("acme").files
        with pytest.raises(StoreError, match="too long"):
            await files.put(b"x", name="a")
        assert (await files.list()).files == ()


# ── a failing disk ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("failing", range(1, 8))
async def test_an_fsync_that_fails_is_an_error_and_leaves_nothing(
    tmp_path: Path, failing: int
) -> None:
    """[F15] Whichever sync of a put fails, no file is stored, no bytes stay, the next put works."""
    synced = 0

    def fsync(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        if synced == failing:
            raise OSError(5, "Input/output error")

    store = ObjectFiles(tmp_path / "t.db.files", fsync=fsync)
    async with gateway_over(tmp_path, files=store) as gateway:
        files = gateway.tenant("acme").files
        with pytest.raises(StoreError, match="Input/output error"):
            await files.put(b"x", name="a")
        assert len((await files.list()).files) == len(objects_in(tmp_path)) == 0
        assert uploads_in(tmp_path) == []
        ref = await files.put(b"x", name="a")
        assert await files.get(ref.id) == b"x"


async def test_bytes_and_places_are_synced_before_the_row(tmp_path: Path) -> None:
    """[F15] File, then new folders, then the folder of the object; all of it before the row."""
    order: list[str] = []

    def fsync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)
        order.append("/".join(place.parts[:2]) if "uploads" in place.parts else str(place))

    async with gateway_over(
        tmp_path, files=ObjectFiles(tmp_path / "t.db.files", fsync=fsync)
    ) as gateway:
        add_file = gateway.deps.store.add_file

        async def noted(*arguments: object, **more: object) -> bool:
            order.append("row")
            return await add_file(*arguments, **more)  # type: ignore[arg-type]

        gateway.deps.store.add_file = noted  # type: ignore[method-assign]
        await gateway.tenant("acme").files.put(b"x", name="a")
        (home,) = (tmp_path / "t.db.files/objects").iterdir()
    root = "t.db.files"
    assert order == [
        *(".", root),  # the root's own entry, and that of the uploads
        f"{root}/uploads",  # the bytes
        *(".", root, f"{root}/objects"),
        f"{root}/objects/{home.name}",
        "row",
    ]


_FULL_DISK = """
import asyncio, resource, signal, sys
from turngate import open_gateway
from turngate.errors import StoreError
from turngate.testing import ScriptedProvider

async def main():
    async with open_gateway(sys.argv[1], provider=ScriptedProvider()) as gateway:
        files = gateway.tenant("acme").files
        kept = await files.put(b"kept", name="a")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000_000, resource.RLIM_INFINITY))
        for size in (10_000_000, 30_000_000):
            try:
                await files.put(bytes(size), name="b")
            except StoreError as error:
                print("StoreError", len((await files.list()).files))
        print((await files.get(kept.id)).decode())

asyncio.run(main())
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """[F15] The system refuses to write on: a typed error, no file, no bytes, and life goes on."""
    ended = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path / "t.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.splitlines() == ["StoreError 1", "StoreError 1", "kept"], ended.stderr
    assert list(objects_in(tmp_path).values()) == [b"kept"]
    assert uploads_in(tmp_path) == []


async def test_files_without_obstore_name_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was installed without the part is told how to get it."""
    monkeypatch.setattr(objects_module, "find_spec", lambda name: None)
    async with gateway_over(tmp_path) as gateway:
        with pytest.raises(RequestError, match="obstore") as raised:
            await gateway.tenant("acme").files.put(b"x", name="a")
        assert raised.value.hint == "pip install 'turngate[files]'"

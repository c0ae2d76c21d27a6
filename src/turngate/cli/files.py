"""``files``: list and get them beside a running process; put, delete and sweep without one."""

from __future__ import annotations

import asyncio
import mimetypes
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import IO, TypeVar

from turngate import identity
from turngate.bootstrap import open_gateway
from turngate.cli.failures import WrongUsage
from turngate.cli.show import NoModel, local_time, read
from turngate.cli.terminal import json_shape, out_console, print_json, print_table, say
from turngate.gateway import Files, Gateway
from turngate.values import FileRef

__all__ = ["run_delete", "run_get", "run_list", "run_put", "run_sweep"]

T = TypeVar("T")

_PIECE_BYTES = 1 << 20


def run_list(*, db: str, tenant: str, limit: int, after: str | None, as_json: bool) -> int:
    page = read(db, lambda gateway: gateway.tenant(tenant).files.list(after=after, limit=limit))
    if as_json:
        print_json(json_shape(page))
        return 0
    console = out_console()
    if not page.files:
        say(console, (f"No files of tenant {tenant!r} here.", "dim"))
        return 0
    rows = (
        (r.ref.id, r.ref.name, r.ref.media_type, f"{r.ref.size_bytes:,}", local_time(r.created_at))
        for r in page.files
    )
    print_table(console, ("file", "name", "type", "bytes", "put"), rows)
    if page.next is not None:
        say(console, (f"More: --after {page.next}", "dim"))
    return 0


def run_put(
    *,
    db: str,
    tenant: str,
    path: str,
    name: str | None,
    media_type: str | None,
    files: str | None,
    as_json: bool,
) -> int:
    if path == "-" and name is None:
        raise WrongUsage("what comes from stdin needs a name", hint="Give it with --name.")
    name = name if name is not None else Path(path).name
    claimed = media_type if media_type is not None else mimetypes.guess_type(name)[0]

    async def put(gateway: Gateway) -> FileRef:
        of_tenant = gateway.tenant(tenant).files
        data = _stdin() if path == "-" else Path(path)
        return await of_tenant.put(data, name=name, media_type=claimed)

    if path != "-" and not Path(path).is_file():
        raise WrongUsage(f"there is no file {path}")  # before a database is made for it
    ref = _write(db, files, put)
    if as_json:
        print_json(json_shape(ref))
    else:
        say(out_console(), ref.id, (f"   {ref.media_type} · {ref.size_bytes:,} bytes", "dim"))
    return 0


def run_get(*, db: str, tenant: str, file: str, out: str | None, files: str | None) -> int:
    if out is None and sys.stdout.isatty():
        raise WrongUsage("bytes do not belong on a terminal", hint="Name a path with --out.")
    asyncio.run(_got(db, tenant, file, out, files))
    return 0


def run_delete(*, db: str, tenant: str, file: str, files: str | None, as_json: bool) -> int:
    # First to read: a wrong name makes no database.
    record = read(db, lambda gateway: gateway.tenant(tenant).files.record(file))
    _write(db, files, lambda gateway: gateway.tenant(tenant).files.delete(file))
    if as_json:
        print_json({"deleted": json_shape(record.ref)})
    else:
        say(out_console(), f"{record.ref.id} is deleted")
    return 0


def run_sweep(*, db: str, files: str | None, older_than: float, as_json: bool) -> int:
    read(db, lambda gateway: gateway.deps.store.tenants_with_files())
    swept = _write(db, files, lambda gateway: gateway.sweep_files(older_than_s=older_than * 3600))
    if as_json:
        print_json(json_shape(swept))
    else:
        say(
            out_console(),
            f"Removed {swept.objects} objects without a file and {swept.uploads} unfinished"
            f" uploads, {swept.size_bytes:,} bytes.",
        )
    return 0


def _write(db: str, files: str | None, work: Callable[[Gateway], Awaitable[T]]) -> T:
    """What `work` gives, through a gateway that may write and asks no model."""

    async def writing() -> T:
        async with open_gateway(db, provider=NoModel(), files=files, resume=False) as gateway:
            return await work(gateway)

    return asyncio.run(writing())


async def _got(db: str, tenant: str, file: str, out: str | None, files: str | None) -> None:
    async with open_gateway(db, read_only=True, files=files) as gateway:
        of_tenant = gateway.tenant(tenant).files
        await of_tenant.record(file)
        if out is None:
            await _copy(of_tenant, file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        # Beside it first: what stands under the name is whole, or what stood there before.
        beside = Path(out).with_name(f".{identity.new_id('turngate')}")
        try:
            with beside.open("xb") as target:
                await _copy(of_tenant, file, target)
            beside.replace(out)
        except OSError as error:
            raise WrongUsage(f"can't write {out}: {error.strerror}") from error
        finally:
            beside.unlink(missing_ok=True)


async def _copy(files: Files, file: str, target: IO[bytes]) -> None:
    async with aclosing(files.open(file)) as pieces:
        async for piece in pieces:
            target.write(piece)


async def _stdin() -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(sys.stdin.buffer.read, _PIECE_BYTES):
        yield piece

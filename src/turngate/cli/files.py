"""``files``: list and get them beside a running process; put, delete and sweep without one."""

from __future__ import annotations

import asyncio
import mimetypes
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import IO

from turngate import identity
from turngate.cli.failures import WrongUsage
from turngate.cli.show import local_time, read, write
from turngate.cli.terminal import json_shape, out_console, print_json, print_list, say
from turngate.gateway import Files, Gateway
from turngate.values import FileRef

_PIECE_BYTES = 1 << 20


def run_list(*, db: str, tenant: str, limit: int, after: str | None, as_json: bool) -> None:
    page = read(db, lambda gateway: gateway.tenant(tenant).files.list(after=after, limit=limit))
    if as_json:
        print_json(json_shape(page))
        return
    rows = (
        (r.ref.id, r.ref.name, r.ref.media_type, f"{r.ref.size_bytes:,}", local_time(r.created_at))
        for r in page.files
    )
    head = ("file", "name", "type", "bytes", "put")
    empty = f"No files of tenant {tenant!r} here."
    print_list(out_console(), head, rows, empty=empty, after=page.next)


def run_put(
    *,
    db: str,
    tenant: str,
    path: str,
    name: str | None,
    media_type: str | None,
    files: str | None,
    as_json: bool,
) -> None:
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
    ref = write(db, put, files=files)
    if as_json:
        print_json(json_shape(ref))
    else:
        say(out_console(), ref.id, (f"   {ref.media_type} · {ref.size_bytes:,} bytes", "dim"))


def run_get(*, db: str, tenant: str, file: str, out: str | None, files: str | None) -> None:
    if out is None and sys.stdout.isatty():
        raise WrongUsage("bytes do not belong on a terminal", hint="Name a path with --out.")

    async def load(gateway: Gateway) -> None:
        of_tenant = gateway.tenant(tenant).files
        await of_tenant.record(file)
        if out is None:
            await _copy(of_tenant, file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            await _copy_whole(of_tenant, file, Path(out))

    read(db, load, files=files)


def run_delete(*, db: str, tenant: str, file: str, files: str | None, as_json: bool) -> None:
    # First to read: a wrong name makes no database.
    record = read(db, lambda gateway: gateway.tenant(tenant).files.record(file))
    write(db, lambda gateway: gateway.tenant(tenant).files.delete(file), files=files)
    if as_json:
        print_json({"deleted": json_shape(record.ref)})
    else:
        say(out_console(), f"{record.ref.id} is deleted")


def run_sweep(*, db: str, files: str | None, older_than: float, as_json: bool) -> None:
    read(db, lambda gateway: gateway.deps.store.tenants_with_files())
    swept = write(
        db, lambda gateway: gateway.sweep_files(older_than_s=older_than * 3600), files=files
    )
    if as_json:
        print_json(json_shape(swept))
        return
    say(
        out_console(),
        f"Removed {swept.objects} objects without a file and {swept.uploads} unfinished"
        f" uploads, {swept.size_bytes:,} bytes.",
    )


async def _copy_whole(files: Files, file: str, out: Path) -> None:
    # Beside it first: what stands under the name is whole, or what stood there before.
    beside = out.with_name(f".{identity.new_id('turngate')}")
    try:
        with beside.open("xb") as target:
            await _copy(files, file, target)
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

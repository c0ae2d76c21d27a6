"""``threads`` and ``show``: they open the file to read, also beside a program that writes it."""

from __future__ import annotations

from turngate.bootstrap import open_gateway
from turngate.cli.loop import LoopThread
from turngate.cli.rendering import print_threads, print_turns
from turngate.cli.shapes import json_text, thread_page_shape, turn_page_shape
from turngate.cli.terminal import out_console
from turngate.records import ThreadPage, ThreadRecord, TurnPage

__all__ = ["read_thread", "run_show", "run_threads"]


def run_threads(*, db: str, tenant: str, limit: int, after: str | None, as_json: bool) -> int:
    async def load() -> ThreadPage:
        async with open_gateway(db, read_only=True) as gateway:
            return await gateway.tenant(tenant).threads(after=after, limit=limit)

    with LoopThread() as loop:
        page = loop.wait(load())
    if as_json:
        print(json_text(thread_page_shape(page)))
    else:
        print_threads(out_console(), page, tenant=tenant)
    return 0


def run_show(
    *, db: str, tenant: str, thread: str, limit: int, before: int | None, as_json: bool
) -> int:
    with LoopThread() as loop:
        record, page = loop.wait(
            read_thread(db=db, tenant=tenant, thread=thread, limit=limit, before=before)
        )
    if as_json:
        print(json_text(turn_page_shape(record, page)))
    else:
        print_turns(out_console(), record, page, tenant=tenant)
    return 0


async def read_thread(
    *, db: str, tenant: str, thread: str, limit: int = 50, before: int | None = None
) -> tuple[ThreadRecord, TurnPage]:
    """A thread and a page of its turns, through a gateway that only reads.

    Errors: `ThreadNotFound`, `StoreError`.
    """
    async with open_gateway(db, read_only=True) as gateway:
        handle = gateway.tenant(tenant).thread(thread)
        record = await handle.record()
        return record, await handle.turns(before=before, limit=limit)

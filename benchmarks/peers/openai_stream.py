"""The streams of benchmarks/stream.py read by the `openai` package, as `benchmarks.peer` asks.

Questions have `url` (a base URL), or `kind`, `count` and `block` for a stream without a socket;
`streams` is how many are read at a time.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.payloads import blocks, text_events, tool_events

openai: Any = importlib.import_module("openai")
httpx2: Any = importlib.import_module("httpx2")


async def _read(client: Any) -> int:
    """How many chunks with a piece of text or of a call came."""
    stream = await client.chat.completions.create(
        model="a-model", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    chunks = 0
    async for chunk in stream:
        delta = chunk.choices[0].delta
        if delta.content or delta.tool_calls:
            chunks += 1
    return chunks


def _client(question: dict[str, Any]) -> Any:
    if "url" in question:
        return openai.AsyncOpenAI(api_key="none", base_url=question["url"], max_retries=0)
    events = (tool_events if question["kind"] == "tools" else text_events)(question["count"])
    reads = blocks(events, question["block"])

    async def body() -> AsyncIterator[bytes]:
        for read in reads:
            yield read

    async def answer(request: Any) -> Any:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=body())

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://peer.test/v1", http_client=http, max_retries=0
    )


async def _measured(question: dict[str, Any]) -> dict[str, float]:
    async with _client(question) as client:
        gc.collect()
        begun = time.process_time()
        counts = await asyncio.gather(*(_read(client) for _ in range(question["streams"])))
        return {"cpu_us": 1e6 * (time.process_time() - begun) / sum(counts), "chunks": sum(counts)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_measured(json.loads(line)))), flush=True)

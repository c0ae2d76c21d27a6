"""The window of benchmarks/convert.py by the `pydantic-ai-slim` package, as `benchmarks.peer` asks.

Questions have `turns` and `repeats`. Its messages are stored as one JSON array, which is read by
its own adapter; its model for Chat Completions maps them, and the body is encoded as the `openai`
client does it, without what that client does before.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import time
from typing import Any

from benchmarks.payloads import ANSWER, ARGUMENTS, QUESTION, RESULT, TOOL, call_id

ai: Any = importlib.import_module("pydantic_ai.messages")
models: Any = importlib.import_module("pydantic_ai.models")
openai_model: Any = importlib.import_module("pydantic_ai.models.openai")
openai_provider: Any = importlib.import_module("pydantic_ai.providers.openai")


def _stored(turns: int) -> bytes:
    messages = [_message(*divmod(place, 4)) for place in range(turns)]
    stored: bytes = ai.ModelMessagesTypeAdapter.dump_json(messages)
    return stored


def _message(exchange: int, kind: int) -> Any:
    call = call_id(exchange)
    match kind:
        case 0:
            return ai.ModelRequest(parts=[ai.UserPromptPart(content=QUESTION)])
        case 1:
            part = ai.ToolCallPart(tool_name=TOOL, args=ARGUMENTS, tool_call_id=call)
            return ai.ModelResponse(parts=[part], model_name="a-model")
        case 2:
            part = ai.ToolReturnPart(tool_name=TOOL, content=RESULT, tool_call_id=call)
            return ai.ModelRequest(parts=[part])
        case _:
            return ai.ModelResponse(parts=[ai.TextPart(content=ANSWER)], model_name="a-model")


async def _messages(model: Any, stored: bytes) -> list[dict[str, Any]]:
    history = ai.ModelMessagesTypeAdapter.validate_json(stored)
    mapped: list[dict[str, Any]] = await model._map_messages(
        history, models.ModelRequestParameters()
    )
    return mapped


async def _body(model: Any, stored: bytes) -> bytes:
    messages = await _messages(model, stored)
    body = {"model": "a-model", "messages": messages, "stream": True}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


async def _measured(question: dict[str, int]) -> dict[str, float]:
    turns, repeats = question["turns"], question["repeats"]
    provider = openai_provider.OpenAIProvider(base_url="http://peer.test/v1", api_key="none")
    model = openai_model.OpenAIChatModel("a-model", provider=provider)
    stored = _stored(turns)
    roles = [message["role"] for message in await _messages(model, stored)]
    assert roles == ["user", "assistant", "tool", "assistant"] * (turns // 4)
    gc.collect()
    begun = time.process_time()
    for _ in range(repeats):
        await _body(model, stored)
    return {"body": 1e6 * (time.process_time() - begun) / (repeats * turns)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_measured(json.loads(line)))), flush=True)

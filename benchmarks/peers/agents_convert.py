"""The window of benchmarks/convert.py by the `openai-agents` package, as `benchmarks.peer` asks.

Questions have `turns` and `repeats`. The rows are the items that its SQLite session stores, decoded
as the session does it; its model for Chat Completions converts them, and the body is encoded as the
`openai` client does it, without what that client does before.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from typing import Any

from benchmarks.payloads import ANSWER, ARGUMENTS, QUESTION, RESULT, TOOL, call_id

converter: Any = importlib.import_module("agents.models.chatcmpl_converter").Converter
plain: Any = importlib.import_module("agents.util._json")._to_dump_compatible


def _rows(turns: int) -> list[str]:
    return [json.dumps(_item(*divmod(place, 4))) for place in range(turns)]


def _item(exchange: int, kind: int) -> dict[str, Any]:
    call = call_id(exchange)
    match kind:
        case 0:
            return {"role": "user", "content": QUESTION}
        case 1:
            function = {"name": TOOL, "arguments": ARGUMENTS, "call_id": call}
            return {"type": "function_call", "id": f"fc_{exchange}", **function}
        case 2:
            return {"type": "function_call_output", "call_id": call, "output": RESULT}
        case _:
            text = {"type": "output_text", "text": ANSWER, "annotations": []}
            message = {"role": "assistant", "status": "completed", "content": [text]}
            return {"type": "message", "id": f"msg_{exchange}", **message}


def _messages(rows: list[str]) -> list[dict[str, Any]]:
    items = [json.loads(row) for row in rows]
    messages: list[dict[str, Any]] = plain(converter.items_to_messages(items, model="a-model"))
    return messages


def _body(rows: list[str]) -> bytes:
    body = {"model": "a-model", "messages": _messages(rows), "stream": True}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _measured(question: dict[str, int]) -> dict[str, float]:
    turns, repeats = question["turns"], question["repeats"]
    rows = _rows(turns)
    roles = [message["role"] for message in _messages(rows)]
    assert roles == ["user", "assistant", "tool", "assistant"] * (turns // 4)
    gc.collect()
    begun = time.process_time()
    for _ in range(repeats):
        _body(rows)
    return {"body": 1e6 * (time.process_time() - begun) / (repeats * turns)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_measured(json.loads(line))), flush=True)

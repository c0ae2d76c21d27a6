"""A model that says what it is told to, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from turngate.completion import ChatRequest, ModelPart, StreamEnd

__all__ = ["CUT", "Pause", "ScriptStep", "ScriptedProvider"]


class Pause:
    """A step that waits: `seconds`, or until `release()` where seconds is None."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        if self.seconds is not None:
            await asyncio.sleep(self.seconds)
        else:
            await self._released.wait()


CUT: object = object()
"""A step that ends the stream without its `StreamEnd`, as a cut connection does."""

ScriptStep = ModelPart | StreamEnd | Pause | BaseException | object


class ScriptedProvider:
    """A `ChatProvider` that plays one script per request, and the last one again after that.

    Shapes: a script is a sequence of parts, pauses, an exception to raise, `CUT`, and at most one
    `StreamEnd`, without which ``StreamEnd("stop")`` is added. `requests` holds what was asked;
    `closed` counts the streams that have ended, however they ended.
    """

    def __init__(self, *scripts: Sequence[ScriptStep]) -> None:
        if any(isinstance(script, str) for script in scripts):
            raise TypeError("a script is a list of steps: ScriptedProvider(['hello'])")
        self._scripts = scripts if scripts else (["ok"],)
        self.requests: list[ChatRequest] = []
        self.closed = 0

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
        self.requests.append(request)
        try:
            for step in script:
                if isinstance(step, BaseException):
                    raise step
                if step is CUT:
                    return
                if isinstance(step, Pause):
                    await step.wait()
                    continue
                yield step  # type: ignore[misc]  # what is left is a part or the end
                if isinstance(step, StreamEnd):
                    return
            yield StreamEnd("stop")
        finally:
            self.closed += 1

"""A helper model that is scripted by what it is shown, and what its tests look at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from turngate import Gateway, SystemMessage, UserMessage
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.records import CallRecord, FactRecord
from turngate.values import Usage

Told = dict[str, Any]
Answer = str | list[Told] | BaseException


def fact(turn: int, text: str, kind: str = "profile", corrects: str | None = None) -> Told:
    """A fact as a helper tells it."""
    return {"turn": turn, "kind": kind, "text": text, "corrects": corrects}


class Helper:
    """A model for helper calls: `facts` and `summary` are functions of the object that it is given.

    A list is the facts of an answer, a text the answer itself, an exception is raised.
    """

    def __init__(
        self,
        *,
        facts: Callable[[Told], Answer] = lambda told: [],
        summary: Callable[[Told], Answer] = lambda told: "so far",
        finish: str = "stop",
    ) -> None:
        self.facts = facts
        self.summary = summary
        self.finish = finish
        self.requests: list[ChatRequest] = []

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        self.requests.append(request)
        given = self.given[-1]
        answer = self.facts(given) if request.output is not None else self.summary(given)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, list):
            answer = json.dumps({"facts": answer})
        yield answer
        yield StreamEnd(self.finish, usage=Usage(input_tokens=5, output_tokens=2))  # type: ignore[arg-type]

    @property
    def given(self) -> list[Told]:
        """The objects that it was given, each with its own instructions before it."""
        found = []
        for request in self.requests:
            instructions, said = request.messages
            assert isinstance(instructions, SystemMessage)
            assert isinstance(said, UserMessage)
            assert isinstance(said.parts[0], str)
            found.append(json.loads(said.parts[0]))
        return found


async def facts_in(gateway: Gateway, *, tenant: str = "acme", **query: Any) -> list[FactRecord]:
    """The facts of a tenant, oldest first."""
    page = await gateway.tenant(tenant).facts.list(**{"limit": 1000, **query})
    return list(reversed(page.facts))


async def texts_in(gateway: Gateway, **query: Any) -> list[str]:
    return [each.text for each in await facts_in(gateway, **query)]


async def helper_calls(gateway: Gateway, *, tenant: str = "acme") -> list[CallRecord]:
    """The helper calls of a tenant, oldest first."""
    page = await gateway.tenant(tenant).calls(limit=1000)
    return [call for call in reversed(page.calls) if call.kind in ("memory", "facts")]


def notes(request: ChatRequest) -> str:
    """The kept notes in a request, which stand in one user message or in none."""
    found = [
        part
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.parts
        if isinstance(part, str) and part.startswith("[Kept notes.")
    ]
    assert len(found) <= 1
    return found[0] if found else ""

"""The assembler: instructions, window and files as the one request of a call."""

from __future__ import annotations

from turngate.completion import ChatRequest
from turngate.errors import InvalidValue
from turngate.history import paired_history
from turngate.messages import Message, SystemMessage, UserMessage
from turngate.protocols import ContextInput
from turngate.values import Target

__all__ = ["RequestAssembler"]


class RequestAssembler:
    """Builds requests that the endpoint of `target` takes."""

    def __init__(self, *, target: Target | None = None) -> None:
        self._target = target

    def assemble(self, context: ContextInput) -> ChatRequest:
        """One request: the instructions first, then the window with the current turn's files.

        Errors: `InvalidValue` where there is nothing to answer.
        """
        messages = list(context.messages)
        if context.inline_files:
            last = messages[-1] if messages else None
            if isinstance(last, UserMessage):
                messages[-1] = UserMessage((*last.parts, *context.inline_files))
            else:  # the current turn held only files, so it gave no message
                messages.append(UserMessage(tuple(context.inline_files)))
        history = paired_history(messages, target=self._target)
        if not history:
            raise InvalidValue("there is nothing to answer: the thread and the prompt are empty")
        instructions: list[Message] = (
            [SystemMessage(context.instructions)] if context.instructions else []
        )
        return ChatRequest(
            messages=(*instructions, *history),
            tools=context.tools,
            options=context.options,
            model=context.model,
        )

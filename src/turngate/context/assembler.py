"""The assembler: instructions, window, files and steps as the one request of a call."""

from __future__ import annotations

from collections.abc import Sequence

from turngate.completion import ChatRequest
from turngate.context.recall import recalled_messages
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
        """One request: the instructions first, what is recalled, then the window with the current
        turn's files, then what the call has added.

        Errors: `InvalidValue` where there is nothing to answer.
        """
        messages = [*_with_files(context), *context.steps]
        if not paired_history(messages, target=self._target):
            raise InvalidValue("there is nothing to answer: the thread and the prompt are empty")
        if context.recalled is not None:
            messages = [*recalled_messages(context.recalled), *messages]
        history = paired_history(messages, target=self._target)
        instructions: list[Message] = (
            [SystemMessage(context.instructions)] if context.instructions else []
        )
        return ChatRequest(
            messages=(*instructions, *history),
            tools=context.tools,
            options=context.options,
            model=context.model,
        )


def _with_files(context: ContextInput) -> Sequence[Message]:
    """The window with the current turn's files in that turn's message."""
    messages, files = context.messages, context.inline_files
    if not files:
        return messages
    last = messages[-1] if messages and not context.is_silent else None
    if isinstance(last, UserMessage):
        return (*messages[:-1], UserMessage((*last.parts, *files)))
    return (*messages, UserMessage(tuple(files)))  # a turn of files alone gave no message

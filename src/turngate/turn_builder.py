"""TurnBuilder: the converter between what is stored and what the model reads.

The only module that turns one shape into the other. Pure: no I/O, no tenant, no state. Two laws
hold for every input: no pointer is ever in a message, and no byte of a file ever in a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import assert_never

from turngate import identity
from turngate.errors import InvalidMessage, InvalidValue
from turngate.messages import (
    AssistantMessage,
    Content,
    InlineFile,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    checked_messages,
)
from turngate.results import ModelResult
from turngate.turns import (
    FilePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
    TurnStatus,
)
from turngate.values import FileRef, ProviderData, Usage

__all__ = ["TurnBuilder"]


class TurnBuilder:
    """Builds turns from what was said, and messages from turns.

    `new_id` gives the id of a turn and `now` its time; the defaults are fresh ids and the clock.
    """

    def __init__(
        self,
        *,
        new_id: Callable[[], str] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._new_id = new_id if new_id is not None else lambda: identity.new_id("turn")
        self._now = now if now is not None else identity.now

    # ── what was said → turns ────────────────────────────────────────────────────────────────

    def build_user_turn(
        self, *, prompt: str, files: Iterable[FileRef] = (), retry_of: str | None = None
    ) -> Turn:
        """The user's question as a turn: one text part, then one file part per pointer.

        Shapes: an empty prompt gives no text part, since a question can be files alone.
        Source: first seed, buildUserTurn.
        """
        parts: list[Part] = [TextPart(prompt)] if prompt else []
        parts.extend(FilePart(file) for file in files)
        return self._turn("user", parts, retry_of=retry_of)

    def build_assistant_turns(
        self,
        *,
        result: ModelResult,
        run_messages: Sequence[Message] | None = None,
        status: TurnStatus = "complete",
        kept_files: Mapping[str, str] | None = None,
    ) -> list[Turn]:
        """What the model produced, as the turns to store.

        Shapes: without `run_messages` (an ask) exactly one assistant turn, with the text and the
        unexecuted calls of `result`, even if the model said nothing. With them (a run) one turn
        per message in order; the parts come from the messages; inline bytes are dropped, and a
        message left without parts too, but never a tool result: there one line stands in place of
        each file, which names the file's id where `kept_files` has one for that file name.
        `result` gives the model id of every assistant turn, and the usage of the last one, which
        has `status` too.
        Errors: a system message among `run_messages` is an `InvalidMessage`.
        Source: first seed, buildAssistantTurns.
        """
        if run_messages is None:
            parts = _assistant_parts(
                result.text, result.tool_calls, result.reasoning, result.provider_data
            )
            contents: list[tuple[Role, list[Part]]] = [("assistant", parts)]
        else:
            contents = [
                (role, parts)
                for message in checked_messages(run_messages)
                for role, parts in [_turn_content(message, kept_files or {})]
                if parts
            ]
        last = max((i for i, (role, _) in enumerate(contents) if role == "assistant"), default=-1)
        return [
            self._turn(
                role,
                parts,
                model=result.model if role == "assistant" else None,
                usage=result.usage if i == last else None,
                status=status if i == last else "complete",
            )
            for i, (role, parts) in enumerate(contents)
        ]

    def build_tool_turn(self, *, result: ToolResultPart) -> Turn:
        """A tool turn of one result, which a caller's own tool gave."""
        return self._turn("tool", [result])

    def _turn(
        self,
        role: Role,
        parts: Iterable[Part],
        *,
        model: str | None = None,
        usage: Usage | None = None,
        status: TurnStatus = "complete",
        retry_of: str | None = None,
    ) -> Turn:
        created_at = self._now()
        if created_at.utcoffset() is None:
            raise InvalidValue("a turn's time needs a time zone, and this builder's clock has none")
        return Turn(
            id=self._new_id(),
            role=role,
            parts=tuple(parts),
            created_at=created_at,
            model=model,
            usage=usage,
            status=status,
            retry_of=retry_of,
        )

    # ── turns → what the model reads ─────────────────────────────────────────────────────────

    def to_messages(self, turns: Iterable[Turn], *, reasoning: bool = False) -> list[Message]:
        """The messages that a model reads for `turns`, oldest first, without their files.

        Shapes: one message a turn, but one per result of a tool turn; a turn left without parts
        (it held only files, or only reasoning that is not asked for) gives none; a user turn that
        a later one names in `retry_of` gives none.
        Source: first seed, toMessages.
        """
        turns = list(turns)
        retried = {turn.retry_of: place for place, turn in enumerate(turns) if turn.retry_of}
        messages: list[Message] = []
        for place, turn in enumerate(turns):
            parts = turn.parts
            if turn.status == "deleted":
                continue
            if turn.role == "user":
                if retried and retried.get(turn.id, -1) > place:
                    continue
                if len(parts) == 1 and type(parts[0]) is TextPart:
                    messages.append(UserMessage((parts[0].text,)))  # by far the most common turn
                    continue
                texts = tuple(part.text for part in parts if type(part) is TextPart)
                if texts:
                    messages.append(UserMessage(texts))
            elif turn.role == "assistant":
                message = _assistant_message(parts, reasoning=reasoning)
                if message is not None:
                    messages.append(message)
            elif turn.role == "tool":
                for part in parts:
                    if type(part) is ToolResultPart:
                        messages.append(  # noqa: PERF401  # a generator costs more than it saves
                            ToolMessage(
                                call_id=part.call_id,
                                content=part.content,
                                name=part.name,
                                is_error=part.is_error,
                            )
                        )
            else:
                assert_never(turn.role)
        return messages


def _turn_content(message: Message, kept_files: Mapping[str, str]) -> tuple[Role, list[Part]]:
    """The role and parts of the turn for `message`; no parts: it is not stored."""
    match message:
        case UserMessage(parts):
            texts = [text for text in parts if isinstance(text, str)]
            return "user", [TextPart(text) for text in texts] if any(texts) else []
        case AssistantMessage():
            return "assistant", _assistant_parts(
                message.text, message.tool_calls, message.reasoning, message.provider_data
            )
        case ToolMessage():
            content = message.content
            text = content if isinstance(content, str) else _result_text(content, kept_files)
            return "tool", [
                ToolResultPart(
                    call_id=message.call_id,
                    content=text,
                    name=message.name,
                    is_error=message.is_error,
                )
            ]
        case SystemMessage():
            raise InvalidMessage("a system message is never stored as a turn")
        case _:
            assert_never(message)


def _assistant_parts(
    text: str,
    tool_calls: Iterable[ToolCall],
    reasoning: str | None,
    provider_data: ProviderData | None,
) -> list[Part]:
    parts: list[Part] = []
    if reasoning or provider_data is not None:
        parts.append(ReasoningPart(reasoning or "", provider_data))
    if text:
        parts.append(TextPart(text))
    parts.extend(
        ToolCallPart(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            provider_data=call.provider_data,
        )
        for call in tool_calls
    )
    return parts


def _result_text(content: Content, kept_files: Mapping[str, str]) -> str:
    """A tool's result as stored text: one line stands in place of each file's bytes."""
    return "\n".join(
        part if isinstance(part, str) else _file_line(part, kept_files.get(part.name))
        for part in content
    )


def _file_line(file: InlineFile, file_id: str | None) -> str:
    kept = f", kept as {file_id}" if file_id is not None else ""
    line = f"[file {file.name}, {file.media_type}, {len(file.data)} bytes{kept}]"
    return " ".join(line.split())  # a name may hold line breaks


def _assistant_message(parts: tuple[Part, ...], *, reasoning: bool) -> AssistantMessage | None:
    if len(parts) == 1:  # as most turns have, so their lists are saved
        (only,) = parts
        if type(only) is TextPart:
            return AssistantMessage(text=only.text)
        if type(only) is ToolCallPart:
            return AssistantMessage(tool_calls=(_tool_call(only),))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    provider_data: ProviderData | None = None
    for part in parts:
        match part.type:
            case "text":
                texts.append(part.text)
            case "tool_call":
                calls.append(_tool_call(part))
            case "reasoning":
                provider_data = part.provider_data or provider_data
                if part.text and reasoning:
                    thoughts.append(part.text)
            case "file" | "tool_result":
                pass  # pointers stay in the store, and a result is a tool turn's alone
            case _:
                assert_never(part)
    if not (texts or calls or thoughts):
        return None
    return AssistantMessage(
        text="".join(texts),
        tool_calls=tuple(calls),
        reasoning="".join(thoughts) or None,
        provider_data=provider_data,
    )


def _tool_call(part: ToolCallPart) -> ToolCall:
    return ToolCall(
        id=part.id, name=part.name, arguments=part.arguments, provider_data=part.provider_data
    )

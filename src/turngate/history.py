"""Histories that every endpoint takes: messages → messages, pure and without a clock.

`paired_history` holds three things for any input: each tool call is answered exactly once, right
after its message and in call order; nothing empty is sent; and what a `Target` demands is met.
The same input gives the same output, so that a provider's prompt cache stays warm, and repairing
twice is repairing once. Sources: docs/reference/history.md.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import assert_never, cast

import msgspec

from turngate.errors import InvalidValue
from turngate.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    checked_parts,
    exact_messages,
)
from turngate.values import Target

__all__ = [
    "CONTINUED",
    "INTERRUPTED",
    "NOT_APPROVED",
    "NOT_RUN",
    "paired_history",
    "with_open_reviews",
    "without_final_answer",
]

INTERRUPTED = "The run was interrupted before this call had a result. Its outcome is unknown."
NOT_RUN = "This call was not run: its arguments are not a JSON object."
NOT_APPROVED = "Not run yet: this call waits for a person's approval."
CONTINUED = "(continued)"  # the user's message before an answer that opens a history

_NO_DEMANDS = Target()


class _AnyObject(msgspec.Struct):
    """A JSON object whose members are only checked to be JSON."""


_OBJECT = msgspec.json.Decoder(_AnyObject)


def paired_history(messages: Iterable[Message], *, target: Target | None = None) -> list[Message]:
    """`messages` as a history that the endpoint of `target` takes.

    Shapes: a call's result follows its message, in call order; the first of several results for
    one call stands; a result without a call goes; an unanswered call gets a result that says so;
    arguments that are no JSON object are wrapped in one; messages without content go. Ids are read
    within their exchange: a later message may use an id again.
    Errors: `InvalidMessage` for what is no message, `InvalidValue` for an id pattern that can't
    be met.
    """
    demands = target if target is not None else _NO_DEMANDS
    history = _paired(messages)
    if demands.call_id_pattern is not None or demands.call_id_chars_max is not None:
        history = _with_ids_for(history, demands)
    if demands.user_first:
        history = _opened_by_user(history)
    if demands.strict_alternation:
        history = _merged(history)
    return history


def without_final_answer(messages: Sequence[Message]) -> list[Message]:
    """`messages` up to and with the last tool exchange that is complete.

    This is what a blocked answer may leave behind.
    """
    kept = 0
    unanswered: Counter[str] = Counter()
    for position, message in enumerate(messages, 1):
        if isinstance(message, AssistantMessage):
            unanswered = Counter(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.call_id in unanswered:
            unanswered[message.call_id] -= 1
            if not unanswered[message.call_id]:
                del unanswered[message.call_id]
            if not unanswered:
                kept = position
    return list(messages[:kept])


def with_open_reviews(messages: Iterable[Message], call_ids: Collection[str]) -> list[Message]:
    """`messages` in which the open calls of `call_ids` have results that say they wait.

    The other open calls of the same message wait with them. Nothing is settled by it: the calls
    stay open in the store. Of messages with an open call of one id the newest are meant, as many
    as the id is given; a call that has a result keeps it.
    """
    history = list(messages)
    for call_id, count in Counter(call_ids).items():
        late = 0  # results from here on that do not stand right behind their call
        for place in range(len(history) - 1, -1, -1):
            message = history[place]
            if isinstance(message, ToolMessage):
                late += message.call_id == call_id
            if not isinstance(message, AssistantMessage) or not _makes(message, call_id):
                continue
            behind = _results_behind(history, place)
            own = [result for result in behind if result.call_id == call_id]
            late -= len(own)
            if not own and late:  # late results are this message's, one for each call
                late = max(late - sum(call.id == call_id for call in message.tool_calls), 0)
                continue
            if not own:
                history[place + 1 : place + 1] = _waiting(message, call_id, history[place + 1 :])
            elif all(result.content != NOT_APPROVED for result in own):
                continue
            count -= 1
            if not count:
                break
    return history


def _waiting(message: AssistantMessage, call_id: str, later: Sequence[Message]) -> list[Message]:
    """A result that says it waits, for each call of `call_id` and each other without a result."""
    answered = {
        result.call_id
        for result in later
        if isinstance(result, ToolMessage) and result.content != NOT_APPROVED
    }
    return [
        ToolMessage(call_id=call.id, name=call.name, content=NOT_APPROVED)
        for call in message.tool_calls
        if call.id == call_id or call.id not in answered
    ]


def _results_behind(history: Sequence[Message], place: int) -> list[ToolMessage]:
    """The results that follow the message at `place` with no other message in between."""
    results: list[ToolMessage] = []
    for message in history[place + 1 :]:
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results


# ── pairing ──────────────────────────────────────────────────────────────────────────────────


class _Exchange:
    """An assistant message with calls, and the results that came for them, by place."""

    __slots__ = ("message", "open_places", "results")

    def __init__(self, message: AssistantMessage) -> None:
        self.message = message
        self.results: list[ToolMessage | None] = [None] * len(message.tool_calls)
        self.open_places: dict[str, list[int]] = {}  # call id → unanswered places, last first
        for place in reversed(range(len(message.tool_calls))):
            self.open_places.setdefault(message.tool_calls[place].id, []).append(place)

    def makes(self, call_id: str) -> bool:
        """Whether the message made a call of this id."""
        return call_id in self.open_places

    def take(self, result: ToolMessage) -> None:
        """Keep `result` for the first call of its id that has none; a further one is dropped."""
        if places := self.open_places.get(result.call_id):
            self.results[places.pop()] = result

    def messages(self) -> Iterable[Message]:
        calls = _with_distinct_ids([_repaired_call(call) for call in self.message.tool_calls])
        yield msgspec.structs.replace(self.message, text=_spoken(self.message), tool_calls=calls)
        for made, call, result in zip(self.message.tool_calls, calls, self.results, strict=True):
            if result is None:
                content = INTERRUPTED if _is_runnable(made) else NOT_RUN
                yield ToolMessage(call_id=call.id, content=content, name=call.name, is_error=True)
            elif result.call_id != call.id:
                yield msgspec.structs.replace(result, call_id=call.id)
            else:
                yield result


def _paired(messages: Iterable[Message]) -> list[Message]:
    checked = exact_messages(messages)
    kept: list[Message | _Exchange] = []
    unanswered: dict[str, list[_Exchange]] = {}  # call id → exchanges that lacked its result
    last: AssistantMessage | _Exchange | None = None  # whose results still follow
    has_exchanges = False
    place = 0
    while place < len(checked):
        message = checked[place]
        place += 1
        if message.role != "tool":
            last = None
        match message.role:
            case "user":
                parts = checked_parts(message)
                if parts and all(parts):
                    kept.append(message)
                elif any(parts):
                    kept.append(UserMessage(tuple(part for part in parts if part)))
            case "assistant":
                calls = message.tool_calls
                if not calls:
                    if message.text and not message.text.isspace():
                        kept.append(message)
                    continue
                results = checked[place : place + len(calls)]
                if _is_whole(message, results):  # as nearly all are: nothing has to be done
                    kept.append(message)
                    kept += results
                    place += len(results)
                    last = message
                else:
                    last = exchange = _Exchange(message)
                    for call in calls:
                        unanswered.setdefault(call.id, []).append(exchange)
                    kept.append(exchange)
                    has_exchanges = True
            case "tool":
                if unanswered:
                    _take(message, last, unanswered.get(message.call_id, ()))
            case "system":
                if message.text:
                    kept.append(message)
            case _:
                assert_never(message)
    if not has_exchanges:
        return cast("list[Message]", kept)
    history: list[Message] = []
    for entry in kept:
        if isinstance(entry, _Exchange):
            history.extend(entry.messages())
        else:
            history.append(entry)
    return history


def _take(
    result: ToolMessage,
    last: AssistantMessage | _Exchange | None,
    unanswered: Sequence[_Exchange],
) -> None:
    """Give `result` to its call: one of `last`, right behind which it stands, else the newest that
    is open; a further result of a call that has one is dropped."""
    if isinstance(last, _Exchange) and last.makes(result.call_id):
        last.take(result)
    elif isinstance(last, AssistantMessage) and _makes(last, result.call_id):
        return
    else:
        for exchange in reversed(unanswered):
            if exchange.open_places.get(result.call_id):
                exchange.take(result)
                return


def _makes(message: AssistantMessage, call_id: str) -> bool:
    return any(call.id == call_id for call in message.tool_calls)


def _is_whole(message: AssistantMessage, results: Sequence[Message]) -> bool:
    """Whether `results` answer the calls of `message` one by one, and all is fit to be sent."""
    calls = message.tool_calls
    if len(results) != len(calls) or message.text.isspace():
        return False
    for place, call in enumerate(calls):  # zip(strict=…) costs as much as all the rest
        result = results[place]
        if type(result) is not ToolMessage or result.call_id != call.id or not call.id:
            return False
        if call.arguments != "{}" and not is_json_object(call.arguments):
            return False
    return len(calls) == 1 or len({call.id for call in calls}) == len(calls)


def _spoken(message: AssistantMessage) -> str:
    """The text of `message`; blank text counts as none, since several servers refuse it."""
    return "" if message.text.isspace() else message.text


def _repaired_call(call: ToolCall) -> ToolCall:
    """`call` with arguments that are a JSON object: servers parse old arguments again."""
    if not call.arguments.strip():
        arguments = "{}"
    elif _is_runnable(call):
        return call
    else:
        arguments = msgspec.json.encode({"invalid_arguments": _encodable(call.arguments)}).decode()
    return msgspec.structs.replace(call, arguments=arguments)


def _is_runnable(call: ToolCall) -> bool:
    """Whether the arguments are a JSON object, or empty as for a function without parameters."""
    return call.arguments == "{}" or not call.arguments.strip() or is_json_object(call.arguments)


def is_json_object(text: str) -> bool:
    """Whether `text` is one JSON object, and nothing after it."""
    try:
        _OBJECT.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    return True


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _with_distinct_ids(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """`calls` with ids that differ and are not empty: a repeated one gets a number."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # id → the last number given to it; counted on, for linear time
    distinct: list[ToolCall] = []
    for place, call in enumerate(calls):
        call_id = wanted = call.id or f"call_{place}"
        while call_id in taken:
            numbers[wanted] = numbers.get(wanted, 1) + 1
            call_id = f"{wanted}_{numbers[wanted]}"
        taken.add(call_id)
        distinct.append(call if call_id == call.id else msgspec.structs.replace(call, id=call_id))
    return tuple(distinct)


# ── what a target demands ────────────────────────────────────────────────────────────────────


def _with_ids_for(history: list[Message], target: Target) -> list[Message]:
    """`history` with call ids of the target's form; within an exchange they stay different."""
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in history:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            renamed = {}
            taken: set[str] = set()
            for call in message.tool_calls:
                renamed[call.id] = _fitting_id(call.id, target, taken)
                taken.add(renamed[call.id])
            calls = tuple(
                msgspec.structs.replace(call, id=renamed[call.id]) for call in message.tool_calls
            )
            changed.append(msgspec.structs.replace(message, tool_calls=calls))
        elif isinstance(message, ToolMessage):
            call_id = renamed[message.call_id]
            changed.append(msgspec.structs.replace(message, call_id=call_id))
        else:
            changed.append(message)
    return changed


def _fitting_id(call_id: str, target: Target, taken: set[str]) -> str:
    """`call_id` if it fits, else the first id of the target's form that its hashes give."""
    if call_id not in taken and _fits(call_id, target):
        return call_id
    forms = _id_forms(target)
    for salt in range(1_000):
        digest = _digest(f"{salt}:{call_id}")
        for form in forms:
            made = _made_id(digest, form)
            if made not in taken and _fits(made, target):
                return made
    raise InvalidValue(f"the target's call ids are too few for {len(taken) + 1} calls")


def _fits(call_id: str, target: Target) -> bool:
    if target.call_id_chars_max is not None and len(call_id) > target.call_id_chars_max:
        return False
    pattern = target.call_id_pattern
    return pattern is None or _compiled(pattern).fullmatch(call_id) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidValue(f"the target's call_id_pattern is no pattern: {error}") from None


_IdForm = tuple[str, dict[int, int], int]  # a prefix, what hex digits become, the whole length

_PREFIXES = ("", "call_", "toolu_", "fc_")
_ALPHABETS = (
    str.maketrans("", ""),
    str.maketrans("0123456789", "ghijklmnop"),  # letters alone
    str.maketrans("abcdef", "123456"),  # digits alone
)


@lru_cache(maxsize=64)
def _id_forms(target: Target) -> tuple[_IdForm, ...]:
    """The forms of ids that `target` takes, all of one length: up to 40 the longest, else up to 64.

    Errors: `InvalidValue` where no id of letters, digits and a usual prefix has the target's form.
    """
    chars_max = 64 if target.call_id_chars_max is None else min(target.call_id_chars_max, 64)
    probes = [_digest(str(number)) for number in range(16)]
    for length in (*range(min(chars_max, 40), 0, -1), *range(41, chars_max + 1)):
        forms = [(p, a, length) for p in _PREFIXES if len(p) < length for a in _ALPHABETS]
        fitting = [f for f in forms if any(_fits(_made_id(probe, f), target) for probe in probes)]
        if fitting:
            return tuple(fitting)
    raise InvalidValue(
        f"no call id of at most {chars_max} letters and digits matches the target's pattern"
        f" {target.call_id_pattern!r}"
    )


def _made_id(digest: str, form: _IdForm) -> str:
    prefix, alphabet, length = form
    return prefix + digest.translate(alphabet)[: length - len(prefix)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _opened_by_user(history: list[Message]) -> list[Message]:
    """`history` whose first message after the instructions is a user's; nothing is left out."""
    start = next((i for i, m in enumerate(history) if not isinstance(m, SystemMessage)), None)
    if start is None or isinstance(history[start], UserMessage):
        return history
    return [*history[:start], UserMessage((CONTINUED,)), *history[start:]]


def _merged(history: list[Message]) -> list[Message]:
    """`history` in which user and assistant messages alternate; tool messages are never merged.

    Chat templates that count roles take one system message, and only first: all are joined there.
    """
    instructions = [message for message in history if isinstance(message, SystemMessage)]
    rest = [message for message in history if not isinstance(message, SystemMessage)]
    merged: list[Message] = [*instructions]
    if len(instructions) > 1:
        merged = [SystemMessage("\n\n".join(message.text for message in instructions))]
    for _, group in groupby(rest, key=_speaker):
        run = list(group)
        said = [message for message in run if isinstance(message, UserMessage)]
        answers = [message for message in run if isinstance(message, AssistantMessage)]
        if len(said) > 1:
            merged.append(UserMessage(tuple(part for message in said for part in message.parts)))
        elif len(answers) > 1:
            merged.append(_merged_answer(answers))
        else:
            merged.extend(run)
    return merged


def _speaker(message: Message) -> tuple[bool, bool]:
    return isinstance(message, UserMessage), isinstance(message, AssistantMessage)


def _merged_answer(answers: list[AssistantMessage]) -> AssistantMessage:
    """`answers` as one; of several with provider data the last one's stands."""
    data = [answer.provider_data for answer in answers if answer.provider_data is not None]
    return AssistantMessage(
        text="\n\n".join(answer.text for answer in answers if answer.text),
        tool_calls=tuple(call for answer in answers for call in answer.tool_calls),
        reasoning="\n\n".join(a.reasoning for a in answers if a.reasoning) or None,
        provider_data=data[-1] if data else None,
    )

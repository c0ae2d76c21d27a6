"""A limit on how long a prompt or an answer may be."""

from __future__ import annotations

from turngate.checks.verdicts import checked_name
from turngate.errors import InvalidValue
from turngate.records import Allow, Block, Prompt, Proposal

__all__ = ["LengthCheck"]


class LengthCheck:
    """Blocks a prompt or an answer that is longer than its limit.

    Shapes: the rule is ``prompt_chars_max`` or ``answer_chars_max``; None is no limit, and one of
    both is given. Units: characters of the text alone, without files, reasoning and tool calls.
    Errors: no limit at all, or one below 1, is an `InvalidValue`.
    """

    def __init__(
        self,
        *,
        prompt_chars_max: int | None = None,
        answer_chars_max: int | None = None,
        name: str = "length",
    ) -> None:
        if prompt_chars_max is None and answer_chars_max is None:
            raise InvalidValue("a length check needs prompt_chars_max or answer_chars_max")
        self.name = checked_name(name)
        self.prompt_chars_max = _checked_limit("prompt_chars_max", prompt_chars_max)
        self.answer_chars_max = _checked_limit("answer_chars_max", answer_chars_max)

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        if self.prompt_chars_max is not None and len(prompt.text) > self.prompt_chars_max:
            return Block("prompt_chars_max")
        return Allow()

    async def check_answer(self, answer: Proposal) -> Allow | Block:
        if self.answer_chars_max is not None and len(answer.text) > self.answer_chars_max:
            return Block("answer_chars_max")
        return Allow()


def _checked_limit(field: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValue(f"{field} is a whole number of at least 1, or None")
    return value

"""Keys, tokens and passwords that may not be asked or said."""

from __future__ import annotations

from turngate.checks.secret_rules import secret_hits
from turngate.checks.verdicts import (
    MARK,
    Action,
    answer_verdict,
    checked_action,
    checked_name,
    prompt_verdict,
)
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review

__all__ = ["SecretsCheck"]


class SecretsCheck:
    """Looks for API keys, private keys and passwords in prompts and in all that a model says.

    Shapes: the rule is the kind of secret, as ``aws_access_key``. "replace" puts ``[removed]`` in
    its place; a secret in a tool call blocks even so, and one in the reasoning drops the
    reasoning. "review" blocks a prompt.
    Errors: another action is an `InvalidValue`.
    Source: docs/reference/checks.md has all kinds.
    """

    def __init__(self, *, action: Action = "block", name: str = "secrets") -> None:
        self.name = checked_name(name)
        self.action = checked_action(action)

    async def check_prompt(self, prompt: Prompt) -> Allow | Block:
        return prompt_verdict(prompt, find=secret_hits, action=self.action, mark=MARK)

    async def check_answer(self, answer: Proposal) -> Allow | Replace | Block | Review:
        return answer_verdict(answer, find=secret_hits, action=self.action, mark=MARK)

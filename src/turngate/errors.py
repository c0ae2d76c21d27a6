"""Every error that Turngate raises: one base, a few families, each leaf with a stable `code`.

`RequestError` is the caller's to mend, `ProviderError` and `PolicyStopped` come from the model's
side, `StoreError` from the database, and `SessionStateError` is a bug of ours. Messages hold facts
(ids, limits, counts) and never a prompt, an answer or a key.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from turngate.results import ModelResult

__all__ = [
    "FileNotFound",
    "InvalidMessage",
    "InvalidValue",
    "KeyReused",
    "NotAnswered",
    "PolicyStopped",
    "PromptBlocked",
    "ProviderCode",
    "ProviderError",
    "RecallMoved",
    "RequestError",
    "ReviewDecided",
    "SessionStateError",
    "StoreError",
    "StoreInUse",
    "ThreadBusy",
    "ThreadMoved",
    "ThreadNotFound",
    "ToolError",
    "TurnNotFound",
    "TurngateError",
    "UnknownCall",
    "UnknownFact",
    "UnknownReview",
    "UnknownToolCall",
]

ProviderCode = Literal[
    "protocol", "provider", "truncated", "rate_limited", "context_length", "network", "timeout"
]


class TurngateError(Exception):
    """The base of all: `code` is stable, `hint` (or None) names the next step."""

    code: ClassVar[str] = "turngate"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            self.add_note(hint)


class RequestError(TurngateError):
    """What was asked can't be done as asked: the caller can mend it."""

    code = "bad_request"


class InvalidValue(RequestError):
    """A value is outside its documented form; the message names the field and the form."""

    code = "invalid_value"


class InvalidMessage(RequestError, TypeError):
    """Something that is no message stands in a list of messages."""

    code = "invalid_message"


class ThreadNotFound(RequestError):
    """The tenant has no thread of this id (another tenant's thread is the same error)."""

    code = "thread_not_found"

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"there is no thread {thread_id!r}")
        self.thread_id = thread_id


class TurnNotFound(RequestError):
    """The thread has no turn of this id (it may be one of another thread)."""

    code = "turn_not_found"

    def __init__(self, thread_id: str, turn_id: str) -> None:
        super().__init__(f"thread {thread_id!r} has no turn {turn_id!r}")
        self.thread_id = thread_id
        self.turn_id = turn_id


class ThreadBusy(RequestError):
    """Another call is active on the thread, or waits for a review; nothing was begun."""

    code = "thread_busy"

    def __init__(self, thread_id: str, *, call_id: str, in_review: bool = False) -> None:
        if in_review:
            said = f"on thread {thread_id!r} call {call_id!r} waits for a review"
            hint = (
                "Decide its review, or cancel the call. A new call may go on beside it:"
                " pending='go_on'."
            )
        else:
            said = f"thread {thread_id!r} has the active call {call_id!r}"
            hint = "Wait until that call has ended, or cancel it."
        super().__init__(said, hint=hint)
        self.thread_id = thread_id
        self.call_id = call_id
        self.in_review = in_review


class ThreadMoved(RequestError):
    """The thread is not as it was read: of another length, or (`expected` is `length`) something of
    it was deleted. Nothing was stored."""

    code = "thread_moved"

    def __init__(self, thread_id: str, *, expected: int, length: int) -> None:
        if expected == length:
            said = f"of thread {thread_id!r} something was deleted since it was read"
        else:
            said = f"thread {thread_id!r} has {length} turns where {expected} were expected"
        hint = "Read the thread again and repeat the change on its present end."
        super().__init__(said, hint=hint)
        self.thread_id = thread_id
        self.expected = expected
        self.length = length


class UnknownCall(RequestError):
    """The tenant has no such call, or it is no longer this owner's to write."""

    code = "unknown_call"

    def __init__(self, call_id: str) -> None:
        super().__init__(f"there is no call {call_id!r} to read or write here")
        self.call_id = call_id


class UnknownToolCall(RequestError):
    """The thread's newest turns hold no tool call of this id; nothing was stored."""

    code = "unknown_tool_call"

    def __init__(self, call_id: str) -> None:
        super().__init__(f"the thread has no tool call {call_id!r}")
        self.call_id = call_id


class UnknownReview(RequestError):
    """The tenant has no such review."""

    code = "unknown_review"

    def __init__(self, review_id: str) -> None:
        super().__init__(f"there is no review {review_id!r}")
        self.review_id = review_id


class ReviewDecided(RequestError):
    """The review was decided before: `state` says how, `decided_by` and `decided_at` by whom and
    when. Nothing was changed."""

    code = "review_decided"

    def __init__(
        self, review_id: str, *, state: str, decided_by: str | None, decided_at: datetime | None
    ) -> None:
        when = f" at {decided_at.isoformat()}" if decided_at is not None else ""
        super().__init__(f"review {review_id!r} is {state} already, by {decided_by!r}{when}")
        self.review_id = review_id
        self.state = state
        self.decided_by = decided_by
        self.decided_at = decided_at


class UnknownFact(RequestError):
    """The tenant has no such fact."""

    code = "unknown_fact"

    def __init__(self, fact_id: str) -> None:
        super().__init__(f"there is no fact {fact_id!r}")
        self.fact_id = fact_id


class RecallMoved(RequestError):
    """A summary, a fact or what was learnt of a thread was written since it was read; nothing was
    stored."""

    code = "recall_moved"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written since it was read",
            hint="Read it again and repeat the change.",
        )


class PromptBlocked(RequestError):
    """An input check blocked the prompt: `check` and `rule` say which. Nothing was begun."""

    code = "prompt_blocked"

    def __init__(self, *, check: str, rule: str) -> None:
        super().__init__(f"check {check!r} blocked the prompt ({rule})")
        self.check = check
        self.rule = rule


class FileNotFound(RequestError):
    """The tenant has no file of this id (another tenant's file is the same error)."""

    code = "file_not_found"

    def __init__(self, file_id: str) -> None:
        super().__init__(f"there is no file {file_id!r}")
        self.file_id = file_id


class KeyReused(RequestError):
    """The idempotency key stands for another body; nothing was begun."""

    code = "key_reused"

    def __init__(self, key: str, *, call_id: str) -> None:
        super().__init__(
            f"key {key!r} was used for another request (call {call_id!r})",
            hint="Use a new key for a new request.",
        )
        self.key = key
        self.call_id = call_id


class NotAnswered(RequestError):
    """`expect()` met an outcome that is no answer: `kind`, `reason` and `call_id` say which."""

    code = "not_answered"

    def __init__(self, *, kind: str, reason: str, call_id: str) -> None:
        super().__init__(f"call {call_id!r} ended {kind} ({reason})")
        self.kind = kind
        self.reason = reason
        self.call_id = call_id


class ProviderError(TurngateError):
    """The exchange with the model server failed.

    `code` is the kind and `reason` a stable sub-code of it. `status` is the HTTP status (None if
    there was no response), `request_id` the server's own, `retry_after_s` the wait it asked for in
    seconds, and `partial` what had been received before the failure (None: nothing).
    """

    code: ProviderCode  # type: ignore[misc]  # one class for all kinds: the code is the instance's

    def __init__(
        self,
        message: str,
        *,
        code: ProviderCode,
        reason: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        partial: ModelResult | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.reason = reason if reason is not None else code
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.partial = partial


class PolicyStopped(TurngateError):
    """A completion policy ended the stream; `reason` is the policy's own stable word.

    `partial` is what had been yielded before (None: nothing); the runner fills it in.
    """

    code = "policy_stopped"

    def __init__(self, message: str, *, reason: str, partial: ModelResult | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.partial = partial


class ToolError(TurngateError):
    """A tool could not do what the model asked; the message is shown to the model."""

    code = "tool"


class StoreError(TurngateError):
    """The database or the file store failed; the driver's error is the cause. Nothing of the
    change was stored."""

    code = "store"


class StoreInUse(StoreError):
    """Another process has the database open for writing."""

    code = "store_in_use"

    def __init__(self, path: str, *, owner: str) -> None:
        super().__init__(
            f"{path} is open for writing elsewhere ({owner})",
            hint="Close it there, or use PostgreSQL for more than one writing process.",
        )
        self.path = path
        self.owner = owner


class SessionStateError(TurngateError):
    """A completion session was called out of the order ``part* finish? end?``: a bug, not input."""

    code = "session_state"

    def __init__(self, call: str, state: str) -> None:
        super().__init__(f"{call}() is not legal once a session is {state}")
        self.call = call
        self.state = state

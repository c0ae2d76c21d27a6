"""Every error that Turngate raises: one base, a few families, each leaf with a stable `code`.

`RequestError` is the caller's to mend, `ProviderError` and `PolicyStopped` come from the model's
side, `StoreError` from the database, and `SessionStateError` is a bug of ours. Messages hold facts
(ids, limits, counts) and never a prompt, an answer or a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from turngate.results import ModelResult

__all__ = [
    "InvalidMessage",
    "InvalidValue",
    "KeyReused",
    "NotAnswered",
    "PolicyStopped",
    "ProviderCode",
    "ProviderError",
    "RequestError",
    "SessionStateError",
    "StoreError",
    "StoreInUse",
    "ThreadBusy",
    "ThreadMoved",
    "ThreadNotFound",
    "ToolError",
    "TurngateError",
    "UnknownCall",
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


class ThreadBusy(RequestError):
    """Another call is active on the thread; nothing was begun."""

    code = "thread_busy"

    def __init__(self, thread_id: str, *, call_id: str) -> None:
        super().__init__(
            f"thread {thread_id!r} has the active call {call_id!r}",
            hint="Wait until that call has ended, or cancel it.",
        )
        self.thread_id = thread_id
        self.call_id = call_id


class ThreadMoved(RequestError):
    """The thread's length is not the expected one; nothing was stored."""

    code = "thread_moved"

    def __init__(self, thread_id: str, *, expected: int, length: int) -> None:
        super().__init__(
            f"thread {thread_id!r} has {length} turns where {expected} were expected",
            hint="Read the thread again and repeat the change on its present end.",
        )
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
    """The database failed; the driver's error is the cause. Nothing of the change was stored."""

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

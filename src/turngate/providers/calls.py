"""The calls of one answer: which call a tool delta belongs to, and what of it may be passed on.

Servers tell calls apart by index, by id, by both or by neither; the rules [R18] to [R28] of
docs/reference/streams.md say how each is read. "Held" is the call last seen at the delta's index,
or without an index the call last seen at all. Without an index the entries of one delta count as
indexes by their place, if there are several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from turngate.completion import FunctionCallDelta, ModelPart
from turngate.providers.arguments import Arguments
from turngate.providers.chunks import Function, ToolDelta

__all__ = ["LEGACY_INDEX", "Calls"]

LEGACY_INDEX = -1  # where the one call of the older `function_call` member is held


class Calls:
    """The calls of one answer, in order of appearance.

    `extras` holds what came beside the function of a call, by the call's index, to be sent back.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._calls: list[_Call] = []
        self._at_index: dict[int | None, _Call] = {}  # None: the call last seen
        self._by_id: dict[str, _Call] = {}
        self.extras: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, deltas: list[ToolDelta], out: list[ModelPart]) -> None:
        """Add to `out` what the entries of one delta, at least one, give."""
        delta = deltas[0]
        function = delta.function
        # The short cut for most deltas: a further piece of a call that is known.
        if function is not None and not (delta.id or function.name) and len(deltas) == 1:
            call = self._at_index.get(delta.index)
            piece = function.arguments
            if call is not None and type(piece) is str and delta.extra_content is None:
                arguments, size = call.arguments, len(piece)
                if 0 < size < arguments.size and arguments.is_flowing:
                    arguments.pieces.append(piece)
                    arguments.size += size
                    self._at_index[None] = call
                    out.append(FunctionCallDelta(index=call.index, arguments=piece))
                    return
        self._place(deltas, out)

    def take_legacy(self, function: Function, out: list[ModelPart]) -> None:
        """The older form of a call. Servers that send both forms mean the same call."""
        if not self._calls or LEGACY_INDEX in self._at_index:
            self._place([ToolDelta(index=LEGACY_INDEX, function=function)], out)

    def close(self, out: list[ModelPart], *, is_cut: bool) -> None:
        """What was held back. Of an answer that was not cut, no call is without arguments."""
        for call in self._calls:
            left = call.arguments.close()
            if not call.arguments.size and not is_cut:
                left = "{}"
            if left or not call.is_open:
                call.tell(left, out)

    def _place(self, deltas: list[ToolDelta], out: list[ModelPart]) -> None:
        touched: set[int] = set()  # the calls that this delta has spoken of
        for place, delta in enumerate(deltas):
            function = delta.function if delta.function is not None else Function()
            text = _argument_text(function.arguments)
            name = function.name or ""
            index = delta.index
            if index is None and len(deltas) > 1:
                index = place
            call = self._held_call(index, delta.id, name, text, touched)
            if call is None:
                call = self._new_call(delta.id, out)
            touched.add(call.index)
            self._at_index[index] = self._at_index[None] = call
            if delta.extra_content is not None:
                self._keep_extra(call.index, delta.extra_content)
            call.take(name, text, out)

    def _held_call(
        self, index: int | None, told_id: str | None, name: str, text: str, touched: set[int]
    ) -> _Call | None:
        """The call that a delta goes on with; None: it begins one."""
        held = self._at_index.get(index)
        if not told_id:
            if held is None:  # [R24]
                last = self._at_index.get(None)
                goes_on = last is not None and not name and not last.arguments.is_closed
                return last if goes_on else None
            return None if held.is_followed(name, text, touched) else held  # [R25] [R26]
        if held is not None and held.told_id == told_id:  # [R18]
            return held
        known = self._by_id.get(told_id)
        if known is not None:  # [R19]
            return None if name and held is None and known.arguments.size else known
        if held is None:  # [R20]
            return None
        if held.told_id is None and not held.is_followed(name, text, touched):  # [R21]
            held.told_id = told_id
            if not held.is_open:
                held.call_id = told_id
            self._by_id[told_id] = held
            return held
        # [R22] [R23]
        return held if text and not name and not held.arguments.is_closed else None

    def _new_call(self, told_id: str | None, out: list[ModelPart]) -> _Call:
        if self._calls and not self._calls[-1].is_open:
            self._calls[-1].tell("", out)
        call_id = told_id if told_id and told_id not in self._by_id else self._new_call_id()
        call = _Call(index=len(self._calls), call_id=call_id, told_id=told_id or None)
        self._calls.append(call)
        self._by_id[call_id] = call
        return call

    def _keep_extra(self, index: int, extra: Any) -> None:
        kept = self.extras.setdefault(index, {})
        former = kept.get("extra_content")
        if isinstance(former, dict) and isinstance(extra, dict):
            extra = {**former, **extra}
        kept["extra_content"] = extra


class _Call:
    __slots__ = ("arguments", "call_id", "index", "is_open", "name", "told_id", "told_name")

    def __init__(self, *, index: int, call_id: str, told_id: str | None) -> None:
        self.index = index
        self.call_id = call_id
        self.told_id = told_id  # the server's; None where it has told none
        self.name = ""
        self.told_name = False
        self.is_open = False  # its first delta has been passed on
        self.arguments = Arguments()

    def is_followed(self, name: str, text: str, touched: set[int]) -> bool:
        """Whether a delta of this name and text begins another call."""
        if not name or not self.name:
            return False
        if self.index in touched:
            return True
        if not self.arguments.size:
            return False
        if name != self.name:
            return True
        return (
            bool(text) and self.arguments.is_closed and not self.arguments.is_begun_again_by(text)
        )

    def take(self, name: str, text: str, out: list[ModelPart]) -> None:
        if not self.told_name:
            self.name = name if name.startswith(self.name) else self.name + name
        passed = self.arguments.take(text)
        if passed or (text and not self.is_open) or (self.is_open and not self.told_name and name):
            self.tell(passed, out)

    def tell(self, arguments: str, out: list[ModelPart]) -> None:
        """Pass on `arguments`, with the id and the name where they are not told yet."""
        name = self.name if self.name and not self.told_name else None
        out.append(
            FunctionCallDelta(
                index=self.index,
                id=None if self.is_open else self.call_id,
                name=name,
                arguments=arguments or None,
            )
        )
        self.is_open = True
        self.told_name = self.told_name or name is not None


def _argument_text(arguments: str | dict[str, Any] | None) -> str:
    """The JSON text of arguments, which some servers send as an object."""
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""

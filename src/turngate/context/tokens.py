"""Token counts without a tokenizer: an estimate that calibrates itself for each model. Pure.

`text_costs` says what a text costs an average model; here the rest is added (frames of messages and
calls, tool schemas, images, files), and one `Calibration` for each model moves the sum towards what
its provider counted. How near that comes is told in docs/reference/tokens.md.

A window is counted with each call, and most of its turns were there at the call before. So what a
text costs is kept, and a turn's count until the ratios move, under hashes: no text itself is.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, mul
from typing import assert_never

from turngate.completion import ChatRequest
from turngate.context.calibration import Bounds, Calibration
from turngate.context.image_size import image_size
from turngate.context.text_costs import KINDS, Kind, text_costs
from turngate.messages import Content, InlineFile, Message
from turngate.turns import Turn
from turngate.values import Usage

__all__ = ["TokenEstimator"]

# All models that were looked at agree on English, and its costs also carry text that only looks
# like it; so what is below 1 there is little. Scripts start at what the poorest vocabulary needs.
_BOUNDS: Mapping[Kind, Bounds] = {
    "words": Bounds(low=0.98, high=1.8, doubt=0.1),
    "rough": Bounds(low=0.98, high=2.0, doubt=0.3),
    "digits": Bounds(low=0.5, high=1.5, doubt=0.3),
    "signs": Bounds(low=0.9, high=1.8, doubt=0.2),
    "space": Bounds(low=0.9, high=1.8, doubt=0.2),
    "latin": Bounds(low=0.6, high=1.9, doubt=0.4),
    "greek": Bounds(low=0.35, high=1.9, doubt=0.7),
    "cyrillic": Bounds(low=0.3, high=1.9, doubt=0.7),
    "hebrew": Bounds(low=0.35, high=1.9, doubt=0.7),
    "arabic": Bounds(low=0.3, high=1.9, doubt=0.7),
    "other_alphabets": Bounds(low=0.6, high=1.5, doubt=0.4),
    "devanagari": Bounds(low=0.2, high=1.7, doubt=0.7),
    "thai": Bounds(low=0.2, high=1.7, doubt=0.7),
    "indic": Bounds(low=0.5, high=1.7, doubt=0.7),
    "far_scripts": Bounds(low=0.6, high=1.7, doubt=0.4),
    "hangul": Bounds(low=0.35, high=1.8, doubt=0.7),
    "kana": Bounds(low=0.35, high=1.7, doubt=0.7),
    "ideographs": Bounds(low=0.4, high=1.9, doubt=0.7),
    "wide": Bounds(low=0.6, high=1.7, doubt=0.4),
    "typography": Bounds(low=0.65, high=1.9, doubt=0.3),
    "symbols": Bounds(low=0.97, high=1.9, doubt=0.3),
    "emoji": Bounds(low=0.4, high=1.5, doubt=0.4),
    "old_scripts": Bounds(low=0.7, high=1.5, doubt=0.3),
    "frames": Bounds(low=0.5, high=8.0, doubt=0.5),
    "schemas": Bounds(low=0.2, high=4.0, doubt=0.4),
    "images": Bounds(low=0.05, high=5.0, doubt=0.8),
    "files": Bounds(low=0.01, high=5.0, doubt=0.8),
}
_BOUNDS_IN_ORDER = tuple(_BOUNDS[kind] for kind in KINDS)
_FRAMES, _SCHEMAS, _IMAGES, _FILES = map(KINDS.index, ("frames", "schemas", "images", "files"))

# What is no text, in tokens.
_REQUEST_FRAME = 3  # the opening of the answer
_MESSAGE_FRAME = 4  # the role and its marks
_CALL_FRAME = 8  # the id and the marks of a tool call, or of the result that names it
_SCHEMA_FRAME = 8
_PIXELS_A_TOKEN = 750
_IMAGE_TOKENS_MIN, _IMAGE_TOKENS_MAX = 85, 1_600  # a model makes large images smaller first
_IMAGE_TOKENS_UNSIZED = 1_000
_BYTES_A_TOKEN = 4  # of a file: as if it were plain text
_ROUNDING = 1.5  # up, with half a token to spare: short texts vary most
_MODELS_MAX = 256
_TEXTS_MAX = 8_192  # a few hundred bytes each
_TURNS_MAX = 2_048  # a model; a count of about a hundred bytes each
_LEARNED_AT_FIRST = 32  # usages of a model; then the ratios are near, and one of so many will do:
_LEARNED_EACH = 16
_ASCII_KINDS = KINDS.index("latin")  # the kinds before it are all that an ASCII text has

_Costs = list[float]
_KeptCosts = tuple[float, ...]
"""Costs in the order of `KINDS`, without the zeros at the end."""


@dataclass(slots=True)
class _Model:
    """What is known of one model, how many usages of it were reported, and what turns cost it."""

    calibration: Calibration = field(default_factory=lambda: Calibration(_BOUNDS_IN_ORDER))
    usages: int = 0
    turns: dict[int, int] = field(default_factory=dict)

    def is_due(self) -> bool:
        """Whether the next usage is one to learn from; it counts as reported."""
        self.usages += 1
        return self.usages <= _LEARNED_AT_FIRST or self.usages % _LEARNED_EACH == 0


class TokenEstimator:
    """A `TokenCounter` for any model, that needs nothing and learns from usages.

    Shapes: `reasoning` says that the reasoning of stored turns is sent back, as for
    `TurnBuilder.to_messages`. The calibrations of the `models_max` models used last are kept; one
    that is not known counts as an average model. Threads and tenants share them. Nothing of a text
    is kept but a hash and what it costs, for the `texts_max` texts that were counted last.
    """

    def __init__(
        self,
        *,
        reasoning: bool = False,
        models_max: int = _MODELS_MAX,
        texts_max: int = _TEXTS_MAX,
    ) -> None:
        self._reasoning = reasoning
        self._models_max = models_max
        self._models: OrderedDict[str | None, _Model] = OrderedDict()
        self._average = _Model()  # it never learns
        self._texts_max = texts_max
        self._texts: OrderedDict[int, _KeptCosts] = OrderedDict()

    def count_text(self, text: str, *, model: str | None = None) -> int:
        """The tokens of a text, rounded up; 0 for the empty one."""
        return self._tokens(self._text_costs(text), model) if text else 0

    def count_turn(self, turn: Turn, *, model: str | None = None) -> int:
        """The tokens of the messages that `turn` becomes; 0 if it becomes none."""
        known = self._models.get(model, self._average)
        key = hash((turn.role, turn.status, turn.parts))
        count = known.turns.get(key)
        if count is None:
            if len(known.turns) >= _TURNS_MAX:
                known.turns.clear()
            count = known.turns[key] = self._turn_tokens(turn, known.calibration.ratios)
        return count

    def count_request(self, request: ChatRequest) -> int:
        """The input tokens of a whole request: messages, inline files and tool schemas."""
        return self._tokens(_request_costs(request, self._text_costs), _sent_model(request))

    def learn(self, request: ChatRequest, usage: Usage, *, model: str | None) -> None:
        """Take in what the provider counted for `request`, for the model that it names and for
        the name that was asked for: the first 32 usages of each, and then every 16th.

        A count that can't be of this request is left out: none, or one far from any estimate.
        """
        if usage.cached_tokens > usage.input_tokens:
            return  # the count leaves out what was cached
        known = [self._model(name) for name in {model, _sent_model(request)}]
        if due := [model for model in known if model.is_due()]:
            costs = _request_costs(request, self._text_costs)
            for one in due:
                one.calibration.learn(costs, usage.input_tokens)
                one.turns.clear()

    def _tokens(self, costs: Sequence[float], model: str | None) -> int:
        ratios = self._models.get(model, self._average).calibration.ratios
        return int(sum(map(mul, ratios, costs)) + _ROUNDING)

    def _turn_tokens(self, turn: Turn, ratios: Sequence[float]) -> int:
        texts, frames = _turn_texts(turn, reasoning=self._reasoning)
        if not frames:
            return 0
        total = frames * ratios[_FRAMES]
        for text in texts:
            total += sum(map(mul, ratios, self._text_costs(text)))
        return int(total + _ROUNDING)

    def _text_costs(self, text: str) -> _KeptCosts:
        # The hash has 64 bits and a secret of the process in it: two texts don't share one.
        key = hash(text)
        costs = self._texts.get(key)
        if costs is not None:
            self._texts.move_to_end(key)
            return costs
        found = text_costs(text)
        costs = self._texts[key] = tuple(found[:_ASCII_KINDS] if text.isascii() else found)
        if len(self._texts) > self._texts_max:
            self._texts.popitem(last=False)
        return costs

    def _model(self, name: str | None) -> _Model:
        """What is known of model `name`, new if there is nothing; the one used longest ago goes."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model()
            if len(self._models) > self._models_max:
                self._models.popitem(last=False)
        self._models.move_to_end(name)
        return model


def _sent_model(request: ChatRequest) -> str | None:
    return request.options.model or request.model


# ── what turns and requests cost ─────────────────────────────────────────────────────────────


_TextCosts = Callable[[str], Sequence[float]]


def _turn_texts(turn: Turn, *, reasoning: bool) -> tuple[list[str], int]:
    """The texts of the messages that `turn` becomes, and what their frames cost: 0 if it becomes
    none."""
    texts: list[str] = []
    frames = 0
    if turn.status == "deleted":
        return texts, frames
    for part in turn.parts:
        match part.type:
            case "text" if turn.role != "tool":
                texts.append(part.text)
            case "tool_call" if turn.role == "assistant":
                texts += (part.name, part.arguments)
                frames += _CALL_FRAME
            case "tool_result" if turn.role == "tool":
                texts.append(part.content)
                frames += _MESSAGE_FRAME + _CALL_FRAME  # a message of its own
            case "reasoning" if turn.role == "assistant" and reasoning and part.text:
                texts.append(part.text)
            case _:  # not sent: a file, or what has no place in a message of this role
                continue
    if texts and turn.role != "tool":
        frames += _MESSAGE_FRAME
    return texts, frames


def _request_costs(request: ChatRequest, costs_of: _TextCosts) -> _Costs:
    costs = [0.0] * len(KINDS)
    costs[_FRAMES] = _REQUEST_FRAME
    for message in request.messages:
        _add_message(costs, message, costs_of)
    schemas = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    if request.output is not None:
        schemas.append([request.output.name, "", request.output.schema])
    for schema in schemas:
        text = json.dumps(schema, ensure_ascii=False, default=str)
        costs[_SCHEMAS] += _SCHEMA_FRAME + sum(costs_of(text))
    return costs


def _add_message(costs: _Costs, message: Message, costs_of: _TextCosts) -> None:
    costs[_FRAMES] += _MESSAGE_FRAME
    match message.role:
        case "system":
            _add_text(costs, costs_of(message.text))
        case "user":
            _add_content(costs, message.parts, costs_of)
        case "assistant":
            for text in (message.text, message.reasoning):
                if text:
                    _add_text(costs, costs_of(text))
            for call in message.tool_calls:
                costs[_FRAMES] += _CALL_FRAME
                _add_text(costs, costs_of(call.name))
                _add_text(costs, costs_of(call.arguments))
        case "tool":
            costs[_FRAMES] += _CALL_FRAME
            content = message.content
            _add_content(costs, (content,) if isinstance(content, str) else content, costs_of)
        case _:
            assert_never(message)


def _add_content(costs: _Costs, content: Content, costs_of: _TextCosts) -> None:
    for part in content:
        if isinstance(part, str):
            _add_text(costs, costs_of(part))
        else:
            _add_file(costs, part, costs_of)


def _add_text(costs: _Costs, text: Sequence[float]) -> None:
    costs[: len(text)] = map(add, costs, text)


def _add_file(costs: _Costs, file: InlineFile, costs_of: _TextCosts) -> None:
    kind = file.media_type.partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        costs[_IMAGES] += _image_tokens(file.data)
    elif kind.startswith("text/") or kind.endswith(("json", "xml", "yaml", "csv")):
        costs[_FILES] += sum(costs_of(file.data.decode("utf-8", "replace")))
    else:
        costs[_FILES] += len(file.data) / _BYTES_A_TOKEN


def _image_tokens(data: bytes) -> float:
    size = image_size(data)
    if size is None:
        return _IMAGE_TOKENS_UNSIZED
    tokens = size[0] * size[1] / _PIXELS_A_TOKEN
    return min(max(tokens, _IMAGE_TOKENS_MIN), _IMAGE_TOKENS_MAX)

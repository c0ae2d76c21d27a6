"""Structured output: a Python type as a JSON schema, and an answer's text as a value of it.

Types are what msgspec knows (structs, dataclasses, typed dicts …) and Pydantic models, which are
recognised by their methods, so that Pydantic need not be there.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from turngate.completion import OutputSchema
from turngate.errors import InvalidValue

__all__ = ["OutputMismatch", "output_schema", "parsed_output"]

T = TypeVar("T")

_PLACE = re.compile(r"`(\$[^`]*)`$")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MISMATCH_CHARS_MAX = 2_000  # some errors list all that is wrong with a long answer
_PLACE_CHARS_MAX = 200


class OutputMismatch(ValueError):
    """The answer is no value of the type. The message is for the model, since it may quote the
    answer; `place` is where it does not fit, as a path, and quotes nothing."""

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(message)
        self.place = place


def output_schema(output: type[Any]) -> OutputSchema:
    """The schema of `output`, whose values are JSON objects.

    Shapes: objects take no further members; `strict` where all members are required, as servers
    that enforce a schema demand. Errors: `InvalidValue` for a type without such a schema.
    """
    try:
        if hasattr(output, "model_json_schema"):
            schema = output.model_json_schema()
        else:
            schema = msgspec.json.schema(output)
    except TypeError as error:
        raise InvalidValue(f"an output type has no JSON schema: {error}") from error
    definitions = schema.get("$defs", {})
    if "$ref" in schema:
        top = definitions.pop(schema["$ref"].rpartition("/")[2])
        schema = {**top, "$defs": definitions} if definitions else top
    if schema.get("type") != "object":
        raise InvalidValue("an output type is one whose values are JSON objects")
    name = _NO_NAME.sub("_", str(schema.get("title") or getattr(output, "__name__", "output")))
    strict = _closed(schema)
    return OutputSchema(name=name[:64], schema=schema, strict=strict)


def _closed(schema: Any) -> bool:
    """Close every object in `schema` in place; whether all of their members are required."""
    if not isinstance(schema, dict | list):
        return True
    closed = [_closed(entry) for entry in (schema if isinstance(schema, list) else schema.values())]
    strict = all(closed)
    if isinstance(schema, dict) and schema.get("type") == "object":
        members = schema.get("properties")
        if members is not None:
            schema.setdefault("additionalProperties", False)
        is_closed = schema.get("additionalProperties") is False  # no map, and not opened by hand
        strict = strict and is_closed and set(members or ()) == set(schema.get("required", ()))
    return strict


def parsed_output(output: type[T], text: str) -> T:
    """`text` as a value of `output`; a fence of Markdown around it is taken off.

    Errors: `OutputMismatch`.
    """
    json = _unfenced(text)
    validate: Any = getattr(output, "model_validate_json", None)
    try:
        value: T = (
            validate(json) if validate is not None else msgspec.json.decode(json, type=output)
        )
        return value
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        mismatch = str(error)
        found = _PLACE.search(mismatch)
        place = found[1] if found is not None else "$"
    except ValueError as error:  # Pydantic's, which lists every place; the first will do
        mismatch = str(error)
        details: Any = getattr(error, "errors", list)
        first = next(iter(details()), {"loc": ()})
        place = ".".join(["$", *map(str, first["loc"])])
    raise OutputMismatch(mismatch[:_MISMATCH_CHARS_MAX], place=place[:_PLACE_CHARS_MAX])


def _unfenced(text: str) -> str:
    inner = text.strip()
    if inner.startswith("```") and inner.endswith("```"):
        opening, _, rest = inner[3:-3].partition("\n")
        if opening.strip().lower() in ("", "json"):
            return rest
    return text

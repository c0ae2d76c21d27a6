"""The glossary's words and names are those of the code."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from tests.docs.pages import ROOT, table_rows

PAGE = ROOT / "docs" / "glossary.md"
ROWS = list(table_rows(PAGE, "## Names from other conventions"))
NOT_YET = "not yet: "

# Every name of the two documents that the design begins with.
_SEED_NAMES = """
    ITurn IMessage IFileRef IModelResult IContextInput ITurnBuilder TurnBuilder buildUserTurn
    buildAssistantTurns runMessages toMessages toTranscript withoutFinalAnswer createdAt inlineFiles
    ThreadStore LLMClient complete ContextAssembler WorkingMemory AIGateway executeAsk prepareCall
    createGatewayDeps settleRun settleReview settleReviewPause Support CompletionSession part finish
    end ModelPart function-call-delta index id name arguments ChatProvider CompatibleModelProvider
    config baseUrl apiKey model ModelRunner invoke value ProviderMessage role content toolCalls
    toolCallId chatCompletionMessages
"""
SEED_NAMES = _SEED_NAMES.split()


def found(path: str) -> Any:
    """What `path` names: ``turngate.Turn``, a field of it, or ``function(argument)``.

    Errors: LookupError if there is no such name.
    """
    dotted, _, argument = path.rstrip(")").partition("(")
    names = dotted.split(".")
    value: Any = importlib.import_module(names[0])
    for i, name in enumerate(names[1:], 1):
        fields = getattr(value, "__annotations__", {})
        if hasattr(value, name):
            value = getattr(value, name)
        elif name in fields:
            value = fields[name]
        else:
            try:
                value = importlib.import_module(".".join(names[: i + 1]))
            except ModuleNotFoundError:
                raise LookupError(f"there is no {path}") from None
    if argument and argument not in inspect.signature(value).parameters:
        raise LookupError(f"{dotted} takes no {argument}")
    return value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_name_from_elsewhere_is_where_the_table_says(row: list[str]) -> None:
    """A name that is there can be imported, and one that is not yet there can't."""
    _, _, where = row
    path = re.fullmatch(rf"(?:{NOT_YET})?`([\w.]+(?:\(\w+\))?)`", where)
    assert path is not None, f"no import path: {where}"
    if where.startswith(NOT_YET):
        with pytest.raises(LookupError):
            found(path[1])
    else:
        found(path[1])


@pytest.mark.parametrize("name", SEED_NAMES)
def test_name_of_the_seeds_is_in_the_table(name: str) -> None:
    """No name that a reader may bring along is missing."""
    assert any(re.search(rf"\b{re.escape(name)}\b", row[0]) for row in ROWS)


def test_type_of_a_call_delta_is_the_word_of_the_table() -> None:
    """The tag that others switch on is a value, not only a class."""
    delta = found("turngate.providers.FunctionCallDelta")
    assert delta(index=0).type == "function-call-delta"


def test_second_names_are_the_same_objects() -> None:
    """Two names for one thing are one thing."""
    assert found("turngate.AIGateway") is found("turngate.Gateway")
    assert found("turngate.providers.ProviderMessage") == found("turngate.Message")


def test_words_of_the_glossary_are_defined_once() -> None:
    """One idea, one word; one word, one definition."""
    words = re.findall(r"^([a-z ]+)\n: ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(words) > 20
    assert len(words) == len(set(words))

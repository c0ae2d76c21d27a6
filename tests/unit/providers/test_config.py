"""The configuration of a provider."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from turngate.errors import InvalidValue
from turngate.providers import CompatibleModelProvider, ProviderConfig
from turngate.values import Target

URL = "http://127.0.0.1:8080/v1"
KEY = "sk-secret-123"


def test_config_never_shows_its_secrets() -> None:
    """Neither a repr nor an encoder gives away the key or a header."""
    config = ProviderConfig(
        base_url=URL + "?code=sk-secret-123", api_key=KEY, headers={"X-Key": KEY}
    )
    assert KEY not in repr(config)
    assert KEY not in str(config)
    assert KEY not in repr(msgspec.structs.asdict(config)["api_key"])
    assert KEY not in repr(CompatibleModelProvider(config))
    with pytest.raises(TypeError):
        msgspec.json.encode(config)
    assert config.request_headers()["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("base_url", "endpoint"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("https://h:1/a/b?api-version=2#x", "https://h:1/a/b/chat/completions?api-version=2"),
    ],
)
def test_endpoint_is_added_to_the_base_url(base_url: str, endpoint: str) -> None:
    """With or without a slash at its end, and before a query."""
    assert ProviderConfig(base_url=base_url).endpoint("/chat/completions") == endpoint


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1:8080"),
        ("https://models.example/v1", "models.example:443"),
        ("http://models.example/v1", "models.example:80"),
        ("http://[::1]:8080/v1", "[::1]:8080"),
    ],
)
def test_name_is_host_and_port_by_default(base_url: str, name: str) -> None:
    """The name that provider data carries says which server it is."""
    assert ProviderConfig(base_url=base_url).name == name


def test_target_names_the_provider() -> None:
    """The target sends provider data back to this provider, unless it names another one."""
    named = ProviderConfig(base_url=URL, name="vendor", target=Target(user_first=True))
    assert CompatibleModelProvider(named).target == Target(provider="vendor", user_first=True)
    other = ProviderConfig(base_url=URL, target=Target(provider="vendor"))
    assert CompatibleModelProvider(other).target.provider == "vendor"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", "ftp://h"),
        ("base_url", "h/v1"),
        ("base_url", ""),
        ("base_url", None),
        ("base_url", "http://"),
        ("base_url", "http://h:99999"),
        ("base_url", "http://h/ v1"),
        ("base_url", "http://user:pw@h/v1"),
        ("proxy", "socks"),
        ("api_key", ""),
        ("api_key", "sk-secret-123\n"),
        ("api_key", "sk-secret-123 x"),
        ("model", ""),
        ("model", 5),
        ("name", ""),
        ("headers", {"a b": "c"}),
        ("headers", {"x-secret-123": "sk-secret-123\r\nb: c"}),
        ("headers", {"a": 5}),
        ("headers", ("a",)),
        ("headers", 5),
        ("extra_body", ["n"]),
        ("extra_body", {"n": 2}),
        ("extra_body", {"n": "two"}),
        ("connect_timeout_s", 0),
        ("idle_timeout_s", -1),
        ("total_timeout_s", float("inf")),
        ("total_timeout_s", float("nan")),
        ("total_timeout_s", "9"),
        ("retries", -1),
        ("retries", 1.5),
        ("retries", True),
        ("connections_max", 0),
        ("events_max", 0),
    ],
)
def test_invalid_value_is_refused_by_its_field(field: str, value: object) -> None:
    """The error names the field, and never a secret value."""
    arguments: dict[str, Any] = {"base_url": URL, field: value}
    with pytest.raises(InvalidValue) as caught:
        ProviderConfig(**arguments)
    assert "secret-123\r" not in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    named = {"headers": "header", "extra_body": "extra_body"}.get(field, field)
    assert named in str(caught.value)


def test_one_answer_may_be_asked_for_by_number() -> None:
    """``n`` of 1 is what every exchange asks for."""
    assert ProviderConfig(base_url=URL, extra_body={"n": 1}).extra_body == {"n": 1}


def test_headers_of_the_caller_replace_the_usual_ones() -> None:
    """Whatever the case of its name, a header is sent once."""
    config = ProviderConfig(base_url=URL, api_key=KEY, headers={"AUTHORIZATION": "Basic x"})
    assert config.request_headers()["authorization"] == "Basic x"
    assert len(config.request_headers()) == 5


def test_config_can_be_changed_into_another() -> None:
    """A copy with another model keeps the key."""
    config = msgspec.structs.replace(ProviderConfig(base_url=URL, api_key=KEY), model="m")
    assert config.model == "m"
    assert config.request_headers()["authorization"] == f"Bearer {KEY}"


def test_importing_providers_imports_no_http_client() -> None:
    """The HTTP client is imported at the first request."""
    code = "import sys, turngate.providers; print('aiohttp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

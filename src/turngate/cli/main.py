"""The entry of the command line, which also runs where its own packages are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command; `arguments` None: those of this process."""
    try:
        import rich  # noqa: F401  # typer can do without it, our commands cannot
        import typer  # noqa: F401
    except ModuleNotFoundError:
        print(
            "turngate: the command line needs its own parts: pip install 'turngate[cli]'",
            file=sys.stderr,
        )
        return 2
    from turngate.cli.commands import app

    try:
        app(args=arguments, prog_name="turngate")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0

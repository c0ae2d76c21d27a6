"""The commands and their options. What a command does is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer

from turngate.cli.options import (
    DEFAULT_DB,
    DEFAULT_TENANT,
    DbOption,
    InstructionsOption,
    JsonOption,
    MaxTokensOption,
    ModelOption,
    TenantOption,
    UrlOption,
)

__all__ = ["app", "run_command"]

app = typer.Typer(
    name="turngate",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help(text: str, *examples: str) -> str:
    """The help of a command: paragraphs, which the terminal's width folds, then its examples."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n")]
    # The backspace keeps the lines of this paragraph as they are.
    paragraphs.append("\n".join(["\b", "[bold]Examples[/bold]", *examples]))
    return "\n\n".join(paragraphs)


_TENANT = "The tenant is 'local' unless --tenant names another one."
_READS = "It only reads, also beside a program that is writing the file. " + _TENANT


def run_command(arguments: Sequence[str]) -> int:
    """The exit code of the command that `arguments` name."""
    try:
        code = app(args=list(arguments), prog_name="turngate", standalone_mode=False)
    except typer.Abort:
        return 130
    except Exception as error:
        # Wrong usage. Its class is not public in every version of typer, but its methods are.
        if not hasattr(error, "format_message"):
            raise
        return _wrong_usage(error, as_json="--json" in arguments)
    return code if isinstance(code, int) else 0


def _wrong_usage(error: Any, *, as_json: bool) -> int:
    from turngate.cli.failures import USAGE, show_error

    message = error.format_message()
    if message:  # none: the help was shown instead
        command = error.ctx.command_path if error.ctx is not None else "turngate"
        show_error("usage", message, f"See {command} --help.", as_json=as_json)
    return USAGE


def _end(body: Callable[[], int], *, as_json: bool = False) -> NoReturn:
    from turngate.cli.failures import ended

    raise typer.Exit(ended(body, as_json=as_json))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"turngate {version('turngate')}")
        except PackageNotFoundError:
            print("turngate, not installed as a package")
        raise typer.Exit


@app.callback(
    help=_help(
        """
        Conversations with language models that are kept: threads of turns in one SQLite file.

        The tenant, whose the threads are, is 'local' unless --tenant names another one.

        Exit codes: 0 done, 1 the request can't be met, 2 wrong usage, 3 the model failed, 4 the
        database failed, 130 Ctrl-C.
        """,
        "turngate demo",
        "turngate chat --url http://127.0.0.1:8080/v1",
        "turngate threads",
        "turngate show THREAD",
    )
)
def _turngate(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The options that stand before a command."""


@app.command(
    help=_help(
        """
        Have a short conversation, store it, and read it back from the file.

        On a terminal you can go on with it afterwards. The tenant is 'local'.
        """,
        "turngate demo",
        "turngate demo --db /tmp/demo.db",
        "turngate demo --url http://127.0.0.1:8080/v1 --model NAME",
    )
)
def demo(
    db: Annotated[
        str,
        typer.Option("--db", metavar="PATH", help="The SQLite file to keep the conversation in."),
    ] = "turngate-demo.db",
    url: UrlOption = None,
    model: ModelOption = None,
) -> None:

    def body() -> int:
        from turngate.cli.demo import run_demo

        return run_demo(db=db, url=url, model=model)

    _end(body)


@app.command(
    help=_help(
        f"""
        Talk with a model in a thread that is kept.

        Ctrl-C stops an answer and keeps what was said; at the prompt it leaves, like Ctrl-D.

        Where stdin is no terminal, each of its lines is one prompt, and stdout gets the answers
        alone. {_TENANT}
        """,
        "turngate chat",
        "turngate chat --thread support-42 --instructions 'Answer in one sentence.'",
        "turngate chat --url http://127.0.0.1:8080/v1 --model NAME",
        "echo 'What is the capital of France?' | turngate chat",
        "turngate chat --json < prompts.txt > events.jsonl",
    )
)
def chat(
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread", metavar="THREAD", help="The thread to go on with. Without it: a new one."
        ),
    ] = None,
    tenant: TenantOption = DEFAULT_TENANT,
    url: UrlOption = None,
    model: ModelOption = None,
    db: DbOption = DEFAULT_DB,
    instructions: InstructionsOption = None,
    max_tokens: MaxTokensOption = None,
    as_json: JsonOption = False,
) -> None:

    def body() -> int:
        from turngate.cli.chat import run_chat

        return run_chat(
            db=db,
            tenant=tenant,
            thread=thread,
            url=url,
            model=model,
            instructions=instructions,
            max_tokens=max_tokens,
            as_json=as_json,
        )

    _end(body, as_json=as_json)


@app.command(
    help=_help(
        f"""
        List the threads of a tenant, last changed first.

        {_READS}
        """,
        "turngate threads",
        "turngate threads --tenant acme --limit 10",
        "turngate threads --json",
    )
)
def threads(
    tenant: TenantOption = DEFAULT_TENANT,
    db: DbOption = DEFAULT_DB,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many to list.")
    ] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Go on where an earlier list ended."),
    ] = None,
    as_json: JsonOption = False,
) -> None:

    def body() -> int:
        from turngate.cli.show import run_threads

        return run_threads(db=db, tenant=tenant, limit=limit, after=after, as_json=as_json)

    _end(body, as_json=as_json)


@app.command(
    help=_help(
        f"""
        Show the turns of a thread, oldest first, and what they used.

        {_READS}
        """,
        "turngate show support-42",
        "turngate show support-42 --limit 10 --before 90",
        "turngate show support-42 --json",
    )
)
def show(
    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")],
    tenant: TenantOption = DEFAULT_TENANT,
    db: DbOption = DEFAULT_DB,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many turns to show.")
    ] = 50,
    before: Annotated[
        int | None,
        typer.Option(
            "--before", metavar="P", min=0, help="Show the turns before position P, not the last."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:

    def body() -> int:
        from turngate.cli.show import run_show

        return run_show(
            db=db, tenant=tenant, thread=thread, limit=limit, before=before, as_json=as_json
        )

    _end(body, as_json=as_json)

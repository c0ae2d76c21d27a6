"""The commands and their options. What a command does is imported when it is run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

__all__ = ["app"]

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(name="turngate", pretty_exceptions_enable=False, **_SETTINGS)
runs_app = typer.Typer(**_SETTINGS)
app.add_typer(runs_app, name="runs", help="List, show, cancel and resume the runs of a tenant.")


def _option(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=text, **more)


_URL_HELP = (
    "A Chat Completions server, with its /v1. Without it: TURNGATE_URL, else OPENAI_BASE_URL, else"
    " the embedded model. The key is read from TURNGATE_API_KEY, else OPENAI_API_KEY."
)
_MODEL_HELP = "The model's name on the server. Without it: the server's only one."
_TENANT_HELP = "Whose it is. The library knows no default tenant; this program says 'local'."

Db = Annotated[str, _option("--db", "PATH", "The SQLite file.", envvar="TURNGATE_DB")]
DemoDb = Annotated[str, _option("--db", "PATH", "The SQLite file to keep the conversation in.")]
Tenant = Annotated[str, _option("--tenant", "NAME", _TENANT_HELP)]
Json = Annotated[bool, _option("--json", None, "JSON instead of text; errors too.")]
Url = Annotated[str | None, _option("--url", "URL", _URL_HELP)]
Model = Annotated[str | None, _option("--model", "NAME", _MODEL_HELP, envvar="TURNGATE_MODEL")]
Thread = Annotated[str | None, _option("--thread", "THREAD", "The thread. Without it: a new one.")]
Told = Annotated[str | None, _option("--instructions", "TEXT", "What the model is told first.")]
MaxTokens = Annotated[int | None, _option("--max-tokens", "N", "The longest answer.", min=1)]
Limit = Annotated[int, _option("--limit", "N", "How many at most.", min=1, max=1000)]
After = Annotated[str | None, _option("--after", "CURSOR", "Go on where an earlier list ended.")]
Before = Annotated[int | None, _option("--before", "P", "The turns before position P.", min=0)]
OfThread = Annotated[str | None, _option("--thread", "THREAD", "Those of this thread alone.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]

_DB = "turngate.db"
_LOCAL = "local"

Body = Callable[..., int]


def _command(name: str, group: typer.Typer = app) -> Callable[[Body], Body]:
    """Make a command of a function that gives the exit code; its docstring is the help."""

    def register(body: Body) -> Body:
        @functools.wraps(body)
        def run(**options: Any) -> NoReturn:
            from turngate.cli.failures import ended

            as_json = options.get("as_json", False)
            raise typer.Exit(ended(lambda: body(**options), as_json=as_json))

        group.command(name)(run)
        return body

    return register


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"turngate {version('turngate')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
]


@app.callback()
def _turngate(version: Version = False) -> None:
    """Conversations with language models that are kept: threads of turns in one SQLite file.

    Exit codes: 0 done, 1 the request can't be met, 2 wrong usage,
    3 the model failed, 4 the database failed, 130 Ctrl-C.

    [bold]Examples[/bold]
    turngate demo
    turngate chat --url http://127.0.0.1:8080/v1
    turngate threads
    turngate show THREAD
    turngate runs list
    """


@_command("demo")
def _demo(db: DemoDb = "turngate-demo.db", url: Url = None, model: Model = None) -> int:
    """Have a short conversation with a tool call, store it, and read it back from the file.

    On a terminal you can go on with it afterwards. The tenant is 'local'.

    [bold]Examples[/bold]
    turngate demo
    turngate demo --url http://127.0.0.1:8080/v1 --model NAME
    """
    from turngate.cli.demo import run_demo

    return run_demo(db=db, url=url, model=model)


@_command("chat")
def _chat(
    thread: Thread = None,
    tenant: Tenant = _LOCAL,
    url: Url = None,
    model: Model = None,
    db: Db = _DB,
    instructions: Told = None,
    max_tokens: MaxTokens = None,
    as_json: Json = False,
) -> int:
    """Talk with a model in a thread that is kept.

    Ctrl-C stops an answer and keeps what was said; at the prompt it leaves,
    like Ctrl-D. Where stdin or stdout is no terminal, each line of stdin is
    one prompt, and stdout gets the answers alone.

    [bold]Examples[/bold]
    turngate chat --thread support-42 --instructions 'Answer in one sentence.'
    turngate chat --url http://127.0.0.1:8080/v1 --model NAME
    echo 'What is the capital of France?' | turngate chat
    turngate chat --json < prompts.txt > events.jsonl
    """
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


@_command("threads")
def _threads(
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    after: After = None,
    as_json: Json = False,
) -> int:
    """List the threads of a tenant, last changed first, also beside a program that writes them.

    [bold]Examples[/bold]
    turngate threads --tenant acme --limit 10
    turngate threads --json
    """
    from turngate.cli.show import run_threads

    return run_threads(db=db, tenant=tenant, limit=limit, after=after, as_json=as_json)


@_command("show")
def _show(
    thread: ThreadId,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    before: Before = None,
    as_json: Json = False,
) -> int:
    """Show the turns of a thread and what they used, also beside a program that writes them.

    [bold]Examples[/bold]
    turngate show support-42 --limit 10 --before 90
    turngate show support-42 --json
    """
    from turngate.cli import show

    return show.run_show(
        db=db, tenant=tenant, thread=thread, limit=limit, before=before, as_json=as_json
    )


@_command("list", runs_app)
def _runs_list(
    thread: OfThread = None,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    as_json: Json = False,
) -> int:
    """List the runs of a tenant, newest first, also beside a program that is running them.

    [bold]Examples[/bold]
    turngate runs list --thread support-42
    """
    from turngate.cli.runs import run_list

    return run_list(db=db, tenant=tenant, thread=thread, limit=limit, as_json=as_json)


@_command("show", runs_app)
def _runs_show(run: RunId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False) -> int:
    """Show a run: its state, its steps with the tools' results, what it used and waits for.

    [bold]Examples[/bold]
    turngate runs show RUN --json
    """
    from turngate.cli.runs import run_show

    return run_show(db=db, tenant=tenant, run=run, as_json=as_json)


@_command("cancel", runs_app)
def _runs_cancel(run: RunId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False) -> int:
    """End a run that a dead process left behind; its finished steps are kept.

    A run that is alive belongs to its process, and is cancelled there.

    [bold]Examples[/bold]
    turngate runs cancel RUN
    """
    from turngate.cli.runs import run_cancel

    return run_cancel(db=db, tenant=tenant, run=run, as_json=as_json)


@_command("resume", runs_app)
def _runs_resume(db: Db = _DB, url: Url = None, model: Model = None, as_json: Json = False) -> int:
    """Go on with what dead processes left behind, and say what waits for which tools.

    This program has the tool of its demo alone. A run with other tools goes
    on where the program that has them opens the file.

    [bold]Examples[/bold]
    turngate runs resume --db turngate-demo.db
    """
    from turngate.cli.runs import run_resume

    return run_resume(db=db, url=url, model=model, as_json=as_json)

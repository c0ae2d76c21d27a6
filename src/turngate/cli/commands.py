"""The commands and their options. What a command does is imported when it is run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(name="turngate", pretty_exceptions_enable=False, **_SETTINGS)
runs_app = typer.Typer(**_SETTINGS)
files_app = typer.Typer(**_SETTINGS)
app.add_typer(runs_app, name="runs", help="List, show, cancel and resume the runs of a tenant.")
facts_app = typer.Typer(**_SETTINGS)
app.add_typer(facts_app, name="facts", help="Show what is remembered of users, and mend it.")
reviews_app = typer.Typer(**_SETTINGS)
app.add_typer(reviews_app, name="reviews", help="Show what waits for a person, and decide on it.")
app.add_typer(files_app, name="files", help="List, put, get and delete the files of a tenant.")


def _option(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=text, **more)


_URL_HELP = (
    "A Chat Completions server, with its /v1. Without it: TURNGATE_URL, else OPENAI_BASE_URL, else"
    " the embedded model. The key is read from TURNGATE_API_KEY, else OPENAI_API_KEY."
)
_MODEL_HELP = "The model's name on the server. Without it: the server's only one."
_STATES_HELP = "open, approved, edited, rejected, retried, cancelled, or any."
_FACT_STATES_HELP = "active, proposed, superseded, rejected, forgotten, or any."
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
Asks = Annotated[bool, _option("--asks", None, "Asks too.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
ReviewId = Annotated[str, typer.Argument(metavar="REVIEW", help="The review's id.")]
State = Annotated[str, _option("--state", "STATE", _STATES_HELP)]
FactId = Annotated[str, typer.Argument(metavar="FACT", help="The fact's id.")]
AnyFact = Annotated[str | None, typer.Argument(metavar="[FACT]", help="The fact's id.")]
FactText = Annotated[str, typer.Argument(metavar="TEXT", help="One short statement.")]
FactUser = Annotated[str, typer.Argument(metavar="USER", help="Whom it is about.")]
OfUser = Annotated[str | None, _option("--user", "USER", "Those about this user alone.")]
OfTurn = Annotated[str | None, _option("--turn", "TURN", "Those from this turn of the thread.")]
Kind = Annotated[str, _option("--kind", "KIND", "profile, preference, or event.")]
FactState = Annotated[str, _option("--state", "STATE", _FACT_STATES_HELP)]
By = Annotated[
    str | None, _option("--by", "NAME", "Who decides; it is kept.", envvar="TURNGATE_REVIEWER")
]
Why = Annotated[str | None, _option("--why", "TEXT", "The reason; it is kept.")]
Text = Annotated[str | None, _option("--text", "TEXT", "The answer in place of the model's.")]
Arguments = Annotated[str | None, _option("--arguments", "JSON", "The tool's other arguments.")]
Editor = Annotated[bool, _option("--editor", None, "Edit in the program that EDITOR names.")]
Note = Annotated[str, _option("--note", "TEXT", "What the model is told for its next try.")]
Yes = Annotated[bool, _option("--yes", None, "Approve the held answer without asking.")]
Sure = Annotated[bool, _option("--yes", None, "Do it without asking.")]
AnyThread = Annotated[str | None, typer.Argument(metavar="[THREAD]", help="The thread's id.")]
OneTurn = Annotated[str | None, _option("--turn", "TURN", "Only this turn of the thread.")]
AllOf = Annotated[str | None, _option("--user", "USER", "All that is kept of this user.")]
_CALL_HELP = "The id of an ask or run; CALL:N is its model call N alone."
CallId = Annotated[str, typer.Argument(metavar="CALL", help=_CALL_HELP)]
Number = Annotated[int | None, _option("--model-call", "N", "Model call N alone.", min=1)]
_DIFF_HELP = "Compare with another, CALL or CALL:N; of a call its last model call."
Other = Annotated[str | None, _option("--diff", "OTHER", _DIFF_HELP)]
Lines = Annotated[bool, _option("--turns", None, "The first line of each turn too.")]
FileId = Annotated[str, typer.Argument(metavar="FILE", help="The file's id.")]
Source = Annotated[str, typer.Argument(metavar="PATH", help="The file to take; - is stdin.")]
Out = Annotated[str | None, _option("--out", "PATH", "Where to write it. Without it: stdout.")]
Named = Annotated[str | None, _option("--name", "NAME", "Its name. Without it: that of PATH.")]
Type = Annotated[str | None, _option("--type", "TYPE", "Its media type. Without it: by its name.")]
_PLACE_HELP = "A folder or a bucket's URL that holds the bytes. Without it: <db>.files."
Place = Annotated[str | None, _option("--files", "PLACE", _PLACE_HELP, envvar="TURNGATE_FILES")]
OlderThan = Annotated[
    float, _option("--older-than", "HOURS", "Only what is older, in hours.", min=1.0)
]

_DB = "turngate.db"
_LOCAL = "local"

Form = Callable[..., None]


def _command(
    name: str, target: str, group: typer.Typer = app, *, also: Form | None = None, **fixed: str
) -> Callable[[Form], Form]:
    """Make a command of a function's signature and docstring, which are its options and its help.

    `also` has further options. `target` is called with all of them, and `fixed`, and may give an
    exit code (None: 0): a function of a module of this package, which is imported then.
    """

    def register(form: Form) -> Form:
        @functools.wraps(form)
        def run(**options: Any) -> NoReturn:
            from turngate.cli.failures import ended

            def body() -> int:
                module, function = target.split(".")
                called = getattr(import_module(f"turngate.cli.{module}"), function)
                return called(**options, **fixed) or 0

            raise typer.Exit(ended(body, as_json=options.get("as_json", False)))

        if also is not None:
            forms = (inspect.signature(each, eval_str=True) for each in (form, also))
            options = [option for each in forms for option in each.parameters.values()]
            run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
            run.__annotations__ = {option.name: option.annotation for option in options}
        group.command(name)(run)
        return form

    return register


# Options that several commands have, each after its own.


def _listed(
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    after: After = None,
    as_json: Json = False,
) -> None: ...


def _stored(
    tenant: Tenant = _LOCAL, db: Db = _DB, files: Place = None, as_json: Json = False
) -> None: ...


def _mended(
    by: By = None, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False
) -> None: ...


def _decided(
    by: By = None,
    why: Why = None,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    as_json: Json = False,
) -> None: ...


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
    turngate explain CALL
    turngate runs list
    turngate reviews decide
    """


@_command("demo", "demo.run_demo")
def _demo(
    db: DemoDb = "turngate-demo.db", url: Url = None, model: Model = None, yes: Yes = False
) -> None:
    """Have a short conversation with a tool and a review, store it, and read it back.

    On a terminal you can go on with it afterwards. The tenant is 'local'.

    [bold]Examples[/bold]
    turngate demo
    turngate demo --yes
    turngate demo --url http://127.0.0.1:8080/v1 --model NAME
    """


@_command("chat", "chat.run_chat")
def _chat(
    thread: Thread = None,
    tenant: Tenant = _LOCAL,
    url: Url = None,
    model: Model = None,
    db: Db = _DB,
    instructions: Told = None,
    max_tokens: MaxTokens = None,
    as_json: Json = False,
) -> None:
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


@_command("threads", "show.run_threads", also=_listed)
def _threads() -> None:
    """List the threads of a tenant, last changed first, also beside a program that writes them.

    [bold]Examples[/bold]
    turngate threads --tenant acme --limit 10
    turngate threads --json
    """


@_command("show", "show.run_show")
def _show(
    thread: ThreadId,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    before: Before = None,
    as_json: Json = False,
) -> None:
    """Show the turns of a thread and what they used, also beside a program that writes them.

    [bold]Examples[/bold]
    turngate show support-42 --limit 10 --before 90
    turngate show support-42 --json
    """


@_command("delete", "deleting.run_delete", also=_stored)
def _delete(
    thread: AnyThread = None, turn: OneTurn = None, user: AllOf = None, yes: Sure = False
) -> None:
    """Delete a thread, one turn of it, or all of a user, with what was derived from that alone.

    [bold]Examples[/bold]
    turngate delete support-42
    turngate delete support-42 --turn TURN
    turngate delete --user ann --yes
    """


@_command("explain", "explain.run_explain", also=_stored)
def _explain(
    call: CallId, model_call: Number = None, diff: Other = None, turns: Lines = False
) -> None:
    """Show what the model calls of an ask or run were shown, what was left out, and why.

    With --diff: what one was shown and another not. Opens the file to read.

    [bold]Examples[/bold]
    turngate explain CALL --turns
    turngate explain CALL --diff OTHER
    turngate explain CALL:1 --diff CALL:2 --json
    """


@_command("list", "runs.run_list", runs_app)
def _runs_list(
    thread: OfThread = None,
    asks: Asks = False,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List the runs of a tenant, newest first, also beside a program that is running them.

    [bold]Examples[/bold]
    turngate runs list --thread support-42
    turngate runs list --asks
    """


@_command("show", "runs.run_show", runs_app)
def _runs_show(run: RunId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False) -> None:
    """Show a run: its state, its steps with the tools' results, what it used and waits for.

    [bold]Examples[/bold]
    turngate runs show RUN --json
    """


@_command("cancel", "runs.run_cancel", runs_app)
def _runs_cancel(run: RunId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False) -> None:
    """End a run that a dead process left behind; its finished steps are kept.

    A run that is alive belongs to its process, and is cancelled there.

    [bold]Examples[/bold]
    turngate runs cancel RUN
    """


@_command("resume", "runs.run_resume", runs_app)
def _runs_resume(db: Db = _DB, url: Url = None, model: Model = None, as_json: Json = False) -> None:
    """Go on with what dead processes left behind, and say what waits for which tools.

    This program has the tool of its demo alone. A run with other tools goes
    on where the program that has them opens the file.

    [bold]Examples[/bold]
    turngate runs resume --db turngate-demo.db
    """


@_command("list", "reviews.run_list", reviews_app, also=_listed)
def _reviews_list(thread: OfThread = None, state: State = "open") -> None:
    """List what waits for a person, newest first, also beside a program that writes the file.

    [bold]Examples[/bold]
    turngate reviews list
    turngate reviews list --state any --thread support-42
    """


@_command("show", "reviews.run_show", reviews_app)
def _reviews_show(
    review: ReviewId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False
) -> None:
    """Show a review: the conversation, what was proposed, why it is held, and the decision.

    [bold]Examples[/bold]
    turngate reviews show REVIEW
    """


@_command("approve", "reviews.run_decision", reviews_app, action="approve", also=_decided)
def _reviews_approve(review: ReviewId) -> None:
    """Let the answer be given, or the tool be called, as it was proposed.

    [bold]Examples[/bold]
    turngate reviews approve REVIEW --by ann
    """


@_command("edit", "reviews.run_decision", reviews_app, action="edit")
def _reviews_edit(
    review: ReviewId,
    by: By = None,
    text: Text = None,
    arguments: Arguments = None,
    editor: Editor = False,
    why: Why = None,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    as_json: Json = False,
) -> None:
    """Let it pass with another text, or with other arguments of the tool.

    [bold]Examples[/bold]
    turngate reviews edit REVIEW --by ann --editor
    turngate reviews edit REVIEW --by ann --text 'It comes tomorrow.'
    """


@_command("reject", "reviews.run_decision", reviews_app, action="reject", also=_decided)
def _reviews_reject(review: ReviewId) -> None:
    """Refuse it. An answer's call ends blocked; of a tool call the model is told why.

    [bold]Examples[/bold]
    turngate reviews reject REVIEW --by ann --why 'The price is wrong.'
    """


@_command("retry", "reviews.run_decision", reviews_app, action="retry", also=_decided)
def _reviews_retry(review: ReviewId, note: Note) -> None:
    """Have the model answer once more, told the note.

    [bold]Examples[/bold]
    turngate reviews retry REVIEW --by ann --note 'Name the day.'
    """


@_command("decide", "reviews.run_decide", reviews_app)
def _reviews_decide(
    thread: OfThread = None, by: By = None, tenant: Tenant = _LOCAL, db: Db = _DB
) -> None:
    """Go through what waits, oldest first, and decide on each at the terminal.

    [bold]Examples[/bold]
    turngate reviews decide --by ann
    """


@_command("export", "reviews.run_export", reviews_app)
def _reviews_export(tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False) -> None:
    """Print every review that was decided, oldest first: one JSON object a line.

    [bold]Examples[/bold]
    turngate reviews export > reviews.jsonl
    """


@_command("list", "files.run_list", files_app, also=_listed)
def _files_list() -> None:
    """List the files of a tenant, newest first, also beside a program that writes them.

    [bold]Examples[/bold]
    turngate files list --tenant acme
    """


@_command("put", "files.run_put", files_app, also=_stored)
def _files_put(path: Source, name: Named = None, media_type: Type = None) -> None:
    """Store a file and print its id.

    [bold]Examples[/bold]
    turngate files put report.pdf
    cat notes | turngate files put - --name notes.md
    """


@_command("get", "files.run_get", files_app)
def _files_get(
    file: FileId,
    out: Out = None,
    tenant: Tenant = _LOCAL,
    db: Db = _DB,
    files: Place = None,
) -> None:
    """Write the bytes of a file to a path, or to a stdout that is no terminal.

    A path holds the whole file, checked, or is left as it was.

    [bold]Examples[/bold]
    turngate files get FILE --out report.pdf
    turngate files get FILE | less
    """


@_command("delete", "files.run_delete", files_app, also=_stored)
def _files_delete(file: FileId) -> None:
    """Remove a file and, if no other file has the same, its bytes. Turns keep their pointer.

    [bold]Examples[/bold]
    turngate files delete FILE
    """


@_command("sweep", "files.run_sweep", files_app)
def _files_sweep(
    db: Db = _DB, files: Place = None, older_than: OlderThan = 24.0, as_json: Json = False
) -> None:
    """Remove bytes that no file has, and unfinished uploads: what crashes left, of every tenant.

    The place must belong to this database alone: what another database has there is unknown here.

    [bold]Examples[/bold]
    turngate files sweep --older-than 1
    """


@_command("list", "facts.run_list", facts_app, also=_listed)
def _facts_list(user: OfUser = None, state: FactState = "active") -> None:
    """List what is remembered of users, newest first, also beside a program that writes the file.

    [bold]Examples[/bold]
    turngate facts list --user ann
    turngate facts list --state proposed
    """


@_command("add", "facts.run_add", facts_app, also=_mended)
def _facts_add(user: FactUser, text: FactText, kind: Kind = "profile") -> None:
    """Add a fact about a user by hand.

    [bold]Examples[/bold]
    turngate facts add ann 'Prefers short answers.' --kind preference --by bea
    """


@_command("edit", "facts.run_edit", facts_app, also=_mended)
def _facts_edit(fact: FactId, text: FactText) -> None:
    """Put another text in the place of a fact; the old one stays in its history.

    [bold]Examples[/bold]
    turngate facts edit FACT 'Lives in Rome.' --by bea
    """


@_command("approve", "facts.run_decision", facts_app, action="approve", also=_mended)
def _facts_approve(fact: FactId) -> None:
    """Let a proposed fact be shown to models.

    [bold]Examples[/bold]
    turngate facts approve FACT --by bea
    """


@_command("reject", "facts.run_decision", facts_app, action="reject", also=_mended)
def _facts_reject(fact: FactId) -> None:
    """Take a proposed or an active fact back; what it superseded is active again.

    [bold]Examples[/bold]
    turngate facts reject FACT --by bea
    """


@_command("forget", "facts.run_forget", facts_app, also=_mended)
def _facts_forget(
    fact: AnyFact = None,
    user: OfUser = None,
    thread: OfThread = None,
    turn: OfTurn = None,
    yes: Sure = False,
) -> None:
    """Erase the text of a fact with its history, of a user, or what comes from a thread alone.

    [bold]Examples[/bold]
    turngate facts forget FACT
    turngate facts forget --user ann
    turngate facts forget --thread support-42 --turn TURN
    """


@_command("history", "facts.run_history", facts_app)
def _facts_history(
    fact: FactId, tenant: Tenant = _LOCAL, db: Db = _DB, as_json: Json = False
) -> None:
    """Show a fact with its corrections, oldest first, and the turns that each comes from.

    [bold]Examples[/bold]
    turngate facts history FACT --json
    """

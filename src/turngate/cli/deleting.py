"""``delete``: a turn, a thread, or all of a user, in a file that no other process writes."""

from __future__ import annotations

from turngate.cli.chat import is_interactive
from turngate.cli.failures import WrongUsage
from turngate.cli.show import counted, read, write
from turngate.cli.terminal import out_console, print_json, say
from turngate.gateway import Gateway, Tenant


def run_delete(
    *,
    db: str,
    tenant: str,
    thread: str | None,
    turn: str | None,
    user: str | None,
    yes: bool,
    files: str | None,
    as_json: bool,
) -> int:
    if (thread is None) == (user is None) or (turn is not None and thread is None):
        raise WrongUsage("name a thread, a thread and its --turn, or a --user")
    if thread is not None:
        turns = read(db, lambda gateway: _length(gateway.tenant(tenant), thread))
        what = f"thread {thread!r} with its {counted(turns, 'turn')}"
        if turn is not None:
            what = f"turn {turn!r} of thread {thread!r}"
    else:
        read(db, lambda gateway: gateway.tenant(tenant).threads(limit=1))  # no file is made for it
        what = f"all that is kept of user {user!r} of tenant {tenant!r}"
    if not confirmed(f"Delete {what}", yes=yes):
        return 1

    async def deleted(gateway: Gateway) -> None:
        of_tenant = gateway.tenant(tenant)
        if user is not None:
            await of_tenant.delete_user(user)
        elif turn is not None:
            await of_tenant.thread(thread).delete_turn(turn)
        else:
            await of_tenant.thread(thread).delete()

    write(db, deleted, files=files)
    if as_json:
        print_json({"deleted": {"thread": thread, "turn": turn, "user": user}})
    else:
        say(out_console(), f"{what} is deleted")
    return 0


async def _length(tenant: Tenant, thread: str) -> int:
    """The turns of a thread, which may have calls alone. Errors: `ThreadNotFound`."""
    if not (await tenant.calls(thread=thread, limit=1)).calls:
        return (await tenant.thread(thread).record()).length
    return (await tenant.thread(thread).turns(limit=1)).length


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether a person wants what can't be undone. Errors: `WrongUsage` where nobody is there."""
    if yes:
        return True
    if not is_interactive():
        raise WrongUsage(f"{question}? Nobody is there to ask", hint="Give --yes.")
    if input(f"{question}? It can't be undone. [y/N] ").strip().lower() in ("y", "yes"):
        return True
    say(out_console(), "nothing is deleted")
    return False

"""``facts``: what is remembered of users, beside a running process, and how a person mends it."""

from __future__ import annotations

from typing import Any, get_args

from turngate.cli.chat import is_interactive
from turngate.cli.failures import WrongUsage
from turngate.cli.show import counted, local_time, read, write
from turngate.cli.terminal import json_shape, out_console, print_json, print_table, say
from turngate.records import FactKind, FactRecord, FactState

__all__ = ["run_add", "run_decision", "run_edit", "run_forget", "run_history", "run_list"]

_LEFT_OUT = {"revision"}


def run_list(*, db: str, tenant: str, state: str, as_json: bool, **page_of: Any) -> int:
    states = get_args(FactState)
    if state not in (*states, "any"):
        raise WrongUsage(f"--state is {', '.join(states)}, or any")
    page_of["state"] = None if state == "any" else state
    page = read(db, lambda gateway: gateway.tenant(tenant).facts.list(**page_of))
    if as_json:
        print_json({"facts": [_shape(fact) for fact in page.facts], "next": page.next})
        return 0
    if page.facts:
        _print(page.facts)
    else:
        say(out_console(), (f"No such facts of tenant {tenant!r} here.", "dim"))
    if page.next is not None:
        say(out_console(), (f"There are more: --after {page.next}", "dim"))
    return 0


def run_add(
    *, db: str, tenant: str, user: str, text: str, kind: str, by: str | None, as_json: bool
) -> int:
    who = _named(by)
    kinds = {name: name for name in get_args(FactKind)}
    if kind not in kinds:
        raise WrongUsage(f"--kind is {' or '.join(kinds)}")
    added = write(
        db,
        lambda gateway: gateway.tenant(tenant).facts.add(user, text, kind=kinds[kind], by=who),
    )
    return _told((added,), as_json=as_json)


def run_edit(*, db: str, tenant: str, fact: str, text: str, by: str | None, as_json: bool) -> int:
    who = _known(db, tenant, fact, by)
    edited = write(db, lambda gateway: gateway.tenant(tenant).facts.edit(fact, text, by=who))
    return _told((edited,), as_json=as_json)


def run_decision(
    *, db: str, tenant: str, fact: str, by: str | None, as_json: bool, action: str
) -> int:
    who = _known(db, tenant, fact, by)
    decided = write(db, lambda gateway: getattr(gateway.tenant(tenant).facts, action)(fact, by=who))
    return _told((decided,), as_json=as_json)


def run_forget(
    *,
    db: str,
    tenant: str,
    fact: str | None,
    user: str | None,
    thread: str | None,
    turn: str | None,
    by: str | None,
    as_json: bool,
) -> int:
    read(db, lambda gateway: gateway.tenant(tenant).facts.list(limit=1))  # no file is made for it
    if fact is not None:
        _known(db, tenant, fact, by)
    erased = write(
        db,
        lambda gateway: gateway.tenant(tenant).facts.forget(
            fact, user=user, thread=thread, turn=turn, by=by
        ),
    )
    if as_json:
        print_json({"forgotten": erased})
    else:
        say(out_console(), f"{counted(erased, 'fact')} forgotten")
    return 0


def run_history(*, db: str, tenant: str, fact: str, as_json: bool) -> int:
    history = read(db, lambda gateway: gateway.tenant(tenant).facts.history(fact))
    return _told(history, as_json=as_json)


def _known(db: str, tenant: str, fact: str, by: str | None) -> str:
    """Who decides, once there is such a fact: a wrong name makes no file."""
    read(db, lambda gateway: gateway.tenant(tenant).facts.get(fact))
    return _named(by)


def _named(by: str | None) -> str:
    if not by and is_interactive():
        by = input("your name: ").strip()
    if not by:
        raise WrongUsage("a change needs a name", hint="Give --by, or set TURNGATE_REVIEWER.")
    return by


def _told(facts: tuple[FactRecord, ...], *, as_json: bool) -> int:
    if as_json:
        print_json({"facts": [_shape(fact) for fact in facts]})
    else:
        _print(facts)
    return 0


def _print(facts: tuple[FactRecord, ...]) -> None:
    rows = (
        (
            fact.id,
            fact.user,
            fact.kind,
            local_time(fact.created_at),
            fact.state if fact.trusted or not fact.text else f"{fact.state}, from a tool",
            fact.text,
        )
        for fact in facts
    )
    print_table(out_console(), ("fact", "user", "kind", "since", "state", "text"), rows)


def _shape(fact: FactRecord) -> dict[str, Any]:
    shape = {name: json_shape(getattr(fact, name)) for name in fact.__struct_fields__}
    return {**{n: v for n, v in shape.items() if n not in _LEFT_OUT}, "trusted": fact.trusted}

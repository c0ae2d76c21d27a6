"""``facts``: what is remembered of users, beside a running process, and how a person mends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from turngate.cli.deciding import checked_state, named
from turngate.cli.deleting import confirmed
from turngate.cli.failures import WrongUsage
from turngate.cli.show import counted, local_time, read, write
from turngate.cli.terminal import json_shape, out_console, print_json, print_list, say
from turngate.records import FactKind, FactRecord, FactState


def run_list(*, db: str, tenant: str, state: str, as_json: bool, **page_of: Any) -> None:
    page_of["state"] = checked_state(state, get_args(FactState))
    page = read(db, lambda gateway: gateway.tenant(tenant).facts.list(**page_of))
    if as_json:
        print_json({"facts": [_shape(fact) for fact in page.facts], "next": page.next})
    else:
        _print(page.facts, empty=f"No such facts of tenant {tenant!r} here.", after=page.next)


def run_add(
    *, db: str, tenant: str, user: str, text: str, kind: FactKind, by: str | None, as_json: bool
) -> None:
    who = _named(by)
    if kind not in get_args(FactKind):
        raise WrongUsage(f"--kind is {' or '.join(get_args(FactKind))}")
    added = write(
        db, lambda gateway: gateway.tenant(tenant).facts.add(user, text, kind=kind, by=who)
    )
    _tell(added, as_json=as_json)


def run_edit(*, db: str, tenant: str, fact: str, text: str, by: str | None, as_json: bool) -> None:
    who = _known(db, tenant, fact, by)
    edited = write(db, lambda gateway: gateway.tenant(tenant).facts.edit(fact, text, by=who))
    _tell(edited, as_json=as_json)


def run_decision(
    *, db: str, tenant: str, fact: str, by: str | None, as_json: bool, action: str
) -> None:
    who = _known(db, tenant, fact, by)
    decided = write(db, lambda gateway: getattr(gateway.tenant(tenant).facts, action)(fact, by=who))
    _tell(decided, as_json=as_json)


def run_forget(
    *,
    db: str,
    tenant: str,
    fact: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
    **of: str | None,
) -> int:
    named_ones = [name for name in (fact, of["user"], of["thread"]) if name is not None]
    if len(named_ones) != 1 or (of["turn"] is not None and of["thread"] is None):
        raise WrongUsage("name a fact, a --user, a --thread, or a --thread and its --turn")
    who = _named(by)
    if fact is not None:
        _known(db, tenant, fact, by)
        what = f"fact {fact!r} with its history"
    else:
        read(db, lambda gateway: gateway.tenant(tenant).facts.list(limit=1))  # makes no file
        what = f"what is remembered of {named_ones[0]!r}"
    if not confirmed(f"Forget {what}", yes=yes):
        return 1
    erased = write(db, lambda gateway: gateway.tenant(tenant).facts.forget(fact, by=who, **of))
    if as_json:
        print_json({"forgotten": erased})
    else:
        say(out_console(), f"{counted(erased, 'fact')} forgotten")
    return 0


def run_history(*, db: str, tenant: str, fact: str, as_json: bool) -> None:
    history = read(db, lambda gateway: gateway.tenant(tenant).facts.history(fact))
    _tell(*history, as_json=as_json)


def _known(db: str, tenant: str, fact: str, by: str | None) -> str:
    """Who decides, once there is such a fact: a wrong name makes no file."""
    read(db, lambda gateway: gateway.tenant(tenant).facts.get(fact))
    return _named(by)


def _named(by: str | None) -> str:
    return named(by, what="a change")


def _tell(*facts: FactRecord, as_json: bool) -> None:
    if as_json:
        print_json({"facts": [_shape(fact) for fact in facts]})
    else:
        _print(facts)


def _print(facts: Iterable[FactRecord], *, empty: str = "", after: str | None = None) -> None:
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
    head = ("fact", "user", "kind", "since", "state", "text")
    print_list(out_console(), head, rows, empty=empty, after=after)


def _shape(fact: FactRecord) -> dict[str, Any]:
    shape = json_shape(fact)
    del shape["revision"]
    return {**shape, "trusted": fact.trusted}

"""Records: whose rows a store call may see, and which thread ids there can be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngate import identity
from turngate.errors import InvalidValue
from turngate.records import Change, Scope, checked_thread_id


@pytest.mark.parametrize("tenant", ["acme", "a", "x" * 128, "Ärzte & Co", "a/b", " ", "日本"])
def test_scope_takes_a_tenant(tenant: str) -> None:
    """A tenant is 1 to 128 characters, in any script."""
    assert Scope(tenant).tenant == tenant


@pytest.mark.parametrize("tenant", ["", "x" * 129, "a\nb", "a\n", "a\x00", "\x7f", "a\ud800"])
def test_scope_refuses_what_names_no_tenant(tenant: str) -> None:
    """Empty, overlong or with control characters: there is no default tenant."""
    with pytest.raises(InvalidValue, match="tenant"):
        Scope(tenant)


@pytest.mark.parametrize("wrong", [None, 7, b"acme", True])
def test_scope_and_thread_id_take_text_alone(wrong: Any) -> None:
    """What is no text names neither a tenant nor a thread."""
    with pytest.raises((TypeError, InvalidValue)):
        Scope(wrong)
    with pytest.raises((TypeError, InvalidValue)):
        checked_thread_id(wrong)


def test_scopes_of_one_tenant_are_equal() -> None:
    """A scope is a value, and can be a key."""
    assert {Scope("a"), Scope("a"), Scope("b")} == {Scope("a"), Scope("b")}


@pytest.mark.parametrize("thread_id", ["a", "support-42", "A.b_c:d-9", "x" * 128, "-", "."])
def test_thread_id_of_the_documented_form_passes(thread_id: str) -> None:
    """A thread id is 1 to 128 of letters, digits and four signs, and is given back."""
    assert checked_thread_id(thread_id) == thread_id


@pytest.mark.parametrize(
    "thread_id", ["", "x" * 129, "a b", "a/b", "a\n", "é", "a\x00", "a%20b", "t'--"]
)
def test_thread_id_of_another_form_is_refused(thread_id: str) -> None:
    """All else is an InvalidValue that says the form and repeats nothing of the id."""
    with pytest.raises(InvalidValue, match="thread id is 1 to 128"):
        checked_thread_id(thread_id)


@given(st.text(max_size=6))
def test_thread_id_has_only_its_letters(thread_id: str) -> None:
    """No other letter passes, in any script."""
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")
    try:
        passes = checked_thread_id(thread_id) == thread_id
    except InvalidValue:
        passes = False
    assert passes == (bool(thread_id) and set(thread_id) <= allowed)


def test_ids_that_we_make_are_thread_ids() -> None:
    """A made id can name a thread."""
    made = identity.new_id("thread")
    assert checked_thread_id(made) == made


def test_change_does_nothing_by_itself() -> None:
    """Turns, calls and titles are in a change only where they are given."""
    change = Change(thread="t1", at=identity.now())
    assert (change.turns, change.ledger, change.steps, change.events) == ((), (), (), ())
    assert (change.begin, change.guard, change.update) == (None, None, None)
    assert (change.expected, change.create, change.title, change.user) == (None, False, None, None)


def test_change_is_keyword_only_and_frozen() -> None:
    """The fields of a change are named, and stay."""
    with pytest.raises(TypeError):
        Change("t1", identity.now())  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Change(thread="t1", at=identity.now()).turns = ()  # type: ignore[misc]

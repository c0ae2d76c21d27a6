"""Terms are found as words, however they are written, and are replaced where they stand."""

from __future__ import annotations

from typing import Any, Literal
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.unit.strategies  # noqa: F401  # its profile sets no time limit
from turngate.checks import (
    Allow,
    Block,
    InputCheck,
    OutputCheck,
    Prompt,
    Proposal,
    Replace,
    Review,
    TermsCheck,
)
from turngate.checks.verdicts import Hit, replaced
from turngate.errors import InvalidValue
from turngate.messages import ToolCall

DOTLESS = "\u0131"


def spans(check: TermsCheck, text: str) -> list[str]:
    return [text[hit.start : hit.end] for hit in check._find(text)]


def without_hits(check: TermsCheck, text: str) -> str:
    return replaced(text, check._find(text), check._mark)


# ── what is a hit ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("term", "text", "found"),
    [
        # Case, width, composition, hidden characters, white space.
        ("secret", "My SECRET, his Secret.", ["SECRET", "Secret"]),
        (
            "secret",
            "\uff53\uff45\uff43\uff52\uff45\uff54",
            ["\uff53\uff45\uff43\uff52\uff45\uff54"],
        ),
        ("secret", "se\u200bcr\u00adet", ["se\u200bcr\u00adet"]),
        ("café", "cafe\u0301!", ["cafe\u0301"]),
        ("top secret", "top \n\t secret", ["top \n\t secret"]),
        ("top  secret", "Top\u00a0Secret", ["Top\u00a0Secret"]),
        # Whole words.
        ("secret", "_secret_ secret's (secret) secret-key", ["secret"] * 4),
        ("secret", "Secret™ secret² ™secret", ["Secret", "secret", "secret"]),
        ("tm", "Secret™", ["™"]),
        ("42", "42, 42nd", ["42"]),
        ("C++", "C++ and C++11", ["C++", "C++"]),
        (".onion", "name.onion", [".onion"]),
        ("🔫", "a🔫b", ["🔫"]),
        ("secret", "\u00b4secret\u00b4", ["secret"]),
        # Other scripts.
        ("ΟΔΟΣ", "η οδος", ["οδος"]),
        ("οδος", "ΟΔΟΣ οδοσ", ["ΟΔΟΣ", "οδοσ"]),
        ("straße", "STRASSE Strasse", ["STRASSE", "Strasse"]),
        ("strasse", "Straße", ["Straße"]),
        ("тайна", "Это ТАЙНА.", ["ТАЙНА"]),
        ("istanbul", "İSTANBUL", ["İSTANBUL"]),
        (f"s{DOTLESS}r", f"S{DOTLESS}R", [f"S{DOTLESS}R"]),
        ("سر", "هذا سر.", ["سر"]),
        ("गुप्त", "यह गुप्त है", ["गुप्त"]),
        ("비밀", "비밀 문서", ["비밀"]),
        ("机密", "这是机密文件", ["机密"]),
        ("ガス", "東京ｶﾞｽ会社", ["ｶﾞｽ"]),
        ("ลับ", "ความลับของ", ["ลับ"]),
    ],
)
def test_term_is_found(term: str, text: str, found: list[str]) -> None:
    """What reads as the term is a hit, and the hit is the part of the text that reads so."""
    assert spans(TermsCheck([term]), text) == found


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("secret", "secrets secretary unsecret secret7"),
        ("secret", "se cret s.e.c.r.e.t"),
        ("top secret", "topsecret top, secret"),
        ("42", "142 420 4.2"),
        ("cafe", "café"),
        ("cafe", "cafe\u0301"),
        ("οδος", "μέθοδος οδοστρωμα"),
        ("тайна", "тайнами нетайна"),
        ("тайн", "тайна"),
        ("sir", f"s{DOTLESS}r"),
        (f"s{DOTLESS}r", "SIR"),
        ("strase", "Straße"),
        ("비밀", "비밀을"),
        ("গ", "গো"),
        ("ก", "กิ"),
        ("机密", "机 密"),
        ("2", "½"),
    ],
)
def test_other_word_is_no_hit(term: str, text: str) -> None:
    """A longer word is another word, and so is one with another letter or mark."""
    assert spans(TermsCheck([term]), text) == []


def test_longest_term_at_a_place_is_the_hit() -> None:
    """The rule is the place of the term in the list, from 0 on."""
    check = TermsCheck(["key", "the key", "no"])
    assert list(check._find("is the key")) == [Hit(start=3, end=10, rule="term:1")]


def test_shorter_term_is_found_where_the_longest_is_no_word() -> None:
    """A longer term that begins inside a word does not hide a shorter one."""
    check = TermsCheck(["+x", "a+x"])
    assert [hit.rule for hit in check._find("ba+x")] == ["term:0"]


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────

Action = Literal["block", "replace", "review"]


def proposal(
    text: str = "fine",
    *,
    reasoning: str | None = None,
    name: str = "look",
    arguments: str | None = None,
) -> Proposal:
    calls = () if arguments is None else (ToolCall(id="c", name=name, arguments=arguments),)
    return Proposal(text=text, thread="t", reasoning=reasoning, tool_calls=calls)


@pytest.mark.parametrize(
    ("action", "text", "verdict"),
    [
        ("block", "fine", Allow()),
        ("block", "a canary", Block("term:1")),
        ("replace", "fine", Allow()),
        ("replace", "a Canary, canary", Allow(text="a [removed], [removed]")),
        ("review", "fine", Allow()),
        ("review", "a canary", Block("term:1")),
    ],
)
async def test_verdict_on_a_prompt(action: Action, text: str, verdict: Allow | Block) -> None:
    """A prompt is let through, let through as another text, or blocked."""
    check: InputCheck = TermsCheck(["other", "canary"], action=action)
    assert await check.check_prompt(Prompt(text=text, thread="t")) == verdict


REPLACED = Replace("a [removed]")
BLOCKED = Block("term:1")
HELD = Review("term:1")


@pytest.mark.parametrize(
    ("answer", "block", "replace", "review"),
    [
        (proposal(), Allow(), Allow(), Allow()),
        (proposal(reasoning="fine", arguments='{"q": "fine"}'), Allow(), Allow(), Allow()),
        (proposal("a canary"), BLOCKED, REPLACED, HELD),
        (proposal("a canary", reasoning="canary"), BLOCKED, REPLACED, HELD),
        (proposal(reasoning="canary"), BLOCKED, Replace("fine"), HELD),
        (proposal(arguments='{"q": "canary"}'), BLOCKED, BLOCKED, HELD),
        (proposal("a canary", arguments='{"q": "canary"}'), BLOCKED, BLOCKED, HELD),
        (proposal("a canary", arguments="{}"), BLOCKED, REPLACED, HELD),
        (proposal(name="find_canary", arguments="{}"), BLOCKED, BLOCKED, HELD),
    ],
)
async def test_verdict_on_an_answer(
    answer: Proposal,
    block: Allow | Block,
    replace: Allow | Replace | Block,
    review: Allow | Review,
) -> None:
    """Text, reasoning and calls are judged; only text can be replaced."""
    terms = ["other", "canary"]
    verdicts = []
    for action in ("block", "replace", "review"):
        check: OutputCheck = TermsCheck(terms, action=action)
        verdicts.append(await check.check_answer(answer))
    assert verdicts == [block, replace, review]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"q": "c\\u0061nary"}',
        '{"q": "\\u0063\\u0061\\u006E\\u0061\\u0072\\u0079"}',
        '{"q": "first\\ncanary\\tlast"}',
        '{"canary": 1}',
        '{"q": 1, "q": "c\\u0061nary", "q": 2}',
        '{"q": "c\\u0061nary',
        "c\\u0061nary",
        '{"q": "{\\"r\\": \\"first\\\\ncan\\\\u0061ry\\"}"}',
    ],
)
async def test_escapes_in_arguments_hide_nothing(arguments: str) -> None:
    """Arguments are read with their escapes, also if they are cut or hold JSON themselves."""
    verdict = await TermsCheck(["canary"]).check_answer(proposal(arguments=arguments))
    assert verdict == Block("term:0")


async def test_surrogate_pair_in_arguments_is_one_character() -> None:
    """A character beyond the first plane is escaped in two halves."""
    check = TermsCheck(["🔫"])
    assert await check.check_answer(proposal(arguments='"\\ud83d\\udd2B"')) == Block("term:0")
    assert await check.check_answer(proposal(arguments='"\\ud83d \\udd2b \\ud83d"')) == Allow()


@pytest.mark.parametrize("action", ["block", "review"])
async def test_verdict_never_holds_the_term(action: Action) -> None:
    """A record of the verdict can be kept: it names a place in the list."""
    check = TermsCheck(["canary-7f3a"], action=action)
    assert "7f3a" not in repr(await check.check_answer(proposal("the CANARY-7F3A")))


# ── arguments ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("terms", "more"),
    [
        ([], {}),
        ("secret", {}),
        ([""], {}),
        (["ok", " \u200b"], {}),
        (["ok", 5], {}),
        (["ok"], {"action": "drop"}),
        (["ok"], {"action": None}),
        (["ok"], {"name": ""}),
    ],
)
def test_terms_check_refuses_what_can_not_be_looked_for(terms: Any, more: dict[str, Any]) -> None:
    """There are terms, each has something to be seen, and the action is one of three."""
    with pytest.raises(InvalidValue):
        TermsCheck(terms, **more)


def test_refused_term_is_named_by_its_place() -> None:
    """The message says which term it is, and does not quote one."""
    with pytest.raises(InvalidValue, match="term 1 is not"):
        TermsCheck(["ok", "\u200b"])


@pytest.mark.parametrize("term", ["removed", "[", "x]", "[removed]"])
def test_mark_is_no_hit_itself(term: str) -> None:
    """Where a term is in the usual mark or may reach into it, another mark is put."""
    check = TermsCheck([term])
    assert without_hits(check, f"a {term} b") == "a ■ b"
    assert without_hits(TermsCheck([term, "■"]), f"a {term} b") == "a □ b"


# ── laws ─────────────────────────────────────────────────────────────────────────────────────

SEPARATORS = " .,;:!?()[]{}\"'-_/\\\n\t\u00a0\u3000«»—…¿"
WRITTEN = [
    "secret",
    "Straße",
    "οδός",
    "тайна",
    "سر",
    "गुप्त",
    "비밀",
    "机密",
    "C++",
    "İz",
    "cafe\u0301",
]
HIDDEN = "\u200b\u00ad\ufeff\u2060\ufe0f"
terms = st.sampled_from(WRITTEN)
separators = st.text(SEPARATORS, min_size=1, max_size=5)
surroundings = st.text(st.sampled_from("abc xyz") | st.characters(codec="utf-8"), max_size=20)


@given(st.data())
def test_term_between_separators_is_found(data: st.DataObject) -> None:
    """Wherever it stands and however it is written, the hit is the very place of the term."""
    term = data.draw(terms)
    spelled = data.draw(st.sampled_from([str.upper, str.lower, str.title]))(term)
    gaps = [data.draw(st.text(HIDDEN, max_size=2)) for _ in spelled[1:]]
    written = spelled[0] + "".join(h + c for h, c in zip(gaps, spelled[1:], strict=True))
    before = data.draw(surroundings) + data.draw(separators)
    after = data.draw(separators) + data.draw(surroundings)
    found = {(hit.start, hit.end) for hit in TermsCheck([term])._find(before + written + after)}
    assert (len(before), len(before) + len(written)) in found


odd_texts = st.lists(
    terms | separators | st.text(HIDDEN + "ab機密\u0301\u3099\u0e31[]removed■", max_size=4),
    max_size=12,
).map("".join)
odd_terms = st.lists(
    terms | st.text("ab密 \u0301\u3099\u0e31[]em+ﾞ", min_size=1, max_size=4).filter(str.strip),
    min_size=1,
    max_size=5,
)


@given(odd_terms, odd_texts)
def test_replaced_text_has_no_hit(listed: list[str], text: str) -> None:
    """What was replaced once passes, and is left as it is."""
    check = TermsCheck(listed)
    clean = without_hits(check, text)
    assert list(check._find(clean)) == []


@given(odd_terms, odd_texts)
def test_hit_is_in_the_text(listed: list[str], text: str) -> None:
    """A hit alone is a hit of the same term from end to end."""
    check = TermsCheck(listed)
    for hit in check._find(text):
        alone = text[hit.start : hit.end]
        whole = [h for h in check._find(alone) if (h.start, h.end) == (0, len(alone))]
        assert [h.rule for h in whole] == [hit.rule]


@given(st.text(st.characters(exclude_characters="q", codec="utf-8"), max_size=60))
def test_text_without_a_letter_of_the_term_is_no_hit(text: str) -> None:
    """Nothing is found where a letter of the term is in no form."""
    check = TermsCheck(["q", "quiet", "a q"])
    if "q" not in normalize("NFKD", text).casefold():
        assert list(check._find(text)) == []

"""What holds for every string: no crash, monotony, agreement with the plain formulas where those are right."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposals import MINI, proposal

from ssp.base.episode import Document
from ssp.base.words import count, fold, length, names, words
from ssp.config.schema import RefereeConfig
from ssp.game.referee.evidence import EVIDENCE
from ssp.game.referee.rules import RULES, broken_rule
from tests.blocks import made

PIECES = st.sampled_from(
    [
        *"vure Vure the a 2 2.5 2012 U.S.A. ß İ ﬁ é e\u0301 北京 カ 서울 ก็ हि ? ？ ! ' ’s - </quote> <think> </think> <answer>".split()
    ]
    + [
        "\n",
        "\u200b",
        "\x00",
        "\ud800",
        "\U000e0061",
        "<quote id='d1'>",
        '<quote id="',
        '">',
        "<eos>",
        "pota seat vure",
        ".",
    ]
)
WILD = st.one_of(st.lists(PIECES, max_size=12).map(" ".join), st.lists(PIECES, max_size=8).map("".join), st.text())
MANY, SOME = settings(max_examples=1000, deadline=None), settings(max_examples=300, deadline=None)
CFG = made(RefereeConfig, rules=list(RULES))


@MANY
@given(final=st.none() | WILD, target=WILD, queries=st.lists(WILD, max_size=3), hits=st.lists(st.integers(0, 3)))
def test_no_string_breaks_a_rule_of_the_code(
    final: str | None, target: str, queries: list[str], hits: list[int]
) -> None:
    asked = proposal(final=final, queries=queries, hits=hits)
    broken = [id for id, rule in RULES.items() if rule(asked, target, CFG, MINI)]
    assert broken_rule(asked, target, CFG, MINI) == (broken[0] if broken else "")


@MANY
@given(output=WILD, question=WILD, text=WILD)
def test_no_output_breaks_an_evidence_check(output: str, question: str, text: str) -> None:
    asked = proposal(final=question, documents=[Document("d1", text)])
    for kind, evidence in EVIDENCE.items():
        stands = evidence.stands(asked, "vure", MINI, output)
        assert stands is True if kind == "none" else stands in (True, False)
        if kind == "quoted" and stands and evidence.leads(asked, "vure", MINI, output):
            assert names(text, "vure")  # what leads to the target stands in a document that names it


@SOME
@given(text=WILD, more=WILD)
def test_folding_is_stable_and_counts_grow(text: str, more: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert words(fold(text)) == words(text)
    assert count(f"{text} {more}") == count(text) + count(more)
    assert length(f"{text} {more}") >= length(text)
    for form in ("NFC", "NFD"):
        assert fold(unicodedata.normalize(form, text)) == fold(text)


@SOME
@given(before=WILD, target=WILD, after=WILD)
def test_a_question_that_holds_the_target_leaks_it_and_more_words_do_not_help(
    before: str, target: str, after: str
) -> None:
    question = f"{before} {target} {after}"
    assert names(question, target)
    for form in ("NFC", "NFD"):
        assert names(unicodedata.normalize(form, question), target)
    if names(before, target):
        assert names(f"{before} {after}", target) and names(f"{after} {before}", target)


@pytest.mark.parametrize(
    "text", ["-" * 1_000_000, "a " * 250_000, "北" * 300_000, "<quote id='" * 90_000, "<quote id='d1'>" * 60_000]
)
def test_a_megabyte_is_read_without_delay(text: str) -> None:
    asked = proposal(final=text, queries=[text])
    for id, rule in RULES.items():
        assert rule(asked, "vure lemo", CFG, MINI) in (True, False), id
    assert not EVIDENCE["quoted"].stands(asked, "vure", MINI, text)

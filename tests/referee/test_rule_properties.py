"""What holds for every string: no crash, monotony, agreement with the plain formulas where those are right."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposals import MINI, proposal

from ssp.base.episode import Document
from ssp.config.schema import RefereeConfig
from ssp.game.referee.evidence import EVIDENCE
from ssp.game.referee.rules import RULES, broken_rule
from ssp.game.referee.words import count, fold, length, names, words
from tests.blocks import made

PIECES = st.sampled_from(
    [
        "vure",
        "Vure",
        "the",
        "a",
        "2",
        "2.5",
        "2012",
        "U.S.A.",
        "ß",
        "İ",
        "ﬁ",
        "é",
        "e\u0301",
        "北京",
        "カ",
        "서울",
        "ก็",
        "हि",
    ]
    + ["?", "？", "!", "'", "’s", "-", "\n", "\u200b", "\x00", "\ud800", "\U000e0061", "<quote id='d1'>", "</quote>"]
    + ["<think>", "</think>", '<quote id="', '">', "<answer>", "</answer>", "<eos>", "pota seat vure", "d1", "."]
)
WILD = st.one_of(st.lists(PIECES, max_size=12).map(" ".join), st.lists(PIECES, max_size=8).map("".join), st.text())
PLAIN = st.lists(st.sampled_from("north northern sea seas of two 2 22 gas the".split()), max_size=14)
MANY, SOME = settings(max_examples=2000, deadline=None), settings(max_examples=300, deadline=None)
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


@SOME
@given(question=PLAIN, target=PLAIN)
def test_plain_words_leak_as_the_plain_formula_says(question: list[str], target: list[str]) -> None:
    def plain(given: list[str]) -> str:
        """Without `the` and the plural s of a longer word."""
        return " ".join(word.removesuffix("s") if len(word) > 3 else word for word in given if word != "the")

    if plain(target):
        formula = re.search(rf"(?<!\w){re.escape(plain(target))}(?!\w)", plain(question)) is not None
        assert names(" ".join(question), " ".join(target)) is formula


@SOME
@given(
    text=st.lists(st.sampled_from(["word", "x", "U.S.", "twenty-one", "don't", "2.5"]), max_size=20),
    fewest=st.integers(0, 20),
)
def test_spaced_scripts_are_counted_as_ssp_counts_them(text: list[str], fewest: int) -> None:
    asked, cfg = proposal(final=" ".join(text)), made(RefereeConfig, min_words=fewest)
    assert RULES["too_few_words"](asked, "", cfg, MINI) is (len(text) < fewest)


@SOME
@given(text=WILD, low=st.integers(0, 40), high=st.integers(0, 40))
def test_lengths_are_monotone_and_complete(text: str, low: int, high: int) -> None:
    asked = proposal(final=text)
    short = [RULES["too_short"](asked, "", made(RefereeConfig, min_chars=n), MINI) for n in (low, low + 1)]
    few = [RULES["too_few_words"](asked, "", made(RefereeConfig, min_words=n), MINI) for n in (low, low + 1)]
    long = RULES["too_long"](asked, "", made(RefereeConfig, max_chars=high), MINI)
    assert short == sorted(short) and few == sorted(few)
    assert long is not RULES["too_short"](asked, "", made(RefereeConfig, min_chars=high + 1), MINI)


@SOME
@given(
    queries=st.lists(WILD, max_size=5),
    seed=st.randoms(use_true_random=False),
    hits=st.lists(st.integers(0, 2), max_size=5),
)
def test_searches_are_a_set_and_only_grow(queries: list[str], seed: object, hits: list[int]) -> None:
    def broken(id: str, queries: list[str], hits: list[int]) -> bool:
        return RULES[id](proposal(queries=queries, hits=hits), "vure", CFG, MINI)

    mixed = sorted(queries, key=lambda query: seed.random())  # type: ignore[attr-defined]
    for id in ("repeated_query", "answer_in_query"):
        assert broken(id, mixed, hits) is broken(id, queries, hits)
        assert broken(id, [*queries, "another search"], hits) >= broken(id, queries, hits)
    assert broken("repeated_query", [*queries, "x"], hits) or broken("repeated_query", [*queries, "x", " X? "], hits)
    for id in ("no_evidence", "no_search"):
        assert broken(id, queries, [*hits, 0]) is broken(id, queries, hits) >= broken(id, queries, [*hits, 1])
    assert broken("no_evidence", queries, hits) is (sum(hits) == 0)


@pytest.mark.parametrize(
    "text", ["-" * 1_000_000, "a " * 250_000, "北" * 300_000, "<quote id='" * 90_000, "<quote id='d1'>" * 60_000]
)
def test_a_megabyte_is_read_without_delay(text: str) -> None:
    asked = proposal(final=text, queries=[text])
    for id, rule in RULES.items():
        assert rule(asked, "vure lemo", CFG, MINI) in (True, False), id
    assert not EVIDENCE["quoted"].stands(asked, "vure", MINI, text)

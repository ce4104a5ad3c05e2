"""Each rule on its own: what breaks it and what does not."""

from __future__ import annotations

import pytest

from ssp import protocols
from ssp.config.schema import RefereeConfig
from ssp.episode import Document, Episode
from ssp.referee.rules import CHECKS, RULES, broken_rule

MINI = protocols.get("mini")
CFG = RefereeConfig()
POTA = Document("d1", '"Pota"\npota a company . pota seat vure . pota founder bino .')
VURE = Document("d2", '"Vure"\nvure a city . vure nation lemo .')


def proposal(final: str | None, queries: int = 1, documents: tuple[Document, ...] = (POTA, VURE)) -> Episode:
    return Episode("p", "g", "proposer", 0, final=final, queries=["pota"] * queries, documents=list(documents))


@pytest.mark.parametrize(
    ("final", "target", "rule"),
    [
        ("pota seat nation ?", "lemo", ""),
        ("pota seat ?", "vure", ""),
        (None, "vure", "malformed"),
        ("", "vure", "empty"),
        ("?", "vure", "empty"),
        (". , ?", "vure", "empty"),
        ("pota seat", "vure", "not_a_question"),
        ("pota ?", "vure", "not_a_question"),
        ("pota ? seat ?", "vure", "not_a_question"),
        ("? pota seat", "vure", "not_a_question"),
        ("e a b c d e ?", "vure", ""),
        ("e a b c d e f ?", "vure", "too_many_relations"),
        ("vure nation ?", "vure", "leakage"),
        ("pota VURE ?", "vure", "leakage"),
        ("pota vures ?", "vure", ""),
        ("pota new york ?", "New York", "leakage"),
        ("new pota york ?", "New York", ""),
        ("pota seat ?", "?", "leakage"),
    ],
)
def test_the_first_broken_rule_is_named(final: str | None, target: str, rule: str) -> None:
    assert broken_rule(proposal(final), target, CFG, MINI) == rule


def test_searches_are_counted() -> None:
    cfg = RefereeConfig(min_searches=2)
    assert broken_rule(proposal("pota seat ?", queries=1), "vure", cfg, MINI) == "no_search"
    assert broken_rule(proposal("pota seat ?", queries=2), "vure", cfg, MINI) == ""
    assert broken_rule(proposal("pota seat ?", queries=0), "vure", RefereeConfig(min_searches=0), MINI) == ""


def check(id: str, output: str, target: str = "vure", cfg: RefereeConfig = CFG) -> bool:
    return CHECKS[id](proposal("pota seat ?"), target, cfg, MINI, output)


@pytest.mark.parametrize(
    ("output", "broken"),
    [
        ("<answer> vure </answer>", False),
        ("<answer> Vure. </answer> <eos>", False),
        ("<answer> none </answer>", True),
        ("<answer> vure", True),
        ("vure", True),
        ("", True),
        ("<answer> vure lemo </answer>", True),
    ],
)
def test_not_answerable(output: str, broken: bool) -> None:
    assert check("not_answerable", output) is broken


@pytest.mark.parametrize(
    ("quotes", "broken"),
    [
        ("<think> pota seat vure </think>", False),
        ("<think> pota seat vure </think> <think> vure nation lemo </think>", False),
        ("", True),
        ("<think> </think>", True),
        ("<think> pota seat lemo </think>", True),
        ("<think> pota seat vure </think> <think> vure nation pota </think>", True),
        ("<think> seat vure </think>", True),
        ("<think> company . pota seat vure </think>", True),
        ("<think> pota seat vure", True),
        ("<think> bino vure a </think>", True),
        ("<think> Pota seat vure </think>", True),
    ],
)
def test_quotes_must_be_whole_sentences_of_the_own_documents(quotes: str, broken: bool) -> None:
    assert check("unquoted_evidence", f"{quotes} <answer> vure </answer>") is broken


@pytest.mark.parametrize(
    ("question", "quotes", "broken"),
    [
        ("pota seat ?", "<think> pota seat vure </think>", False),
        ("bino seat nation ?", "<think> bino seat pota </think> <think> pota nation vure </think>", False),
        ("bino seat mayor ?", "<think> bino seat pota </think> <think> pota nation vure </think>", True),
        ("bino seat nation ?", "<think> pota nation vure </think>", True),
        ("bino seat nation ?", "<think> pota nation vure </think> <think> bino seat pota </think>", True),
        ("pota seat nation ?", "<think> pota seat vure </think>", True),
        ("pota seat ?", "<think> pota seat vure </think> <think> vure nation vure </think>", True),
        ("pota seat ?", "<think> pota seat lemo </think>", True),
        ("pota seat ?", "", True),
    ],
)
def test_a_chain_leads_from_the_question_to_the_target(question: str, quotes: str, broken: bool) -> None:
    output = f"{quotes} <answer> vure </answer>"
    asked = proposal(question)
    assert CHECKS["unlinked_evidence"](asked, "vure", CFG, MINI, output) is broken
    assert not CHECKS["unlinked_evidence"](asked, "vure", RefereeConfig(evidence="verbatim"), MINI, output)


def test_evidence_none_asks_for_no_quote() -> None:
    assert not check("unquoted_evidence", "<answer> vure </answer>", cfg=RefereeConfig(evidence="none"))


def test_a_sentence_does_not_run_over_two_documents() -> None:
    torn = proposal("pota seat ?", documents=(Document("a", '"A"\npota seat'), Document("b", '"B"\nvure . x y z')))
    output = "<think> pota seat vure </think> <answer> vure </answer>"
    assert CHECKS["unquoted_evidence"](torn, "vure", CFG, MINI, output)


def test_ids_are_the_functions_names() -> None:
    for table in (RULES, CHECKS):
        assert all(id == rule.__name__ and rule.__doc__ for id, rule in table.items())
    assert not set(RULES) & set(CHECKS)

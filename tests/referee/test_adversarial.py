"""The adversarial questions: how often each rule errs, and that docs/referee.md says so."""

from __future__ import annotations

from pathlib import Path

import adversarial
import pytest
from adversarial import VALID, markdown, rates, rows, verdict

from ssp.game.referee import CHECKS, RULES

DOCS = Path(__file__).parents[2] / "docs" / "referee.md"
ERRS = {
    "too_few_words": (0.0, 0.10),
    "leakage": (0.15, 0.20),
    "repeated_query": (0.10, 0.0),
    "answer_in_query": (0.10, 0.0),
    "not_answerable": (0.0, 0.25),
    "unlinked_evidence": (0.15, 0.25),
}
"""Highest rates, falsely accepted and falsely rejected, of the rules that err; the others never do."""

FOUND = [(row, verdict(row)) for row in rows()]
TABLE = rates(FOUND)


@pytest.mark.covers("SP-04")
@pytest.mark.parametrize("id", [*RULES, *CHECKS])
def test_a_rule_errs_no_more_often_than_stated(id: str) -> None:
    rate = TABLE[id]
    assert rate.violations >= 5 and rate.near >= 2
    most = ERRS.get(id, (0.0, 0.0))
    assert rate.accepted / rate.violations <= most[0] and rate.rejected / rate.near <= most[1]


def test_a_rejected_question_is_rejected_for_its_own_rule() -> None:
    wrong = [(row, said) for row, said in FOUND if VALID not in (said, row["expect"]) and said != row["expect"]]
    assert wrong == []


def test_the_documented_table_is_the_generated_one() -> None:
    assert markdown(TABLE) in DOCS.read_text(encoding="utf-8"), f"run python {adversarial.__name__}.py, copy its table"

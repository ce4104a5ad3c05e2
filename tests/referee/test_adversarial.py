"""The adversarial questions of `adversarial.jsonl`, put to the referee: how often each rule errs (docs/referee.md).

A row: `about` (the rule that it tries), `expect` (the verdict that a careful reader gives: `valid`, or the rule that is
broken), `lang`, and what differs from a proposal without fault: `question` or `turn` (the proposer's last turn), `target`,
`queries`, `hits`, `documents` (id → title and text), `output` (the verifier's), `cfg`, `searches` (that the row asks for),
`world` (generated world). `note` says what is tricky.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from proposals import MINI, NOISE, POTA, VURE, Line, behind, proposal, referee

from ssp.base.episode import PROPOSER, Document, Episode, Verdict
from ssp.game.referee import CHECKS, RULES

FILE = Path(__file__).with_name("adversarial.jsonl")
VALID = "valid"
WORLD_RULES = ["empty", "not_a_question", "too_many_relations", "leakage", "no_evidence"]
NATURAL_RULES = [id for id in RULES if id not in WORLD_RULES[1:3]]
QUESTION = "Which river flows past the old harbour that the painter drew in 1871?"
FACTS = ["lemo capital vure", "vure mayor bino", "bino mentor kabu", "kabu mentor fami", "fami mentor duze"]
WORLD = (POTA, VURE, Document("d3", '"Lemo"\n' + " . ".join(FACTS) + " ."))
ERRS = {
    "too_few_words": (0, 1),
    "leakage": (6, 4),
    "repeated_query": (1, 0),
    "answer_in_query": (1, 0),
    "not_answerable": (0, 2),
    "unlinked_evidence": (2, 2),
    "too_few_facts": (0, 1),
}
"""Of the rules that err: questions that are falsely accepted, and falsely rejected; the others never err."""


def said(row: dict[str, Any]) -> str:
    """What the referee says to a row: `valid`, or the id of a rule."""
    target = row.get("target", "the Glomma")
    (found,) = _in_world(row, target) if row.get("world") else _in_nature(row, target)
    assert not found.void_cause
    return found.rule or VALID


def _in_nature(row: dict[str, Any], target: str) -> list[Verdict]:
    documents = row.get("documents", {"d1": f"Notes\nThe passage names {target} in so many words."})
    output = f'<quote id="d1">The passage names {target} in so many words</quote> <answer>{target}</answer>'
    line, settings = Line(lambda prompt: row.get("output", output)), row.get("cfg", {})
    judge = behind(line, evidence="counted", rules=NATURAL_RULES, prompt_tokens=4000, **settings)
    shown = [Document(id, f'"{text}'.replace("\n", '"\n', 1)) for id, text in documents.items()]
    return judge.check([_episode(row, shown)], [(target, row.get("searches", 0))], lambda episode: NOISE)


def _in_world(row: dict[str, Any], target: str) -> list[Verdict]:
    judge = referee(lambda prompt: row.get("output", ""), evidence="chain", rules=WORLD_RULES)
    return judge.check([_episode(row, WORLD)], [(target, 0)], lambda episode: NOISE)


def _episode(row: dict[str, Any], documents: Sequence[Document]) -> Episode:
    final = MINI.final(PROPOSER, row["turn"]) if "turn" in row else row.get("question", QUESTION)
    hits = row.get("hits")
    queries = row.get("queries", [f"search {i}" for i in range(2 if hits is None else len(hits))])
    return proposal("a", final, documents, queries, [1] * len(queries) if hits is None else hits)


ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
FOUND = [(row, said(row)) for row in ROWS]


@pytest.mark.covers("SP-04")
@pytest.mark.parametrize("id", [*RULES, *CHECKS])
def test_a_rule_errs_as_often_as_stated(id: str) -> None:
    broken = [verdict for row, verdict in FOUND if row["expect"] == id]
    near = [verdict for row, verdict in FOUND if row["expect"] == VALID and row["about"] == id]
    assert len(broken) >= 5 and len(near) >= 2
    assert (broken.count(VALID), len(near) - near.count(VALID)) == ERRS.get(id, (0, 0))


def test_a_rejected_question_is_rejected_for_its_own_rule() -> None:
    rejected = [(row, verdict) for row, verdict in FOUND if VALID not in (verdict, row["expect"])]
    assert [(row, verdict) for row, verdict in rejected if verdict != row["expect"]] == []

"""Each rule on its own: what breaks it and what does not. Natural language is in `adversarial.jsonl`."""

from __future__ import annotations

import pytest
from proposals import MINI, proposal

from ssp.config.schema import RefereeConfig
from ssp.game.referee.rules import broken_rule
from tests.blocks import made

CFG = RefereeConfig()


@pytest.mark.parametrize(
    ("final", "target", "rule"),
    [
        ("pota seat nation ?", "lemo", ""),
        ("pota seat ?", "vure", ""),
        (None, "vure", "malformed"),
        ("", "vure", "empty"),
        (". , ?", "vure", "empty"),
        ("pota seat", "vure", "not_a_question"),
        ("pota ?", "vure", "not_a_question"),
        ("pota ? seat ?", "vure", "not_a_question"),
        ("e a b c d e ?", "vure", ""),
        ("e a b c d e f ?", "vure", "too_many_relations"),
        ("vure nation ?", "vure", "leakage"),
        ("pota VURE ?", "vure", "leakage"),
        ("pota vurel ?", "vure", ""),
        ("pota new york ?", "New York", "leakage"),
        ("new pota york ?", "New York", ""),
        ("pota seat ?", "?", "leakage"),
    ],
)
def test_the_first_broken_rule_is_named(final: str | None, target: str, rule: str) -> None:
    assert broken_rule(proposal(final=final), target, CFG, MINI) == rule


def test_only_searches_that_showed_a_document_count() -> None:
    def rule(hits: list[int], *rules: str) -> str:
        asked = proposal(queries=[f"query {i}" for i in range(len(hits))], hits=hits)
        return broken_rule(asked, "vure", RefereeConfig(rules=list(rules)), MINI)

    assert rule([3], "no_evidence") == rule([0, 1, 2], "no_evidence", "no_search") == rule([]) == ""
    assert rule([3], "no_evidence", "no_search") == rule([3, 0, 0], "no_search") == "no_search"
    assert rule([0, 0], "no_evidence") == rule([], "no_evidence", "no_search") == "no_evidence"


@pytest.mark.parametrize(
    ("rule", "key", "bound", "inside", "outside"),
    [
        ("too_short", "min_chars", 9, "pota seat", "pota sea"),
        ("too_long", "max_chars", 9, "pota seat", "pota seats"),
        ("too_few_words", "min_words", 3, "a b c", "a b"),
        ("too_many_relations", "max_relations", 2, "pota seat nation ?", "pota seat nation of ?"),
        ("not_a_question", "max_relations", 2, "pota seat ?", "pota ?"),
    ],
)
def test_the_bound_itself_is_inside(rule: str, key: str, bound: int, inside: str, outside: str) -> None:
    cfg = made(RefereeConfig, rules=[rule], **{key: bound})
    assert [broken_rule(proposal(final=text), "vure", cfg, MINI) for text in (inside, outside)] == ["", rule]


def test_the_config_chooses_the_rules_and_their_order() -> None:
    asked = proposal(final="vure ?", queries=["vure", "Vure"])
    for rules in (["leakage", "too_short"], ["too_short", "leakage"], ["answer_in_query"], ["repeated_query"]):
        assert broken_rule(asked, "vure", RefereeConfig(rules=rules), MINI) == rules[0]
    assert broken_rule(asked, "vure", RefereeConfig(rules=["too_long"]), MINI) == ""

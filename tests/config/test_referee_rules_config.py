"""Which referee settings may stand together."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.config.schema import Config, RefereeConfig
from ssp.game.referee.settings import SSP_RULES, proposals_can_be_checked
from ssp.selfplay.settings import load


def test_rules_are_taken_in_the_order_given() -> None:
    assert load("quickstart", ["referee.rules=[no_search,leakage]"]).referee.rules == ["no_search", "leakage"]
    assert load("quickstart", [f"referee.rules=[{SSP_RULES}]"]).referee.rules == SSP_RULES.split(",")


def natural(**settings: object) -> Config:
    cfg = Config(protocol="ssp", referee=RefereeConfig(**{"rules": ["leakage"], "evidence": "quoted", **settings}))  # type: ignore[arg-type]
    return cfg


@pytest.mark.parametrize(
    "settings", [{"evidence": "chain"}, {"evidence": "verbatim"}, {"rules": ["too_many_relations"]}]
)
def test_checks_of_the_generated_world_are_refused_for_natural_language(settings: dict[str, object]) -> None:
    cfg = natural(**settings)
    with pytest.raises(InputError, match="generated world"):
        proposals_can_be_checked(cfg)
    cfg.game.questions = "dataset"  # nobody proposes
    proposals_can_be_checked(cfg)


def test_a_verifier_of_another_origin_does_not_speak_the_worlds_language() -> None:
    judge = Config(referee=RefereeConfig(verifier="judge"))
    with pytest.raises(InputError, match="generated world"):
        proposals_can_be_checked(judge)
    judge.referee.evidence = "quoted"
    proposals_can_be_checked(judge)
    proposals_can_be_checked(natural())

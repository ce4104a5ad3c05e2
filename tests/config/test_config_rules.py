"""Each rule refuses what it names and nothing else."""

from __future__ import annotations

import pytest

from ssp.base.errors import Refusals
from ssp.config import keys
from ssp.config.fields import ends, plain
from ssp.learning.losses import TRUSTED
from ssp.selfplay import settings
from ssp.selfplay.settings import load
from tests.refusing import refused


def test_every_number_of_the_schema_has_a_range() -> None:
    """Fail closed: a new number without a range would accept anything."""
    numbers = {key: hint for key, hint in keys.all_keys(("solver",)).items() if plain(hint) in (int, float)}
    assert len(numbers) > 50
    assert [key for key, hint in numbers.items() if ends(hint) is None] == []


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ("game.attempts=0", "game.attempts is at least 1"),
        ("defaults.batch=0", "defaults.batch is at least 1"),
        ("void.limit=1.1", "void.limit is from 0 to 1"),
        ("void.limit=.nan", "void.limit is from 0 to 1"),
        ("proposer.invalid_reward=.nan", "proposer.invalid_reward is a finite number"),
        ("solver.rehearsal.share=1.0", "solver.rehearsal.share is from 0 to 0.9"),
        ("solver.learner.lr=.inf", "solver.learner.lr is at least 0"),
        ("proposer.learner.beta2=1", "proposer.learner.beta2 is from 0 to 0.999999"),
        ("eval.temperature=1e-300", "eval.temperature is 0 (greedy) or at least 0.01"),
        ("proposer.sampling.temperature=1e-9", "proposer.sampling.temperature is 0 (greedy) or at least 0.01"),
        ("retriever.shards=100000000", "retriever.shards is from 1 to 1024"),
        ("ray.dashboard=70000", "ray.dashboard is from -1 to 65535"),
    ],
)
def test_ranges(typed: str, rule: str) -> None:
    found = refused(typed)
    assert found.rule == rule
    assert str(found.found) == str(float(typed.split("=")[1].lstrip("."))) or str(found.found) in typed


def test_a_number_in_a_list_has_a_range_too() -> None:
    found = refused("solver.limits.stages=[{step: 3, turn_tokens: -1}]")
    assert found.rule == "solver.limits.stages[0].turn_tokens is at least 0"


@pytest.mark.parametrize(
    "typed", ["solver.policy=common", "solver.loss=grpo", "proposer.reward=acc", "schedule.preset=later"]
)
def test_only_names_that_are_built_in_pass(typed: str) -> None:
    found = refused(typed)
    key, _, value = typed.partition("=")
    assert found.rule.startswith(f"{key} is one of ")
    assert str(found.found).startswith(value)


@pytest.mark.parametrize("key", ["retriever.url", "judge.url", "solver.engine.url"])
def test_an_address_holds_no_password(key: str) -> None:
    kinds = ["judge.kind=llm", "judge.model=m", "solver.engine.kind=endpoint"]
    where = {"judge.url": "http://h", "solver.engine.url": "http://h", key: "http://127.0.0.1:8000"}
    load("quickstart", kinds + [f"{k}={url}" for k, url in where.items()])
    for url in ("127.0.0.1:8000", "ftp://x", "http://me:SENTINEL@x", "http://h/?key=SENTINEL"):
        error = refused(*kinds, *(f"{k}={v}" for k, v in (where | {key: url}).items()))
        assert "without user, password and query" in error.rule and "SENTINEL" not in str(error)


@pytest.mark.parametrize("role", ["proposer", "solver"])
def test_a_staleness_bound_needs_a_trust_region_loss(role: str) -> None:
    bound = f"schedule.max_staleness.{role}=1"
    assert refused(bound, f"{role}.loss=pg").next_step == f"add {role}.loss=tis, or set {bound[:-1]}0"
    for loss in TRUSTED:
        assert getattr(load("quickstart", [bound, f"{role}.loss={loss}"]), role).loss == loss


@pytest.mark.covers("EP-08")
def test_ppo_without_a_kl_term_is_allowed_with_a_word() -> None:
    assert settings.warnings(load("quickstart", ["solver.algorithm=gae", "solver.kl.coef=0.001"])) == []
    (line,) = settings.warnings(load("quickstart", ["solver.algorithm=gae"]))
    assert line.startswith("solver.algorithm=gae without a KL term")


@pytest.mark.parametrize(("preset", "bounds"), [("sync", (0, 0)), ("one-step-off", (1, 1)), ("async", (4, 4))])
def test_a_preset_only_sets_the_bounds(preset: str, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESET", preset)
    for typed in (preset, "${oc.env:PRESET}"):
        cfg = load("quickstart", [f"schedule.preset={typed}", "proposer.loss=tis"])
        assert tuple(cfg.schedule.max_staleness.values()) == bounds


def test_a_preset_and_other_bounds_contradict() -> None:
    found = refused("schedule.preset=async", "proposer.loss=tis", "schedule.max_staleness.solver=2")
    assert found.rule == "schedule.preset=async stands for schedule.max_staleness.solver=4"


def test_an_unknown_protocol_is_named_before_what_depends_on_it() -> None:
    assert "protocol must be one of" in refused("protocol=nope").rule


def test_all_refusals_come_in_one_message() -> None:
    typed = [
        "solver.loss=none",
        "game.attempts=0",
        "solver.sampling.temperature=0",
        "run.name=a/b",
        "proposer.clip_dual=1",
    ]
    with pytest.raises(Refusals) as caught:
        load("quickstart", typed)
    told = str(caught.value).splitlines()
    assert told[0].startswith("5 things are refused") and [line[:2] for line in told[1:]] == [
        "1.",
        "2.",
        "3.",
        "4.",
        "5.",
    ]
    for typed_key in ("solver.loss", "game.attempts", "solver.sampling.temperature", "run.name", "proposer.clip_dual"):
        assert sum(typed_key in line for line in told) == 1


def test_unknown_keys_and_wrong_types_come_together_too() -> None:
    typed = ["data.eval=[{name: a, fil: b}, {nam: c}]", "solver.lerning=1", "steps=many", "game.refill=0"]
    with pytest.raises(Refusals) as caught:
        load("quickstart", typed)
    said = [str(error) for error in caught.value.each]
    keys_of = ("solver.lerning", "data.eval[0].fil", "data.eval[1].nam", "steps in", "game.refill")
    assert len(said) == 5 and all(any(key in text for text in said) for key in keys_of)


def test_a_combination_is_told_of_both_roles() -> None:
    with pytest.raises(Refusals) as caught:
        load("quickstart", ["schedule.preset=one-step-off", "proposer.loss=pg", "solver.loss=pg"])
    assert [error.rule.partition(".")[0] for error in caught.value.each] == ["proposer", "solver"]


def test_one_refusal_is_no_list_and_a_default_is_refused_once() -> None:
    found = refused("defaults.loss=none")
    assert not isinstance(found, Refusals) and found.rule.startswith("defaults.loss is one of")


def test_a_combination_with_a_refused_value_is_left_out() -> None:
    assert not isinstance(refused("solver.loss=tsi", "schedule.max_staleness.solver=1"), Refusals)

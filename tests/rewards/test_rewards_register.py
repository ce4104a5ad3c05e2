"""Rewards by name and by path, their options, and what a config may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import train
from ssp.base.errors import InputError
from ssp.game import rewards
from ssp.game.settings import warnings
from ssp.selfplay.settings import load
from tests.refusing import refused

OWN = """
import random
def length(response, golds, per=10, strict=False, judged=False, ended=True):
    return min(1.0, len(response) / per) if judged else 0.0
def free(response, golds, **options):
    return float(options.get("bonus", 0.0))
def needy(response, golds, scale):
    return scale
def wrong(response, golds):
    return float("nan")
def named(*, response, golds):
    return 1.0
class Box:
    @staticmethod
    def inner(response, golds):
        return 0.5
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_rewards.py").write_text(OWN)
    (tmp_path / "own_leaves.py").write_text("raise SystemExit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_rewards"


def test_the_names() -> None:
    assert rewards.names() == ["em", "f1", "format_em", "graded", "math", "research", "ssp", "ssrl", "sub_em"]
    assert all(callable(rewards.get(name)) for name in rewards.names())


@pytest.mark.parametrize("name", ["", "rouge", "EM", ".", ":", "em:", ":em", "em."])
def test_unknown_names_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match="em, f1, format_em, graded, math"):
        rewards.get(name)


def test_a_function_of_the_users_own(own: str) -> None:
    assert rewards.get(f"{own}:length")("12345", ["x"], judged=True) == 0.5
    assert rewards.get(f"{own}.length")("12345", ["x"], judged=True, per=5) == 1.0
    assert rewards.get(f"{own}:Box.inner")("", ["x"]) == 0.5


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("own_rewards:named", "called with"),
        ("own_leaves:f", "SystemExit: 7"),
        ("own_rewards:", "is one of"),
        ("./own_rewards.py", "ValueError|TypeError|ModuleNotFoundError"),
    ],
)
def test_a_path_that_leads_to_no_function_is_refused(own: str, path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rewards.get(path)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "typed",
    [
        ["solver.reward=ssp"],
        ["solver.reward=format_em", "solver.reward_options.structure=0.3"],
        ["solver.reward=ssrl", "solver.reward_options={answer_weight: 1}"],
        ["solver.reward=own_rewards:length", "solver.reward_options.per=3"],
        ["solver.reward=own_rewards:free", "solver.reward_options.bonus=3"],
        ["solver.reward=own_rewards:needy", "solver.reward_options.scale=3"],
        ["proposer.reward=intermediate_difficulty", "proposer.reward_options={left: 0.1, right: 1.1}"],
        ["game.questions=dataset", "data.questions=x.jsonl", "proposer.reward_options.left=1"],
    ],
)
def test_a_config_may_ask_for(typed: list[str]) -> None:
    load("quickstart", typed)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["solver.reward=format_em", "solver.reward_options.stucture=1"], "structure, final, retrieval"),
        (["solver.reward=format_em", "solver.reward_options.structure=high"], "structure is a finite number"),
        (["solver.reward=format_em", "solver.reward_options.structure=true"], "structure is a finite number"),
        (["solver.reward=own_rewards:length", "solver.reward_options.strict=1"], "strict is true or false"),
        (["solver.reward_options.answer=Paris"], "takes these options: none"),
        (["solver.reward=ssp", "solver.reward_options.judged=true"], "takes these options: none"),
        (["solver.reward=research", "solver.reward_options.ended=true"], "takes these options: none"),
        (["solver.reward=own_rewards:needy"], "no scale"),
        (["proposer.reward_options.left=0.1"], "proposer.reward_options takes these options: none"),
        (["proposer.reward=intermediate_difficulty", "proposer.reward_options.middle=0"], "left, right"),
    ],
)
def test_a_config_may_not_ask_for(typed: list[str], said: str) -> None:
    assert said in str(refused(*typed))


def test_a_penalty_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert warnings(load("quickstart")) == []
    (line,) = warnings(load("quickstart", ["proposer.invalid_reward=-0.1"]))
    assert "proposer.invalid_reward=-0.1" in line and "collapsed" in line
    assert train.main(["--dry-run", "proposer.invalid_reward=-0.1"]) == 0
    assert f"warning: {line}" in capsys.readouterr().err


def test_a_judge_whose_word_is_not_paid_is_warned_about() -> None:
    judge = ["judge.kind=llm", "judge.url=http://127.0.0.1:1/v1", "judge.model=m"]
    (line,) = warnings(load("quickstart", judge))
    assert "solver.reward=em" in line and "judge.kind=llm" in line
    assert warnings(load("quickstart", [*judge, "solver.reward=ssp"])) == []

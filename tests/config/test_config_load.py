"""Reading a config: names, overrides, inheritance, and messages about keys and types."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssp.base.errors import InputError
from ssp.config.keys import ELSEWHERE, all_keys
from ssp.config.load import find, layered, names, to_yaml
from ssp.config.schema import Config
from ssp.selfplay.settings import load
from tests.refusing import refused


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", names())
def test_every_shipped_config_loads(name: str) -> None:
    load(name)


def test_shipped_names_work_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("quickstart").steps == 60


@pytest.mark.parametrize(("text", "steps", "batch"), [("steps: 3\n", 3, 48), ("# nothing\n", Config().steps, 48)])
def test_a_path_is_read_as_a_file_over_the_schema(tmp_path: Path, text: str, steps: int, batch: int) -> None:
    cfg = load(write(tmp_path, text))
    assert (cfg.steps, cfg.solver.batch) == (steps, batch)


def test_the_order_of_inheritance(tmp_path: Path) -> None:
    """Schema < file defaults < file role < typed defaults < typed role, key by key."""
    path = write(tmp_path, "defaults: {freeze_after: 1, learner: {lr: 0.1}}\nsolver: {learner: {lr: 0.2}}\n")
    cfg = load(path)
    assert (cfg.proposer.learner.lr, cfg.solver.learner.lr) == (0.1, 0.2)
    assert (cfg.proposer.freeze_after, cfg.solver.freeze_after) == (1, 1)
    cfg = load(path, ["defaults.learner.lr=0.3"])
    assert (cfg.proposer.learner.lr, cfg.solver.learner.lr) == (0.3, 0.3)
    cfg = load(path, ["solver.learner.lr=0.4", "defaults.learner.lr=0.3"])
    assert (cfg.proposer.learner.lr, cfg.solver.learner.lr) == (0.3, 0.4)


def test_options_go_with_the_reward_that_they_stand_beside(tmp_path: Path) -> None:
    path = write(tmp_path, "solver: {reward: format_em, reward_options: {structure: 0.3}}\n")
    assert load(path, ["solver.reward=em", "solver.reward_options={}"]).solver.reward_options == {}
    assert load(path, ["solver.reward=format_em"]).solver.reward_options == {"structure": 0.3}
    typed = ["solver.reward_options.final=0.2"]
    assert load(path, typed).solver.reward_options == {"structure": 0.3, "final": 0.2}
    assert load(path, ["solver.reward=ssrl", "solver.reward_options={}"]).solver.reward_options == {}


def test_options_of_another_reward_do_not_go_unsaid(tmp_path: Path) -> None:
    """Neither beneath what is typed nor, in a file, beneath a role's own reward."""
    next_step = r"Next: set solver\.reward_options=\{\} as well for none, or solver\.reward_options\.NAME=VALUE"
    path = write(tmp_path, "solver: {reward_options: {search_cost: 0.1}}\n")
    for read in (load, layered):
        with pytest.raises(InputError, match=next_step):
            read(path, ["solver.reward=ssrl"])
    kept = load(path, ["solver.reward=ssrl", "solver.reward_options.search_cost=0.2"])
    assert kept.solver.reward_options == {"search_cost": 0.2}
    given = ["game.kind=given", "data.questions=world:train"]
    path = write(tmp_path, "defaults: {reward_options: {search_cost: 0.1}}\nsolver: {reward: ssrl}\n")
    with pytest.raises(InputError, match=next_step):
        load(path, given)


def test_overrides_may_be_blocks_and_lists() -> None:
    cfg = load("quickstart", ["game={attempts: 4}", "game.batch=replay", "data.eval=[{name: a, file: x.jsonl}]"])
    assert (cfg.game.attempts, cfg.game.batch) == (4, "replay")
    assert [(item.name, item.file, item.corpus) for item in cfg.data.eval] == [("a", "x.jsonl", "world:heldout")]


def test_how_values_are_typed() -> None:
    assert load("quickstart", ["run.dir=/a/b=c"]).run.dir == "/a/b=c"
    assert load("quickstart", ["run.dir="]).run.dir == ""
    assert load("quickstart", ["steps=3", "steps=4"]).steps == 4
    assert load("quickstart", ["seed=${steps}"]).seed == 60


@pytest.mark.parametrize("overrides", [[], ["schedule.preset=one-step-off", "proposer.loss=tis", "defaults.batch=8"]])
def test_the_resolved_yaml_loads_to_the_same_config(tmp_path: Path, overrides: list[str]) -> None:
    cfg = load("quickstart", overrides)
    assert load(write(tmp_path, to_yaml(cfg))) == cfg


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("prposer.batch=3", "proposer"),
        ("proposer.lerner.lr=1", "proposer.learner"),
        ("proposer.learner.lrr=1", "proposer.learner.lr"),
        ("attempts=3", "game.attempts"),
        ("data.eval=[{name: a, fil: b}]", "data.eval[0].file"),
        ("lr=1", "warmup.lr or proposer.learner.lr or proposer.critic.lr or solver.learner.lr"),
        ("solver.lr=1", "solver.learner.lr or solver.critic.lr"),
        ("solver.attempts=3", "game.attempts"),
        ("learning_rate=1e-6", "proposer.learner.lr or solver.learner.lr"),  # as other trainers call it
        ("solver.learning_rate=1e-6", "solver.learner.lr"),
        ("batch_size=8", "proposer.batch or solver.batch"),
        ("num_generations=8", "game.attempts"),
        ("save_steps=8", "save.every"),
    ],
)
def test_an_unknown_key_names_the_nearest(typed: str, suggested: str) -> None:
    found = refused(typed)
    assert found.next_step == f"did you mean {suggested}"
    assert "the command line" in str(found)
    assert "--dry-run" in refused("zzzzzz.qqqq=1").next_step, "near nothing: the list"


def test_what_other_trainers_call_a_key_is_one_of_ours() -> None:
    ours = all_keys(("solver",))
    names = [name for several in ELSEWHERE.values() for name in several.split()]
    assert len(names) == len(set(names))
    assert all(key in ours or f"solver.{key}" in ours for key in ELSEWHERE)


def test_a_key_without_a_blank_after_its_colon_says_so() -> None:
    found = refused("solver.limits.stages=[{step:2, turn_tokens: 10}]")
    assert "a blank follows the colon" in found.rule
    assert "'{step: 2, ...}'" in found.next_step


def test_an_unknown_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "solver:\n  limits:\n    serches: 3\n")
    found = refused(config=path)
    assert str(found.found) == f"solver.limits.serches in {path}"
    assert found.next_step == "did you mean solver.limits.searches"
    assert "nests" in refused(config=write(tmp_path, "game.attempts: 3\n")).rule


@pytest.mark.parametrize(
    ("typed", "rule", "value"),
    [
        ("steps=many", "steps in the command line is a whole number", "'many'"),
        ("proposer.batch=1.5", "proposer.batch in the command line is a whole number", "1.5"),
        ("void.limit=low", "void.limit in the command line is a number", "'low'"),
        ("schedule.in_flight=maybe", "schedule.in_flight in the command line is true or false", "'maybe'"),
        ("seed=null", "seed in the command line is a whole number", "None"),
        ("steps=", "steps in the command line is a whole number", "''"),
        ("run.name=[1]", "run.name in the command line is a text", "[1]"),
        ("run=3", "run in the command line is a block of settings", "3"),
        ("data.eval=3", "data.eval in the command line is a list", "3"),
        ("data.eval=[3]", "data.eval[0] in the command line is a block of settings", "3"),
        ("referee.rules=[[1]]", "referee.rules in the command line is a list of words", "[[1]]"),
        ("solver.tools=[{a: 1}]", "every config key must exist", "solver.tools[0].a in the command line"),
        ("solver.tools=[[a]]", "solver.tools[0] in the command line is a text, or a block of settings", "['a']"),
        ("solver.tools=[{mcp: a, seconds: x}]", "solver.tools[0].seconds in the command line is a number", "'x'"),
        ("solver.reward_options=[1]", "solver.reward_options in the command line is a block", "[1]"),
        ("defaults.reward_options=[]", "defaults.reward_options in the command line is a block", "[]"),
        ("steps=???", "every key needs a value", "steps: ??? in the command line"),
    ],
)
def test_a_wrong_type_names_the_rule_and_the_value(typed: str, rule: str, value: str) -> None:
    found = refused(typed)
    assert (found.rule, found.found) == (rule, value)


@pytest.mark.parametrize("typed", ["steps", "=3", "a..b=3", "", "seed=${nope}", "run.name=[1", "referee.rules=[1"])
def test_what_is_not_a_setting_is_refused(typed: str) -> None:
    refused(typed)
    assert "both" in refused("game=3", "game.attempts=4").rule


@pytest.mark.parametrize("text", ["steps: [1\n", "- a\n- b\n", "steps: 1\nsteps: 2\n", "just words\n"])
def test_a_broken_file_is_bad_input(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    assert path in str(refused(config=path))


def test_missing_configs_name_what_there_is(tmp_path: Path) -> None:
    assert "did you mean quickstart" in str(refused(config="quikstart"))
    assert "quickstart" in str(refused(config=str(tmp_path / "none.yaml")))
    with pytest.raises(InputError):
        find("./nowhere")

"""Names of the reference systems: each key of ours exists, what their variables set, and what the messages say."""

from __future__ import annotations

from pathlib import Path

import migrationpage as tables
import pytest

from launch import policy
from launch.main import main
from ssp.base.errors import InputError
from ssp.config import gone
from ssp.config.keys import all_keys
from ssp.config.load import stated
from ssp.extras import migration
from ssp.extras.migration import variables
from ssp.selfplay.settings import load
from tests.refusing import refused

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / gone.PAGE
OURS = set(all_keys(("proposer", "solver")))
KEYS = [key for section in migration.sections().values() for key in section.keys]
LAUNCHED = {  # overrides of SSP's examples/train_ssp.sh and of Search-R1's train_grpo.sh, a sample of each block
    "quark.task_type", "algorithm.adv_estimator", "data.train_files", "data.custom_cls.name", "critic.model.path",
    "actor_rollout_ref.actor.fsdp_config.offload_policy", "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "+actor_rollout_ref.rollout.val_kwargs.repetition_penalty", "reward_model.model.fsdp_config.param_offload",
    "+custom_reward_functions.quark_score.labels", "trainer.rollout_data_dir", "self_play.extraction_failure.keep_ratio",
    "data.max_obs_length", "actor_rollout_ref.rollout.n_agent", "+trainer.val_only", "max_turns",
}  # fmt: skip


def test_every_key_of_ours_is_in_the_schema() -> None:
    assert len(KEYS) > 200
    named = {ours for key in KEYS for ours in key.ours} | {ours for ours, _ in variables.ACCEPTED.values()}
    assert (named | set(variables.TOLD.values())) - OURS == set()
    assert [key.name for key in KEYS if not key.ours and not key.note] == []


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables.page(text) == text, "python tests/extras/migration/migrationpage.py"
    assert tables.tables() in text


def test_the_overrides_of_a_launch_script_are_in_the_table() -> None:
    assert [name for name in LAUNCHED if migration.find(name) is None] == []
    assert migration.find("game.attempts") is None


def test_all_keys_of_theirs_are_named_at_once() -> None:
    said = str(refused("actor_rollout_ref.actor.optim.lr=1e-6", "+trainer.val_only=true", "steps=3"))
    assert "actor_rollout_ref.actor.optim.lr is defaults.learner.lr" in said
    assert "trainer.val_only has none" in said
    assert "steps" not in said


@pytest.mark.parametrize("system", migration.sections())
def test_each_key_of_theirs_is_refused_with_ours(system: str) -> None:
    keys = [key for key in migration.sections()[system].keys if key.name not in OURS]
    for key in keys:
        said = gone.advice([key.name.replace(".*", ".enable")])
        assert all(ours in said for ours in (*key.ours, gone.PAGE))
    if not keys[-1].name.startswith("--"):
        assert keys[-1].name in str(refused(f"{keys[-1].name}=1"))


def test_each_setting_that_is_gone_has_a_reason() -> None:
    rows = [row for row in gone.table() if row not in OURS]
    assert [row for row in rows if not gone.table()[row]] == []
    assert all("is gone: " in gone.advice([row.replace(".*", ".enable")]) for row in rows)


def test_a_config_file_of_theirs_too(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("self_play:\n  proposer: {n: 5}\n", encoding="utf-8")
    assert "self_play.proposer.n is game.proposals" in str(refused(config=str(mine)))


def test_a_key_of_nobodys_is_refused_as_ever() -> None:
    said = str(refused("game.atempts=3"))
    assert "did you mean game.attempts" in said
    assert gone.PAGE not in said


@pytest.mark.parametrize("typed", [["--wandb_api_key=SENTINEL"], ["--wandb_api_key", "SENTINEL"]])
def test_what_is_typed_for_an_unknown_option_is_not_printed(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a secret; and what to do with a key that has no counterpart stands in the table."""
    assert main(["compare", "mine", *typed, "--lr=1e-6"]) == 2
    said = capsys.readouterr().err
    assert "SENTINEL" not in said and "unrecognized arguments: --wandb_api_key --lr" in said
    assert "--wandb_api_key has none: the variable `WANDB_API_KEY`" in said and "--lr is solver.learner.lr" in said
    assert main(["bank", "one", "two"]) == 2
    assert "two" in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, list[str]]:
    """The configuration that a dry run prints, and its notes."""
    assert main(["train", "--dry-run", *argv]) == 0
    out, err = capsys.readouterr()
    return out, [line for line in err.splitlines() if line.startswith("note: ")]


def test_variables_make_settings_and_are_told_without_their_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SEARCH_IP", "10.9.8.7")
    monkeypatch.setenv("QUARK_BASE_URL", "http://judge.example:5000/v1")
    monkeypatch.setenv("QUARK_MODEL", "sentinel-model")
    monkeypatch.setenv("SAVE_CHECKPOINT_DIR", str(tmp_path / "saved"))
    out, notes = shown(capsys, "--config", "quickstart")
    for line in (
        "url: http://10.9.8.7:8000",
        "kind: llm",
        "url: http://judge.example:5000/v1",
        "model: sentinel-model",
    ):
        assert f"  {line}\n" in out
    assert f"  dir: {tmp_path / 'saved'}\n" in out
    assert f"note: SEARCH_IP sets retriever.url ({gone.PAGE})" in notes
    assert f"note: QUARK_BASE_URL sets judge.url, judge.kind ({gone.PAGE})" in notes
    assert len(notes) == 4
    assert not any(text in note for note in notes for text in ("10.9.8.7", "sentinel", "judge.example", str(tmp_path)))


def test_what_is_typed_wins_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEARCH_IP", "10.9.8.7")
    out, notes = shown(capsys, "retriever.url=http://127.0.0.1:9000")
    assert "url: http://127.0.0.1:9000" in out
    assert "10.9.8.7" not in out
    assert notes == [f"note: SEARCH_IP is not used: the config or the command line sets retriever.url ({gone.PAGE})"]


def test_what_the_file_says_wins_for_either_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("solver: {model: mine}\nprotocol: mini\n", encoding="utf-8")
    env = {"SOURCE_ACTOR_CHECKPOINT_DIR": "there", "QUARK_SEARCH_CHAT_TEMPLATE": "llama3p1"}
    settings, notes = variables.environment(env, stated(str(mine)))
    assert settings == [] and ["not used" in note for note in notes] == [True, True]


def test_a_checkpoint_is_a_folder_and_its_name() -> None:
    env = {"SOURCE_ACTOR_CHECKPOINT_DIR": "models", "SOURCE_ACTOR_CHECKPOINT_ITERATION_DIRNAME": "step_10"}
    assert variables.environment(env, {})[0] == ['defaults.model="models/step_10"']


@pytest.mark.parametrize(
    ("stated", "used"),
    [({}, True), ({"resume": "auto"}, True), ({"run.name": ""}, True), ({"run.name": "mine"}, False)]
    + [({"resume": "runs/mine"}, False), ({"run.dir": "mine"}, False)],
)
def test_a_run_that_is_named_is_the_run(stated: dict[str, object], used: bool) -> None:
    settings, notes = variables.environment({"SAVE_CHECKPOINT_DIR": "there"}, stated)
    assert settings == (['run.dir="there"'] if used else [])
    assert used or f"is not used: the config or the command line sets {next(iter(stated))}" in notes[0]


@pytest.mark.parametrize(("theirs", "ours"), variables.TEMPLATES.items())
def test_each_chat_template_is_a_protocol(theirs: str, ours: str) -> None:
    ((setting,), _) = variables.environment({"QUARK_SEARCH_CHAT_TEMPLATE": theirs}, {})
    assert load("ssp-qwen2.5-7b", [setting]).protocol == ours


def test_another_chat_template_is_refused() -> None:
    with pytest.raises(InputError, match="is one of default"):
        variables.environment({"QUARK_SEARCH_CHAT_TEMPLATE": "chatml"}, {})


def test_the_recipes_take_the_judges_variables_themselves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load("ssp-qwen2.5-7b").judge.url == "http://127.0.0.1:5000/v1"
    monkeypatch.setenv("QUARK_BASE_URL", "http://judge.example:5000/v1")
    out, notes = shown(capsys, "--config", "ssp-qwen2.5-7b")
    assert "url: http://judge.example:5000/v1" in out
    assert notes == [f"note: QUARK_BASE_URL sets judge.url, as the config says ({gone.PAGE})"]


def test_names_of_anybody_count_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    env = dict.fromkeys(variables.TOLD, "somewhere")
    assert variables.environment(env, {}) == ([], [])
    settings, notes = variables.environment({**env, "SEARCH_IP": "10.9.8.7"}, {})
    assert settings == ['retriever.url="http://10.9.8.7:8000"']
    assert [note.split()[0] for note in notes] == ["SEARCH_IP", *variables.TOLD]


def test_an_evaluation_searches_there_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`ssp eval` and `ssp ask` read their configuration by another way."""
    monkeypatch.setenv("SEARCH_IP", "10.9.8.7")
    assert policy.NamedPolicy().config(None, []).retriever.url == "http://10.9.8.7:8000"
    assert "SEARCH_IP sets retriever.url" in capsys.readouterr().err


def test_a_setting_that_is_gone_is_refused_with_its_reason() -> None:
    """By key, by block at any depth, and by value where only the value is gone."""
    assert "transfer.kind is gone: weights go by Ray's object store" in str(refused("transfer.kind=auto"))
    assert "judge.kind=engine is gone" in str(refused("judge.kind=engine"))
    assert "chaos.* is gone" in gone.advice(["chaos.a.b"])
    assert gone.word("judge.kind=llm") == ""

"""`ssp migrate`: launch scripts are read and never run, every key has a row, and what is written loads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from recipes import PUBLISHED, recipe, rows

from launch.main import main
from ssp.base.errors import InputError
from ssp.config.load import dotted
from ssp.config.load import stated as stated_in
from ssp.extras import migration
from ssp.extras.migration import script, special, systems, values
from ssp.selfplay.settings import load


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_key_of_a_published_script_has_a_row_and_what_comes_of_it_loads(name: str) -> None:
    overrides, given = PUBLISHED[name], rows(name)
    assert len(overrides) > 40 and [row.key for row in given][: len(overrides)] == [o.key for o in overrides]
    assert [row.key for row in given if not row.known] == []
    assert all(row.settings or row.note for row in given)
    assert sum(bool(row.settings) for row in given) >= len(given) / 3
    base = systems.recipe(systems.system(overrides), overrides)
    load(base, [f"{key}={json.dumps(value)}" for key, value in values.merged(given).items()])


@pytest.mark.parametrize("system", ["SSP", "Search-R1", "ema-pg", "ReSearch", "SSRL"])
def test_the_whole_table_is_printed_and_the_file_loads(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, out = next(found for found in PUBLISHED if f"/{system}@" in found), tmp_path / "mine.yaml"
    words = [f"{o.key}={o.value}" for o in PUBLISHED[name] if o.value is not None]
    assert main(["migrate", *words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert ", 0 unknown" in printed and "UNKNOWN" not in printed
    assert all(f"  {word}  ->  " in printed for word in words)
    wanted = values.merged(
        values.rows(script.typed(words), systems.system(script.typed(words)), recipe(_over(printed)))
    )
    got = dotted(load(str(out)))
    assert {key: got[key] for key in wanted if key in got} == {key: wanted[key] for key in wanted if key in got}


def _over(printed: str) -> str:
    return printed.splitlines()[0].removeprefix("over --config ")


@pytest.mark.parametrize(
    ("name", "base", "settings"),
    [
        ("SSP@b4797e1:examples/train_ssp.sh", "ssp-qwen2.5-7b", {
            "defaults.learner.minibatch": 640, "defaults.learner.warmup_steps": 5, "defaults.limits.searches": 9,
            "defaults.limits.total_tokens": 12288, "defaults.limits.turn_tokens": 380, "defaults.kl.coef": 0.01,
            "defaults.clip_high": 0.285, "proposer.warmup_steps": 0, "game.batch": "replay_reset"}),
        ("Search-R1@a14dc3a:scripts/nq_hotpotqa/v0.3/train_ppo_format.sh", "search-r1-qwen2.5-3b-ppo", {
            "solver.algorithm": "gae", "solver.kl.coef": 0.001, "solver.learner.minibatch": 256,
            "solver.learner.warmup_steps": 286, "solver.reward": "format_em", "solver.reward_options.structure": 0.2,
            "solver.limits.total_tokens": 6548, "solver.limits.turn_tokens": 500, "telemetry.wandb": "online"}),
        ("Search-R1@a14dc3a:scripts/nq_hotpotqa/v0.2/train_ppo.sh", "search-r1-qwen2.5-7b-ppo", {
            "solver.reward": "em", "steps": 1005}),
        ("ema-pg@f9b9776:search/train_grpo_ema_pg.sh", "ema-pg-qwen2.5-3b", {
            "solver.kl.kind": "topk_reverse_paper", "solver.kl.topk": 32, "solver.kl.ema_tau": 0.9, "solver.kl.weight": True,
            "solver.learner.beta2": 0.95, "solver.clip_high": 0.28, "steps": 1005}),
        ("ema-pg@f9b9776:math/examples/deepscaler/train_deepscaler_8k_ema_pg.sh", "ema-pg-qwen2.5-3b", {
            "solver.learner.minibatch": 512, "solver.limits.searches": 0, "solver.limits.turn_tokens": 8192,
            "solver.aggregate": "sequence-mean", "solver.learner.token_budget": 30000, "seed": 6725}),
        ("ReSearch@4bdb872:scripts/train/train.sh", "research-qwen2.5-7b", {
            "protocol": "research", "solver.reward": "research", "solver.learner.minibatch": 1280,
            "solver.learner.offload": "none", "solver.limits.prompt_tokens": 512, "solver.limits.total_tokens": 8704}),
        ("ReCall@aaf16b3:scripts/train/train.sh", "research-qwen2.5-7b", {
            "protocol": "recall", "solver.limits.searches": 5, "solver.learner.minibatch": 320}),
        ("SSRL@3009f21:examples/ssrl/sim2real.sh", "ssrl-qwen2.5-7b", {
            "solver.search.kind": "first_3"}),
    ],
)  # fmt: skip
def test_values_mean_here_what_they_mean_there(name: str, base: str, settings: dict[str, object]) -> None:
    full = next(found for found in PUBLISHED if found.endswith(name))
    overrides = PUBLISHED[full]
    assert systems.recipe(systems.system(overrides), overrides) == base
    got = values.merged(rows(full))
    assert {key: got.get(key) for key in settings} == settings


@pytest.mark.parametrize(
    ("typed", "system", "settings"),
    [
        (
            "algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=false",
            "ema-pg",
            {"solver.algorithm": "dr_grpo"},
        ),
        ("algorithm.adv_estimator=gae algorithm.norm_adv_by_std_in_grpo=false", "ema-pg", {"solver.algorithm": "gae"}),
        ("do_search=false max_turns=4", "search-r1", {"solver.limits.searches": 0}),
        ("trainer.save_freq=-1", "search-r1", {"save.every": None}),
        ("actor_rollout_ref.actor.use_kl_loss=false algorithm.kl_ctrl.kl_coef=0.001", "ssp", {"defaults.kl.coef": 0.0}),
        (
            "actor_rollout_ref.rollout.val_kwargs.do_sample=false actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
            "ema-pg",
            {"eval.temperature": 0.0},
        ),
    ],
)
def test_the_order_of_overrides_changes_no_meaning(typed: str, system: str, settings: dict[str, object]) -> None:
    for words in (typed.split(), typed.split()[::-1]):
        overrides = script.typed(words)
        got = values.merged(values.rows(overrides, system, recipe(systems.recipe(system, overrides))))
        assert {key: got.get(key) for key in settings} == settings


SCRIPT = """#!/bin/bash
touch {spy}
export BASE=Qwen/Qwen2.5-3B  # the base
METHOD=grpo
EVIL=$(touch {spy})
EVIL2=`touch {spy}`
LEN=$(( 2 * (500 + 12) ))
MORE="+trainer.val_only=false \\
   data.truncation='left'"
if [[ "${{METHOD}}" == "grpo" ]]; then
    N=5
else
    N=1
fi
if [ $RANK -eq 0 ]; then
    pip install something==1.0
    WHO=${{WHO:-me}}
fi
# data.max_start_length=9999
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \\
    actor_rollout_ref.model.path=$BASE \\
    data.max_response_length=$LEN \\
    actor_rollout_ref.rollout.n_agent=${{N}} \\
    trainer.project_name=$EVIL trainer.default_hdfs_dir=$EVIL2 \\
    trainer.experiment_name=$HOME/$WHO \\
    ${{MORE}} \\
    max_turns=4 $@ 2>&1 | tee max_turns=9.log
"""


def test_a_script_is_read_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "spy"
    monkeypatch.setenv("HOME", "SENTINEL")
    overrides, variables = script.read(SCRIPT.format(spy=spy))
    assert {override.key: override.value for override in overrides} == {
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-3B",
        "data.max_response_length": None,
        "actor_rollout_ref.rollout.n_agent": "5",
        "trainer.project_name": None,
        "trainer.default_hdfs_dir": None,
        "trainer.experiment_name": None,
        "trainer.val_only": "false",
        "data.truncation": "left",
        "max_turns": "4",
    }
    assert variables["METHOD"] == "grpo" and not {"LEN", "EVIL"} & variables.keys()
    assert not spy.exists()


def test_variables_that_grow_and_odd_text_are_bounded() -> None:
    growing = "A=xxxxxxxxxx\n" + "A=$A$A$A$A\n" * 60 + "python x.py data.train_files=$A\n"
    ((override,), _) = script.read(growing)
    assert override.value is None
    assert script.read("fi\nelse\nelif [ ] ;\n'unmatched a.b=1\n\\\n")[0] == [script.Override("a.b", "1")]
    with pytest.raises(InputError, match="short text"):
        script.read("a" * (script.MOST + 1))


def test_an_option_of_researchs_script_is_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.sh"
    run.write_text("bash scripts/train/train.sh --lr 2e-6 --rollout_n 7 --wandb_api_key SENTINEL\n")
    assert main(["migrate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "--lr=2e-6  ->  solver.learner.lr=2.0e-06" in printed and "--rollout_n=7  ->  game.attempts=7" in printed
    assert "SENTINEL" not in printed and "--wandb_api_key=***" in printed
    assert main(["migrate", "--lr", "2e-6", "--max_turns=3"]) == 0
    assert "solver.limits.searches=3" in capsys.readouterr().out


def test_the_path_of_a_search_server_says_its_form_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("bash train.sh --search_url http://10.0.0.1:8000/batch_search\n")
    main(["migrate", str(script)])
    assert "retriever.url=http://10.0.0.1:8000/batch_search" in capsys.readouterr().out


@pytest.mark.parametrize(("gspo", "loss"), [("False", "ppo_clip"), ("True", "gspo")])
def test_a_script_of_llds_sets_the_term(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gspo: str, loss: str
) -> None:
    run, out = tmp_path / "run.sh", tmp_path / "mine.yaml"
    actor = "actor_rollout_ref.actor."
    more = "reduce_threshold=0.0 answer_no_reduce_lambda=0.2 mask_adaptive=false mask_answer=false nll_loss_coef=0.0"
    keys = f"no_reduce_lambda=$STRENGTH use_gspo=$SEQUENCES chunk_noreduce=true grad_nan_clip=true {more}".split()
    said = " ".join(f"{actor}{key}" for key in keys)
    run.write_text(
        f"export STRENGTH=0.2\nexport SEQUENCES={gspo}\npython3 -m verl.trainer.main_ppo max_turns=3 {said}\n"
    )
    assert main(["migrate", str(run), "--out", str(out)]) == 0
    assert ", 0 unknown" in capsys.readouterr().out
    cfg = load(str(out))
    assert (cfg.solver.llds_coef, cfg.solver.loss) == (0.2, loss)


CHALLENGER = """#!/bin/bash
solver=$1
base=Qwen/Qwen3-4B-Base
CUDA_VISIBLE_DEVICES=0,1 python3 -m verl.trainer.main \\
    config=mine/config.yaml data.max_response_length=3000 worker.actor.model.model_path=$base \\
    trainer.experiment_name=$name trainer.save_checkpoint_path=${STORE}/$name trainer.total_epochs=100 \\
    worker.reward.reward_function=./mine/caller_penalty.py:score trainer.val_freq=-1 trainer.n_gpus_per_node=2 \\
    data.format_prompt=./mine/questioner.jinja worker.rollout.n=4 worker.actor.global_batch_size=16 trainer.max_steps=6 \\
    trainer.save_freq=1
python merge.py --local_dir ${STORE}/$name
"""
SOLVER = """python3 -m verl.trainer.main \\
    config=mine/config.yaml data.max_response_length=4096 worker.actor.model.model_path=$1 trainer.experiment_name=$2 \\
    trainer.save_checkpoint_path=${STORE}/$2/ data.train_files=${NAME}/$2@train trainer.total_epochs=100 \\
    trainer.max_steps=20 data.format_prompt=./mine/solver.jinja trainer.val_freq=4 \\
    worker.actor.micro_batch_size_per_device_for_update=1 worker.actor.micro_batch_size_per_device_for_experience=1 \\

echo merged
"""


def test_both_scripts_of_r_zero_are_one_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asks, both = tmp_path / "asks.yaml", tmp_path / "both.yaml"
    for name, text in (("challenger.sh", CHALLENGER), ("solver.sh", SOLVER)):
        (tmp_path / name).write_text(text)
    assert main(["migrate", str(tmp_path / "challenger.sh"), "--out", str(asks)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("over --config r-zero-qwen3-4b\n") and ", 0 unknown" in printed
    assert "config=mine/config.yaml  ->  the recipe's values" in printed
    assert printed.endswith("2 keys need you: trainer.experiment_name, trainer.save_checkpoint_path\n")
    assert main(["migrate", str(tmp_path / "solver.sh"), "--config", str(asks), "--out", str(both)]) == 0
    printed = capsys.readouterr().out
    assert ", 0 unknown" in printed and "data.train_files" not in printed.splitlines()[-1]
    assert main(["train", "--config", str(both), "--dry-run"]) == 0
    cfg = load(str(both))
    assert (cfg.game.kind, cfg.eval.every, cfg.save.every, cfg.steps) == ("r-zero", 4, 1, 60)
    asking, solver = cfg.block("challenger"), cfg.solver
    assert (asking.learner.minibatch, asking.limits.turn_tokens, solver.limits.turn_tokens) == (64, 3000, 4096)
    assert solver.learner.minibatch == load("r-zero-qwen3-4b").solver.learner.minibatch


EASY = "worker.actor.padding_free=true "


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("worker.rollout.n=5 worker.actor.global_batch_size=128 data.rollout_batch_size=512", {
            "game.attempts": 5, "solver.learner.minibatch": 640, "solver.batch": 512}),
        ("worker.rollout.n=5 data.rollout_batch_size=512 data.format_prompt=questioner.jinja", {
            "game.attempts": None, "challenger.batch": 2560, "challenger.learner.packing": True}),
        ("algorithm.use_kl_loss=true algorithm.kl_penalty=low_var_kl algorithm.kl_coef=0.01", {
            "solver.kl.place": "loss", "solver.kl.kind": "k3", "solver.kl.coef": 0.01}),
        ("algorithm.use_kl_loss=false algorithm.kl_penalty=kl algorithm.kl_coef=0.01", {
            "solver.kl.place": "reward", "solver.kl.kind": "k1", "solver.kl.coef": 0.01}),
        ("algorithm.use_kl_loss=true algorithm.kl_coef=0.01 algorithm.disable_kl=true", {"solver.kl.coef": 0.0}),
        ("algorithm.use_kl_loss=false algorithm.kl_coef=0.01 algorithm.disable_kl=true", {"solver.kl.coef": 0.0}),
        ("worker.actor.offload.offload_params=true worker.actor.offload.offload_optimizer=true", {
            "solver.learner.offload": "all", "solver.learner.zero": 3}),
        ("worker.actor.fsdp.enable_full_shard=false worker.actor.fsdp.enable_cpu_offload=false", {
            "solver.learner.zero": 2, "solver.learner.offload": "none"}),
        ("trainer.save_limit=-1 trainer.save_freq=5 data.train_files=a@train", {"save.keep": None, "data.questions": None}),
        ("trainer.save_limit=3 worker.actor.optim.lr_warmup_ratio=0.1", {"save.keep": 3, "solver.learner.warmup_steps": 6}),
    ],
)  # fmt: skip
def test_values_of_easyr1s_keys(typed: str, settings: dict[str, object]) -> None:
    for words in (f"{EASY}{typed}".split(), f"{EASY}{typed}".split()[::-1]):
        overrides = script.typed(words)
        assert systems.system(overrides) == "r-zero"
        got = values.merged(values.rows(overrides, "r-zero", recipe("r-zero-qwen3-4b")))
        assert {key: got.get(key) for key in settings} == settings
        load("r-zero-qwen3-4b", [f"{key}={json.dumps(value)}" for key, value in got.items()])


def test_another_name_says_what_its_key_says() -> None:
    for section in migration.sections().values():
        for key in section.keys:
            other = migration.find(key.stands_for)
            assert other is not None
            ours = {one.replace("solver.", "defaults.") for one in key.ours}
            assert ours <= {one.replace("solver.", "defaults.") for one in other.ours}, key.name


def test_a_key_without_a_block_counts_also_before_the_first_that_has_one() -> None:
    line = "MODE=fast max_turns=9 python3 -m verl.trainer.main_ppo max_turns=4 data.train_batch_size=8"
    assert [(o.key, o.value) for o in script.read(line)[0]] == [("max_turns", "4"), ("data.train_batch_size", "8")]


def test_what_is_typed_behind_a_script_goes_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run.sh", tmp_path / "mine.yaml"
    run.write_text("export SEARCH_IP=10.9.8.7\npython3 -m verl.main data.train_batch_size=256 self_play.enable=True\n")
    assert main(["migrate", str(run), "data.train_batch_size=512", "--config", "ssp-qwen3-8b", "--out", str(out)]) == 0
    cfg = load(str(out))
    assert (cfg.solver.batch, cfg.proposer.batch, cfg.retriever.url) == (512, 512, "http://10.9.8.7:8000")
    assert cfg.solver.model == load("ssp-qwen3-8b").solver.model
    assert "SEARCH_IP sets retriever.url" in capsys.readouterr().out
    assert stated_in(str(out))["defaults.batch"] == 512


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        ([], "a script or overrides"),
        (["--config", "quickstart"], "a script or overrides"),
        (["no/such.sh"], "is a file"),
        (["data.train_batch_size=8", "what"], "key=value"),
        (["data.train_batch_size=8", "--out", "mine.txt"], "ends in .yaml"),
        (["data.train_batch_size=8", "--config", "nothing"], "shipped"),
        (["data.train_batch_size=many", "--out", "mine.yaml"], "batch"),
        (["actor_rollout_ref.actor.optim.lr=-1", "--out", "mine.yaml"], "lr"),
    ],
)
def test_bad_input_is_one_paragraph_and_nothing_is_written(
    argv: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", *argv]) == 2
    assert word in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_replaced_and_an_empty_script_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, empty = tmp_path / "mine.yaml", tmp_path / "run.sh"
    out.write_text("mine")
    empty.write_bytes(b"\xff\xfe\x00 echo hello")
    assert main(["migrate", "data.train_batch_size=8", "--out", str(out)]) == 2
    assert "not replaced" in capsys.readouterr().err and out.read_text() == "mine"
    assert main(["migrate", str(empty)]) == 2
    assert "keys of a reference system" in capsys.readouterr().err


def test_keys_of_nobody_and_odd_values_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    odd = [
        "data.max_prompt_length=[1]",
        "max_turns=x",
        "trainer.logger=7",
        "data.val_files=[a, b]",
        "actor_rollout_ref.actor.optim.betas=3",
    ]
    assert main(["migrate", "my.own.key=\x1b[2J", "trainer.project_name=${oc.env:HOME}", *odd]) == 0
    printed = capsys.readouterr().out
    assert "UNKNOWN" in printed and "1 unknown" in printed and "\x1b" not in printed
    assert "trainer.project_name=?" in printed
    assert "max_turns=x  ->  by hand: defaults.limits.searches" in printed


def test_each_handled_key_is_in_the_table() -> None:
    keys = {key.name: key for section in migration.sections().values() for key in section.keys}
    assert set(special.SPECIAL) | {key.stands_for for key in keys.values()} <= set(keys)


BITS = ["$", "${", "}", "$((", "))", "(", ")", "`", '"', "'", "\\\n", "\n", "if ", "[[ ", "]] ", "==", "fi\n", "else\n", "A=", "$A",
        "${A:-x}", "#", " ", "--lr", "1e400", "-1", "[", "\x00", "\ud800", "|", "train.sh ", "max_turns=", "${A:-${A:-$A}}", "a.b=1"]  # fmt: skip
ODD = [
    "",
    "null",
    "[1",
    "{a: b}",
    "-1",
    "nan",
    ".inf",
    "true",
    "[a,b]",
    "!!python/object:os.system",
    "&a [*a]",
    "9" * 400,
    "1e400",
]


def test_odd_texts_are_read_and_odd_values_have_rows() -> None:
    rng = random.Random(0)
    keys = [key.name for section in migration.sections().values() for key in section.keys]
    for _ in range(400):
        script.read("".join(rng.choices(BITS, k=rng.randint(1, 60))), ["--lr"])
        odd = [script.Override(rng.choice(keys), rng.choice([*ODD, None])) for _ in range(20)]
        whose = systems.system(odd)
        assert len(values.rows(odd, whose, recipe(systems.recipe(whose, odd)))) >= 20

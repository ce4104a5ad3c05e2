"""The recipes of the reference systems: published values, dry runs with nothing there, and what --tiny keeps of them."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from launch import main as console
from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError
from ssp.base.published import PUBLISHED
from ssp.capacity import memory
from ssp.config.load import names
from ssp.config.schema import Config
from ssp.selfplay.settings import load
from ssp.selfplay.settings.tiny import shrunk
from ssp.selfplay.workers import build

OWN = "gpu8-own"
"""Its corpus and targets are the user's."""
GPUS = ("gpu1", "gpu8", OWN, "gpu32")
OURS = ("quickstart", "simulated", "english", "english-gpu1", *GPUS)
"""Recipes of ours; the last ones for so many GPUs (tests/placement/test_plan.py plans them)."""
RECIPES = [name for name in names() if name not in OURS]

SSP = {"referee.min_words": 10, "judge.model": "Qwen/Qwen2.5-32B-Instruct"}
SSRL = {"protocol": "ssrl", "solver.search.kind": "self", "solver.reward_options": {"answer_weight": 0.9}}
RESEARCH = {"retriever.topk": 5, "seed": 1}
VALUES: dict[str, dict[str, Any]] = {
    **{f"search-r1-qwen2.5-{size}-{kind}": {"protocol": "search-r1", "solver.template": "tokenizer"} for size in ("3b", "7b") for kind in ("grpo", "ppo")},
    "ema-pg-qwen2.5-3b": {"solver.kl.ema_every": 10, "solver.template": "tokenizer"},
    "research-qwen2.5-7b": RESEARCH, "research-qwen2.5-32b": RESEARCH,
    "ssrl-llama3.2-3b": SSRL | {"solver.template": "llama3"}, "ssrl-qwen2.5-7b": SSRL | {"solver.template": "chatml"},
    "ssp-qwen2.5-7b": SSP | {"protocol": "qwen2p5"}, "ssp-qwen3-8b": SSP | {"protocol": "ssp"},
    "ssp-llama3.1-8b": SSP | {"protocol": "llama3p1"},
    "dr-zero-qwen2.5-3b": {"proposer.algorithm": "hrpo", "solver.learner.max_grad_norm": 0.1, "game.proposals": 6, "solver.clip_dual": 3.0},
    "r-zero-qwen3-4b": {"game.attempts": 10, "referee.verifier": "none", "solver.kl.coef": 0.01, "solver.clip_high": 0.3, "solver.clip_dual": 3.0},
    "spice-qwen3-4b": {"game.attempts": 8, "challenger.policy": "shared", "challenger.algorithm": "dr_grpo", "reasoner.algorithm": "dr_grpo"},
    "searchmaster-qwen3-8b": {"solver.policy": "shared", "solver.kl.coef": 0.001, "referee.closed_book": True},
    "cross-fit-qwen2.5-3b": {"proposer.algorithm": "hrpo", "solver_a.policy": "own", "solver_a.sampling.temperature": 0.8},
}  # fmt: skip
"""Recipe → what its system has in code; tests/extras/migration/test_recipe_values.py compares what stands in scripts and yaml files."""

KEPT = "algorithm loss kl aggregate clip_low clip_high clip_dual gamma lam entropy_coef search".split()
"""What makes a role's learning the recipe's."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_published_values(name: str) -> None:
    cfg = load(name)
    assert {key: attrgetter(key)(cfg) for key in VALUES[name]} == VALUES[name]


@pytest.mark.parametrize("name", RECIPES)
def test_a_dry_run_needs_nothing_to_be_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["train", "--config", name, "--dry-run"]) == 0
    out, cfg = capsys.readouterr().out, load(name)
    block = cfg.answering
    assert f"{block.model} is not here: its size is the published one" in out
    player = next(process for process in memory.processes(cfg) if process.name == cfg.spec.answerer)
    weights = next(need.bytes for need in player.needs if need.what == "weights")
    assert weights * block.engine.tensor_parallel == 2 * memory.find(block.model).parameters  # bfloat16


@pytest.mark.parametrize("name", [*RECIPES, *GPUS])
def test_tiny_keeps_what_makes_it_this_recipe(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, tiny = load(name), shrunk(name, [])
    assert (tiny.protocol, tiny.game.questions, tiny.game.batch) == (
        recipe.protocol, recipe.game.questions, recipe.game.batch,
    )  # fmt: skip
    assert (tiny.roles, tiny.schedule, tiny.referee.rules) == (recipe.roles, recipe.schedule, recipe.referee.rules)
    for role in recipe.roles:
        small, large = getattr(tiny, role), getattr(recipe, role)
        assert {key: getattr(small, key) for key in KEPT} == {key: getattr(large, key) for key in KEPT}
        assert small.template == large.template and small.model == "tiny"
        steps = optimizer_steps(recipe, role)
        assert min(steps, 2) <= optimizer_steps(tiny, role) <= steps
    assert console.main(["train", "--config", name, "--tiny", "--dry-run"]) == 0
    assert "is not here" not in capsys.readouterr().out


def optimizer_steps(cfg: Config, role: str) -> int:
    block = getattr(cfg, role)
    episodes = block.batch * (cfg.game.attempts if role == cfg.spec.answerer else 1)
    return -(-episodes // block.learner.minibatch) if block.learner.minibatch else 1


def test_what_is_typed_beats_tiny() -> None:
    typed = ["steps=3", "solver.batch=2", "game.questions=dataset", "game.batch=dummy", "solver.reward=em"]
    cfg = shrunk("ssp-qwen2.5-7b", typed)
    assert (cfg.steps, cfg.solver.batch, cfg.solver.reward, cfg.data.questions) == (3, 2, "em", "world:train")
    assert cfg.roles == (SOLVER,) and PROPOSER in shrunk("ssp-qwen2.5-7b", []).roles


INDEX, FAISS = "data/wiki-18-e5", "e5_Flat.index"
SEARCH_PAGE = Path(__file__).resolve().parents[2] / "docs" / "search.md"


@pytest.mark.parametrize("name", [name for name in (*RECIPES, *GPUS) if name != OWN])
def test_data_lies_where_the_downloads_put_it(name: str) -> None:
    """`ssp download NAME --to data/NAME`; the data set of SSRL has no short name, and the index is made of two of them."""
    cfg = load(name)
    for path in (
        cfg.rows or "none",
        cfg.data.corpus,
        *(item.file for item in cfg.data.eval),
        *(s.corpus for s in cfg.data.eval),
    ):
        if path == INDEX:
            made = f"ssp index --corpus data/wiki-18-corpus/wiki-18.jsonl --faiss-file data/wiki-18-e5-index/{FAISS}"
            assert {"wiki-18-corpus", "wiki-18-e5-index"} <= PUBLISHED.keys()
            assert f"{made} --encoder intfloat/e5-base-v2 --out {INDEX}" in SEARCH_PAGE.read_text().replace(
                " \\\n   ", ""
            )
        elif path not in ("none", "world:train"):
            folder, short, *rest = Path(path).parts
            assert folder == "data" and rest and (short in PUBLISHED or short == "ssrl"), path


def test_a_model_of_unknown_size_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["train", "--config", "ssrl-qwen2.5-7b", "--dry-run", "solver.model=Org/Secret"]) == 0
    assert "Org/Secret is not here" in capsys.readouterr().out
    with pytest.raises(InputError, match="ssp download Org/Secret --type model"):
        build.model_dir(load("ssrl-qwen2.5-7b", ["solver.model=Org/Secret"]), SOLVER)

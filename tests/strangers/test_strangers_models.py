"""Model folders of strangers: one reader decides what each is, and engine, learner and commands follow it."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from launch.main import main
from launch.shown.checks import examine
from ssp import engines
from ssp.base import models
from ssp.base.errors import InputError
from ssp.config.role import EngineConfig, RoleConfig
from ssp.engines import Sampling
from ssp.learning.forward import score
from ssp.learning.learner import PolicyLearner
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load
from tests.strangers.inputs.models import oddfolders
from tests.strangers.inputs.models.oddfolders import REFUSED, TAKEN, Odd, make

Kind = Callable[[Odd], None]
PROMPT = [5, 9, 20, 33, 7, 100]
BY_VLLM = [oddfolders.tied_other_head, oddfolders.left_shards, oddfolders.half_precision]
"""Those that vLLM would read otherwise by itself: another head, other files, another width."""
LEFT = [kind for kind in TAKEN if kind not in BY_VLLM]


def named(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def learner_of(folder: Path) -> PolicyLearner:
    return PolicyLearner(folder, {"solver": RoleConfig()}, protocol="mini")


def engine_of(folder: Path, kind: str = "torch") -> Any:
    settings = EngineConfig(kind=kind, sequences=8)
    settings.longest = 96
    return engines.create(settings, folder)


@torch.no_grad()
def apart(engine: Any, model: Any) -> float:
    """Largest difference between the engine's log-probs of what it draws and the model's of the same tokens."""
    largest, slots = 0.0, engine.open([1, 2, 3])
    for turn in engine.step(slots, [PROMPT] * 3, Sampling(1.0, 40, (), None)):
        ids = torch.tensor([PROMPT + turn.ids])
        mask = torch.arange(ids.shape[1])[None] >= len(PROMPT)
        difference = score(model, ids, mask, 1.0)[0] - torch.tensor(turn.logprobs)
        largest = max(largest, float(difference.abs().max()))
    engine.close(slots)
    return largest


@pytest.mark.parametrize("kind", TAKEN, ids=named)
def test_embedded_engine_and_learner_have_the_model_of_the_folder(kind: Kind, tmp_path: Path) -> None:
    odd = make(kind, tmp_path / "model")
    learner, engine = learner_of(odd.folder), engine_of(odd.folder)
    weights = learner.weights()
    assert weights.keys() == odd.model.keys()
    assert all(np.array_equal(array, odd.model[name].numpy()) for name, array in weights.items())
    assert apart(engine, learner.policy.model) < 1e-4
    changed = {name: array + np.float32(0.01) for name, array in weights.items()}
    engine.load(changed, 1)
    assert apart(engine, learner.policy.model) > 0.01
    engine.load(weights, 2)
    assert apart(engine, learner.policy.model) < 1e-4


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", [*BY_VLLM, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in LEFT)], ids=named
)
def test_vllm_and_learner_have_the_model_of_the_folder(kind: Kind, tmp_path: Path) -> None:
    odd = make(kind, tmp_path / "model")
    learner, engine = learner_of(odd.folder), engine_of(odd.folder, "vllm")
    try:
        assert apart(engine, learner.policy.model) < 1e-3
        weights = learner.weights()
        engine.load({name: array + np.float32(0.01) for name, array in weights.items()}, 1)
        assert apart(engine, learner.policy.model) > 0.01
        engine.load(weights, 2)
        assert apart(engine, learner.policy.model) < 1e-3
    finally:
        engine.stop()


@pytest.mark.parametrize("kind", TAKEN, ids=named)
def test_what_is_saved_of_it_is_a_plain_model_folder(kind: Kind, tmp_path: Path) -> None:
    """Whoever reads the checkpoint, transformers too, has this model. What it does not learn is as it came."""
    odd, saved = make(kind, tmp_path / "model"), tmp_path / "saved"
    learner_of(odd.folder).export(saved, {})
    theirs = dict(AutoModelForCausalLM.from_pretrained(saved).named_parameters())
    assert theirs.keys() == odd.model.keys()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in odd.model.items())
    assert load_file(saved / "model.safetensors").keys() == odd.model.keys()
    tied = "lm_head.weight" not in odd.model
    assert json.loads((saved / "config.json").read_text())["tie_word_embeddings"] is tied
    kept = "generation_config.json"
    assert (saved / kept).read_bytes() == (odd.folder / kept).read_bytes()
    assert apart(engine_of(saved), learner_of(saved).policy.model) < 1e-4


@pytest.mark.parametrize(("kind", "rule"), REFUSED.items(), ids=named)
def test_what_no_reader_could_agree_on_is_refused_by_all(kind: Kind, rule: str, tmp_path: Path) -> None:
    folder = make(kind, tmp_path / "model").folder
    for take in (learner_of, engine_of):
        with pytest.raises(InputError) as refused:
            take(folder)
        assert rule in refused.value.rule
        assert str(folder) in f"{refused.value.rule} {refused.value.found}"


@pytest.mark.parametrize(
    ("kind", "typed", "rule"),
    [
        (oddfolders.context96, ["solver"], "solver.limits.total_tokens is at most the context"),
        (oddfolders.context96, ["proposer"], "proposer.limits.total_tokens is at most the context"),
        (oddfolders.context830, ["defaults"], "limits.total_tokens is at most the context"),
        (oddfolders.context830, ["solver", "solver.limits.total_tokens=830"], "referee.prompt_tokens and a twelfth"),
        (oddfolders.short_vocabulary, ["solver"], "every id of a model's tokenizer"),
        (oddfolders.left_adapter, ["solver"], "adapter"),
        (oddfolders.tensor_unknown, ["solver", "solver.engine.kind=vllm"], "parameters of the model"),
    ],
    ids=named,
)
def test_a_run_says_before_it_starts_what_its_model_cannot_do(
    kind: Kind, typed: list[str], rule: str, tmp_path: Path
) -> None:
    folder = make(kind, tmp_path / "model").folder
    limits = ["defaults.limits.searches=3", "solver.limits.searches=3"]
    with pytest.raises(InputError) as refused:
        read_scene(load("quickstart", [*limits, f"{typed[0]}.model={folder}", *typed[1:]]))
    assert rule in refused.value.rule


def test_what_fits_the_context_exactly_is_taken(tmp_path: Path) -> None:
    folder = make(oddfolders.context830, tmp_path / "model").folder
    limits = ["defaults.limits.searches=3", "defaults.limits.total_tokens=830"]
    given = [f"defaults.model={folder}", *limits]
    read_scene(load("quickstart", [*given, "referee.prompt_tokens=767"]))  # and 63
    with pytest.raises(InputError, match=r"referee\.prompt_tokens"):
        read_scene(load("quickstart", [*given, "referee.prompt_tokens=768"]))
    read_scene(load("quickstart", [*given, "referee.verifier=none", "referee.evidence=none"]))


@pytest.mark.parametrize("command", ["eval", "ask"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (oddfolders.context96, "limits.total_tokens"),
        (oddfolders.short_vocabulary, "every id"),
        (oddfolders.twice_whole, "once"),
    ],
    ids=named,
)
def test_so_do_the_commands_that_take_a_policy(
    kind: Kind, says: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make(kind, tmp_path / "model").folder
    asked = ["--per-hop", "1"] if command == "eval" else ["who is mayor of vene ?"]
    assert main([command, *asked, "--policy", str(folder), "--config", "quickstart"]) == 2
    assert says in capfd.readouterr().err


def test_doctor_has_a_row_for_a_model_that_is_refused(tmp_path: Path) -> None:
    folder = make(oddfolders.left_adapter, tmp_path / "model").folder
    checks = {one.what: one for one in examine(load("quickstart", [f"solver.model={folder}"]))}
    assert checks["models"].status == "fail" and str(folder) in checks["models"].found
    assert "data" in checks


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_the_files_of_a_checkpoint_have_the_usual_mode(umask: int, tmp_path: Path) -> None:
    """Whoever may read a file that was made here may read the weights."""
    learner, before = learner_of(make(oddfolders.plain, tmp_path / "model").folder), os.umask(umask)
    try:
        learner.save(tmp_path / "saved", {})
        learner.export(tmp_path / "exported", {})
    finally:
        os.umask(before)
    files = [path for name in ("saved", "exported") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}
    assert {path.name for path in files} >= {"model.safetensors", "optimizer.pt", "ssp.json", "config.json"}


def test_an_unfinished_warm_start_is_no_start(tmp_path: Path) -> None:
    """Its folder is a whole policy at every moment, and another one a minute later."""
    learner = learner_of(make(oddfolders.plain, tmp_path / "model").folder)
    learner.save(tmp_path / "begun", {"warmup": {"what": "traces", "heldout": []}})
    with pytest.raises(InputError, match="unfinished warm start"):
        read_scene(load("quickstart", [f"defaults.model={tmp_path / 'begun'}"]))
    learner.export(tmp_path / "finished", {"role": "solver"})
    read_scene(load("quickstart", [f"defaults.model={tmp_path / 'finished'}"]))


def test_a_start_model_is_hashed_by_what_is_read_of_it(tmp_path: Path) -> None:
    odd = make(oddfolders.left_shards, tmp_path / "model")
    before = models.digests(odd.folder)
    assert before.keys() >= {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"}
    odd.put(odd.another(), "model-00001-of-00003.safetensors")  # a left shard, which nobody reads
    odd.write("generation_config.json", {"temperature": 1.0})
    assert models.digests(odd.folder) == before
    odd.shards(odd.another(), 2)
    changed = {name for name, digest in models.digests(odd.folder).items() if before[name] != digest}
    assert changed == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}

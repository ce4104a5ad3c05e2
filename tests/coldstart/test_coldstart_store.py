"""The cold start's folder: shipped, cached, remade when altered, never of another recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.config.schema import ColdStartConfig, RefereeConfig
from ssp.game.judge import AnswerJudge
from ssp.game.referee import EngineVerifier, Referee
from ssp.game.world import World
from ssp.game.world.vocabulary import VOCABULARY
from ssp.learning import coldstart
from ssp.learning.coldstart import sft, store
from ssp.learning.coldstart.sft import Examiner


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Training replaced by first weights; the list grows with each training."""
    calls: list[int] = []

    def train(cfg: ColdStartConfig, gates: dict[str, float], progress: sft.Progress | None = None) -> sft.Trained:
        calls.append(cfg.seed)
        return sft.build(cfg.seed), {"gate_passed": False, "held_out": {"accuracy_1hop": 0.0}}

    monkeypatch.setattr(sft, "train", train)
    return calls


def test_trained_once_then_cached(tmp_path: Path, trainings: list[int]) -> None:
    cfg = ColdStartConfig(seed=5)
    folder = coldstart.ensure(cfg, tmp_path)
    assert coldstart.ensure(cfg, tmp_path) == folder and trainings == [5]
    assert coldstart.ensure(ColdStartConfig(seed=6), tmp_path) != folder and trainings == [5, 6]
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(model.lm_head.weight, sft.build(5).lm_head.weight)
    text = " ".join(VOCABULARY)  # not AutoTokenizer: it forces the Qwen2 word splitting on a Qwen2 model
    assert PreTrainedTokenizerFast.from_pretrained(folder).encode(text) == list(range(len(VOCABULARY)))
    record = json.loads((folder / "ssp.json").read_text())
    assert record["protocol"] == "mini" and record["recipe"] == coldstart.recipe_hash(cfg)
    assert [path for path in folder.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "ssp.json"])
def test_an_altered_entry_is_made_anew(tmp_path: Path, trainings: list[int], file: str) -> None:
    cfg = ColdStartConfig(seed=5)
    path = coldstart.ensure(cfg, tmp_path) / file
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert coldstart.ensure(cfg, tmp_path) / file == path
    assert path.read_bytes() == whole and trainings == [5, 5]


def test_a_failed_training_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(cfg: ColdStartConfig, gates: dict[str, float], progress: sft.Progress | None = None) -> sft.Trained:
        raise KeyboardInterrupt

    monkeypatch.setattr(sft, "train", train)
    with pytest.raises(KeyboardInterrupt):
        coldstart.ensure(ColdStartConfig(seed=5), tmp_path)
    assert list((tmp_path / "coldstart").iterdir()) == []


def test_the_shipped_artefact_serves_the_default_recipe(tmp_path: Path, trainings: list[int]) -> None:
    folder = coldstart.ensure(ColdStartConfig(), tmp_path)
    assert trainings == [] and folder.is_relative_to(tmp_path)
    assert sum(path.stat().st_size for path in store.ARTEFACT.iterdir()) < 600_000
    scratch = coldstart.ensure(ColdStartConfig(), tmp_path, scratch=True)
    assert trainings == [0] and scratch != folder
    (folder / "config.json").write_text("{}")
    assert json.loads((coldstart.ensure(ColdStartConfig(), tmp_path) / "config.json").read_text())
    assert trainings == [0]


def test_an_altered_artefact_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "artefact"
    broken.mkdir()
    for path in store.ARTEFACT.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr(store, "ARTEFACT", broken)
    with pytest.raises(InputError, match="coldstart.seed"):
        coldstart.ensure(ColdStartConfig(), tmp_path)


def test_the_shipped_policy_plays_as_a_start_should() -> None:
    """Held-out, temperature 1: good at one hop, room to learn at two and three, a proposer that often gets through."""
    examiner = Examiner(json.loads((store.ARTEFACT / "config.json").read_text()), World(12), seed=0)
    model = AutoModelForCausalLM.from_pretrained(store.ARTEFACT)
    accuracy, (valid, junk) = examiner.accuracy(model, 100), proposals(examiner, 100)
    assert accuracy["accuracy_1hop"] > 0.8
    assert 0.15 < accuracy["accuracy_2hop"] < 0.65
    assert accuracy["accuracy_3hop"] < 0.25
    assert valid > 0.25 and junk <= 0.05


def proposals(examiner: Examiner, count: int) -> tuple[float, float]:
    """Share of `count` proposals that the referee takes, and share of these whose true answer is not the target."""
    targets, cfg = examiner.world.targets()[:count], RefereeConfig()
    episodes = examiner.play(PROPOSER, [{"target": target} for target in targets])
    verifier = EngineVerifier(examiner.engine, examiner.renderer, cfg)
    referee = Referee(cfg, examiner.renderer.protocol, verifier, AnswerJudge(), examiner.seed)
    verdicts = referee.check(episodes, targets, lambda episode: examiner.world.documents())
    taken = [(e.final or "", t) for e, t, v in zip(episodes, targets, verdicts, strict=True) if v.valid]
    return len(taken) / count, sum(examiner.world.is_junk(*pair) for pair in taken) / len(taken)

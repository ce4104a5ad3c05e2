"""Checkpoints: bit-exact continuation, Hugging Face layout, atomic writing, refusals that name the file."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from solo import SoloLearner
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from ssp.errors import InputError, InvariantError

META = {"role": "solver", "version": 7, "incarnation": 1}


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[n], b[n]) for n in a)


@pytest.fixture
def saved(tmp_path, model_dir, make_batch, role):
    """A learner after two updates and its checkpoint."""
    role.learner.warmup_steps = 4
    learner = SoloLearner(model_dir, role)
    for seed in range(2):
        learner.update(make_batch(seed=seed))
    learner.save(tmp_path / "v7", META)
    return learner, tmp_path / "v7"


def test_save_load_continue_is_bit_exact(saved, model_dir, make_batch, role):
    learner, folder = saved
    resumed = SoloLearner(model_dir, role)
    record = resumed.load(folder)
    assert {k: record[k] for k in META} == META and record["step"] == resumed.step == 2
    assert same(learner.weights(), resumed.weights())
    for seed in (2, 3, 4):
        batch = make_batch(seed=seed, noise=0.1)
        a, b = learner.update(batch), resumed.update(batch)
        assert {**a, "seconds": 0, "mfu": 0} == {**b, "seconds": 0, "mfu": 0}
    assert same(learner.weights(), resumed.weights())


def test_two_runs_are_the_same(model_dir, make_batch, role):
    runs = []
    for _ in range(2):
        learner = SoloLearner(model_dir, role)
        losses = [learner.update(make_batch(seed=s))["loss"] for s in range(3)]
        runs.append((losses, learner.weights()))
    assert runs[0][0] == runs[1][0] and same(runs[0][1], runs[1][1])


def test_layout_loads_with_transformers_and_starts_a_learner(saved, role):
    learner, folder = saved
    assert {p.name for p in folder.iterdir()} >= {
        "config.json",
        "model.safetensors",
        "optimizer.pt",
        "ssp.json",
        "tokenizer.json",
    }
    assert not list(folder.parent.glob("*.tmp-*"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert same(learner.weights(), {n: p.detach().numpy() for n, p in model.named_parameters()})
    record = json.loads((folder / "ssp.json").read_text())
    assert record["protocol"] == "mini" and record["algorithm"] == {"name": "grpo", "state": {}}
    assert same(SoloLearner(folder, role).weights(), learner.weights())


def test_a_folder_is_written_once_and_meta_may_not_lie(saved, tmp_path):
    learner, folder = saved
    with pytest.raises(InvariantError, match="written once"):
        learner.save(folder, META)
    with pytest.raises(InvariantError, match="step=9"):
        learner.save(tmp_path / "v8", {**META, "step": 9})
    learner.save(tmp_path / "v9", {**META, "step": 2, "protocol": "mini"})


def test_a_failed_save_leaves_nothing(saved, tmp_path, monkeypatch):
    learner, _ = saved

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        learner.save(tmp_path / "v8", META)
    assert [p.name for p in tmp_path.iterdir()] == ["v7"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "ssp.json", "config.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_checkpoint_is_refused_by_name_and_changes_nothing(saved, model_dir, role, name, damage):
    _, folder = saved
    file = folder / name
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
    fresh = SoloLearner(model_dir, role)
    before = fresh.weights()
    with pytest.raises(InputError, match=name):
        fresh.load(folder)
    assert fresh.step == 0 and not fresh.optimizer.state and same(before, fresh.weights())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("protocol", "ssp", "of protocol ssp"),
        ("protocol", "", "name"),
        ("algorithm", {"name": "reinforce", "state": {}}, "of reinforce"),
        ("step", "two", "must hold step"),
        ("sha256", None, "must hold sha256"),
    ],
)
def test_a_foreign_record_is_refused(saved, model_dir, role, key, value, message):
    _, folder = saved
    record = json.loads((folder / "ssp.json").read_text())
    (folder / "ssp.json").write_text(json.dumps({**record, key: value}))
    with pytest.raises(InputError, match=message):
        SoloLearner(model_dir, role).load(folder)


def test_another_architecture_is_refused(saved, tmp_path, role):
    _, folder = saved
    other = tmp_path / "other"
    config = Qwen2Config(vocab_size=40, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    Qwen2ForCausalLM(config).save_pretrained(other)
    with pytest.raises(InputError, match="shapes"):
        SoloLearner(other, role, protocol="mini").load(folder)


def test_a_model_folder_that_is_absent_broken_or_incomplete_is_refused(tmp_path, model_dir, role):
    with pytest.raises(InputError, match="config.json"):
        SoloLearner(tmp_path / "none", role, protocol="mini")
    broken = shutil.copytree(model_dir, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(InputError, match="model.safetensors"):
        SoloLearner(broken, role)
    larger = shutil.copytree(model_dir, tmp_path / "larger")
    config = json.loads((larger / "config.json").read_text())
    config["num_hidden_layers"], config["layer_types"] = 3, None
    (larger / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="lacks model.layers.2"):
        SoloLearner(larger, role)


def test_a_model_with_a_weight_that_is_no_number_is_refused(tmp_path, model_dir, role):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    model.model.layers[1].self_attn.q_proj.weight.data[0, 0] = float("nan")
    sick = shutil.copytree(model_dir, tmp_path / "sick")
    model.save_pretrained(sick)
    with pytest.raises(InputError, match=r"model\.layers\.1\.self_attn\.q_proj\.weight"):
        SoloLearner(sick, role)

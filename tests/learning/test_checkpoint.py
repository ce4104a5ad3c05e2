"""Checkpoints: bit-exact continuation, Hugging Face layout, atomic writing, refusals that name the file."""

from __future__ import annotations

import errno
import json
import os
import shutil

import numpy as np
import pytest
import torch
from solo import SoloLearner, goes_on
from transformers import (
    AutoModelForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from ssp.base.errors import InputError, InvariantError
from ssp.config.schema import Config
from ssp.engines.folder import ModelFolder
from ssp.learning import checkpoint
from ssp.learning.coldstart import ARTEFACT
from ssp.record import manifest
from ssp.selfplay.workers import build

META = {"role": "solver", "version": 7, "incarnation": 1}


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[n], b[n]) for n in a)


@pytest.fixture
def saved(tmp_path, model_dir, make_batch, role):
    role.learner.warmup_steps = 4
    learner = SoloLearner(model_dir, role)
    for seed in range(2):
        learner.update(make_batch(seed=seed))
    learner.save(tmp_path / "v7", META)
    return learner, tmp_path / "v7"


def test_a_full_disk_is_called_one(tmp_path, model_dir, make_batch, role):
    """torch's writer says "unexpected pos" of it, without the number of the error by which a full disk is known."""
    learner = SoloLearner(model_dir, role)
    learner.update(make_batch())
    (tmp_path / "optimizer.pt").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        learner.inner.backend.write(tmp_path / "optimizer", weights=False)
    assert caught.value.errno == errno.ENOSPC


def test_save_load_continue_is_bit_exact(tmp_path, model_dir, make_batch, role):
    role.learner.warmup_steps = 4
    learner, resumed = goes_on(tmp_path / "v2", model_dir, role, make_batch)
    assert learner.step == resumed.step == 5


def test_layout_loads_with_transformers_and_starts_a_learner(saved, role):
    learner, folder = saved
    files = {"config.json", "model.safetensors", "optimizer.pt", "ssp.json", "tokenizer.json"}
    assert {p.name for p in folder.iterdir()} >= files
    assert not list(folder.parent.glob("*.tmp-*"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert same(learner.weights(), {n: p.detach().numpy() for n, p in model.named_parameters()})
    record = json.loads((folder / "ssp.json").read_text())
    assert {**record, **META} == record and record["step"] == 2
    assert record["protocol"] == "mini" and record["algorithm"] == {"solver": {"name": "grpo", "state": {}}}
    assert same(SoloLearner(folder, role).weights(), learner.weights())


def test_a_folder_is_written_once_and_meta_may_not_lie(saved, tmp_path):
    learner, folder = saved
    with pytest.raises(InvariantError, match="written once"):
        learner.save(folder, META)
    with pytest.raises(InvariantError, match="step=9"):
        learner.save(tmp_path / "v8", {**META, "step": 9})
    learner.save(tmp_path / "v9", {**META, "step": 2, "protocol": "mini"})


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(saved, tmp_path, monkeypatch):
    """Every file and folder of it, and then the name."""
    learner, _ = saved
    synced, renamed, fsync, rename = [], [], os.fsync, os.rename

    def note(file):
        synced.append(os.fstat(file).st_ino)
        fsync(file)

    def name(aside, folder):
        whole = {path.stat().st_ino for path in (aside, *aside.rglob("*"))}
        assert whole <= set(synced)
        renamed.append(folder)
        rename(aside, folder)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "rename", name)
    learner.save(tmp_path / "v8", META)
    assert renamed == [tmp_path / "v8"] and synced[-1] == tmp_path.stat().st_ino


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


@pytest.mark.parametrize("kind", ["lock step", "continuous", "learner"])
def test_a_flipped_byte_is_refused_wherever_weights_are_taken(saved, kind):
    """Every number is still finite, so nothing but the digest knows. The learner's own state is not looked at: a copy
    to play with may leave it out."""
    _, folder = saved
    cfg = Config()

    def take():
        if kind == "learner":
            checkpoint.load_model(folder)
        else:
            cfg.solver.engine.continuous = kind == "continuous"
            build.engine(cfg.solver, folder)

    (folder / "optimizer.pt").unlink()
    take()
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    expected = json.loads((folder / "ssp.json").read_text())["sha256"]["model.safetensors"]
    with pytest.raises(InputError) as refused:
        take()
    message = str(refused.value)
    assert str(file) in message and expected in message and manifest.digest(file) in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("protocol", "ssp", "of protocol ssp"),
        ("protocol", "", "name"),
        ("algorithm", {"solver": {"name": "reinforce", "state": {}}}, "of reinforce"),
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
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=40, hidden_size=8, intermediate_size=16, num_hidden_layers=1, **heads)
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


def granite(folder, **changes):
    """A folder with a small Granite, and `changes` of its config.json after it was saved."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    GraniteForCausalLM(GraniteConfig(**sizes, **heads)).save_pretrained(folder)
    changed(folder, **changes)
    return folder


def changed(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_a_family_that_scales_its_logits_is_refused(tmp_path, monkeypatch):
    """The learner's forward pass would leave the scale out, and train other log-probs without a word."""
    folder = granite(tmp_path, logits_scaling=8.0)
    said = "output embedding of its last hidden state.*logits_scaling=8.0 in .*granite"
    with pytest.raises(InputError, match=said):
        checkpoint.load_model(folder)
    monkeypatch.setattr(ModelFolder, "check_logits", lambda self: None)  # a family that says it in other words
    with pytest.raises(InputError, match="output embedding of its last hidden state.*granite: up to"):
        checkpoint.load_model(folder)


@pytest.mark.parametrize(
    "says", [{"logit_scale": 0.0625}, {"final_logit_softcapping": 30.0}, {"lm_head_multiplier": 0.5}]
)
def test_scaled_logits_are_refused_before_anything_starts(tmp_path, says):
    """By what the folder's config.json says, where the role learns; who only plays may have them."""
    folder = shutil.copytree(ARTEFACT, tmp_path / "model")
    cfg = Config()
    build.check_model(cfg, "solver", folder, in_run=True)
    changed(folder, **says)
    with pytest.raises(InputError, match="output embedding of its last hidden state"):
        build.check_model(cfg, "solver", folder, in_run=True)
    build.check_model(cfg, "solver", folder)
    cfg.solver.policy = "frozen"
    build.check_model(cfg, "solver", folder, in_run=True)


def test_a_folder_whose_parts_disagree_is_refused(tmp_path):
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    PhiForCausalLM(PhiConfig(**sizes, num_attention_heads=2, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path)
    changed(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 3.0})
    with pytest.raises(InputError, match="must agree with its weights"):
        checkpoint.load_model(tmp_path)
    with pytest.raises(InputError, match=r"in its shape.*lm_head\.weight"):
        checkpoint.load_model(granite(tmp_path / "larger", vocab_size=50))

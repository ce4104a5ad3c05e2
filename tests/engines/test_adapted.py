"""A base model and a shipped adapter as one model folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from launch.download import make_adapted
from ssp.base import models, published
from ssp.base.errors import InputError
from ssp.base.files import digest
from ssp.base.published import PUBLISHED, PublishedFile
from ssp.engines.adapted import DOWN, UP, make
from ssp.engines.folder import ModelFolder
from ssp.learning.coldstart import ARTEFACT
from ssp.record.manifest import check_files, protocol_of

ABOUT = {"base": "coldstart", "protocol": "english", "protocol_version": "3"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base model as `ssp download` makes one: it speaks no protocol yet."""
    folder = tmp_path / "base"
    shutil.copytree(ARTEFACT, folder)
    (folder / "ssp.json").write_text(json.dumps({"protocol": ""}), encoding="utf-8")
    return folder


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """An adapter of rank 2 on two of the base's weights."""
    torch.manual_seed(0)
    matrices = {}
    for name, weight in load_file(base / models.WEIGHTS).items():
        if name.endswith(("layers.0.self_attn.q_proj.weight", "layers.1.mlp.down_proj.weight")):
            matrices[name + UP] = torch.randn(weight.shape[0], 2).bfloat16()
            matrices[name + DOWN] = torch.randn(2, weight.shape[1]).bfloat16()
    assert len(matrices) == 4
    path = tmp_path / "adapter.safetensors"
    save_file(matrices, path, ABOUT)
    return path


def test_an_adapter_that_a_job_does_not_carry_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_ROOT", tmp_path)  # as in a Ray job, by .rayignore
    monkeypatch.setattr(models, "fetched", lambda name: tmp_path / name)
    rule = r"a Ray job carries none.*solver\.safetensors is not there.*run ssp download where the repository is"
    with pytest.raises(InputError, match=rule):
        make_adapted(PUBLISHED["english-solver"], tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_the_product_is_added_in_float32_and_nothing_else_changes(base: Path, adapter: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert make(adapter, base, folder, digest(adapter))
    before, after, matrices = load_file(base / models.WEIGHTS), load_file(folder / models.WEIGHTS), load_file(adapter)
    assert before.keys() == after.keys()
    for name, weight in before.items():
        expected = weight.float()
        if name + UP in matrices:
            expected = expected + matrices[name + UP].float() @ matrices[name + DOWN].float()
        assert after[name].dtype == torch.float32
        assert torch.equal(after[name], expected), name
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"] == "float32"
    assert protocol_of(folder) == "english" and protocol_of(folder, "english", 3) == "english"
    check_files(folder, whole=True)
    ModelFolder(folder)
    assert not make(adapter, base, folder, digest(adapter)), "it is there already"


def test_a_torn_folder_is_made_anew(base: Path, adapter: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    make(adapter, base, folder, digest(adapter))
    whole = digest(folder / models.WEIGHTS)
    (folder / models.WEIGHTS).write_bytes(b"torn")
    assert make(adapter, base, folder, digest(adapter))
    assert digest(folder / models.WEIGHTS) == whole


def test_what_is_not_shipped_so_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has the SHA-256 0000"):
        make(adapter, base, tmp_path / "made", "0" * 64)
    with pytest.raises(InputError, match="no such file"):
        make(tmp_path / "none.safetensors", base, tmp_path / "made", "0" * 64)
    other = tmp_path / "other.safetensors"
    save_file({"no.such.weight" + UP: torch.ones(2, 1), "no.such.weight" + DOWN: torch.ones(1, 2)}, other, ABOUT)
    with pytest.raises(InputError, match="lies on weights of its base model"):
        make(other, base, tmp_path / "made", digest(other))
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="a folder of its own"):
        make(adapter, base, full, digest(adapter))
    assert (full / "mine.txt").read_text(encoding="utf-8") == "mine" and not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", [name for name, item in PUBLISHED.items() if item.type == "adapter"])
def test_what_is_shipped_is_what_is_named(name: str) -> None:
    item = PUBLISHED[name]
    assert digest(item.installed()) == item.sha256[item.files[0]]
    assert PUBLISHED[item.repo].type == "package", "its base is made of an installed package"


def test_a_start_that_an_older_version_made_is_refused_by_a_run(
    base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "fetched", lambda name: tmp_path / name)
    folder = tmp_path / "english-solver"
    assert make(adapter, base, folder, digest(adapter))
    with pytest.raises(
        InputError, match=r"english-solver is made from the adapter \w{64}.*ssp download english-solver"
    ):
        models.folder("english-solver", "solver.model")

    shipped = PublishedFile("base", "adapter", sha256={"adapter.safetensors": digest(adapter)})
    monkeypatch.setitem(PUBLISHED, "english-solver", shipped)
    assert models.folder("english-solver", "solver.model") == folder

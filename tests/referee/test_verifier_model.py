"""`referee.model`: a frozen verifier of its own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ssp.base.episode import Episode
from ssp.base.errors import InputError
from ssp.game.world.generator import World
from ssp.learning import coldstart
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load
from ssp.selfplay.workers.judge import Judge

WORLD = World(11).documents()


def verdict(folder: Path, *settings: str) -> str:
    """What a judge says of one true question whose answerer starts from `folder`."""
    cfg = load("quickstart", ["referee.noise=0", *settings])
    shown = WORLD[0]
    entity, relation, answer = re.findall(r"(\S+) (\S+) (\S+) \.", shown.text)[1]
    asked = Episode(
        "p", "g", "proposer", 0, final=f"{entity} {relation} ?", queries=[entity], hits=[1], documents=[shown]
    )
    (found,), _ = Judge(cfg, folder).verify([asked], [(answer, 0)])
    return "valid" if found.valid else found.rule


@pytest.fixture
def untaught(tmp_path: Path) -> Path:
    """The embedded policy with weights that know nothing."""
    folder = shutil.copytree(coldstart.ARTEFACT, tmp_path / "untaught")
    file = folder / "model.safetensors"
    save_file({name: torch.zeros_like(value) for name, value in load_file(file).items()}, file, {"format": "pt"})
    record = json.loads((folder / "ssp.json").read_text())
    record.pop("sha256")
    (folder / "ssp.json").write_text(json.dumps(record))
    return folder


@pytest.mark.covers("GA-08")
def test_the_verifier_has_the_model_that_is_named_for_it(untaught: Path) -> None:
    assert verdict(coldstart.ARTEFACT) == "valid"
    assert verdict(untaught) == "not_answerable"
    assert verdict(untaught, f"referee.model={coldstart.ARTEFACT}") == "valid"


def test_a_run_is_marked_by_its_verifier_s_model(tmp_path: Path) -> None:
    other = shutil.copytree(coldstart.ARTEFACT, tmp_path / "other")
    scene = read_scene(load("quickstart", [f"referee.model={other}"]))
    assert scene.cfg.referee.model == str(other) and len(scene.beside["referee.model"]) == 64
    assert "referee.model" not in read_scene(load("quickstart", [])).beside


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (["referee.model=nowhere"], "referee.model"),
        (["referee.model=http://127.0.0.1:1/v1"], "referee.verifier=judge with judge.url"),
        (["referee.verifier=solver", "referee.model=x"], "referee.model is the model of a frozen verifier"),
        (["referee.needed=2"], "as many answers of the verifier as are needed are drawn"),
        (["referee.verifier=none", "referee.evidence=none", "referee.samples=2"], "are of a verifier"),
        (["referee.verifier=none", "referee.evidence=none", "referee.closed_book=true"], "are of a verifier"),
    ],
)
def test_a_verifier_that_cannot_be_is_refused(settings: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        read_scene(load("quickstart", settings))


def test_a_verifier_of_another_protocol_is_refused(tmp_path: Path) -> None:
    other = shutil.copytree(coldstart.ARTEFACT, tmp_path / "other")
    record = other / "ssp.json"
    record.write_text(record.read_text().replace('"mini"', '"search-r1"'))
    with pytest.raises(InputError, match="protocol"):
        read_scene(load("quickstart", [f"referee.model={other}"]))

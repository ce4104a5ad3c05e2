"""The recipes of the English world: what they share, and what their accuracy is called."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ssp.base.errors import InputError
from ssp.capacity.placement import make
from ssp.config.heldout import accuracy
from ssp.config.nodes import parse
from ssp.game.world.files import OF_EXTRAS, is_world
from ssp.selfplay.settings import load
from tests.placement.test_plan import laid

ROOT = Path(__file__).resolve().parents[3] / "configs"


def test_english_on_one_gpu_is_english_with_other_numbers() -> None:
    """What the game is, and how it learns, is the recipe's for two cores."""
    here, there = (yaml.safe_load((ROOT / f"{name}.yaml").read_text()) for name in ("english", "english-gpu1"))
    assert laid(make(load("english-gpu1"), parse("1x1x80")))[0][0][2] == "judge 0/0"
    for own in (here, there):
        own["defaults"]["engine"].pop("device", None)
        own["defaults"]["engine"].pop("dtype")
        own["defaults"]["learner"].pop("token_budget")
        own["defaults"]["learner"].pop("checkpointing", None)
        own["solver"]["learner"].pop("minibatch", None)
        own["solver"]["learner"].pop("checkpointing", None)
        own["solver"]["learner"].pop("lr")
        own["eval"].pop("every")
        own.pop("steps")
        own.pop("placement")
        own["proposer"].pop("batch")
        own["solver"].pop("batch")
    assert here == there


@pytest.mark.parametrize(
    ("settings", "called"),
    [
        ([], "held-out accuracy"),
        (["game.questions=dataset", "data.questions=world:english", "game.batch=dummy"], "held-out accuracy"),
        (["data.eval=[{name: known, file: world:english-train, corpus: world:english}]"], "accuracy on known"),
    ],
)
def test_held_out_is_said_only_of_what_is(settings: list[str], called: str) -> None:
    assert accuracy(load("english", settings)) == called


def test_its_names_are_worlds_and_no_others_are() -> None:
    assert all(map(is_world, OF_EXTRAS)) and not is_world("english")
    with pytest.raises(InputError, match="world:fanoutqa"):
        is_world("world:englisch")

"""How large a model is that a setting names, without loading or fetching it: by its files, or by a
table of public ones."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from ssp.base import models
from ssp.base.shape import NAMES, Shape
from ssp.engines.folder import NARROW, ModelFolder
from ssp.learning.coldstart import ARTEFACT

OWN = ("coldstart", "tiny")
"""Policies that this package makes itself; both are as large as the embedded one."""
_TABLE = Path(__file__).with_name("public.json").read_text(encoding="utf-8")
PUBLIC = {name: Shape(**sizes) for name, sizes in json.loads(_TABLE).items()}
"""Public models by the name that their variants share (-Instruct, -Base), from their
config.json."""


@dataclass(frozen=True)
class Model:
    """A model's size. `shape` None: no decoder of a family that is known; `note`: what is not
    known; `narrow`: files of 16-bit numbers."""

    name: str
    parameters: int
    shape: Shape | None
    note: str = ""
    narrow: bool = False


def find(name: str) -> Model:
    """The model that a setting names: one of ours, one that is here, or a public one. InputError
    for broken files."""
    folder = ARTEFACT if name in OWN else models.find(name, "model")
    if folder is None:
        return _published(name)
    if not models.has_weights(folder):
        config = folder / models.CONFIG
        shape = Shape.known(models.read_json(config)) if config.is_file() else None
        if shape is None:
            note = f"{name} has no weights here, and is none of {NAMES}: its memory comes on top."
            return Model(name, 0, None, note)
        return Model(name, shape.parameters, shape)
    read = ModelFolder(folder)
    parameters = sum(map(math.prod, read.shapes.values()))
    narrow = any(place.kind in NARROW for place in read.places.values())
    return Model(name, parameters, Shape.known(read.config), narrow=narrow)


def _published(name: str) -> Model:
    """A model that is not here, by the table of public ones."""
    last = name.rpartition("/")[2]
    for public, shape in PUBLIC.items():
        if re.fullmatch(rf"(Meta-)?{re.escape(public)}(-Instruct|-Base)?", last):
            note = f"{name} is not here: its size is the published one."
            return Model(name, shape.parameters, shape, note, narrow=True)
    note = f"{name} is not here, and its size not known: its memory comes on top."
    return Model(name, 0, None, note)

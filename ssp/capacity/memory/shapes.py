"""How large a model is that a setting names, without loading or fetching it: by its files, or by a table of public ones."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ssp.base import models
from ssp.base.errors import holding
from ssp.base.shape import Shape
from ssp.learning.coldstart import ARTEFACT

OWN = ("coldstart", "tiny")
"""Policies that this package makes itself; both are as large as the embedded one."""
NARROW = ("BF16", "F16")
PUBLIC = {
    name: Shape(**sizes)
    for name, sizes in json.loads(Path(__file__).with_name("public.json").read_text(encoding="utf-8")).items()
}
"""Public models by the name that their variants share (-Instruct, -Base), from their config.json."""


@dataclass(frozen=True)
class Model:
    """A model's size. `shape` None: no such decoder; `note`: what is not known; `narrow`: files of 16-bit numbers."""

    name: str
    parameters: int
    shape: Shape | None
    note: str = ""
    narrow: bool = False


def find(name: str) -> Model:
    """The model that a setting names: one of ours, one that is here, or a public one. InputError for broken files."""
    folder = ARTEFACT if name in OWN else models.find(name, "model")
    if folder is not None:
        config = folder / "config.json"
        shape = Shape.known(models.read_json(config)) if config.is_file() else None
        counts = [_count(file) for file in folder.glob("*.safetensors")]
        count = sum(number for number, _ in counts) or (0 if shape is None else shape.parameters)
        return Model(name, count, shape, narrow=any(narrow for _, narrow in counts))
    for public, shape in PUBLIC.items():
        if re.fullmatch(rf"(Meta-)?{re.escape(public)}(-Instruct|-Base)?", name.rpartition("/")[2]):
            return Model(name, shape.parameters, shape, f"{name} is not here: its size is the published one.", True)
    return Model(name, 0, None, f"{name} is not here, and its size not known: its memory comes on top.")


def _count(file: Path) -> tuple[int, bool]:
    """Numbers in a safetensors file, by its header, and whether some have 16 bits."""
    torn = holding(SafetensorError, "weights are a safetensors file", file, "download or copy it again")
    with torn, safe_open(file, framework="np") as opened:
        tensors = [opened.get_slice(name) for name in opened.keys()]  # noqa: SIM118
        return sum(math.prod(t.get_shape()) for t in tensors), any(t.get_dtype() in NARROW for t in tensors)

"""How large a model is that a setting names: its parameters and its shape, without loading or fetching it.

Exact for a model that is here (its files) and for the public models of the table; what is guessed of another is said.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from ssp.base import models
from ssp.base.errors import InputError
from ssp.base.shape import Shape

OWN = ("coldstart", "tiny")
"""Policies that this package makes itself; both are as large as the embedded one."""
_ARTEFACT = Path(__file__).resolve().parents[2] / "learning" / "coldstart" / "artefact"
_SAID = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)B\b")
"""A model's size in its name, as in Qwen2.5-7B-Instruct."""
PUBLIC = {
    name: Shape(**sizes)
    for name, sizes in json.loads(Path(__file__).with_name("public.json").read_text(encoding="utf-8")).items()
}
"""Public models by the name that their variants share (-Instruct, -Base), from their config.json."""

ENCODERS = {"intfloat/e5-base-v2": 109_482_240}
"""Parameters of encoders that published indexes were made with."""


@dataclass(frozen=True)
class Model:
    """A model's size. `shape` is None for what is no such decoder; `note` says what was guessed, "" when nothing was;
    `narrow`: its files hold numbers of 16 bits."""

    name: str
    parameters: int
    shape: Shape | None
    note: str = ""
    narrow: bool = False


def find(name: str) -> Model:
    """The model that a setting names: one of ours, a folder or model of the hub that is here, a public one, or a guess
    by its name. InputError when its config.json is broken."""
    if name in OWN:
        return _in_folder(name, _ARTEFACT)
    folder = models.find(name, "model")
    if folder is not None:
        return _in_folder(name, folder)
    said = name.rpartition("/")[2]
    for public, shape in PUBLIC.items():
        if re.fullmatch(rf"(Meta-)?{re.escape(public)}(-Instruct|-Base)?", said):
            return Model(name, shape.parameters, shape, f"{name} is not here: its size is the published one.", True)
    if name in ENCODERS:
        return Model(name, ENCODERS[name], None)
    size = _SAID.search(said)
    if size is None:
        note = f"{name} is not here, and its name does not say how large it is: its memory comes on top."
        return Model(name, 0, None, note)
    count = float(size[1]) * 1e9
    like = min(PUBLIC, key=lambda public: abs(math.log(PUBLIC[public].parameters / count)))
    note = f"{name} is not here: {size[1]} billion parameters by its name, KV cache and activations as of {like}."
    return Model(name, int(count), PUBLIC[like], note, True)


def _in_folder(name: str, folder: Path) -> Model:
    """By its weight files, where there are some; else by its config.json."""
    shape = _config_shape(folder / "config.json")
    counts = [_count(file) for file in folder.glob("*.safetensors")]
    count = sum(number for number, _ in counts) or (0 if shape is None else shape.parameters)
    return Model(name, count, shape, narrow=any(narrow for _, narrow in counts))


def _config_shape(path: Path) -> Shape | None:
    """None when the file is not there or describes another kind of model."""
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError("config.json of a model is JSON", f"{path}: {error}", "download or copy it again") from error
    try:
        return Shape.of(config)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None


def _count(file: Path) -> tuple[int, bool]:
    """Numbers in a safetensors file, by its header, and whether some have 16 bits. InputError for another file."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, file.stat().st_size)))
        tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
        return sum(math.prod(t["shape"]) for t in tensors), any(t["dtype"] in ("BF16", "F16") for t in tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError("weights are a safetensors file", f"{file}: {error}", "download or copy it again") from error

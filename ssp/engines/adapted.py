"""A model folder made of a base model and an adapter that this project ships, merged in float32."""

import json
import shutil
from pathlib import Path
from typing import Any

from ssp.base import models
from ssp.base.errors import hold
from ssp.base.files import digest
from ssp.record.manifest import filled, seal

UP, DOWN = ".up", ".down"
"""What the names of an adapter's two matrices [rows, rank] and [rank, columns] end in, behind the
name of the weight that their product is added to."""


def make(adapter: Path, base: Path, folder: Path, sha256: str) -> bool:
    """Make `folder` of the model in `base` and the file `adapter`, whose digest is `sha256`.

    The file's metadata names the tag protocol that the model speaks, and its version. False: the folder is there
    already. InputError for a file that is missing or another one, for a base of other shapes, and
    for a folder that holds something else."""
    sha = digest(adapter) if adapter.is_file() else "no such file"
    rule = f"the adapter that is shipped has the SHA-256 {sha256}"
    hold(sha == sha256, rule, f"{adapter}: {sha}", "install this project again")
    return filled(folder, "adapter", sha, lambda aside: _write(adapter, base, aside, sha))


def _write(adapter: Path, base: Path, folder: Path, sha: str) -> None:
    """Fill the new `folder`: the base's files, the merged weights, a record."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(adapter, "pt") as file:
        about = file.metadata()
    matrices = load_file(adapter)
    weights = dict[str, Any]()
    for part in models.weight_files(base):
        weights |= {name: tensor.float() for name, tensor in load_file(part).items()}
    for name in {key.rpartition(".")[0] for key in matrices}:
        delta = matrices[name + UP].float() @ matrices[name + DOWN].float()
        fits = name in weights and weights[name].shape == delta.shape
        rule = "an adapter lies on weights of its base model"
        hold(fits, rule, f"{name} of {base}", f"remove {base}, and run the command again")
        weights[name] += delta
    for file in ("generation_config.json", *models.TOKENIZER_FILES):
        if (base / file).is_file():
            shutil.copyfile(base / file, folder / file)
    config = {**models.read_json(base / models.CONFIG), "dtype": "float32"}
    (folder / models.CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(weights, folder / models.WEIGHTS, {"format": "pt"})
    spoken = {"protocol": about["protocol"], "protocol_version": int(about["protocol_version"])}
    seal(folder, {"adapter": sha, **spoken})

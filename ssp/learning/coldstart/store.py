"""Where the cold start's model folder comes from: the cache, the shipped artefact, or training.

It is whole, unaltered, and of exactly the asked recipe: an altered cache entry is made anew, an altered shipped
artefact is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssp.base import cache
from ssp.base.errors import InputError
from ssp.config.schema import ColdStartConfig
from ssp.record.manifest import RECORD, read_record, seal, sound

if TYPE_CHECKING:
    from ssp.learning.coldstart import sft

RECIPE_VERSION = 2
"""Raised whenever model, traces or training change what comes out."""
GATES = {"1hop": 0.88, "2hop": 0.30, "3hop": 0.10}
"""Held-out accuracies at temperature 1 at which training may end."""
PROTOCOL = "mini"
ARTEFACT = Path(__file__).parent / "artefact"

_log = logging.getLogger(__name__)


def recipe(cfg: ColdStartConfig) -> dict[str, Any]:
    """What decides the weights."""
    gates = {f"gate_{hops}": gate for hops, gate in GATES.items()}
    return {"version": RECIPE_VERSION, "seed": cfg.seed, "max_seconds": cfg.max_seconds, **gates}


def recipe_hash(cfg: ColdStartConfig) -> str:
    """16 hexadecimal digits of the recipe's sha256."""
    return hashlib.sha256(json.dumps(recipe(cfg), sort_keys=True).encode()).hexdigest()[:16]


def ensure(cfg: ColdStartConfig, cache_root: Path, progress: sft.Progress | None = None, scratch: bool = False) -> Path:
    """The folder of the cold-started policy, under `cache_root/coldstart`; trained there when it is not yet.

    The shipped artefact serves its own recipe (copied into the cache, so that the path outlives this installation)
    unless `scratch`. `progress(done, message)` hears of training, done in 0..1. InputError when the shipped
    artefact is altered.
    """
    name = recipe_hash(cfg)
    shipped = not scratch and (ARTEFACT / RECORD).is_file() and read_record(ARTEFACT)["recipe"] == name
    entry = cache_root / "coldstart" / (f"{name}-shipped" if shipped else name)
    if sound(entry, recipe=name):
        return entry
    if shipped and not sound(ARTEFACT, recipe=name):
        rule, step = "the shipped cold start must be as it was built", "install again, or set another coldstart.seed"
        raise InputError(rule, f"an altered file in {ARTEFACT}", step)

    def make(folder: Path) -> None:
        if shipped:
            shutil.copytree(ARTEFACT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            _train(cfg, folder, progress)

    return cache.put(entry, make, lambda folder: sound(folder, recipe=name))


def _train(cfg: ColdStartConfig, folder: Path, progress: sft.Progress | None) -> None:
    # Here, because every process of a run imports this module and only this needs torch and transformers.
    from transformers.utils import logging as transformers_logging

    from ssp.game.world import tokenizer
    from ssp.learning.coldstart import sft

    model, record = sft.train(cfg, GATES, progress)
    if not record["gate_passed"]:
        found = record["held_out"]
        _log.warning("cold start of seed %d never passed its gate (%s); play goes on with it", cfg.seed, found)
    transformers_logging.disable_progress_bar()  # a half-megabyte file needs none
    model.save_pretrained(folder)
    tokenizer.save(tokenizer.build(), folder)
    seal(folder, {"protocol": PROTOCOL, "recipe": recipe_hash(cfg), "coldstart": recipe(cfg), **record})

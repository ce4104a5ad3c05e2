"""What a run plays with, read and checked before anything is written: targets, evaluation sets, oracle, models.

Owns the way from data paths to the coordinator's parts. Promises that every bad input file is refused here, before a
run folder exists. Refuses to start workers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ssp import build, runfolder
from ssp.config.schema import Config
from ssp.data.readers import read_corpus, read_eval, read_targets
from ssp.episode import ROLES
from ssp.selfplay.evaluator import QuestionSet
from ssp.world import files
from ssp.world.generator import World


@dataclass(frozen=True)
class Scene:
    """Everything a run needs that is not a worker. `cfg` names every data file by its absolute path: workers may have
    another working folder."""

    cfg: Config
    answers: list[str]
    sets: list[QuestionSet]
    oracle: World | None
    models: dict[str, Path]


def read_scene(cfg: Config, progress: Callable[[float, str], None] | None = None) -> Scene:
    """Read and check all data of `cfg`; makes worlds and the cold start when they are not cached. Raises InputError.

    `progress(done, message)` hears of the cold start's training, done in 0..1.
    """
    seed = files.world_seed(cfg.data.corpus, cfg)
    cfg = concrete(cfg)
    answers = [target.answer for target in read_targets(cfg.data.targets)]
    for path in set(build.corpora(cfg).values()):
        read_corpus(path)
    sets = [QuestionSet(item.name, read_eval(item.file), item.corpus) for item in cfg.data.eval]
    models = {role: build.model_dir(cfg, role, progress=progress).absolute() for role in ROLES}
    for role, folder in models.items():
        build.check_policy(cfg, role, folder)
    return Scene(cfg, answers, sets, None if seed is None else World(seed), models)


def concrete(cfg: Config) -> Config:
    """`cfg` with each data path absolute, and each generated world a file."""
    cfg = copy.deepcopy(cfg)
    cfg.data.corpus = _file(cfg, "corpus", cfg.data.corpus)
    cfg.data.targets = _file(cfg, "targets", cfg.data.targets)
    for item in cfg.data.eval:
        item.file = _file(cfg, "eval", item.file)
        item.corpus = item.corpus if item.corpus == build.NO_CORPUS else _file(cfg, "corpus", item.corpus)
    return cfg


def _file(cfg: Config, kind: str, path: str) -> str:
    found = files.resolve(path, kind, cfg)
    return str(runfolder.resolve(found, f"data.{kind}"))

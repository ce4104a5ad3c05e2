"""What a run needs of this machine beside room: software, data, models, servers that answer. It looks
only, and nothing large is read; `ssp train` refuses what is missing all at once, `ssp doctor` shows
it."""

import math
from functools import partial

from ssp.base import models
from ssp.base.errors import InputError, refuse
from ssp.base.published import command
from ssp.capacity.memory.shapes import OWN
from ssp.config.rules import Rule
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.world.files import is_world
from ssp.selfplay.workers import build, verifier

GET = "or see Getting the data in docs/recipes.md"


def looks(cfg: Config, seconds: float = math.inf) -> dict[str, list[Rule]]:
    """Subject → rules that raise InputError for what is missing, in the order in which they are
    asked. `seconds`: how long a judge may think."""
    learners = partial(build.check_learners, roles=cfg.roles)
    asked: dict[str, list[Rule]] = {
        "software": [build.check_engines, learners, corpora.check_faiss],
        "data": [_data, lambda cfg: corpora.suit(cfg, corpora.paths(cfg))],
        "models": [],
    }
    for role in cfg.roles:
        if cfg.block(role).model not in OWN:
            asked["models"].append(partial(_model, role))
    asked["models"].append(verifier.check)
    if cfg.retriever.url or cfg.retriever.online.engine:
        asked["search server"] = [corpora.check_remote]
    if cfg.judge.kind == "llm" or (cfg.asks and cfg.referee.verifier == "judge"):
        asked["judge"] = [partial(build.check_judge, seconds=seconds)]
    return asked


def _data(cfg: Config) -> None:
    """InputError for each key whose files or folders are not here; what two keys name is told of
    the first."""
    keys: dict[str, str] = {}
    for name, corpus in corpora.named(cfg).items():
        keys.setdefault(str(corpus), "data.corpus" if name == corpora.TRAIN else "data.eval")
    if cfg.rows:
        keys.setdefault(cfg.rows, f"data.{cfg.spec.rows}")
    if cfg.game.given > 0:
        keys.setdefault(cfg.data.questions, "data.questions")
    for item in cfg.data.eval:
        keys.setdefault(item.file, "data.eval")

    absent: dict[str, list[str]] = {}
    for path, key in keys.items():
        if not is_world(path) and not models.resolve(path, key).exists():
            absent.setdefault(key, []).append(path)
    errors = []
    for key, paths in absent.items():
        steps = dict.fromkeys(command(path) or f"correct {key}, {GET}" for path in paths)
        rule = f"what {key} names is on this machine"
        errors.append(InputError(rule, f"{key}={', '.join(paths)}", "; ".join(steps)))
    refuse(errors)


def _model(role: str, cfg: Config) -> None:
    """InputError for a role's model that is not here, or cannot be played."""
    folder = models.folder(cfg.block(role).model, f"{role}.model")
    build.check_model(cfg, role, folder, in_run=True)

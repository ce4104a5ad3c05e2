"""What a run reads and asks: corpora, data files, models, a search server, a judge.

Promises to read no corpus and no model, and to ask a server one question. Refuses to fetch what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from launch.checks import machine
from launch.checks.check import FAIL, OK, WARN, Check
from ssp.base import models
from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.base.models import resolve
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.world.files import world_seed
from ssp.selfplay.workers import build

SECONDS = 5.0
"""How long a judge may think."""
GET = "see Getting the data in docs/recipes.md"


def needs(cfg: Config) -> Iterator[Check]:
    """A row for software that is not installed, the data, the models, and each server that the configuration names."""
    lacking = WARN if machine.planning(cfg) else FAIL
    if lacks := build.missing(cfg):
        found = "; ".join(f"{error.rule}: {error.found}" for error in lacks)
        yield Check("software", lacking, found, "; ".join(error.next_step for error in lacks))
    yield _all("data", lacking, [partial(_there, path) for path in _files(cfg)], GET)
    named = {cfg.block(role).model: f"{role}.model" for role in cfg.roles}
    yield _all("models", lacking, [partial(models.folder, *one) for one in named.items() if one[0] != "coldstart"])
    if cfg.retriever.url or cfg.retriever.online.engine:
        yield _all("search server", lacking, [partial(corpora.check_remote, cfg)])
    if cfg.judge.kind == "llm" or (PROPOSER in cfg.roles and cfg.referee.verifier == "judge"):
        yield _all("judge", lacking, [partial(build.check_judge, cfg, SECONDS)])


def _files(cfg: Config) -> list[str]:
    """Paths of the data, generated worlds left out."""
    asked = cfg.data.targets if PROPOSER in cfg.roles else cfg.data.questions
    found = [*corpora.named(cfg).values(), Path(asked), *(Path(item.file) for item in cfg.data.eval)]
    return [path for path in dict.fromkeys(map(str, found)) if path and world_seed(path) is None]


def _there(path: str) -> None:
    if not resolve(path, "data").exists():
        raise InputError("a file or folder of `data` exists", path, GET)


def _all(what: str, lacking: str, looks: list[Callable[[], object]], next_step: str = "") -> Check:
    """One row: `lacking` with everything that is not as it should be."""
    wrong = []
    for look in looks:
        try:
            look()
        except InputError as error:
            wrong.append(error)
    if not wrong:
        return Check(what, OK, "all there" if looks else "none needed")
    return Check(what, lacking, "; ".join(str(error.found) for error in wrong), next_step or wrong[0].next_step)

"""What the accuracy of the periodic evaluation is called: held-out where no question of its set can
be trained on.

Names and paths of the configuration decide it. Files are not read, so a copy of the training file
under another name is taken for another file."""

import os
import re

from ssp.config.schema import Config

_WORLD = re.compile(r"(?:^|/)worlds/(v\d+-[^/]+)/[^/]+$")
_PARTED = re.compile(
    r"^world:(english|fanoutqa)$|(?:^|/)worlds/v\d+-english-[^/]+/eval(-fanoutqa)?\.jsonl$"
)
"""Questions that the English world keeps apart from those of its training, in one corpus."""


def held_out(cfg: Config) -> bool:
    """Whether the first set of `data.eval` is of other questions than those that are trained."""
    return bool(cfg.data.eval) and apart(cfg, cfg.data.eval[0].file)


def apart(cfg: Config, asked: str) -> bool:
    """Whether no question of the file `asked` can be trained. A role that asks may ask anything
    about its own world, and so may the run whose bank is played; a data set's questions are those
    of its file."""
    if _PARTED.search(asked):
        return True
    trained = [cfg.rows] if cfg.rows else []
    if cfg.game.questions != "dataset":
        trained.append(cfg.data.corpus)
    return _place(asked) not in map(_place, trained)


def accuracy(cfg: Config) -> str:
    """What `eval/accuracy` is called in front of a person."""
    if held_out(cfg):
        return "held-out accuracy"
    return f"accuracy on {cfg.data.eval[0].name}" if cfg.data.eval else "accuracy"


def _place(path: str) -> str:
    """The same for every file of one generated world; of any other path the file."""
    if path.startswith("world:"):
        return path.removesuffix("-train") if path.startswith("world:english") else path
    made = _WORLD.search(path)
    return made[1] if made else os.path.realpath(os.path.expanduser(path))

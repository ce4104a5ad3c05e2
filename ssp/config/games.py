"""Which game a run plays: the declaration that `game.kind` names.

A shipped game is found by its name, another one by its place (`FILE.py:NAME`), and that of a run
which is only looked at by the game.json that the run wrote."""

import functools
from pathlib import Path

from ssp.base import declared, gamefacts, places
from ssp.base.errors import hold
from ssp.base.gamespec import GameSpec

SHIPPED = (
    "duel",
    "given",
    "self-search",
    "dr-zero",
    "r-zero",
    "spice",
    "searchmaster",
    "cross-fit",
)


def kind(named: str, questions: str) -> str:
    """The game of `game.kind`; where that is not set, of `game.questions`."""
    if named:
        return named
    return "duel" if questions == "proposer" else "given"


def seal(kind: str, run: Path) -> str:
    """A place as the config.yaml in the folder `run` names it, whose code is not run."""
    return f"{places.SEALED}{run.absolute() / gamefacts.FILE}:{kind}"


def place(kind: str) -> str:
    """A place without its seal."""
    return ":".join(kind.rsplit(":", 2)[-2:]) if places.sealed(kind) else kind


@functools.cache
def find(kind: str) -> GameSpec:
    """The declaration of a game. InputError for one that is not there, or is none."""
    if places.sealed(kind):
        file = kind.removeprefix(places.SEALED).removesuffix(f":{place(kind)}")
        return gamefacts.read(Path(file), place(kind))
    if places.is_own(kind):
        made = places.find(kind, "a game", "GAME = GameSpec(...)")
        return declared.check(made, kind)
    rule = f"game.kind is one of {', '.join(SHIPPED)}, or my_game.py:GAME"
    hold(kind in SHIPPED, rule, kind, "set game.kind to one of these")
    module = kind.replace("-", "_")
    made = places.find(f"ssp.game.games.{module}:GAME", "a game", "GAME = GameSpec(...)")
    return declared.check(made, kind)

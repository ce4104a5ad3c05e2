"""Which game a run plays: the declaration that `game.kind` names.

A shipped game is found by its name, another one by its place (`FILE.py:NAME`)."""

import functools

from ssp.base import declared, places
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


@functools.cache
def find(kind: str) -> GameSpec:
    """The declaration of a game. InputError for one that is not there, or is none."""
    if places.is_own(kind):
        made = places.find(kind, "a game", "GAME = GameSpec(...)")
        return declared.check(made, kind)
    rule = f"game.kind is one of {', '.join(SHIPPED)}, or my_game.py:GAME"
    hold(kind in SHIPPED, rule, kind, "set game.kind to one of these")
    module = kind.replace("-", "_")
    made = places.find(f"ssp.game.games.{module}:GAME", "a game", "GAME = GameSpec(...)")
    return declared.check(made, kind)

"""Which game a run plays: the declaration that `game.kind` names.

A shipped game is found by its name, another one by its place (`FILE.py:NAME`)."""

import functools

from ssp.base import gamespec, places
from ssp.base.errors import hold
from ssp.base.gamespec import GameSpec

SHIPPED = ("duel", "given", "self-search")
DECLARED = ("dr-zero", "r-zero", "spice", "searchmaster", "cross-fit")
"""Games that are written down, and that no run plays yet."""


def kind(named: str, questions: str) -> str:
    """The game of `game.kind`; where that is not set, of `game.questions`."""
    if named:
        return named
    return "duel" if questions == "proposer" else "given"


def find(kind: str) -> GameSpec:
    """The declaration of a game that runs play. InputError for one that is not there, is none, or
    is only written down."""
    spec = written(kind)
    rule = "game.kind is a game that a run can play"
    hold(spec.played, rule, f"{kind}, which is written down and not played yet", "set another one")
    return spec


@functools.cache
def written(kind: str) -> GameSpec:
    """The declaration of a game, played or not. InputError for one that is not there, or is
    none."""
    if places.is_own(kind):
        made = places.find(kind, "a game", "GAME = GameSpec(...)")
        return gamespec.check(made, kind)
    known = (*SHIPPED, *DECLARED)
    rule = f"game.kind is one of {', '.join(known)}, or my_game.py:GAME"
    hold(kind in known, rule, kind, "set game.kind to one of these")
    module = kind.replace("-", "_")
    made = places.find(f"ssp.game.games.{module}:GAME", "a game", "GAME = GameSpec(...)")
    return gamespec.check(made, kind)

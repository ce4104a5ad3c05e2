"""The duel, and nothing else, under other names."""

from dataclasses import replace

from ssp.base.gamespec import Pay, Play
from ssp.game.games.duel import GAME as DUEL

NAMES = {"proposer": "a", "solver": "b", "proposal": "c"}


def renamed(stage):
    """A stage of the duel under these names."""
    if isinstance(stage, Play):
        return replace(stage, name=NAMES.get(stage.name, stage.name), by=NAMES[stage.by])
    if hasattr(stage, "of"):
        return replace(stage, of=NAMES.get(stage.of, stage.of))
    return stage


GAME = replace(
    DUEL,
    roles=("a", "b"),
    stages=tuple(map(renamed, DUEL.stages)),
    pay={
        NAMES[role]: tuple(Pay(NAMES.get(pay.stage, pay.stage), pay.by) for pay in pays)
        for role, pays in DUEL.pay.items()
    },
    asks="c",
)

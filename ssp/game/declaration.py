"""A game's declaration with the settings of a run, and the functions that it brings.

Promises that whatever a function of a user's own game raises, and a value of the wrong kind, is an
InputError that names the function, its file and the game that it was about. What a function of the
package raises is ours, and passes."""

import math
from collections.abc import Callable, Mapping
from inspect import unwrap
from typing import Any, TypeVar

from ssp.base.errors import hold
from ssp.base.gamespec import Payment, Play
from ssp.base.places import is_own, outcome
from ssp.base.played import Game
from ssp.config.rules import each_role
from ssp.config.schema import Config

T = TypeVar("T")
RULE = "a function of a game's declaration gives what its stage takes"
RAISED = "a function of a game's declaration must not raise"
NEXT = "correct the function; a run that has begun goes on with resume=auto"


def called(cfg: Config, function: Callable[..., T], kind: Any, about: str, *args: object) -> T:
    """What a function of the game gives, which is of `kind`. `about`: what it is asked about, for
    the message."""
    if not is_own(cfg.game.kind) or cfg.game.kind.startswith("ssp."):
        return function(*args)
    code = getattr(unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    place = f"{name} in {code.co_filename if code else cfg.game.kind}, about {about}"
    value = outcome(RAISED, f"{place}: ", NEXT, lambda: function(*args))
    hold(isinstance(value, kind), RULE, f"{place}: it gives {value!r}", NEXT)
    return value


def fields(cfg: Config, stage: Play, game: Game, number: int) -> dict[str, str]:
    """What the prompt of a game's episode `number` is filled with. InputError for a field that is
    no text."""
    filled = called(cfg, stage.fields, Mapping, named(game), game, number)
    odd = [f"{name}={value!r}" for name, value in filled.items() if not isinstance(value, str)]
    hold(not odd, RULE, f"fields of the stage {stage.name}: {', '.join(odd)}", NEXT)
    return dict(filled)


def is_played(cfg: Config, stage: Play, game: Game) -> bool:
    """Whether a game is played at a stage."""
    if stage.when is None:
        return True
    return bool(called(cfg, stage.when, object, named(game), game))


def who_plays(cfg: Config, stage: Play, game: Game) -> str:
    """The role that plays a game at a stage. InputError where `choose` gives none of its roles."""
    if stage.choose is None:
        return stage.roles[0]
    role = called(cfg, stage.choose, str, named(game), game)
    hold(role in stage.roles, RULE, f"choose of the stage {stage.name}: {role!r}", NEXT)
    return role


def payment(cfg: Config, function: Callable[..., Payment], game: Game, *args: object) -> Payment:
    """What a payer of the game says. InputError for a reward that is no finite number."""
    paid = called(cfg, function, Payment, named(game), cfg, game, *args)
    known = paid.reward is None or math.isfinite(paid.reward)
    hold(known, RULE, f"a reward of {paid.reward} for {named(game)}", NEXT)
    return paid


def rates(
    cfg: Config, function: Callable[..., Mapping[str, float]], games: list[Game]
) -> Mapping[str, float]:
    """The number of each game, by its id. InputError where one is missing."""
    numbers = called(cfg, function, Mapping, f"{len(games)} games", cfg, games)
    missing = [named(game) for game in games if game.id not in numbers]
    hold(not missing, RULE, f"no number for {', '.join(missing[:3])}", NEXT)
    return numbers


def named(game: Game) -> str:
    """A game in words: its id, its row, and what it is about."""
    about = game.target or game.question or game.source
    told = f" ({about})" if about else ""
    return f"game {game.id}, row {game.number}{told}"


@each_role
def who_learns_is_paid(cfg: Config, role: str) -> None:
    """A role that learns is paid for a stage, and how often that is played can be said."""
    for play in cfg.spec.plays.values():
        play.episodes(cfg)
    paid = cfg.spec.pay.get(role) or cfg.block(role).policy == "frozen"
    given = f"{role} in game.kind={cfg.game.kind}, with {role}.policy={cfg.block(role).policy}"
    step = f"give it a Pay, or set {role}.policy=frozen"
    hold(paid, "a role that learns is paid for a stage", given, step)


def given_stand_among_asked(cfg: Config) -> None:
    """A share of given questions stands among asked ones, and comes from a file."""
    if cfg.game.given == 0:
        return
    share = f"game.given={cfg.game.given:g}"
    rule = f"{share} is a share of given questions among those that a role asks"
    step = "leave game.given out, or let a role ask"
    hold(cfg.asks and cfg.game.questions == "proposer", rule, "all are given", step)
    path = cfg.data.questions or "no data.questions"
    step = "set data.questions to a question file, or leave game.given out"
    hold(cfg.data.questions, f"{share} reads the file that data.questions names", path, step)

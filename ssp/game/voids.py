"""Rules of void (law 2): why nobody can say what an episode of a round earned.

Training asks them, and so does a replay that prices a round again. An evaluation asks none: there
an episode is void only where a fault hit it. Every cause stands in `ssp/base/causes.json`."""

from dataclasses import replace

from ssp.base.episode import Outcome
from ssp.base.errors import Fault
from ssp.base.gamespec import Payer, Payment
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.declaration import payment

TOO_FEW = "too_few_attempts"
LATE = (TOO_FEW,)
"""Causes that only settling finds: no stage has counted them."""


def of_play(cfg: Config, episode: Brief) -> str:
    """Why an episode is void as it comes back from play, "" where it is not."""
    if episode.outcome is Outcome.VOID:
        return episode.cause
    return ""


def of_settling(cfg: Config, game: Game, episode: Brief) -> str:
    """Why an episode of a game is void before anybody is paid, "" where it is not."""
    asks = game.proposal is not None and episode.id == game.proposal.id
    grade = game.grades.get(episode.id)
    if asks and game.void_cause:
        return game.void_cause
    if episode.outcome is Outcome.VOID:
        return episode.cause
    if grade is not None and grade.right is None:
        return grade.void_cause
    return ""


def enough(rate: float | None) -> float:
    """The win rate that a payer goes by. Fault where fewer than half of the attempts were scored."""
    if rate is None:
        raise Fault(TOO_FEW)
    return rate


def paid(cfg: Config, payer: Payer, game: Game, episode: Brief) -> Payment:
    """What an episode earned; void by a rule, or where its payer raises a Fault."""
    cause = of_settling(cfg, game, episode)
    if cause:
        return Payment.void(cause)
    try:
        return payment(cfg, payer, game, episode)
    except Fault as fault:
        return Payment.void(fault.cause)


def marked(cfg: Config, episode: Brief) -> Brief:
    """The episode, void where a rule says so."""
    cause = of_play(cfg, episode)
    return replace(episode, outcome=Outcome.VOID, cause=cause) if cause else episode

"""R-Zero (arXiv 2508.05004): no targets and no search. A challenger writes a question; the answer
that most of the solver's attempts agree on is its label. The challenger is paid for questions at
the edge of what the solver knows, less the share of the round's questions that are like its own;
the solver learns from those of which 30 to 80 % of the attempts agree with the label.

Ours: of equally frequent answers the first is the majority; the closed book is a prompt of its own
and a search that finds nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ssp.base.episode import Outcome
from ssp.base.gamespec import (
    BATCH,
    NOTHING,
    Check,
    Choose,
    GameSpec,
    Grading,
    Pay,
    Payment,
    Phase,
    Play,
    Rate,
)
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.forms import question_alone
from ssp.game.games.majority import agree
from ssp.game.games.pay import by_grade, question
from ssp.game.games.similar import shares
from ssp.game.rewards.difficulty import uncertainty
from ssp.game.voids import enough

ASK = "Write one question of your own that is hard, and that has one short answer."
RECALL = "Answer this question from what you know. {question}"
LEAST, MOST = 0.3, 0.8
"""Shares of agreeing attempts between which a question teaches the solver."""


def nothing(game: Game, number: int) -> Mapping[str, str]:
    """A prompt without fields."""
    return {}


def alike(cfg: Config, games: Sequence[Game]) -> Mapping[str, float]:
    """Of each game the share of the round's questions in its cluster."""
    asked = [game for game in games if game.question]
    shares_of_asked = shares([game.question for game in asked])
    known = dict(zip([game.id for game in asked], shares_of_asked, strict=True))
    return {game.id: known.get(game.id, 0.0) for game in games}


def by_uncertainty(cfg: Config, game: Game, episode: Brief) -> Payment:
    """1 - 2 |s - 1/2|, less the share of its cluster; -1 less that share where it is malformed."""
    share = game.rates["alike"]
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, -1.0 - share)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    rate = enough(game.win_rate)
    return Payment(Outcome.SCORED, "", uncertainty(rate) - share)


def at_the_edge(cfg: Config, game: Game, episode: Brief) -> Payment:
    """Agreement with the label, of questions that are neither too easy nor too hard."""
    paid = by_grade(cfg, game, episode)
    teaches = game.win_rate is not None and LEAST <= game.win_rate <= MOST
    return paid if teaches else replace(paid, spare=True)


GAME = GameSpec(
    roles=("challenger", "solver"),
    stages=(
        Play("proposal", by="challenger", prompt="free", fields=nothing, group=BATCH),
        Check("form", of="proposal", by=question_alone),
        Rate("alike", by=alike),
        Choose(),
        Play(
            "attempt",
            by="solver",
            prompt="recall",
            fields=question,
            times="game.attempts",
            closed=True,
        ),
        Grading("grade", of="attempt", by=agree),
    ),
    pay={
        "challenger": (Pay("proposal", by=by_uncertainty),),
        "solver": (Pay("attempt", by=at_the_edge),),
    },
    asks="proposal",
    answers="attempt",
    rows=NOTHING,
    phases=(Phase(("challenger",), 5), Phase(("solver",), 15)),
    prompts={"free": ASK, "recall": RECALL},
    settings={
        "game.attempts": 10,
        "referee.verifier": "none",
        "referee.evidence": "none",
        "referee.noise": 0,
    },
)

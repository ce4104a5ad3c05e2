"""The duel with a third learning role: a guide that says how good each question is. Its score multiplies what the proposer
earns, and it is paid for agreeing with the referee."""

from collections.abc import Mapping

from ssp.base.episode import Outcome
from ssp.base.gamespec import BATCH, ROW, Check, Choose, GameSpec, Grading, Pay, Payment, Play
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.pay import by_grade, by_win_rate, question, target

ASK = "<target> a </target> <q> {question} </q>"
"""Answered by `none` where the question is no good. The words are those of the embedded policy."""


def asked(game: Game, number: int) -> Mapping[str, str]:
    """The question as it was handed in, which nobody has checked yet."""
    assert game.proposal is not None
    return {"question": game.proposal.final or ""}


def handed_in(game: Game) -> bool:
    """Whether there is a question to look at."""
    return game.proposal is not None and game.proposal.final is not None


def likes(game: Game) -> float | None:
    """The guide's score of a question: 1 or 0, None where a fault took it."""
    (said,) = game.others["score"]
    if said.outcome is Outcome.VOID:
        return None
    return float(said.final is not None and said.final != "none")


def by_agreement(cfg: Config, game: Game, episode: Brief) -> Payment:
    """1 where the guide says what the referee says, else 0."""
    if episode.outcome is Outcome.VOID:
        return Payment.void(episode.cause)
    if game.void_cause:
        return Payment.void(game.void_cause)
    if episode.final is None:
        return Payment(Outcome.REJECTED, episode.stopped, 0.0)
    return Payment(Outcome.SCORED, "", float((likes(game) == 1.0) == game.valid))


def by_guided_win_rate(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What the duel pays, times the guide's score."""
    paid = by_win_rate(cfg, game, episode)
    if paid.reward is None or not game.valid:
        return paid
    score = likes(game)
    if score is None:
        return Payment.void("guide_void")
    return Payment(paid.outcome, paid.cause, paid.reward * score)


GAME = GameSpec(
    roles=("proposer", "guide", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Play("score", by="guide", prompt="guide", fields=asked, when=handed_in, group=BATCH),
        Check("verdict", of="proposal"),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="attempt"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_guided_win_rate),),
        "guide": (Pay("score", by=by_agreement),),
        "solver": (Pay("attempt", by=by_grade),),
    },
    asks="proposal",
    answers="attempt",
    prompts={"guide": ASK},
    settings={"guide.algorithm": "reinforce"},
)

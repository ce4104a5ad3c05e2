"""SPICE (arXiv 2510.24684): a challenger reads a document that the reasoner never sees, and asks
about it; the reasoner answers from memory. The challenger is paid for questions that are answered
about half of the time."""

import math
from collections.abc import Mapping

from ssp.base.episode import Outcome
from ssp.base.gamespec import (
    DOCUMENTS,
    ROW,
    Check,
    Choose,
    GameSpec,
    Grading,
    Pay,
    Payment,
    Play,
)
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.pay import TOO_FEW, by_grade, question

ASK = """Below stands a document that the reader of your question will not see. Write a question \
about it that has one short answer, then a line "answer:" and that answer.

{document}"""
INVALID = -0.1
"""What a question earns that cannot be read."""


def document(game: Game, number: int) -> Mapping[str, str]:
    """The document to ask about."""
    return {"document": game.target}


def variance_reward(rate: float) -> float:
    """exp(-(p (1 - p) - 1/4)^2 / (2 * 0.01)): 1 at an even game."""
    variance = rate * (1.0 - rate)
    return math.exp(-((variance - 0.25) ** 2) / 0.02)


def by_variance(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a document's question earns."""
    if game.void_cause:
        return Payment.void(game.void_cause)
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, INVALID)
    if game.win_rate is None:
        return Payment.void(TOO_FEW)
    return Payment(Outcome.SCORED, "", variance_reward(game.win_rate))


GAME = GameSpec(
    roles=("challenger", "reasoner"),
    stages=(
        Play("proposal", by="challenger", prompt="document", fields=document, group=ROW),
        Check("form", of="proposal", by="form"),
        Choose(),
        Play(
            "attempt",
            by="reasoner",
            prompt="solver",
            fields=question,
            times="game.attempts",
            closed=True,
        ),
        Grading("grade", of="attempt"),
    ),
    pay={
        "challenger": (Pay("proposal", by=by_variance),),
        "reasoner": (Pay("attempt", by=by_grade),),
    },
    asks="proposal",
    answers="attempt",
    rows=DOCUMENTS,
    prompts={"document": ASK},
    settings={"game.attempts": 8, "defaults.algorithm": "dr_grpo"},
    played=False,
)

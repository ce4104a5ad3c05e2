"""SPICE (arXiv 2510.24684): a challenger reads a document that the reasoner never sees, and asks
about it; the reasoner answers from memory. One policy plays both. The challenger is paid for
questions that are answered about half of the time.

Ours: the closed book is a prompt of its own and a search that finds nothing."""

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
from ssp.game.games.forms import with_answer
from ssp.game.games.pay import by_grade, question
from ssp.game.rewards.difficulty import variance
from ssp.game.voids import enough

ASK = """Below stands a document that the reader of your question will not see. Write a question \
about it that has one short answer, then a line "answer:" and that answer.

{document}"""
RECALL = """Answer this question from what you know. {question}"""
INVALID = -0.1
"""What a question earns that cannot be read."""


def document(game: Game, number: int) -> Mapping[str, str]:
    """The document to ask about."""
    return {"document": game.hints["document"]}


def by_variance(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a document's question earns."""
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, INVALID)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    rate = enough(game.win_rate)
    return Payment(Outcome.SCORED, "", variance(rate))


GAME = GameSpec(
    roles=("challenger", "reasoner"),
    stages=(
        Play("proposal", by="challenger", prompt="document", fields=document, group=ROW),
        Check("form", of="proposal", by=with_answer),
        Choose(),
        Play(
            "attempt",
            by="reasoner",
            prompt="recall",
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
    prompts={"document": ASK, "recall": RECALL},
    settings={
        "defaults.policy": "shared",
        "game.attempts": 8,
        "defaults.algorithm": "dr_grpo",
        "referee.verifier": "none",
        "referee.evidence": "none",
        "referee.noise": 0,
    },
)

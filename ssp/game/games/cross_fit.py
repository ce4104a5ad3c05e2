"""CrossFit (arXiv 2609.39102): a question is graded, for the proposer's pay only, by an auxiliary
solver that has never trained on questions about its source. Sources lie in two folds; the solver of
one fold trains on that fold alone and grades the other. The solver of record trains on both, with
the judge's own grades.

Ours: a question's source is the document of the verifier's first quote, else the target."""

import hashlib

from ssp.base.episode import Outcome
from ssp.base.gamespec import ROW, Check, Choose, GameSpec, Grading, Pay, Payment, Play
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.pay import by_grade, question, target
from ssp.game.rewards.difficulty import solved_once
from ssp.game.rewards.proposer import win_rate
from ssp.game.voids import enough

FOLDS = ("solver_a", "solver_b")


def fold(game: Game) -> int:
    """The fold of a game's source document: a hash of its id, modulo 2. Where nobody named one, as
    with a verifier that quotes nothing, the target stands for it."""
    source = game.source or game.target
    return int(hashlib.sha256(source.encode()).hexdigest(), 16) % len(FOLDS)


def student(game: Game) -> str:
    """The auxiliary solver that trains on this source."""
    return FOLDS[fold(game)]


def auditor(game: Game) -> str:
    """The auxiliary solver that has never trained on this source."""
    return FOLDS[1 - fold(game)]


def by_audit(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a question earns by how often the auditor answers it."""
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, 0.0)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    graded = [game.right(attempt) for attempt in game.others["audit"]]
    known = [right for right in graded if right is not None]
    enough(win_rate(graded, len(graded)))
    return Payment(Outcome.SCORED, "", solved_once(sum(known), len(known)))


GAME = GameSpec(
    roles=("proposer", "solver", *FOLDS),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="proposal"),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Play(
            "audit",
            by=FOLDS,
            prompt="solver",
            fields=question,
            times="game.attempts",
            choose=auditor,
        ),
        Play(
            "study",
            by=FOLDS,
            prompt="solver",
            fields=question,
            times="game.attempts",
            choose=student,
        ),
        Grading("grade", of="attempt"),
        Grading("audited", of="audit"),
        Grading("studied", of="study"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_audit, grader=auditor),),
        "solver": (Pay("attempt", by=by_grade),),
        **{role: (Pay("study", by=by_grade),) for role in FOLDS},
    },
    asks="proposal",
    answers="attempt",
)

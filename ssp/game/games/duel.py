"""Search self-play (SSP, arXiv 2510.18821): a proposer writes a question with a given answer, a
referee checks it, and a solver tries it `game.attempts` times. The solver is paid for being right,
the proposer for the solver being wrong."""

from ssp.base.gamespec import ROW, Check, Choose, GameSpec, Grading, Pay, Play
from ssp.game.games.pay import by_grade, by_win_rate, question, target

GAME = GameSpec(
    roles=("proposer", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="proposal"),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="attempt"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_win_rate),),
        "solver": (Pay("attempt", by=by_grade),),
    },
    asks="proposal",
    answers="attempt",
)

"""Search RL on given questions, of a data set or of a bank: a solver tries each `game.attempts`
times. Nobody proposes; settings of a proposer are taken and not used, so that one configuration
serves both games."""

from ssp.base.gamespec import QUESTIONS, Choose, GameSpec, Grading, Pay, Play
from ssp.game.games.pay import by_grade, question

GAME = GameSpec(
    roles=("solver",),
    stages=(
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="attempt"),
    ),
    pay={"solver": (Pay("attempt", by=by_grade),)},
    answers="attempt",
    rows=QUESTIONS,
    blocks=("proposer", "solver"),
)

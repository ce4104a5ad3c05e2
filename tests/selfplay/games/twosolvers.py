"""Search RL on given questions by two solvers. Each answers, sees once what the other one answered, and answers again; both
are paid for the second answer."""

from collections.abc import Callable, Mapping

from ssp.base.gamespec import QUESTIONS, Choose, GameSpec, Grading, Pay, Play
from ssp.base.played import Game
from ssp.game.games.pay import by_grade, question

AGAIN = "<q> {question} </q> <information> {other} </information>"
"""The words are those of the embedded policy."""


def after(stage: str) -> Callable[[Game, int], Mapping[str, str]]:
    """The question, and what the n-th episode of `stage` answered."""

    def fields(game: Game, number: int) -> Mapping[str, str]:
        other = game.others[stage][number].final
        return {"question": game.question, "other": other or "none"}

    return fields


GAME = GameSpec(
    roles=("left", "right"),
    stages=(
        Choose(),
        Play("first_left", by="left", prompt="solver", fields=question, times="game.attempts"),
        Play("first_right", by="right", prompt="solver", fields=question, times="game.attempts"),
        Play("left_again", by="left", prompt="again", fields=after("first_right"), times="game.attempts"),
        Play("right_again", by="right", prompt="again", fields=after("first_left"), times="game.attempts"),
        Grading("left_grade", of="left_again"),
        Grading("right_grade", of="right_again"),
    ),
    pay={
        "left": (Pay("left_again", by=by_grade),),
        "right": (Pay("right_again", by=by_grade),),
    },
    answers="right_again",
    exam="first_right",
    rows=QUESTIONS,
    prompts={"again": AGAIN},
)

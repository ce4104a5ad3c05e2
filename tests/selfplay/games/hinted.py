"""The duel with a third learning role: a hinter that writes one sentence about an accepted question. The solver tries each
question `game.attempts` times without the hint and as often with it, and the hinter is paid for the difference. Proposer and
solver are paid as in the duel: the question by the attempts without a hint, which an evaluation measures too."""

import re
from collections.abc import Mapping

from ssp.base.episode import Outcome
from ssp.base.gamespec import BATCH, ROW, Check, Choose, GameSpec, Grading, Pay, Payment, Play
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.pay import by_grade, by_win_rate, question, target
from ssp.game.rewards.proposer import win_rate
from ssp.game.voids import enough

HINT = "<question> {question} </question>"
HINTED = "<q> {question} </q> <information> {hint} </information>"
"""The words are those of the embedded policy."""


def hint(game: Game) -> str:
    """The hint of a game, "" where there is none of one sentence."""
    (said,) = game.others["hint"]
    text = (said.final or "").strip()
    return "" if re.search(r"[.!?]\s+\S", text) else text


def is_hinted(game: Game) -> bool:
    """Whether there is a hint to show."""
    return bool(hint(game))


def with_hint(game: Game, number: int) -> Mapping[str, str]:
    """The question, and the hint."""
    return {"question": game.question, "hint": hint(game)}


def share(game: Game, stage: str) -> float:
    """The share of right attempts of a half. Fault where fewer than half of them were scored."""
    right = [game.right(attempt) for attempt in GAME.episodes(game, stage)]
    return enough(win_rate(right, len(right)))


def by_difference(cfg: Config, game: Game, episode: Brief) -> Payment:
    """The share of right attempts with the hint, less that without it."""
    if not is_hinted(game):
        cause = episode.stopped if episode.final is None else "sentences"
        return Payment(Outcome.REJECTED, cause, cfg.block(episode.role).invalid_reward)
    return Payment(Outcome.SCORED, "", share(game, "hinted") - share(game, "attempt"))


GAME = GameSpec(
    roles=("proposer", "hinter", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="proposal"),
        Choose(),
        Play("hint", by="hinter", prompt="hint", fields=question, group=BATCH),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Play("hinted", by="solver", prompt="hinted", fields=with_hint, times="game.attempts", when=is_hinted),
        Grading("grade", of="attempt"),
        Grading("hinted_grade", of="hinted"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_win_rate),),
        "hinter": (Pay("hint", by=by_difference),),
        "solver": (Pay("attempt", by=by_grade), Pay("hinted", by=by_grade)),
    },
    asks="proposal",
    answers="attempt",
    prompts={"hint": HINT, "hinted": HINTED},
    settings={"hinter.algorithm": "reinforce"},
)

"""SearchMaster (arXiv 2608.01822): one shared policy asks and answers. A question is paid by its
depth, the fewest searches of a right attempt, and not by how often it is answered; a frozen
verifier must fail without tools. A seed whose best question earns no more than the least teaches
nobody."""

from ssp.base.episode import Outcome
from ssp.base.gamespec import ROW, Check, Choose, GameSpec, Grading, Pay, Payment, Play
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.pay import TOO_FEW, by_grade, question, target

LEAST = 0.2
"""What a question earns that nobody, or everybody, answers."""
DEEP = 10
"""Searches from which a question earns everything."""
FREE_OPENS = 1.5
"""Documents opened a search that cost nothing."""
FEW_TOOLS, INVALID = -0.5, 0.1


def depth_reward(right: int, attempts: int, searches: int) -> float:
    """r0 + (1 - r0) min(h / 10, 1) for 0 < k < n, else r0. `searches`: h, the fewest of a right
    attempt."""
    if not 0 < right < attempts:
        return LEAST
    return LEAST + (1.0 - LEAST) * min(searches / DEEP, 1.0)


def opening_penalty(opens: int, searches: int) -> float:
    """0.5 clip(opens / searches - 1.5, 0, 1)."""
    return 0.5 * min(max(opens / searches - FREE_OPENS, 0.0), 1.0)


def by_depth(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a question earns."""
    if game.void_cause:
        return Payment.void(game.void_cause)
    if episode.final is None:
        return Payment(Outcome.REJECTED, episode.stopped, 0.0)
    searches = episode.searches - episode.opens
    if episode.searches < 2 or searches == 0:
        return Payment(Outcome.REJECTED, "no_search", FEW_TOOLS)
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, INVALID)
    if game.win_rate is None:
        return Payment.void(TOO_FEW)
    right = [attempt for attempt in game.attempts if game.right(attempt)]
    fewest = min((attempt.searches - attempt.opens for attempt in right), default=0)
    reward = depth_reward(len(right), len(game.attempts), fewest)
    return Payment(Outcome.SCORED, "", reward - opening_penalty(episode.opens, searches))


GAME = GameSpec(
    roles=("proposer", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="proposal"),
        Check("closed_book", of="proposal", by="closed_book"),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="attempt"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_depth),),
        "solver": (Pay("attempt", by=by_grade),),
    },
    asks="proposal",
    answers="attempt",
    settings={
        "defaults.policy": "shared",
        "defaults.kl.coef": 0.001,
        "defaults.tools": ["search", "read"],
    },
    played=False,
)

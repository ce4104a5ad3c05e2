"""SearchMaster (arXiv 2608.01822): one shared policy asks and answers. A question is paid by its
depth, the fewest searches of a right attempt, and not by how often it is answered; a frozen
verifier must fail without tools. A seed whose best question earns no more than the least teaches
nobody. Opens are calls of `read`, searches calls of `search`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ssp.base.episode import Outcome
from ssp.base.gamespec import ROW, Check, Choose, GameSpec, Grading, Pay, Payment, Play, Rate
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game import voids
from ssp.game.games.pay import by_grade, question, target
from ssp.game.rewards.difficulty import LEAST, depth, opening_penalty
from ssp.game.rewards.proposer import win_rate

FEW_TOOLS, INVALID = -0.5, 0.1


def by_depth(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a question earns; nothing is learned from a seed whose best question earns the
    least."""
    paid = by_depth_alone(cfg, game, episode)
    if paid.reward is None:
        return paid
    return replace(paid, spare=paid.spare or game.rates.get("best", LEAST) <= LEAST)


def best_of_seed(cfg: Config, games: Sequence[Game]) -> Mapping[str, float]:
    """Of each game what the best question about the same target earns."""
    best: dict[int, float] = {}
    for game in games:
        if game.proposal is None:
            continue
        paid = voids.paid(cfg, by_depth_alone, game, game.proposal)
        seed = game.number // cfg.game.proposals
        if paid.reward is not None:
            best[seed] = max(best.get(seed, LEAST), paid.reward)
    return {game.id: best.get(game.number // cfg.game.proposals, LEAST) for game in games}


def by_depth_alone(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a question earns, whatever the others about its target do."""
    if episode.final is None:
        return Payment(Outcome.REJECTED, episode.stopped, 0.0)
    searches = episode.searches - episode.opens
    if episode.searches < 2 or searches == 0:
        return Payment(Outcome.REJECTED, "no_search", FEW_TOOLS)
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, INVALID)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    graded = [game.right(attempt) for attempt in game.attempts]
    voids.enough(win_rate(graded, len(graded)))
    known = [attempt for attempt in game.attempts if game.right(attempt) is not None]
    right = [attempt for attempt in known if game.right(attempt)]
    fewest = min((attempt.searches - attempt.opens for attempt in right), default=0)
    reward = depth(len(right), len(known), fewest)
    return Payment(Outcome.SCORED, "", reward - opening_penalty(episode.opens, searches))


GAME = GameSpec(
    roles=("proposer", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="proposal"),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="attempt"),
        Rate("best", by=best_of_seed),
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
        "referee.closed_book": True,
    },
)

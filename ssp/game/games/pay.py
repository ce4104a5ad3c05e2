"""What games share: how prompts are filled, and what an episode earned. Nobody pays a void one
(`ssp.game.voids`)."""

from collections.abc import Mapping

from ssp.base.episode import Outcome
from ssp.base.gamespec import Payment
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.rewards import proposer as difficulty
from ssp.game.voids import enough


def target(game: Game, number: int) -> Mapping[str, str]:
    """The answer to ask about, and what else the row says."""
    return {"target": game.target, **game.hints}


def question(game: Game, number: int) -> Mapping[str, str]:
    """The question to answer."""
    return {"question": game.question}


def by_grade(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What the judge's grade says; `invalid_reward` for an attempt that handed in nothing."""
    if episode.final is None:
        penalty = cfg.block(episode.role).invalid_reward
        return Payment(Outcome.REJECTED, episode.stopped, penalty)
    return Payment(Outcome.SCORED, "", game.grades[episode.id].reward)


def facts(game: Game, episode: Brief) -> dict[str, object]:
    """What a proposer's reward may take beside the win rate."""
    graded = [attempt for attempt in game.attempts if game.right(attempt) is not None]
    right = [attempt for attempt in graded if game.right(attempt)]
    return {
        "question": game.question,
        "target": game.target,
        "searches": episode.searches,
        "opens": episode.opens,
        "solved": len(right),
        "graded": len(graded),
        "depth": min((attempt.searches - attempt.opens for attempt in right), default=0),
    }


def by_win_rate(cfg: Config, game: Game, episode: Brief) -> Payment:
    """What a question earns by how often it was answered (`reward` of the role), multiplied by the
    guide's score. A question that was not tried is spare; so is an invalid one that another target
    replaced (SSP's `resample`)."""
    block = cfg.block(episode.role)
    if not game.valid:
        spare = cfg.game.batch == "resample"
        return Payment(Outcome.REJECTED, game.rule, block.invalid_reward, spare)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    rate = enough(game.win_rate)
    earned = difficulty.reward(block.reward, rate, block, facts(game, episode))
    return Payment(Outcome.SCORED, "", game.guide * earned)

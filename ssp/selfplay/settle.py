"""From graded games to ledger rows and training batches: outcomes, rewards, drops (laws 2 and 3).

Promises that every episode of the round gets exactly one row, and that a void enters no batch."""

from collections.abc import Sequence

from ssp.base.played import Game
from ssp.config.crews import learns
from ssp.config.schema import Config
from ssp.game.rewards.proposer import win_rate
from ssp.learning.scored import Credit
from ssp.selfplay.credit import Credits
from ssp.selfplay.paying import Paying, author
from ssp.selfplay.settled import Settled


def settle(
    cfg: Config,
    games: Sequence[Game],
    asked_by: int | None,
    step: int = 1,
    credits: Credits | None = None,
) -> Settled:
    """Settle the graded round of update `step`, and set each win rate.

    `asked_by`: the version that wrote the questions; None where nobody did. `credits`: the run's
    estimators, which hear of each round once; None for new ones."""
    spec = cfg.spec
    credits = credits or Credits(cfg)
    settled = Settled(step=step)
    rate(cfg, games)
    for game in games:
        verdict = "valid" if game.valid else "rejected"
        row = {
            "id": game.id,
            "target": game.target or None,
            "question": game.question or None,
            "rule": game.rule or game.void_cause,
            "verdict": "void" if game.void_cause else verdict,
            "attempts": len(game.attempts),
            "win_rate": game.win_rate,
            "proposer_version": None if game.proposal is None else author(spec, game, asked_by),
        }
        settled.games.append(row)
    for play in spec.plays.values():
        Paying(cfg, play, credits, settled).settle(games, asked_by)
    for role in cfg.roles:
        scored = settled.scored(role)
        # A role that does not learn now keeps its episodes; its estimator does not hear of them.
        given: Sequence[Credit] = [()] * len(scored)
        if learns(cfg, role, step):
            given = credits.settle(role, scored)
        settled.give_credit(role, given)
    return settled


def rate(cfg: Config, games: Sequence[Game]) -> None:
    """Set the win rate of each game that was tried and graded."""
    times = cfg.spec.answering.episodes(cfg)
    for game in games:
        if game.chosen:
            outcomes = [game.right(attempt) for attempt in game.attempts]
            game.win_rate = win_rate(outcomes, times)

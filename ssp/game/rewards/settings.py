"""Which rewards can be paid: known names or importable functions, with options that they take."""

from __future__ import annotations

from collections.abc import Callable

from ssp.base.episode import PROPOSER
from ssp.config import own
from ssp.config.schema import Config

# ssp.game.rewards is imported where it is used: it reads the schema, whose package this module belongs to.


def solver_reward_exists(cfg: Config) -> None:
    """A known name or an importable function, and options that it takes."""
    from ssp.game import rewards

    if not own.sealed(cfg.solver.reward):
        rewards.check(cfg.solver.reward, cfg.solver.reward_options)


def proposer_options_fit(cfg: Config) -> None:
    """Options that the proposer's kind of reward takes."""
    from ssp.game.rewards import proposer

    if PROPOSER in cfg.roles and not own.sealed(cfg.proposer.reward):
        proposer.check(cfg.proposer.reward, cfg.proposer.reward_options)


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    from ssp.game import rewards
    from ssp.game.rewards.options import takes

    found = []
    if cfg.judge.kind != "exact" and not takes(rewards.get(cfg.solver.reward), "judged"):
        found.append(
            f"solver.reward={cfg.solver.reward} does not hear the judge of judge.kind={cfg.judge.kind}, which decides the "
            "win rate alone. solver.reward=ssp pays what the judge accepts."
        )
    penalty = cfg.proposer.invalid_reward
    if PROPOSER in cfg.roles and penalty < 0:
        found.append(
            f"proposer.invalid_reward={penalty:g} punishes invalid questions. In SSP's paper (figure 5) a penalty of -0.1 "
            "collapsed training: nearly no question stayed valid. Its recipe pays 0."
        )
    return found


RULES: tuple[Callable[[Config], None], ...] = (solver_reward_exists, proposer_options_fit)

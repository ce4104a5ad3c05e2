"""Which rewards can be paid: known names or importable functions, with options that they take.

Owns the rules about `{role}.reward` and `{role}.reward_options`, and the warnings about prices that are allowed but have
gone wrong for others. Promises that a reward which could not be computed is refused before a run starts.
Refuses to know formulas (`ssp.rewards`).
"""

from __future__ import annotations

from collections.abc import Callable

from ssp import own
from ssp.config.schema import Config
from ssp.episode import PROPOSER

# ssp.rewards is imported where it is used: it reads the schema, whose package this module belongs to.


def solver_reward_exists(cfg: Config) -> None:
    """A known name or an importable function, and options that it takes."""
    from ssp import rewards

    if not own.sealed(cfg.solver.reward):
        rewards.check(cfg.solver.reward, cfg.solver.reward_options)


def proposer_options_fit(cfg: Config) -> None:
    """Options that the proposer's kind of reward takes."""
    from ssp.rewards import proposer

    if PROPOSER in cfg.roles and not own.sealed(cfg.proposer.reward):
        proposer.check(cfg.proposer.reward, cfg.proposer.reward_options)


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    from ssp import rewards
    from ssp.rewards.options import takes

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

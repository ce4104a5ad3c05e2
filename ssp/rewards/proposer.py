"""What a proposer earns for a valid question, from the solver's win rate on it.

Owns the four kinds of `proposer.reward` and the rule when a game counts at all. Promises that a game without enough
scored attempts has no win rate (law 2). Refuses to price invalid questions: that is the config's `invalid_reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssp.config.schema import RoleConfig
from ssp.errors import InputError, InvariantError


def win_rate(outcomes: Sequence[bool | None], n: int) -> float | None:
    """Share of right attempts among the scored ones; None (the game is void) when fewer than ceil(n/2) are scored.

    `outcomes`: right, wrong, or None for a void attempt; `n`: attempts that the game was to have.
    """
    if n < 1 or len(outcomes) > n:
        raise InvariantError(f"a game of {n} attempts cannot have {len(outcomes)} outcomes")
    scored = [outcome for outcome in outcomes if outcome is not None]
    return sum(scored) / len(scored) if len(scored) >= (n + 1) // 2 else None


def _adversarial(rate: float, cfg: RoleConfig) -> float:
    """1 - s (SSP)."""
    return 1.0 - rate


def _intermediate(rate: float, cfg: RoleConfig) -> float:
    """4 s (1 - s): 1 at an even game, 0 at both ends (SSP with left=0, right=1)."""
    return 4.0 * rate * (1.0 - rate)


def _target(rate: float, cfg: RoleConfig) -> float:
    """1 at difficulty 1 - s = `target_difficulty`, falling linearly to 0 at the farther end of [0, 1]."""
    goal = cfg.target_difficulty
    return 1.0 - abs((1.0 - rate) - goal) / max(goal, 1.0 - goal)


def _format_only(rate: float, cfg: RoleConfig) -> float:
    """1 for every valid question (SSP)."""
    return 1.0


_KINDS: dict[str, Callable[[float, RoleConfig], float]] = {
    "1-acc": _adversarial,
    "intermediate_difficulty": _intermediate,
    "target_difficulty": _target,
    "format_only": _format_only,
}


def names() -> list[str]:
    """The known kinds, sorted."""
    return sorted(_KINDS)


def reward(kind: str, rate: float, cfg: RoleConfig) -> float:
    """Reward in [0, 1] of a valid question that the solver wins with `rate`. InputError for an unknown kind.

    InvariantError for a rate outside [0, 1].
    """
    if kind not in _KINDS:
        raise InputError(
            f"proposer.reward must be one of {', '.join(names())}", kind, "set proposer.reward to one of these"
        )
    if not 0.0 <= rate <= 1.0:
        raise InvariantError(f"a win rate lies in [0, 1], not {rate}")
    return _KINDS[kind](rate, cfg)

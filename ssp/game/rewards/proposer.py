"""What a proposer earns for a valid question, from the solver's win rate on it; `invalid_reward`
prices the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ssp.base.errors import InvariantError, hold
from ssp.config import own
from ssp.config.role import RoleConfig
from ssp.game.rewards.options import check_options, imported, number, takes

GUIDE, GUIDES = "guide", ("judge", "verifier")
"""The option that names a guide (`ssp.game.referee.guide`), and those that are built in."""
GIVEN = ("question", "target", "searches")
"""What the game fills in for a user's function that takes it."""


def win_rate(outcomes: Sequence[bool | None], n: int) -> float | None:
    """Share of right attempts among the scored ones; None (the proposal is void) when fewer than
    ceil(n/2) are scored. `outcomes`: right, wrong, or None for a void attempt; `n`: attempts that
    the game was to have."""
    scored = [outcome for outcome in outcomes if outcome is not None]
    return sum(scored) / len(scored) if len(scored) >= (n + 1) // 2 else None


def _intermediate(rate: float, cfg: RoleConfig, left: float = 0.0, right: float = 1.0) -> float:
    """4 (left + s) (right - s), and 0 at both ends (SSP): with its left=0 and right=1, 1 at an even
    game."""
    return 4.0 * (left + rate) * (right - rate) if 0.0 < rate < 1.0 else 0.0


def _target(rate: float, cfg: RoleConfig, goal: float = 0.5) -> float:
    """1 at difficulty 1 - s = `goal`, falling linearly to 0 at the farther end of [0, 1]."""
    return 1.0 - abs((1.0 - rate) - goal) / max(goal, 1.0 - goal)


_KINDS: dict[str, Callable[..., float]] = {
    "1-acc": lambda rate, cfg: 1.0 - rate,
    "intermediate_difficulty": _intermediate,
    "target_difficulty": _target,
    "format_only": lambda rate, cfg: 1.0,
}
"""All but target_difficulty are SSP's."""


def names() -> list[str]:
    """The known kinds, sorted."""
    return sorted(_KINDS)


def check(kind: str, options: Mapping[str, Any], role: str = "proposer") -> None:
    """InputError for an unknown kind, for an option that it does not take, and for a place that
    leads to no function. `role` asks, and is named in the message."""
    theirs, guide = own.is_own(kind), str(options.get(GUIDE, ""))
    rule = f"{role}.reward_options.guide is {', '.join(GUIDES)}, or my_file.py:function"
    there = own.sealed(guide) or (own.is_own(guide) and imported(guide, guide, "(question)", ""))
    hold(
        not guide or guide in GUIDES or there,
        rule,
        guide,
        "set it to one of these, or leave it out",
    )
    check_options(
        _kind(kind, role),
        _others(options),
        f"{role}.reward_options",
        GIVEN if theirs else (),
        1 if theirs else 2,
    )


def reward(
    kind: str, rate: float, cfg: RoleConfig, facts: Mapping[str, Any] | None = None
) -> float:
    """What a valid question earns that the solver wins with `rate`: in [0, 1], unless
    `cfg.reward_options` move the ends. `facts`: what a user's own function may take by the names of
    `GIVEN`. InputError for an unknown kind, and for a user's function that raises or returns no
    finite number; InvariantError for a rate outside [0, 1]."""
    function = _kind(kind)
    if not 0.0 <= rate <= 1.0:
        raise InvariantError(f"a win rate lies in [0, 1], not {rate}")
    if not own.is_own(kind):
        return function(rate, cfg, **_others(cfg.reward_options))
    given = {name: value for name, value in (facts or {}).items() if takes(function, name)}
    return number(kind, lambda: function(rate, **given, **_others(cfg.reward_options)))


def _others(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are the reward's own."""
    return {name: value for name, value in options.items() if name != GUIDE}


def _kind(kind: str, role: str = "proposer") -> Callable[..., float]:
    if own.is_own(kind):
        return imported(kind, kind, "(win_rate)", 0.5)
    rule = f"{role}.reward is one of {', '.join(names())}, or your own my_file.py:name"
    hold(kind in _KINDS, rule, kind, f"set {role}.reward to one of these")
    return _KINDS[kind]

"""What a proposer earns for a valid question, by the solver's win rate on it. `invalid_reward`
prices the other questions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ssp.base.errors import InvariantError, hold
from ssp.config import own
from ssp.config.role import RoleConfig
from ssp.game.rewards import difficulty
from ssp.game.rewards.options import check_options, imported, number, takes

GUIDE, GUIDES = "guide", ("judge", "verifier")
"""The option that names a guide (`ssp.game.referee.guide`), and the guides that ship."""
GIVEN = ("question", "target", "searches", "opens", "solved", "graded", "depth")
"""Parameters that the game fills in for a function that has them: what was asked about what; the
proposer's calls, and how many of them opened a document; how many of the graded attempts were
right, how many there are, and the fewest searches of a right one."""


def win_rate(outcomes: Sequence[bool | None], n: int) -> float | None:
    """Share of right attempts among the scored ones. None, which voids the proposal, when fewer
    than ceil(n/2) are scored. `outcomes`: right, wrong, or None for a void attempt. `n`: attempts
    that were asked for."""
    scored = [outcome for outcome in outcomes if outcome is not None]
    return sum(scored) / len(scored) if len(scored) >= (n + 1) // 2 else None


def _intermediate(rate: float, left: float = 0.0, right: float = 1.0) -> float:
    """4 (left + s) (right - s) for a rate s inside (0, 1), else 0 (SSP). With left=0 and right=1 an
    even game earns 1."""
    return 4.0 * (left + rate) * (right - rate) if 0.0 < rate < 1.0 else 0.0


def _target(rate: float, goal: float = 0.5) -> float:
    """1 at difficulty 1 - s = `goal`, falling linearly to 0 at the farther end of [0, 1]."""
    difficulty = 1.0 - rate
    return 1.0 - abs(difficulty - goal) / max(goal, 1.0 - goal)


def _depth(rate: float, solved: int, graded: int, depth: int, opens: int, searches: int) -> float:
    """SearchMaster's depth, less its penalty for opening more than searching."""
    queries = max(1, searches - opens)
    return difficulty.depth(solved, graded, depth) - difficulty.opening_penalty(opens, queries)


_KINDS: dict[str, Callable[..., float]] = {
    "1-acc": lambda rate: 1.0 - rate,
    "intermediate_difficulty": _intermediate,
    "target_difficulty": _target,
    "format_only": lambda rate: 1.0,
    "azr": difficulty.solvable,
    "dr_zero": lambda rate, solved, graded: difficulty.solved_once(solved, graded),
    "r_zero": difficulty.uncertainty,
    "r_zero_code": difficulty.uncertainty_of_code,
    "searchmaster": _depth,
    "spice": difficulty.variance,
    "ssr": difficulty.rarely_solved,
}
"""The first four but target_difficulty are SSP's; the others are named after their systems."""


def names() -> list[str]:
    """The known kinds, sorted."""
    return sorted(_KINDS)


def check(kind: str, options: Mapping[str, Any], role: str = "proposer") -> None:
    """InputError for an unknown kind, for an option that it does not take, and for a place that
    leads to no function. `role`: who asks, named in the message."""
    key = f"{role}.reward_options"
    guide = str(options.get(GUIDE, ""))
    if guide and guide not in GUIDES:
        rule = f"{key}.guide is {', '.join(GUIDES)}, or my_file.py:function"
        named = own.is_own(guide) or own.sealed(guide)
        hold(named, rule, guide, "set it to one of these, or leave it out")
        if not own.sealed(guide):
            imported(guide, guide, "(question)", "")
    check_options(_kind(kind, role), _others(options), key, GIVEN, 1)


def counts_attempts(kind: str) -> bool:
    """Whether a reward takes more of the attempts than the win rate. InputError as `reward`."""
    function = _kind(kind)
    return any(takes(function, name) for name in ("opens", "solved", "graded", "depth"))


def reward(
    kind: str, rate: float, cfg: RoleConfig, facts: Mapping[str, Any] | None = None
) -> float:
    """What a valid question earns that the solver wins with `rate`: in [0, 1], unless
    `cfg.reward_options` move the ends. `facts`: values for the parameters in `GIVEN`. InputError
    for an unknown kind, and for a user's function that raises or returns no finite number;
    InvariantError for a rate outside [0, 1]."""
    function = _kind(kind)
    if not 0.0 <= rate <= 1.0:
        raise InvariantError(f"a win rate lies in [0, 1], not {rate}")
    options = _others(cfg.reward_options)
    given = {name: value for name, value in (facts or {}).items() if takes(function, name)}
    return number(kind, lambda: function(rate, **given, **options))


def _others(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the guide, which no reward takes."""
    return {name: value for name, value in options.items() if name != GUIDE}


def _kind(kind: str, role: str = "proposer") -> Callable[..., float]:
    if own.is_own(kind):
        return imported(kind, kind, "(win_rate)", 0.5)
    rule = f"{role}.reward is one of {', '.join(names())}, or your own my_file.py:name"
    hold(kind in _KINDS, rule, kind, f"set {role}.reward to one of these")
    return _KINDS[kind]

"""Rewards by name: `get("em")(response, golds)`. A reward reads the response alone. A void gets
none (law 2)."""

from collections.abc import Callable, Mapping
from typing import Any

from ssp.base.errors import InputError, hold
from ssp.game.rewards.forms import format_em, research, ssrl
from ssp.game.rewards.match import em, f1, graded, ssp, sub_em
from ssp.game.rewards.maths import math
from ssp.game.rewards.options import check_options, imported, takes

Reward = Callable[..., float]

GIVEN = ("answer", "judged", "score", "turns", "ended", "observed")
"""Parameters that the game fills in for a function that has them (`ssp.game.rewards.score`)."""

SEARCH_COST = "search_cost"
"""The option that every reward has: what each search of a right attempt costs
(`ssp.game.rewards.score`)."""

_FUNCTIONS: tuple[Reward, ...] = em, sub_em, f1, format_em, research, ssrl, ssp, graded, math
_KNOWN = {function.__name__: function for function in _FUNCTIONS}


def names() -> list[str]:
    """The known reward names, sorted."""
    return sorted(_KNOWN)


def get(name: str) -> Reward:
    """The reward called `name`: `(response: str, golds: list[str], **options) -> float`. `name` is
    that of a known one, or the place of a user's function (`file.py:function`,
    `package.module.function`). InputError else."""
    if name in _KNOWN:
        return _KNOWN[name]
    module, _, path = name.partition(":") if ":" in name else name.rpartition(".")
    if module and path:
        return imported(f"{module}:{path}", name, "(response, golds)", "", [])
    rule = (
        f"a reward (solver.reward) is one of {', '.join(names())}, or a function's place such as"
        " my_file.py:function"
    )
    raise InputError(rule, name or "''", "use one of these names")


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the one that the game takes."""
    return {name: value for name, value in options.items() if name != SEARCH_COST}


def check(name: str, options: Mapping[str, Any], key: str = "solver.reward_options") -> None:
    """InputError unless `name` is a reward that takes `options`; `key` names them in the message.
    The game takes `search_cost` of all of them, and no function does."""
    function = get(name)
    rule = f"{key}.{SEARCH_COST} is the game's, and no parameter of a reward"
    hold(not takes(function, SEARCH_COST), rule, name, "give the parameter another name")
    cost = options.get(SEARCH_COST, 0.0)
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    rule = f"{key}.{SEARCH_COST} is a finite number of at least 0"
    fits = is_number and 0 <= cost < float("inf")
    hold(fits, rule, cost, f"set {key}.{SEARCH_COST}=0.02, or leave it out")
    check_options(function, own_options(options), key, GIVEN)


__all__ = ["GIVEN", "SEARCH_COST", "check", "get", "names", "own_options"]

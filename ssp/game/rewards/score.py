"""What one solver episode earns: the configured reward, applied to what the episode said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ssp.base.episode import Episode, Grade
from ssp.base.errors import Fault
from ssp.config.role import RoleConfig
from ssp.game import rewards
from ssp.game.rewards.match import OBSERVATIONS
from ssp.game.rewards.options import number, takes

CUT_OFF = "tokens"
"""How an episode stops that the policy did not end by itself."""


def graded(role: RoleConfig, episode: Episode, golds: Sequence[str], decision: Grade, **facts: Any) -> Grade:
    """The grade of an episode that the judge came to `decision` on; `role` names the reward, `facts` are for `score`.
    Undecided stays undecided, and a Fault of the reward makes it so (law 2)."""
    if decision.right is None:
        return decision
    try:
        reward = score(role.reward, role.reward_options, episode, golds, decision.right, **facts)
    except Fault as fault:
        return Grade(None, void_cause=fault.cause, by=decision.by)
    return replace(decision, reward=reward)


def score(
    name: str,
    options: Mapping[str, Any],
    episode: Episode,
    golds: Sequence[str],
    right: bool,
    observed: Sequence[str] = OBSERVATIONS,
) -> float:
    """The reward called `name` on the episode's response. `right`: the judge's word; `observed`: the protocol's tags of
    observations. A function gets those of `rewards.GIVEN` that it takes. InputError for a result that is not a finite
    number, and for an exception other than a Fault."""
    function = rewards.get(name)
    ended = episode.stopped != CUT_OFF
    known = {"answer": episode.final or "", "judged": right, "ended": ended, "observed": tuple(observed)}
    given = {fact: value for fact, value in known.items() if takes(function, fact)}
    return number(name, lambda: function(episode.response, list(golds), **given, **options))

"""What one solver episode earns: the configured reward, applied to what the episode said."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ssp.base.episode import Episode, Grade
from ssp.base.errors import Fault
from ssp.config.role import RoleConfig
from ssp.game import rewards
from ssp.game.rewards.match import OBSERVATIONS
from ssp.game.rewards.options import credit, takes

CUT_OFF = "tokens"
"""How an episode stops that the policy did not end by itself."""


def graded(
    role: RoleConfig, episode: Episode, golds: Sequence[str], decision: Grade, **facts: Any
) -> Grade:
    """The grade of an episode that the judge came to `decision` on; `role` names the reward,
    `facts` are for `score`. Undecided stays undecided, and a Fault of the reward makes it so (law
    2). It is not asked where nothing was handed in."""
    if decision.right is None or episode.final is None:
        return decision
    try:
        reward, turns = score(role.reward, role.reward_options, episode, golds, decision, **facts)
    except Fault as fault:
        return Grade(None, void_cause=fault.cause, by=decision.by)
    return replace(decision, reward=reward, turns=turns)


def score(
    name: str,
    options: Mapping[str, Any],
    episode: Episode,
    golds: Sequence[str],
    decision: Grade,
    observed: Sequence[str] = OBSERVATIONS,
) -> tuple[float, tuple[float, ...]]:
    """The reward called `name` on the episode's response, and by turns where it tells. `decision`:
    the judge's; `observed`: the protocol's tags of observations. A function gets those of
    `rewards.GIVEN` that it takes. InputError for a result that is no finite number, nor one a turn,
    and for an exception other than a Fault."""
    function = rewards.get(name)
    ended = episode.stopped != CUT_OFF
    right = bool(decision.right)
    known = {
        "answer": episode.final or "",
        "judged": right,
        "ended": ended,
        "observed": tuple(observed),
    }
    known["score"] = float(right) if decision.score is None else decision.score
    turns = episode.turns if takes(function, "turns") else []
    known["turns"] = turns
    given = {fact: value for fact, value in known.items() if takes(function, fact)}
    return credit(
        name, lambda: function(episode.response, list(golds), **given, **options), len(turns)
    )

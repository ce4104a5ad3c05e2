"""What an answering episode earns: the configured reward of what it said, less what its searches
cost where it is right.

A wrong attempt pays nothing for its searches. Else, where all attempts at a question are wrong, the
one that gave up first would be the best of them. Where several are right, the searches that one of
them did without were not needed."""

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
"""How an episode has stopped that the policy did not end."""


def graded(
    role: RoleConfig, episode: Episode, golds: Sequence[str], decision: Grade, **facts: Any
) -> Grade:
    """`decision`, the judge's, with the reward that `role` names; `facts` are for `score`. It stays
    as it is where it is undecided, or nothing was handed in. A Fault of the reward makes it
    undecided (law 2)."""
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
    """The reward called `name` on the episode's response, and by turn where the function tells.
    `decision`: the judge's. `observed`: the protocol's tags of observations. The function gets
    those of `rewards.GIVEN` that it takes. What an agent returned stands in its place.

    The option `search_cost` is none of the function's: it is taken off a right attempt for each of
    its searches, and by turn where it searched; a reward that is one number is then the last
    turn's. InputError for a result that is neither a finite number nor one a turn, and for an
    exception other than a Fault."""
    function = rewards.get(name)
    right = bool(decision.right)
    turns = episode.turns if takes(function, "turns") else []
    known = {
        "answer": episode.final or "",
        "judged": right,
        "score": float(right) if decision.score is None else decision.score,
        "turns": turns,
        "ended": episode.stopped != CUT_OFF,
        "observed": tuple(observed),
    }
    given = {fact: value for fact, value in known.items() if takes(function, fact)}

    def compute() -> object:
        return function(episode.response, list(golds), **given, **rewards.own_options(options))

    reward, by_turn = sum(episode.earned), tuple(episode.earned)
    if len(by_turn) == 1:  # it says nothing of turns
        by_turn = ()
    if not episode.earned:
        reward, by_turn = credit(name, compute, len(turns))
    cost = options.get(rewards.SEARCH_COST, 0.0)
    if not cost:
        return reward, by_turn
    searches = episode.searches_by_turn
    earned = list(by_turn)
    if not earned:
        earned = [0.0] * len(searches)
        earned[-1] = reward
    if not right:
        return reward, tuple(earned)
    charged = [own - cost * count for own, count in zip(earned, searches, strict=True)]
    return reward - cost * sum(searches), tuple(charged)

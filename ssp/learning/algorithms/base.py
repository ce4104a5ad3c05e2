"""What an advantage estimator is.

It turns the scored episodes of a round into credits, one number an episode or one a turn, in the
coordinator and without torch; or it drops those that teach nothing. `advantages` puts credits on a
batch's tokens. An estimator that reads tokens or a critic's values has `advantages` alone, which
the learner calls."""

from __future__ import annotations

import math
from abc import ABC
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ssp.base.errors import InvariantError
from ssp.learning.scored import Credit, Scored, rewards_of

if TYPE_CHECKING:
    from torch import Tensor

    from ssp.learning.batch import Batch


class Algorithm(ABC):  # noqa: B024  # one of two methods is overridden
    """One advantage estimator; it overrides `credits`, or `advantages`, or both.

    `gamma` discounts, `lam` is GAE's trace decay, both a policy token. What an estimator says of
    itself:

    `needs_values`: it reads a critic's values.
    `needs_greedy`: it compares with a greedy answer.
    `needs_group`: it compares the episodes of a group, so one that is alone where several were
    expected is dropped.
    `baseline`: what a reward is measured against. Where that is "group", a group of equal rewards
    is dropped too.
    `by_turn`: it tells turns apart, so a group counts as equal only where every turn earned the
    same.
    `whitens`: it standardises over the policy's tokens."""

    name = baseline = ""
    needs_values = needs_greedy = needs_group = by_turn = whitens = False
    kept: Mapping[str, float] = {}
    """What must survive a restart, of an estimator that keeps numbers alone."""

    def __init__(self, gamma: float = 1.0, lam: float = 1.0) -> None:
        self.gamma = gamma
        self.lam = lam

    @classmethod
    def settled_by(cls) -> str | None:
        """The method that the class brings, or the nearest of those that it inherits from:
        `credits`, or `advantages` where there is no other; None for neither."""
        for kind in cls.__mro__[: cls.__mro__.index(Algorithm)]:
            for method in ("credits", "advantages"):
                if method in vars(kind):
                    return method
        return None

    @property
    def in_learner(self) -> bool:
        """Whether the learner computes the credits, from tokens."""
        return self.settled_by() == "advantages"

    def settle(self, episodes: Sequence[Scored], penalised: bool = False) -> list[Credit | None]:
        """The credit of each episode; None for the episodes of a group that teaches nothing.
        `penalised`: the learner takes a KL off the rewards, so it computes the credits itself; they
        are empty here.

        InvariantError: a reward or a credit that is not finite."""
        rewards_of(episodes)
        groups: dict[int, list[Scored]] = defaultdict(list)
        for episode in episodes:
            groups[episode.group].append(episode)
        taught = {number for number, group in groups.items() if self.teaches(group, penalised)}
        chosen = [episode for episode in episodes if episode.group in taught]
        credits: list[Credit] = [()] * len(chosen)
        if chosen and not penalised and not self.in_learner:
            credits = self.credits(chosen)
            if len(credits) != len(chosen):
                count = f"{len(credits)} credits to {len(chosen)} episodes"
                raise InvariantError(f"{self.name} gave {count}")
            for credit in credits:
                if not credit or not all(map(math.isfinite, credit)):
                    rule = "one finite number, or one a turn"
                    raise InvariantError(f"{self.name} gave the credit {credit}: {rule}")
        given = iter(credits)
        return [next(given) if episode.group in taught else None for episode in episodes]

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """The credits of episodes that teach something."""
        raise NotImplementedError

    def differ(self, group: Sequence[Scored]) -> bool:
        """Whether two episodes of a group earned differently, as far as the estimator sees it."""
        earned = {(episode.reward, episode.turns if self.by_turn else ()) for episode in group}
        return len(earned) > 1

    def teaches(self, group: Sequence[Scored], penalised: bool = False) -> bool:
        """Whether the episodes of one group can teach something. `penalised`: a KL makes equal
        rewards differ."""
        if group[0].expected == 1:
            return True  # it was never to be compared within its group
        if self.needs_group and len(group) == 1:
            return False
        return penalised or self.baseline != "group" or self.differ(group)

    def advantages(self, batch: Batch) -> Tensor:
        """float32 [N, T]: advantage on model tokens of valid rows, exactly 0 elsewhere: the row's
        credit.

        InvariantError: a valid row has a reward that is not finite, or a field that it needs is
        missing."""
        from ssp.learning.algorithms import tokens  # torch, which the coordinator does without

        return tokens.of_credits(self.credits, batch)

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain JSON data."""
        return dict(self.kept)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave; InvariantError for a state that this estimator did not
        write."""
        are_numbers = all(isinstance(value, float) for value in state.values())
        if set(state) != set(self.kept) or not are_numbers:
            raise InvariantError(f"{self.name} keeps {sorted(self.kept)}, not {dict(state)}")
        self.kept = dict(state)


HELPERS = (
    "over_tokens",
    "episode_rewards",
    "token_rewards",
    "returns",
    "ends",
    "whiten",
    "required",
)
"""What a user's own estimator over tokens may import from here; it brings torch, which this file
does without."""


def __getattr__(name: str) -> Any:
    """One of `HELPERS`."""
    if name not in HELPERS:
        raise AttributeError(f"{__name__} has no {name}")
    from ssp.learning.algorithms import tokens

    return getattr(tokens, name)

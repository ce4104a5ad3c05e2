"""The estimators of a run's roles, which settle credit once, and the one rule of what is dropped.

A group is dropped when no term of its role's loss could act on it. Each role's estimator sees every
round once, in order. Refuses to know what an estimator is: it asks `ssp.learning.algorithms`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.learning import algorithms
from ssp.learning.scored import Credit, Scored

NOTHING: Credit = (0.0,)
"""The credit of an episode on which a term of the loss acts, though it teaches nothing."""


class Credits:
    """The estimators of the roles of one run."""

    def __init__(self, cfg: Config) -> None:
        """InputError for an estimator that does not exist."""
        self._blocks = {role: cfg.block(role) for role in cfg.roles}
        self._estimators: dict[str, algorithms.Algorithm] = {}
        self.restore({})

    def teaches(self, role: str, group: Sequence[Scored]) -> bool:
        """Whether a term of the role's loss could act on the episodes of one group."""
        block = self._blocks[role]
        # These terms act on every token, whatever its advantage.
        kl_acts = block.kl.coef > 0 and block.kl.place != "reward"
        if kl_acts or block.entropy_coef > 0 or block.llds_coef > 0:
            return True
        return self._estimators[role].teaches(group, _penalised(block))

    def differ(self, role: str, group: Sequence[Scored]) -> bool:
        """Whether the role's estimator tells apart what two episodes of one group earned."""
        return self._estimators[role].differ(group)

    def settle(self, role: str, episodes: Sequence[Scored]) -> list[Credit]:
        """The credits of a round's episodes, whose groups all teach something. A credit is empty
        where the learner computes it. A stateful estimator goes on by a round."""
        credits = self._estimators[role].settle(episodes, _penalised(self._blocks[role]))
        return [NOTHING if credit is None else credit for credit in credits]

    def state(self) -> dict[str, dict[str, Any]]:
        """What the estimators remember, by role."""
        states = {role: estimator.state_dict() for role, estimator in self._estimators.items()}
        return {role: state for role, state in states.items() if state}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from what `state` returned; a role that is not in it begins anew."""
        for role, block in self._blocks.items():
            self._estimators[role] = algorithms.get(block.algorithm, block.gamma, block.lam)
            if role in state:
                self._estimators[role].load_state_dict(state[role])


def _penalised(block: RoleConfig) -> bool:
    """Whether a KL is taken off the rewards: then the learner estimates, and equal rewards
    differ."""
    return block.kl.coef > 0 and block.kl.place == "reward"

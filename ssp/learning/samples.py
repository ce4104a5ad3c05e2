"""What a learner is given of an episode beside its tokens."""

from dataclasses import dataclass

from ssp.learning.scored import Credit


@dataclass(frozen=True)
class Sample:
    """One episode of a batch: row `row` of the block `block`, with its `credit`: one number, or one
    a turn.

    Without a credit the learner's estimator makes one, of `reward`, `group` (equal for those that
    share a baseline), `turns` (what each turn earned, () where only the sum is known) and
    `baseline` (what the greedy answer to the same question earned; NaN: that is void, None: there
    is none). `version_min`: of its oldest model token."""

    id: str
    block: str
    row: int
    reward: float
    group: int
    credit: Credit = ()
    version_min: int = 0
    turns: tuple[float, ...] = ()
    baseline: float | None = None

"""Which settings of the game go together: sources of questions, warm-up, resampling."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

DATASET = ("game.questions=dataset", "data.questions=world:train")


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (["game.questions=dataset"], "data.questions"),
        (["game.questions=bank"], "data.questions"),
        (["data.questions=q.jsonl"], "game.questions=dataset"),
        (["game.questions=bank", "data.questions=world:train"], "earlier run"),
        ([*DATASET, "game.batch=replay"], "game.batch=replay"),
        ([*DATASET, "game.batch=resample"], "game.batch=resample"),
        ([*DATASET, "schedule.max_staleness.proposer=1"], "max_staleness.proposer=1"),
        ([*DATASET, "proposer.warmup_steps=1"], "proposer.warmup_steps=1"),
        ([*DATASET, "solver.warmup_steps=1"], "solver.learner.warmup_steps"),
        ([*DATASET, "solver.policy=frozen"], "at least one role learns"),
        (["defaults.policy=frozen"], "at least one role learns"),
        (["defaults.warmup_steps=1"], "solver.warmup_steps=1"),
        (["proposer.warmup_steps=3", "proposer.freeze_after=2"], "freeze_after=2"),
        (["solver.warmup_steps=3", "solver.policy=frozen"], "policy=frozen"),
        (["game.batch=resample", "proposer.invalid_reward=-0.1"], "invalid_reward=-0.1"),
    ],
)
def test_what_does_not_go_together(typed: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        load("quickstart", typed)


@pytest.mark.parametrize(
    ("typed", "roles"),
    [
        ([], ("proposer", "solver")),
        ([*DATASET], ("solver",)),
        (["game.questions=bank", "data.questions=runs/quickstart-001"], ("solver",)),
        # A preset says something about a role that does not play, the proposer's loss and its referee too: no harm.
        ([*DATASET, "schedule.preset=async"], ("solver",)),
        ([*DATASET, "proposer.policy=frozen", "proposer.limits.searches=0"], ("solver",)),
        ([*DATASET, "referee.evidence=chain", "referee.verifier=none"], ("solver",)),
        (["solver.warmup_steps=3", "solver.freeze_after=3"], ("proposer", "solver")),
        (["proposer.warmup_steps=5", "solver.policy=frozen"], ("proposer", "solver")),
        (["game.batch=resample"], ("proposer", "solver")),
    ],
)
def test_who_plays(typed: list[str], roles: tuple[str, ...]) -> None:
    assert load("quickstart", typed).roles == roles

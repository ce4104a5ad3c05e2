"""What `--tiny` sets over a recipe: the numbers that make it small, never what makes it this recipe.

Owns the list. Promises to leave protocol, algorithm, loss, KL, batch strategy and question source alone. The reward and
the evidence check do change: a policy that knows nothing would never earn the recipe's reward, so nothing would train.
Refuses to be typed over silently: settings typed by the user come after these and win.
"""

from __future__ import annotations

from collections.abc import Sequence

MODEL = "tiny"
"""Value of `<role>.model` for the policy of `ssp.tiny.policy`."""

SETTINGS = (
    "steps=2",
    f"defaults.model={MODEL}",
    "defaults.engine.kind=torch",
    "defaults.learner.kind=torch",
    "defaults.sampling.temperature=1.0",
    "defaults.learner.token_budget=16384",
    "proposer.batch=6",
    "solver.batch=4",
    "game.attempts=3",
    "solver.reward=ssp.tiny.reward:letters",
    "solver.reward_options={}",
    "referee.verifier=none",
    "referee.evidence=none",
    "referee.noise_documents=0",
    "referee.noise_trajectories=0",
    "judge.kind=exact",
    "defaults.limits.searches=2",
    "defaults.limits.prompt_tokens=2048",
    "defaults.limits.turn_tokens=160",
    "defaults.limits.observation_tokens=128",
    "defaults.limits.total_tokens=2816",
    "data.corpus=world:train",
    "data.targets=world:train",
    "data.eval=[{name: heldout, file: 'world:heldout', corpus: 'world:heldout'}]",
    "eval.every=0",
    "eval.final_questions_per_hop=2",
    "eval.hops=[1]",
    "retriever.shards=1",
    "retriever.topk=1",
    "placement.proposers=1",
    "placement.solvers=1",
    "placement.judges=1",
    "save.every=1",
    "save.keep=1",
)


def shrink(overrides: Sequence[str], questions: bool) -> list[str]:
    """`overrides` after the settings above. `questions`: whether the recipe asks a data set's questions."""
    return [*SETTINGS, *(["data.questions=world:train"] if questions else []), *overrides]

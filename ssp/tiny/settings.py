"""What `--tiny` sets over a recipe: the numbers that make it small, never what makes it this recipe.

Owns the list. Promises to leave protocol, algorithm, loss, KL, batch strategy, question source and the number of
optimizer steps a batch alone, and that nothing comes from the hub. Reward, evidence check and junk alarm do change: a
policy that knows nothing never earns the recipe's reward, so nothing would train.
Refuses to be typed over silently: settings typed by the user come after these and win.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp.config import load
from ssp.config.referee_rules import WORLD_PROTOCOL
from ssp.config.schema import Config, RoleConfig
from ssp.errors import InputError

MODEL = "tiny"
"""Value of `<role>.model` for the policy of `ssp.tiny.policy`."""

BATCH, ATTEMPTS = 6, 3
"""Questions a step of either role, and attempts at most."""

SETTINGS = (
    "steps=2",
    f"defaults.model={MODEL}",
    "defaults.engine.kind=torch",
    "defaults.engine.dtype=float32",
    "defaults.engine.tensor_parallel=1",
    "defaults.engine.memory=0.85",
    "defaults.engine.kv_mb=0",
    "defaults.engine.sequences=256",
    "defaults.learner.kind=torch",
    "defaults.learner.dtype=float32",
    "defaults.learner.ranks=1",
    "defaults.learner.zero=2",
    "defaults.learner.offload=none",
    "defaults.learner.lr=2e-4",
    "defaults.learner.warmup_steps=0",
    "defaults.learner.token_budget=16384",
    f"defaults.batch={BATCH}",
    "solver.reward=ssp.tiny.reward:letters",
    "referee.verifier=none",
    "referee.evidence=none",
    "referee.noise_documents=0",
    "referee.noise_trajectories=0",
    "referee.alarm_patience=1000000",
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
    "retriever.url=''",
    "retriever.shards=1",
    "retriever.topk=1",
    "retriever.gpus=0",
    "placement.layout=separate",
    "placement.nodes=''",
    "placement.engine_gpus=0",
    "placement.learner_gpus=0",
    "placement.judge_gpus=0",
    "placement.proposers=1",
    "placement.solvers=1",
    "placement.judges=1",
    "save.every=1",
    "save.keep=1",
)


def shrunk(name_or_file: str, overrides: Sequence[str]) -> Config:
    """The recipe made small, `overrides` as typed on top. InputError as in `ssp.config.load`, and for quickstart."""
    recipe = load(name_or_file)
    if recipe.protocol == WORLD_PROTOCOL:
        found = f"{name_or_file}, whose protocol is {recipe.protocol}"
        raise InputError("--tiny is for recipes of large models", found, "leave it out; steps=2 makes a run short")
    attempts = min(recipe.game.attempts, ATTEMPTS)
    computed = [
        f"game.attempts={attempts}",
        f"proposer.learner.minibatch={_minibatch(recipe.proposer, 1, 1)}",
        f"solver.learner.minibatch={_minibatch(recipe.solver, recipe.game.attempts, attempts)}",
    ]
    sources = [text.partition("=")[2] for text in overrides if text.startswith("game.questions=")]
    if [recipe.game.questions, *sources][-1] == "dataset":
        computed.append("data.questions=world:train")
    return load(name_or_file, [*SETTINGS, *computed, *overrides])


def _minibatch(block: RoleConfig, attempts: int, fewer: int) -> int:
    """Episodes an optimizer step, so that a small batch takes as many steps as the recipe's, or one an episode."""
    size = block.learner.minibatch
    steps = -(-block.batch * attempts // size) if size else 1
    return -(-BATCH * fewer // steps) if size else 0

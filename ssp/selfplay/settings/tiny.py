"""What `--tiny` sets over a recipe: the numbers that make it small, never what makes it this
recipe."""

from collections.abc import Sequence
from pathlib import Path

from ssp.base.errors import hold
from ssp.config.schema import Config, RoleConfig
from ssp.game.settings import WORLD_PROTOCOL
from ssp.selfplay.settings import load

BATCH, ATTEMPTS, PROPOSALS = 6, 3, 3
"""Questions a step of either role; attempts at most, and proposals to a row."""

REWARD = "ssp.learning.tiny.reward:letters"
"""What who answers is paid by: a tiny policy is never right."""

SETTINGS = tuple(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n")[:-1])
"""What is set, in tiny.txt: `key=value`, a line each."""


def shrunk(name_or_file: str, overrides: Sequence[str]) -> Config:
    """The recipe made small, `overrides` as typed on top. InputError as in `load`, and for
    quickstart."""
    recipe = load(name_or_file)
    rule, found = (
        "--tiny is for recipes of large models",
        f"{name_or_file}, whose protocol is {recipe.protocol}",
    )
    hold(recipe.protocol != WORLD_PROTOCOL, rule, found, "leave it out; steps=2 makes a run short")
    attempts = min(recipe.game.attempts, ATTEMPTS)
    proposals = min(recipe.game.proposals, PROPOSALS)
    computed = [f"game.attempts={attempts}", f"game.proposals={proposals}"]
    computed.append(f"{recipe.spec.answerer}.reward={REWARD}")
    for role, block in recipe.blocks.items():
        computed.append(f"placement.{role}s=1")
        tries = (recipe.game.attempts, attempts) if role == recipe.spec.answerer else (1, 1)
        computed.append(f"{role}.learner.minibatch={_minibatch(block, *tries)}")
    sources = [text.partition("=")[2] for text in overrides if text.startswith("game.questions=")]
    given = [recipe.game.questions, *sources][-1] == "dataset"
    return load(
        name_or_file, [*SETTINGS, *computed, *(["data.questions=world:train"] * given), *overrides]
    )


def _minibatch(block: RoleConfig, attempts: int, fewer: int) -> int:
    """Episodes an optimizer step, so that a small batch takes as many steps as the recipe's, or one
    an episode."""
    size = block.learner.minibatch
    steps = -(-block.batch * attempts // size) if size else 1
    return -(-BATCH * fewer // steps) if size else 0

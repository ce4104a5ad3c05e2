"""What `--tiny` sets over a recipe: the numbers that make it small, never what makes it this
recipe."""

import math
from collections.abc import Sequence
from pathlib import Path

from ssp.base.errors import hold
from ssp.config import load as merging
from ssp.config.schema import Config
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
    named = [text for text in overrides if text.startswith("game.kind=")]
    recipe = merging.load(name_or_file, named)  # the rules are of the whole
    rule = "--tiny is for recipes of large models"
    value = f"{name_or_file}, whose protocol is {recipe.protocol}"
    hold(recipe.protocol != WORLD_PROTOCOL, rule, value, "leave it out; steps=2 makes a run short")
    attempts = min(recipe.game.attempts, ATTEMPTS)
    proposals = min(recipe.game.proposals, PROPOSALS)
    lines = [*SETTINGS, f"game.attempts={attempts}", f"game.proposals={proposals}"]
    answerer = recipe.spec.answerer
    lines += [f"{answerer}.reward={REWARD}", f"{answerer}.reward_options={{}}"]
    for role, block in recipe.blocks.items():
        lines.append(f"placement.{role}s=1")
        lines.append(f"{role}.model=${{defaults.model}}")
        lines.append(f"{role}.rehearsal.share=0")
        size = block.learner.minibatch
        if size:  # as many optimizer steps as in the recipe, or one an episode
            answers = role == recipe.spec.answerer
            episodes = block.batch * (recipe.game.attempts if answers else 1)
            steps = math.ceil(episodes / size)
            size = math.ceil(BATCH * (attempts if answers else 1) / steps)
        lines.append(f"{role}.learner.minibatch={size}")
    questions: str = recipe.game.questions
    for text in overrides:
        if text.startswith("game.questions="):
            questions = text.partition("=")[2]
    if questions == "dataset":
        lines.append("data.questions=world:train")
    return load(name_or_file, [*lines, *overrides])

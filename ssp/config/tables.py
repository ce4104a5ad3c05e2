"""The tables of allowed values: names by key, what names say of themselves, ranges of every
number."""

import functools
from typing import Any

from ssp.config.fields import walk
from ssp.config.schema import Config

PRESETS = {"sync": (0, 0), "one-step-off": (1, 1), "async": (4, 4)}
"""Staleness bounds (proposer, solver) that `schedule.preset` stands for."""

SAID: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("ppo_clip", "tis", "decoupled", "gspo", "cispo"), {"trust_region": True}),
    **dict.fromkeys(("topk_reverse", "topk_forward"), {"distributions": True}),
    **dict.fromkeys(("topk_reverse_paper", "topk_forward_paper", "full"), {"distributions": True}),
}
"""What losses and KLs say of themselves as attributes (a test compares), for rules that import no
torch."""

PLACES = ("{role}.algorithm", "{role}.loss", "proposer.reward")
"""Those of them that take a user's own code too (`ssp.config.own`), as solver.reward does."""

ACTED = ("scripted", "simulated")
"""Engines without a model: a script plays, and nothing can be learned from it."""
COLDEST = 0.01
"""Lowest temperature above 0: below, logits divided by it overflow; 0 itself is greedy."""


@functools.cache
def choices() -> dict[str, tuple[str, ...]]:
    """Names that are built in, by key."""
    found = {
        key: item.metadata["choices"] for key, item in walk(Config) if "choices" in item.metadata
    }
    return {
        **found,
        "proposer.reward": ("1-acc", "intermediate_difficulty", "target_difficulty", "format_only"),
    }


@functools.cache
def ranges() -> dict[str, tuple[float, float]]:
    """Smallest and largest value of every number, both allowed."""
    return {key: item.metadata["range"] for key, item in walk(Config) if "range" in item.metadata}

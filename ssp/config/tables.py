"""The tables of allowed values: names by key, names that a later release knows, ranges of every number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return found


PRESETS = {"sync": (0, 0), "one-step-off": (1, 1), "async": (4, 4)}
"""Staleness bounds (proposer, solver) that `schedule.preset` stands for."""

SAID: dict[str, dict[str, Any]] = {
    **{name: {"trust_region": True} for name in ("ppo_clip", "tis", "decoupled", "gspo", "cispo")},
    **{name: {"needs_group": True, "baseline": "group"} for name in ("grpo", "dr_grpo", "rloo")},
    "reinforce_pp_baseline": {"needs_group": True},
    **{name: {"distributions": True} for name in ("topk_reverse", "topk_forward", "full")},
}
"""What estimators, losses and KLs say of themselves as attributes (a test compares), for rules that import no torch."""

CHOICES = {key: tuple(names) for key, names in _read("choices.json").items()}
"""Names that are built in, by key, from choices.json."""

PLACES = ("{role}.algorithm", "{role}.loss", "proposer.reward")
"""Those of them that take a user's own code too (`ssp.config.own`), as solver.reward does."""

INF = math.inf
ACTED = ("scripted", "simulated")
"""Engines without a model: a script plays, and nothing can be learned from it."""
COLDEST = 0.01
"""Lowest temperature above 0: below, logits divided by it overflow; 0 itself is greedy."""
RANGES: dict[str, tuple[float, float]] = {key: (low, high) for key, (low, high) in _read("ranges.json").items()}
"""Smallest and largest value of every number, both allowed (infinity: no such end; it is refused itself), from
ranges.json. 1024 actors of one kind: a slip of the finger must not start a million processes."""

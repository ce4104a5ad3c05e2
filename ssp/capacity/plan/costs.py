"""What everything costs, in seconds: the inputs of a simulation. A run without a model is priced by its own settings.

Sources: a decode step reads all weights once, and of each sequence its keys and values; training takes 6 floating-point
operations a parameter and token (Kaplan et al. 2020, arXiv 2001.08361), 8 with checkpointed activations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.capacity.memory.shapes import find
from ssp.config.schema import Config
from ssp.config.tables import ACTED
from ssp.engines.decoding import Pace
from ssp.learning.tiny.actor import least_searches

BANDWIDTH = 2.5e12
"""Bytes a second that decoding reads from a GPU's memory (an H100 of 80 GB reaches three quarters of its 3.35e12)."""
FLOPS = 2.85e14
"""Floating-point operations a second that training reaches there (29 % of its peak in bfloat16)."""
READS, COMPARES = 0.5, 0.005
"""Seconds a block takes at a judge that asks a model, and at one that compares words."""
SHORT = 12.0
"""Tokens of a turn that is as short as its protocol lets it be."""


def _cost(default: float | None, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Costs:
    """What may be typed: `--assume key=value`. None: computed from the configuration."""

    tokens: float | None = _cost(None, "mean tokens of a turn (lognormal)")
    sigma: float = _cost(0.8, "their spread")
    step_ms: float | None = _cost(None, "milliseconds of a decode step")
    sequence_ms: float | None = _cost(None, "and for each sequence that runs")
    token_ms: float | None = _cost(None, "milliseconds of one GPU a trained token")
    search_s: float = _cost(0.05, "seconds a search")
    judge_s: float | None = _cost(None, "seconds a block of questions or answers takes at a judge")
    valid: float = _cost(1.0, "share of questions that are valid")
    sync_s: float = _cost(0.0, "seconds that a new version's weights take to load")
    shard_qps: float = _cost(100.0, "searches a second that one retriever shard answers")

    @classmethod
    def typed(cls, words: list[str]) -> Costs:
        """From `key=value` words. InputError for an unknown key or a value that is no number of at least 0."""
        known = {item.name for item in fields(cls)}
        found: dict[str, float] = {}
        for word in words:
            key, _, text = word.partition("=")
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if key not in known or not 0 <= value < float("inf"):
                rule = f"--assume takes one of {', '.join(sorted(known))} and a number of at least 0"
                raise InputError(rule, word, "for example --assume tokens=500")
            found[key] = value
        return cls(**found)


def judge_seconds(cfg: Config, costs: Costs) -> float:
    """Seconds that one block takes at a judge."""
    reads = cfg.judge.kind != "exact" or (PROPOSER in cfg.roles and cfg.referee.verifier != "none")
    return (READS if reads else COMPARES) if costs.judge_s is None else costs.judge_s


@dataclass(frozen=True)
class RoleCosts:
    """One role's: its engines' pace, mean, spread and most of its turns' tokens, fewest and most searches, seconds of one
    GPU a trained token, GPUs of an engine."""

    pace: Pace
    tokens: float
    sigma: float
    searches: tuple[int, int]
    cap: int
    token: float
    gpus: int


def role_costs(cfg: Config, role: str, costs: Costs) -> RoleCosts:
    """The costs of `role`, typed ones first."""
    block = cfg.block(role)
    engine, limits = block.engine, block.limits
    own, tokens = engine.kind in ACTED, costs.tokens
    if tokens is None:
        tokens = (engine.simulated.tokens or SHORT) if own else limits.turn_tokens / 2
    if own:
        timed = engine.kind == "simulated"
        computed = (engine.simulated.step_ms * timed, engine.simulated.sequence_ms * timed, block.learner.token_ms)
    else:
        model, ranks = find(block.model), engine.tensor_parallel
        context = limits.prompt_tokens + limits.searches * limits.observation_tokens + tokens * (limits.searches + 1)
        numbers = 0 if model.shape is None else model.shape.kv_numbers
        work = (8 if block.learner.checkpointing else 6) * model.parameters
        reads = (2 * model.parameters / ranks, 2 * numbers * context / 2 / ranks)
        computed = (1e3 * reads[0] / BANDWIDTH, 1e3 * reads[1] / BANDWIDTH, 1e3 * work / FLOPS)
    typed = (costs.step_ms, costs.sequence_ms, costs.token_ms)
    step, each, token = (has if said is None else said for has, said in zip(computed, typed, strict=True))
    return RoleCosts(
        Pace(step / 1e3, each / 1e3, engine.sequences),
        tokens,
        engine.simulated.sigma if own else costs.sigma,
        (least_searches(cfg, role), limits.searches),
        limits.turn_tokens,
        token / 1e3,
        engine.tensor_parallel,
    )

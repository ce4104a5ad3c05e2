"""What everything costs, in seconds (the inputs of a simulation), and how many GPUs play and how
many learn: so many that all kinds of workers would need the same time. A run without a model is
priced by its own settings; memory is not looked at.

Sources: a decode step reads all weights once, and of each sequence its keys and values; training
takes 6 floating-point operations a parameter and token (Kaplan et al. 2020, arXiv 2001.08361), 8
with checkpointed activations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from statistics import NormalDist
from typing import Any

from ssp.base.errors import hold
from ssp.capacity.memory.shapes import find
from ssp.config.crews import learners, played, players
from ssp.config.role import ACTED
from ssp.config.schema import Config
from ssp.engines.simulated import DecodePace
from ssp.learning.tiny.actor import least_searches

BANDWIDTH = 2.5e12
"""Bytes a second that decoding reads from a GPU's memory (an H100 of 80 GB reaches three quarters
of its 3.35e12)."""
FLOPS = 2.85e14
"""Floating-point operations a second that training reaches there (29 % of its peak in bfloat16)."""
READS, COMPARES = 0.5, 0.005
"""Seconds a block takes at a judge that asks a model, and at one that compares words."""
SHORT = 12.0
"""Tokens of a turn that is as short as its protocol lets it be."""
LEAN = (1.0, 1.4, 2.0)
"""How much of their time engines may need beyond full occupancy: tails leave them half empty. One
split each is tried."""

ENGINES_A_JUDGE = 4


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
    spread: float = _cost(1.0, "share of questions whose attempts have two different rewards")
    sync_s: float = _cost(0.0, "seconds that a new version's weights take to load")

    @classmethod
    def typed(cls, words: list[str]) -> Costs:
        """From `key=value` words. InputError for an unknown key or a value that is no number of at
        least 0."""
        known = {item.name for item in fields(cls)}
        found: dict[str, float] = {}
        for word in words:
            key, _, text = word.partition("=")
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            rule = f"--assume takes one of {', '.join(sorted(known))} and a number of at least 0"
            hold(
                key in known and 0 <= value < float("inf"),
                rule,
                word,
                "for example --assume tokens=500",
            )
            found[key] = value
        return cls(**found)


def judge_seconds(cfg: Config, costs: Costs) -> float:
    """Seconds that one block takes at a judge."""
    reads = cfg.judge.kind != "exact" or (cfg.asks and cfg.referee.verifier != "none")
    return (READS if reads else COMPARES) if costs.judge_s is None else costs.judge_s


@dataclass(frozen=True)
class RoleCosts:
    """One role's: its engines' pace, mean, spread and most of its turns' tokens, fewest and most
    searches, seconds of one GPU a trained token, GPUs of an engine."""

    pace: DecodePace
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
        computed = (
            engine.simulated.step_ms * timed,
            engine.simulated.sequence_ms * timed,
            block.learner.token_ms,
        )
    else:
        model, ranks = find(block.model), engine.tensor_parallel
        context = (
            limits.prompt_tokens
            + limits.searches * limits.observation_tokens
            + tokens * (limits.searches + 1)
        )
        numbers = 0 if model.shape is None else model.shape.kv_numbers
        work = (8 if block.learner.checkpointing else 6) * model.parameters
        reads = (2 * model.parameters / ranks, 2 * numbers * context / 2 / ranks)
        computed = (1e3 * reads[0] / BANDWIDTH, 1e3 * reads[1] / BANDWIDTH, 1e3 * work / FLOPS)
    typed = (costs.step_ms, costs.sequence_ms, costs.token_ms)
    step, each, token = (
        has if said is None else said for has, said in zip(computed, typed, strict=True)
    )
    pace, searches = (
        DecodePace(step / 1e3, each / 1e3, engine.sequences),
        (least_searches(cfg, role), limits.searches),
    )
    sigma = engine.simulated.sigma if own else costs.sigma
    return RoleCosts(
        pace, tokens, sigma, searches, limits.turn_tokens, token / 1e3, engine.tensor_parallel
    )


@dataclass(frozen=True)
class Split:
    """Engines of each role, ranks of each learner, GPUs in all, judges. `shared`: they take turns
    on the same GPUs."""

    engines: dict[str, int]
    ranks: dict[str, int]
    gpus: int
    judges: int
    shared: bool = False


def own(cfg: Config, costs: Costs) -> Split:
    """What `placement.*` says."""
    counts = {role: players(cfg, role) for role in cfg.roles}
    ranks = {name: cfg.block(name).learner.ranks for name in learners(cfg)}
    shared = cfg.placement.layout != "separate"
    rule, step = (
        "ssp plan knows shared-base where engine and learners share GPUs",
        "plan it as placement.layout=separate",
    )
    apart = cfg.placement.layout == "shared-base" and cfg.placement.engine_gpus >= 1
    hold(not apart, rule, f"placement.engine_gpus={cfg.placement.engine_gpus:g}", step)
    played = {role: count * role_costs(cfg, role, costs).gpus for role, count in counts.items()}
    if cfg.placement.layout == "shared-base":
        return Split(
            counts, ranks, max(*played.values(), *ranks.values()), cfg.placement.judges, True
        )
    taught = sum(ranks[name] for name in ranks if cfg.block(name).policy != "frozen")
    gpus = max(sum(played.values()), taught) if shared else sum(played.values()) + taught
    return Split(counts, ranks, gpus, cfg.placement.judges, shared)


def work(cfg: Config, costs: Costs) -> tuple[dict[str, float], dict[str, float]]:
    """GPU seconds a round: of each role's engines at full occupancy, and of each learner."""
    play: dict[str, float] = {}
    trained: dict[str, float] = {}
    batch = cfg.answering.batch
    fed = max(1e-9, min(batch, cfg.asking.batch * costs.valid if cfg.asks else batch))
    # Refill plays as many batches as give a whole one of questions with spread.
    batches = min(
        cfg.game.refill, max(1, math.ceil(batch / (fed * max(costs.spread, 1e-9)) - 1e-9))
    )
    for role in cfg.roles:
        cost = role_costs(cfg, role, costs)
        share = 1.0 if role == cfg.spec.asker else fed / batch
        episodes = batches * round(share * played(cfg, role))
        turns = 1 + sum(cost.searches) / 2
        tokens = episodes * turns * capped(cost.tokens, cost.sigma, cost.cap)
        # Past versions play too; only the newest one's episodes are trained.
        play[role] = (
            tokens
            * cost.pace.full
            * cost.gpus
            * (1 if role == cfg.spec.asker else 1 + cfg.league.twice)
        )
        trained[role] = tokens * (
            cfg.league.asked if role == cfg.spec.asker else min(costs.spread, batch / batches / fed)
        )
    learn = [
        (name, roles) for name, roles in learners(cfg).items() if cfg.block(name).policy != "frozen"
    ]
    tokens_of = {name: sum(trained[role] for role in roles) for name, roles in learn}
    return play, {
        name: count * role_costs(cfg, name, costs).token for name, count in tokens_of.items()
    }


def capped(mean: float, sigma: float, cap: float) -> float:
    """Mean of a lognormal with this mean and spread, cut at `cap`: E[min(X, cap)]."""
    if sigma == 0 or mean == 0:
        return min(mean, cap)
    z, below = (math.log(cap / mean) + sigma**2 / 2) / sigma, NormalDist().cdf
    return mean * below(z - sigma) + cap * (1 - below(z))


def choose(cfg: Config, gpus: int, costs: Costs) -> list[Split]:
    """Splits of `gpus` that are worth a simulation; one in which all take turns where they do not
    go round. InputError when not even one engine fits."""
    play, learn = work(cfg, costs)
    size = {role: role_costs(cfg, role, costs).gpus for role in cfg.roles}
    role = max(size, key=lambda name: size[name])
    found = f"{gpus} GPUs, {role}.engine.tensor_parallel={size[role]}"
    hold(
        gpus >= max(size.values()),
        "a plan has the GPUs of one engine at least",
        found,
        "ask for more GPUs",
    )
    if cfg.placement.layout != "separate" or gpus < sum(size.values()) + len(learn):
        ranks = {name: gpus if name in learn and _cut(cfg, name) else 1 for name in learners(cfg)}
        return [
            Split(
                {role: gpus // size[role] for role in cfg.roles},
                ranks,
                gpus,
                cfg.placement.judges,
                True,
            )
        ]
    splits: list[Split] = []
    for lean in LEAN:
        # Engines by role, learners by their name behind a blank: GPU seconds, GPUs of one, how
        # many.
        parts = {
            **{role: lean * seconds for role, seconds in play.items()},
            **{f" {n}": s for n, s in learn.items()},
        }
        unit, count = {name: size.get(name, 1) for name in parts}, dict.fromkeys(parts, 1)
        grows = [name for name in parts if name in size or _cut(cfg, name.strip())]
        left = gpus - sum(unit.values())
        while fitting := [name for name in grows if unit[name] <= left]:
            slowest = max(fitting, key=lambda name: parts[name] / count[name] / unit[name])
            count[slowest] += 1
            left -= unit[slowest]
        ranks = {name: count.get(f" {name}", 1) for name in learners(cfg)}
        engines = {role: count[role] for role in cfg.roles}
        judges = max(cfg.placement.judges, -(-sum(engines.values()) // ENGINES_A_JUDGE))
        split = Split(engines, ranks, gpus, judges)
        if split not in splits:
            splits.append(split)
    return splits


def _cut(cfg: Config, learner: str) -> bool:
    """Whether a learner can have several ranks."""
    return cfg.block(learner).learner.kind != "torch"

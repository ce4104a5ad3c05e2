"""What everything costs, in seconds (the inputs of a simulation), and how many GPUs play and how
many learn: so many that all kinds of workers would need the same time. A run without a model is
priced by its own settings; memory is not looked at.

Sources: a decode step reads all weights once, and of each sequence its keys and values; training
takes 6 floating-point operations a parameter and token (Kaplan et al. 2020, arXiv 2001.08361), 8
with checkpointed activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import NormalDist
from typing import Any

from ssp.base.errors import hold
from ssp.capacity.memory.needs import share
from ssp.capacity.memory.shapes import find
from ssp.config.crews import learners, played, players, teaching
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
"""By how much engines may exceed their time at full occupancy, since tails leave them half empty.
One split is tried for each."""
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
        known = sorted(item.name for item in fields(cls))
        rule = f"--assume takes one of {', '.join(known)} and a number of at least 0"
        assumed = {}
        for word in words:
            key, _, text = word.partition("=")
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            hold(
                key in known and 0 <= value < math.inf,
                rule,
                word,
                "for example --assume tokens=500",
            )
            assumed[key] = value
        return cls(**assumed)


def judge_seconds(cfg: Config, costs: Costs) -> float:
    """Seconds that one block takes at a judge."""
    if costs.judge_s is not None:
        return costs.judge_s
    reads = cfg.judge.kind != "exact" or (cfg.asks and cfg.referee.verifier != "none")
    return READS if reads else COMPARES


@dataclass(frozen=True)
class RoleCosts:
    """What one role costs. `pace`: of its engines. `tokens`, `sigma`, `cap`: mean, spread and most
    of a turn's tokens. `searches`: fewest and most. `token`: seconds of one GPU a trained token,
    with what is rehearsed beside it. `gpus`: of an engine."""

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
    engine, limits, simulated = block.engine, block.limits, block.engine.simulated
    if engine.traits.acted:
        sigma = simulated.sigma
        tokens = _typed(costs.tokens, simulated.tokens or SHORT)
        timed = engine.traits.timed
        step_ms = simulated.step_ms * timed
        sequence_ms = simulated.sequence_ms * timed
        token_ms = block.learner.token_ms
    else:
        sigma = costs.sigma
        tokens = _typed(costs.tokens, limits.turn_tokens / 2)
        ranks = engine.tensor_parallel
        model = find(block.model)
        observed = limits.searches * limits.observation_tokens
        context = limits.prompt_tokens + observed + tokens * (limits.searches + 1)
        numbers = 0 if model.shape is None else model.shape.kv_numbers
        weights_read = 2 * model.parameters / ranks
        cache_read = 2 * numbers * context / 2 / ranks
        computed = (8 if block.learner.checkpointing else 6) * model.parameters
        step_ms = 1e3 * weights_read / BANDWIDTH
        sequence_ms = 1e3 * cache_read / BANDWIDTH
        token_ms = 1e3 * computed / FLOPS / (1.0 - block.rehearsal.share)

    step = _typed(costs.step_ms, step_ms) / 1e3
    sequence = _typed(costs.sequence_ms, sequence_ms) / 1e3
    return RoleCosts(
        pace=DecodePace(step, sequence, engine.sequences),
        tokens=tokens,
        sigma=sigma,
        searches=(least_searches(cfg, role), limits.searches),
        cap=limits.turn_tokens,
        token=_typed(costs.token_ms, token_ms) / 1e3,
        gpus=engine.tensor_parallel,
    )


def _typed(typed: float | None, computed: float) -> float:
    return computed if typed is None else typed


@dataclass(frozen=True)
class Split:
    """Engines of each role, ranks of each learner, GPUs in all, judges. `shared`: they take turns
    on the same GPUs, all of them or, `colocated`, each learner with the engines of its roles."""

    engines: dict[str, int]
    ranks: dict[str, int]
    gpus: int
    judges: int
    shared: bool = False
    colocated: bool = False


def own(cfg: Config, costs: Costs) -> Split:
    """What `placement.*` says."""
    place = cfg.placement
    engines = {role: players(cfg, role) for role in cfg.roles}
    ranks = {name: cfg.block(name).learner.ranks for name in learners(cfg)}
    base = place.layout == "shared-base"
    hold(
        not base or place.engine_gpus < 1,
        "ssp plan knows shared-base where engine and learners share GPUs",
        f"placement.engine_gpus={place.engine_gpus:g}",
        "plan it as placement.layout=separate",
    )

    play = {role: count * role_costs(cfg, role, costs).gpus for role, count in engines.items()}
    if base:
        gpus = max(*play.values(), *ranks.values())
        return Split(engines, ranks, gpus, place.judges, shared=True)
    taught = sum(ranks[name] for name in teaching(cfg))
    if place.layout == "separate":
        return Split(engines, ranks, sum(play.values()) + taught, place.judges)
    gpus = max(sum(play.values()), taught)
    return Split(engines, ranks, gpus, place.judges, shared=True, colocated=True)


def work(cfg: Config, costs: Costs) -> tuple[dict[str, float], dict[str, float]]:
    """GPU seconds a round: of each role's engines at full occupancy, and of each learner."""
    batch = cfg.answering.batch
    valid = float(batch)
    if cfg.asks:
        valid = min(batch, cfg.game.given * batch + cfg.asking.batch * costs.valid)
    fed = max(1e-9, valid)
    # Refill plays as many batches as give a whole one of questions with spread.
    needed = math.ceil(batch / (fed * max(costs.spread, 1e-9)) - 1e-9)
    batches = min(cfg.game.refill, max(1, needed))

    play = {}
    trained = {}
    for role in cfg.roles:
        # Past versions play too; only the newest one's episodes are trained.
        if role == cfg.spec.asker:
            asked, times, taught = 1.0, 1.0, cfg.league.asked
        else:
            asked = fed / batch
            times = 1 + cfg.league.twice
            taught = min(costs.spread, batch / batches / fed)
        cost = role_costs(cfg, role, costs)
        episodes = batches * round(asked * played(cfg, role))
        turns = episodes * (1 + sum(cost.searches) / 2)
        tokens = turns * capped(cost.tokens, cost.sigma, cost.cap)
        play[role] = tokens * cost.pace.full * cost.gpus * times
        trained[role] = tokens * taught

    learn = {}
    for name, roles in teaching(cfg).items():
        tokens = sum(trained[role] for role in roles)
        learn[name] = tokens * role_costs(cfg, name, costs).token
    return play, learn


def capped(mean: float, sigma: float, cap: float) -> float:
    """Mean of a lognormal with this mean and spread, cut at `cap`: E[min(X, cap)]."""
    if sigma == 0 or mean == 0:
        return min(mean, cap)
    below = NormalDist().cdf
    z = (math.log(cap / mean) + sigma**2 / 2) / sigma
    return mean * below(z - sigma) + cap * (1 - below(z))


@dataclass
class _Crew:
    """Workers of one kind: GPU seconds of all their work, GPUs of each, and how many they are."""

    seconds: float
    gpus: int = 1
    grows: bool = True
    count: int = 1


def choose(cfg: Config, gpus: int, costs: Costs) -> list[Split]:
    """Splits of `gpus` that are worth a simulation; one in which all take turns where they do not
    go round. InputError when not even one engine fits."""
    play, learn = work(cfg, costs)
    size = {role: role_costs(cfg, role, costs).gpus for role in cfg.roles}
    largest = max(size, key=lambda role: size[role])
    hold(
        gpus >= size[largest],
        "a plan has the GPUs of one engine at least",
        f"{gpus} GPUs, {largest}.engine.tensor_parallel={size[largest]}",
        "ask for more GPUs",
    )

    place = cfg.placement
    if place.layout == "colocate" and gpus >= sum(size.values()):
        return [colocated(cfg, gpus, costs)]
    grows = {name: cfg.block(name).learner.kind != "torch" for name in learn}
    if place.layout != "separate" or gpus < sum(size.values()) + len(learn):
        ranks = {name: gpus if grows.get(name) else 1 for name in learners(cfg)}
        engines = {role: gpus // size[role] for role in cfg.roles}
        return [Split(engines, ranks, gpus, place.judges, shared=True)]

    splits = []
    for lean in LEAN:
        playing = {role: _Crew(lean * play[role], size[role]) for role in cfg.roles}
        learning = {name: _Crew(learn[name], grows=grows[name]) for name in learn}
        _grow([*playing.values(), *learning.values()], gpus)
        engines = {role: crew.count for role, crew in playing.items()}
        ranks = dict.fromkeys(learners(cfg), 1)
        ranks |= {name: crew.count for name, crew in learning.items()}
        judges = max(place.judges, share(sum(engines.values()), ENGINES_A_JUDGE))
        split = Split(engines, ranks, gpus, judges)
        if split not in splits:
            splits.append(split)
    return splits


def colocated(cfg: Config, gpus: int, costs: Costs) -> Split:
    """The split of `gpus` in which each learner takes turns with the engines of its roles, a rank a
    GPU. `gpus` suffice for an engine of each role."""
    play, learn = work(cfg, costs)
    crews = {}
    for role in cfg.roles:
        crews[role] = _Crew(play[role], role_costs(cfg, role, costs).gpus)
    for name, roles in teaching(cfg).items():
        for role in roles:
            crews[role].seconds += learn[name] / len(roles)
    _grow(list(crews.values()), gpus)

    ranks = {}
    for name, roles in learners(cfg).items():
        below = sum(crews[role].count * crews[role].gpus for role in roles)
        ranks[name] = below if cfg.block(name).learner.kind != "torch" else 1
    engines = {role: crew.count for role, crew in crews.items()}
    used = sum(crew.count * crew.gpus for crew in crews.values())
    return Split(engines, ranks, used, cfg.placement.judges, shared=True, colocated=True)


def _grow(crews: Sequence[_Crew], gpus: int) -> None:
    """Give whoever would need longest one worker more, as long as GPUs are left."""
    left = gpus - sum(crew.gpus for crew in crews)
    while True:
        fitting = [crew for crew in crews if crew.grows and crew.gpus <= left]
        if not fitting:
            return
        slowest = max(fitting, key=lambda crew: crew.seconds / crew.count / crew.gpus)
        slowest.count += 1
        left -= slowest.gpus

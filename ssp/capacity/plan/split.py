"""How many GPUs play and how many learn: so many that all kinds of workers would need the same time. Memory is not looked
at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.capacity.plan.costs import Costs, role_costs
from ssp.config.crews import learners, players
from ssp.config.schema import Config

LEAN = (1.0, 1.4, 2.0)
"""How much of their time engines may need beyond full occupancy: tails leave them half empty. One split each is tried."""

ENGINES_A_JUDGE = 4


@dataclass(frozen=True)
class Split:
    """Engines of each role, ranks of each learner, GPUs in all, judges. `shared`: they take turns on the same GPUs."""

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
    played = {role: count * role_costs(cfg, role, costs).gpus for role, count in counts.items()}
    if cfg.placement.layout == "shared-base":
        return Split(counts, ranks, max(*played.values(), *ranks.values()), cfg.placement.judges, True)
    taught = sum(ranks[name] for name in ranks if cfg.block(name).policy != "frozen")
    gpus = max(sum(played.values()), taught) if shared else sum(played.values()) + taught
    return Split(counts, ranks, gpus, cfg.placement.judges, shared)


def work(cfg: Config, costs: Costs) -> tuple[dict[str, float], dict[str, float]]:
    """GPU seconds a round: of each role's engines at full occupancy, and of each learner."""
    play: dict[str, float] = {}
    trained: dict[str, float] = {}
    for role in cfg.roles:
        cost = role_costs(cfg, role, costs)
        episodes = cfg.proposer.batch
        if role != PROPOSER:
            fed = cfg.proposer.batch * costs.valid if PROPOSER in cfg.roles else cfg.solver.batch
            episodes = round(min(cfg.solver.batch, fed) * cfg.game.attempts)
        turns = 1 + sum(cost.searches) / 2
        tokens = episodes * turns * capped(cost.tokens, cost.sigma, cost.cap)
        # Past versions play too; only the newest one's episodes are trained.
        play[role] = tokens * cost.pace.full * cost.gpus * (1 if role == PROPOSER else 1 + cfg.league.twice)
        trained[role] = tokens * (cfg.league.asked if role == PROPOSER else 1)
    learn = {
        name: sum(trained[role] for role in roles) * role_costs(cfg, name, costs).token
        for name, roles in learners(cfg).items()
        if cfg.block(name).policy != "frozen"
    }
    return play, learn


def capped(mean: float, sigma: float, cap: float) -> float:
    """Mean of a lognormal with this mean and spread, cut at `cap`: E[min(X, cap)]."""
    if sigma == 0:
        return min(mean, cap)
    z = (math.log(cap / mean) + sigma**2 / 2) / sigma

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return mean * below(z - sigma) + cap * (1 - below(z))


def choose(cfg: Config, gpus: int, costs: Costs) -> list[Split]:
    """Splits of `gpus` that are worth a simulation; one in which all take turns where they do not go round.

    InputError when not even one engine fits.
    """
    play, learn = work(cfg, costs)
    size = {role: role_costs(cfg, role, costs).gpus for role in cfg.roles}
    if gpus < max(size.values()):
        role = max(size, key=lambda name: size[name])
        found = f"{gpus} GPUs, {role}.engine.tensor_parallel={size[role]}"
        raise InputError("a plan has the GPUs of one engine at least", found, "ask for more GPUs")
    if cfg.placement.layout != "separate" or gpus < sum(size.values()) + len(learn):
        ranks = {name: gpus if name in learn and _cut(cfg, name) else 1 for name in learners(cfg)}
        return [Split({role: gpus // size[role] for role in cfg.roles}, ranks, gpus, cfg.placement.judges, True)]
    splits: list[Split] = []
    for lean in LEAN:
        # Engines by role, learners by their name behind a blank: GPU seconds, GPUs of one, how many.
        parts = {**{role: lean * seconds for role, seconds in play.items()}, **{f" {n}": s for n, s in learn.items()}}
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

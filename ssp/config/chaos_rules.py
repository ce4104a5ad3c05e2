"""What may go wrong on purpose, and which pools may change their size.

Owns the rules of `chaos.*` and `placement.elastic.*`. Promises that a fault names an actor that the run has, and that a
pool which cannot follow the cluster is refused. Refuses to make a fault or a player (`actors.watch`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ssp.config.schema import Config
from ssp.config.tables import MOST
from ssp.episode import PROPOSER, SOLVER
from ssp.errors import InputError

DEEDS = ("kill", "stall", "node", "full")
"""What a fault can do."""

REPLICA = "replica"
"""What a pool of the retriever has more or fewer of."""

CARRIED = ("object_store", "disk")
"""Ways of weights that reach a player which was not there when the run began."""


def faults_can_happen(cfg: Config) -> None:
    """Each names a deed, a step, and an actor of this run."""
    known = actors(cfg) if cfg.chaos.faults else []
    for number, fault in enumerate(cfg.chaos.faults):
        where = f"chaos.faults[{number}]"
        if fault.do not in DEEDS:
            raise InputError(f"{where}.do is one of {', '.join(DEEDS)}", fault.do or "''", "correct it")
        if fault.at_step < 1 or fault.seconds <= 0:
            found = f"at_step={fault.at_step} seconds={fault.seconds:g}"
            raise InputError(f"{where}: at_step is 1 or more, seconds above 0", found, "correct it")
        right = (
            [name for name in known if fault.do != "full" or name.startswith("learner-")]
            if fault.do != "node"
            else [""]
        )
        if fault.who not in right:
            of = f"one of {', '.join(right)}" if any(right) else "empty: node is one that the driver is not on"
            raise InputError(f"{where}.who is {of}", fault.who or "''", "correct it")


def actors(cfg: Config) -> list[str]:
    """Names of the actors of a run, without the run's, as far as they are there from its start."""
    # Here, because it reads configurations.
    from ssp.selfplay.cast import learners, proposers, queue_names, ranks

    place, search = cfg.placement, cfg.retriever
    pairs = place.layout == "shared-base"
    kinds = {} if pairs else {"proposer": proposers(cfg)}
    kinds |= {"engine" if pairs else "solver": place.solvers, "judge": place.judges, "ledger": 1}
    kinds |= {f"queue-{name}": 1 for name in queue_names(cfg)}
    kinds |= {f"learner-{name}": ranks(cfg, name) for name in learners(cfg)}
    kinds |= {f"shard-{shard}": search.replicas for shard in range(search.shards)}
    return [f"{kind}-{i}" for kind, count in kinds.items() for i in range(count)]


def bounds(cfg: Config, what: str) -> tuple[int, int]:
    """The least and the most players of a role, or replicas of a shard (REPLICA)."""
    place, key = cfg.placement, f"placement.elastic.{what}s"
    known = {PROPOSER: place.proposers, SOLVER: place.solvers, REPLICA: cfg.retriever.replicas}
    size, span = known[what], getattr(place.elastic, f"{what}s")
    if not span:
        return size, size
    found = re.fullmatch(r"(\d+)-(\d+)", span)
    low, high = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= low <= size <= high <= MOST:
        block = "retriever" if what == REPLICA else "placement"
        rule = f"{key} is LEAST-MOST with {block}.{what}s={size} between them, at most {MOST}"
        raise InputError(rule, span, f"set {key}=1-{2 * size}")
    return low, high


def pools_can_change(cfg: Config) -> None:
    """An elastic pool: players on CPUs, of a role that plays, whose weights reach one more, and no fixed work plan."""
    place = cfg.placement
    spans = {PROPOSER: place.elastic.proposers, SOLVER: place.elastic.solvers}
    for role in (role for role, span in spans.items() if span):
        key = f"placement.elastic.{role}s"
        bounds(cfg, role)
        leave = f"leave {key} out"
        if role == PROPOSER and PROPOSER not in cfg.roles:
            raise InputError(f"{key} is of a role that plays", f"game.questions={cfg.game.questions}", leave)
        if place.layout != "separate" or place.engine_gpus:
            found = f"layout={place.layout} engine_gpus={place.engine_gpus:g}"
            raise InputError(f"{key} is of players on CPUs, which have no place in a plan of GPUs", found, leave)
        if cfg.transfer.kind not in CARRIED:
            rule = f"{key} needs weights that travel by {' or '.join(CARRIED)}, which reach players that join"
            raise InputError(rule, f"transfer.kind={cfg.transfer.kind}", "set transfer.kind=object_store")
        if not max(getattr(cfg.schedule.max_staleness, other) for other in cfg.roles):
            rule = f"{key} is of asynchronous runs: with staleness bounds of 0 the work plan is fixed, game to actor"
            raise InputError(rule, "schedule.max_staleness 0", f"set schedule.preset=async, or {leave}")


def replicas_can_change(cfg: Config) -> None:
    """Elastic replicas: of shards on CPUs. Each gives the same answers, so that staleness bounds of 0 allow them."""
    if cfg.placement.elastic.replicas:
        bounds(cfg, REPLICA)
        if cfg.retriever.gpus:
            rule = "placement.elastic.replicas is of shards on CPUs, which have no place in a plan of GPUs"
            raise InputError(rule, f"retriever.gpus={cfg.retriever.gpus:g}", "leave placement.elastic.replicas out")


RULES: tuple[Callable[[Config], None], ...] = (faults_can_happen, pools_can_change, replicas_can_change)

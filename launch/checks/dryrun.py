"""What `ssp train --dry-run` prints: the resolved config, the actor graph, where each process goes, what it needs.

It starts nothing, imports neither Ray nor torch, and shows the plan before it refuses what would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ssp.base.episode import PROPOSER
from ssp.capacity.memory import Process, notes, processes
from ssp.capacity.placement import Plan, beside, fits, lay, machine, short, tables
from ssp.capacity.placement.tables import table
from ssp.config.load import to_yaml
from ssp.config.nodes import smallest_gpu
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.world import files
from ssp.selfplay.workers import build


def describe(cfg: Config) -> Iterator[str]:
    """The text, section by section, for the cluster that `placement.nodes` describes, or for this machine; then a line
    for what runs short there.

    InputError where a corpus that is here does not fit the settings, and, behind the sections, where the plan does not fit
    the nodes; `cfg` itself was checked.
    """
    for path in corpora.paths(cfg):
        if path.exists() or files.world_seed(str(path)) is not None:
            corpora.fits(path, cfg.retriever, cfg.retriever.shards)
    nodes = machine.nodes(cfg)
    yield f"# Configuration\n{to_yaml(cfg).rstrip()}"
    yield f"\n# Actor graph\n{graph(cfg)}"
    yield f"\n# Actors\n{_actor_table(processes(cfg, smallest_gpu(nodes)))}"
    plan = lay(cfg, nodes)
    yield f"\n# Placement\n{tables.placement(cfg, plan)}"
    if plan.placed:
        parts = tables.gpu_memory(process for process in plan.processes if process.gpus)
        yield f"\n# GPU memory, by the formulas of docs/placement.md\n{parts}"
    yield f"\n# Memory of the hosts, estimated\n{_host(cfg, plan)}"
    fits(cfg, plan)
    yield from (f"\nwarning: {line}" for line in short(cfg, plan))
    for lack in build.missing(cfg):
        yield f"\nwarning: {lack.rule}: {lack.found} on this machine. Next, where it runs: {lack.next_step}"
    yield "\n# Next\nNothing was started. Leave out --dry-run to train."


def graph(cfg: Config) -> str:
    """The flow as text, read from top to bottom."""
    bound, place = cfg.schedule.max_staleness, cfg.placement
    shards = f"{cfg.retriever.shards}" + (f" x{cfg.retriever.replicas}" if cfg.retriever.replicas > 1 else "")
    lines = [
        "targets",
        "   |",
        f"proposer x{place.proposers}  <-- searches --> retriever x{shards}",
        "   |  questions",
        f"judge x{place.judges}  (rules, then evidence; verifier: {cfg.referee.verifier})",
    ]
    if PROPOSER not in cfg.roles:
        lines = [f"{cfg.game.questions}: {cfg.data.questions}"]
    lines += [
        "   |",
        f"   |  {cfg.game.attempts} attempts a question{_league(cfg)}",
        f"solver x{place.solvers}  <-- searches --> retriever x{shards}",
        "   |  answers",
        f"judge x{place.judges}  ({cfg.judge.kind})",
        "   |",
    ]
    for name in cfg.roles:
        players = f"{name} x{place.proposers if name == PROPOSER else place.solvers}"
        policy = cfg.block(name).policy
        learner = "learner of both roles" if policy == "shared" else f"{name} learner"
        end = "kept: the policy is frozen" if policy == "frozen" else f"{learner} -- weights --> {players}"
        lines.append(f"   +--> [{name} queue] --> {end}")
    bounds = ", ".join(f"{name} {getattr(bound, name)}" for name in cfg.roles)
    return "\n".join(
        [
            *lines,
            "",
            "Queues and weights carry object references. ledger x1 records every episode.",
            "The coordinator runs in the process of ssp train.",
            f"Staleness bound: {bounds} (0 = synchronous).",
        ]
    )


def _league(cfg: Config) -> str:
    """What members of the league add to a round."""
    more = cfg.league.twice
    return f", about {more:.0%} more by past solvers (league.match={cfg.league.match})" if more else ""


def _actor_table(parts: Sequence[Process]) -> str:
    each = [(p.cpus, p.gpus * p.spread, p.threads, p.megabytes) for p in parts]
    sums = [sum(p.count * numbers[i] for p, numbers in zip(parts, each, strict=True)) for i in range(4)]

    def row(name: str, count: int, numbers: Sequence[float], task: str) -> tuple[str, ...]:
        return (name, str(count), *(f"{number:g}" for number in numbers[:3]), f"{numbers[3]:.0f}", task)

    rows = [row(p.name, p.count, numbers, p.task) for p, numbers in zip(parts, each, strict=True)]
    said = "CPUs and GPUs are what Ray reserves; threads are torch's (placement.threads), on this machine"
    rows.append(row("all", sum(p.count for p in parts), sums, said))
    return table(("actor", "count", "CPUs each", "GPUs each", "threads", "host MB each", ""), rows)


def _host(cfg: Config, plan: Plan) -> str:
    said = [f"{process.name}: {process.note}." for process in plan.processes if process.note]
    return "\n".join([tables.host_memory(plan, beside(cfg)), *said, *notes(cfg)])

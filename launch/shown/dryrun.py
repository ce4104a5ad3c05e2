"""What `ssp train --dry-run` prints: actors, placement, memory, config. It imports neither Ray nor
torch."""

from collections.abc import Iterator, Sequence

from ssp.capacity.memory import MB, Process, notes, processes
from ssp.capacity.placement import beside, fits, lay, machine, short, tables
from ssp.config.load import to_yaml
from ssp.config.nodes import smallest_gpu
from ssp.config.schema import Config
from ssp.config.toolserver import server_of
from ssp.game import corpora
from ssp.game.world import files
from ssp.selfplay.workers import build


def describe(cfg: Config) -> Iterator[str]:
    """The text, section by section, for the cluster of `placement.nodes`, or this machine.
    InputError where a corpus that is here does not fit the settings, and, behind the sections,
    where the plan does not fit the nodes; `cfg` was checked."""
    for path in corpora.paths(cfg):
        if path.exists() or files.is_world(str(path)):
            corpora.fits(path, cfg.retriever, cfg.retriever.shards)
    nodes = machine.nodes(cfg)
    yield f"# Actors\n{_actors(processes(cfg, smallest_gpu(nodes)))}"
    for role in cfg.roles:
        for server in filter(None, map(server_of, cfg.block(role).tools)):
            runs = "a program" if server.is_program else "a session"
            yield f"{role}.tools, {server}: {runs} for each {server.session}"
    plan = lay(cfg, nodes)
    yield f"\n# Placement\n{tables.placement(plan)}"
    if plan.placed:
        parts = tables.gpu_memory(process for process in plan.processes if process.gpus)
        yield f"\n# GPU memory, by the formulas of docs/placement.md\n{parts}"
    host = "\n".join([tables.host_memory(plan, beside(cfg)), *notes(cfg)])
    yield f"\n# Memory of the hosts, estimated\n{host}"
    yield f"\n# Configuration\n{to_yaml(cfg).rstrip()}"
    fits(cfg, plan)
    yield from (f"\nwarning: {line}" for line in short(cfg, plan))
    for lack in build.missing(cfg):
        missing = f"{lack.rule}: {lack.found} on this machine"
        yield f"\nwarning: {missing}. Next, where it runs: {lack.next_step}"
    yield "\nNothing was started. Leave out --dry-run to train."


def _actors(parts: Sequence[Process]) -> str:
    """The table of actors. CPUs and GPUs are what Ray reserves; threads are torch's, on this
    machine."""
    rows = []
    count = 0
    sums = [0.0] * 4
    for part in parts:
        host = round(part.on_host / MB)
        each = (part.cpus, part.gpus * part.spread, part.threads, host)
        rows.append((part.name, str(part.count), *(f"{number:.9g}" for number in each)))
        count += part.count
        sums = [total + part.count * number for total, number in zip(sums, each, strict=True)]
    rows.append(("all", str(count), *(f"{total:.9g}" for total in sums)))
    headings = ("actor", "count", "CPUs each", "GPUs each", "threads", "host MB each")
    return tables.table(headings, rows)

"""A plan in words: a row for each number of GPUs, what limits it, and which inputs nobody measured."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ssp.base.episode import PROPOSER
from ssp.capacity.placement.tables import table
from ssp.capacity.plan.costs import Costs, judge_seconds, role_costs
from ssp.capacity.plan.simulate import Measured, simulate
from ssp.capacity.plan.split import Split, choose, own, work
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.config.tables import ACTED

SYNCS = (0.02, 0.05, 0.1, 0.2)
"""Shares of a step that are tried as seconds of a sync."""
LOSS = 0.05
"""How much of the speed a sync may cost."""


@dataclass(frozen=True)
class Row:
    """One number of GPUs: the split that was best, what it gave, seconds that a sync may take."""

    split: Split
    found: Measured
    sync: float

    @property
    def gpus(self) -> str:
        """Its first cell."""
        return f"{self.split.gpus}{'*' if self.split.shared else ''}"


def plan(cfg: Config, gpus: int | None, costs: Costs) -> Row:
    """The best split of `gpus`, or the configuration's own. InputError as in `choose`."""
    tried = [own(cfg, costs)] if gpus is None else choose(cfg, gpus, costs)
    measured = [(simulate(cfg, split, costs), split) for split in tried]
    found, split = min(measured, key=lambda pair: pair[0].step)

    def too_long(place: int) -> bool:
        sync = costs.sync_s + SYNCS[place] * found.step
        return simulate(cfg, split, replace(costs, sync_s=sync), found.rounds // 2).step > found.step * (1 + LOSS)

    place = bisect.bisect_right(range(len(SYNCS)), False, key=too_long)
    return Row(split, found, costs.sync_s + SYNCS[place - 1] * found.step if place else 0.0)


def describe(cfg: Config, gpus: Sequence[int], costs: Costs) -> str:
    """The whole text."""
    rows = [plan(cfg, count, costs) for count in gpus] or [plan(cfg, None, costs)]
    play, learn = work(cfg, costs)
    needed = sum(play.values()) + sum(learn.values())
    bounds = ", ".join(f"{role} {getattr(cfg.schedule.max_staleness, role)}" for role in cfg.roles)
    flight = "weights reach engines in the middle of turns" if cfg.schedule.in_flight else "not in flight"
    lines = [
        "# Schedule",
        f"Staleness bounds: {bounds}; {flight}. A step needs {needed:.4g} GPU seconds with full engines.",
        "",
        "# Split and speed",
        _speed(cfg, rows, needed),
        "",
        "# Who waits, how old the data is",
        _waits(cfg, rows, costs),
        "",
        "# Inputs",
        *_inputs(cfg, costs),
    ]
    if any(row.split.shared for row in rows):
        lines.insert(2, "Too few GPUs for engines and learners apart: rows marked * take turns, with both bounds 0.")
    return "\n".join(lines)


def _speed(cfg: Config, rows: Sequence[Row], needed: float) -> str:
    lines = []
    for row in rows:
        split, found = row.split, row.found
        engines = "+".join(str(split.engines[role]) for role in cfg.roles)
        ranks = "+".join(str(split.ranks[name]) for name in learners(cfg))
        hourly = f"{3600 / found.step:.4g}" if found.step else "-"
        busy = needed / split.gpus / found.step if found.step else 1.0
        speed = [f"{found.step:.4g}", hourly, f"{found.tokens / split.gpus:.0f}", f"{busy:.0%}", f"{row.sync:.3g}"]
        lines.append([row.gpus, engines, ranks, str(split.judges), *speed])
    head = ("GPUs", "engines", "ranks", "judges", "s a step", "steps an hour", "tokens/s/GPU", "of the best")
    return table((*head, "sync budget s"), lines)


def _waits(cfg: Config, rows: Sequence[Row], costs: Costs) -> str:
    lines = []
    kinds = [*cfg.roles, *(f"learner-{name}" for name in learners(cfg))]
    for row in rows:
        found = row.found
        copies = max(1, math.ceil(found.searches / max(costs.shard_qps, 1e-9)))
        lines.append(
            (
                row.gpus,
                *(f"{max(0.0, found.bubble[kind]):.0%}" for kind in kinds),
                *(f"{min(1.0, found.fill[role]):.0%}" for role in cfg.roles),
                *("{:.2f} / {:g}".format(*found.staleness[role]) for role in cfg.roles),
                f"{found.searches:.3g}",
                f"{cfg.retriever.shards} x {copies}",
            )
        )
    by_role = [f"{role} {what}" for what in ("slots full", "staleness") for role in cfg.roles]
    return table(("GPUs", *(f"bubble {kind}" for kind in kinds), *by_role, "searches/s", "shards x replicas"), lines)


def _inputs(cfg: Config, costs: Costs) -> list[str]:
    """Every input with its value and where it is from."""
    lines = []
    for role in cfg.roles:
        cost, block = role_costs(cfg, role, costs), cfg.block(role)
        simulated = block.engine.kind in ACTED
        how = f"{role}.engine.simulated.*" if simulated else f"computed from {block.model} on GPUs of the kind H100"
        lines.append(
            f"{role}: a decode step {1e3 * cost.pace.base:.3g} ms + {1e3 * cost.pace.each:.2g} ms a sequence, at most "
            f"{cost.pace.sequences} at once; a trained token {1e3 * cost.token:.3g} ms of a GPU ({how})"
        )
        source = "its settings" if simulated else "an assumption: half of limits.turn_tokens"
        least, most = cost.searches
        lines.append(
            f"{role}: turns of {cost.tokens:.0f} tokens in the mean, sigma {cost.sigma:g}, at most {cost.cap} "
            f"({source if costs.tokens is None else 'typed'}); {least} to {most} searches, alike often (an assumption)"
        )
    values = replace(costs, judge_s=judge_seconds(cfg, costs))
    shown = {"search_s", "judge_s", "sync_s", "shard_qps"} | ({"valid"} if PROPOSER in cfg.roles else set())
    for item in fields(Costs):
        if item.name in shown:
            source = "an assumption" if getattr(costs, item.name) == item.default else "typed"
            lines.append(f"{item.name} = {getattr(values, item.name):g}: {item.metadata['meaning']} ({source})")
    lines.append("Others are typed as --assume key=value. Prefill, memory and evaluation are not counted.")
    return lines

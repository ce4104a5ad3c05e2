"""A plan in words: a row for each number of GPUs, what limits it, and which inputs nobody
measured."""

from collections.abc import Sequence
from dataclasses import fields, replace

from ssp.capacity.placement.tables import table
from ssp.capacity.plan.costs import Costs, Split, choose, judge_seconds, own, role_costs, work
from ssp.capacity.plan.simulate import Measured, simulate
from ssp.config.crews import bound, learners
from ssp.config.role import ACTED
from ssp.config.schema import Config

SPEED = (
    "GPUs",
    "engines",
    "ranks",
    "judges",
    "s a step",
    "steps an hour",
    "tokens/s/GPU",
    "of the best",
)


def plan(cfg: Config, gpus: int | None, costs: Costs) -> tuple[Split, Measured]:
    """The best split of `gpus`, or the configuration's own, and what it gave. InputError as in
    `choose`."""
    tried = [own(cfg, costs)] if gpus is None else choose(cfg, gpus, costs)
    return min(
        ((split, simulate(cfg, split, costs)) for split in tried), key=lambda pair: pair[1].step
    )


def describe(cfg: Config, gpus: Sequence[int], costs: Costs) -> str:
    """The whole text."""
    rows = [plan(cfg, count, costs) for count in gpus] or [plan(cfg, None, costs)]
    play, learn = work(cfg, costs)
    needed = sum(play.values()) + sum(learn.values())
    bounds = ", ".join(f"{role} {bound(cfg, role)}" for role in cfg.roles)
    flight = (
        "weights reach engines in the middle of turns"
        if cfg.schedule.in_flight
        else "not in flight"
    )
    kinds = [*cfg.roles, *(f"learner-{name}" for name in learners(cfg))]
    by_role = [f"{role} {what}" for what in ("slots full", "staleness") for role in cfg.roles]
    waits = ("GPUs", *(f"bubble {kind}" for kind in kinds), *by_role, "searches/s")
    lines = [
        "# Schedule",
        (
            f"Staleness bounds: {bounds}; {flight}. A step needs {needed:.4g} GPU seconds with full"
            " engines."
        ),
        "",
        "# Split and speed",
        table(SPEED, [_speed(cfg, split, found, needed) for split, found in rows]),
        "",
        "# Who waits, how old the data is",
        table(waits, [_waits(cfg, split, found, kinds) for split, found in rows]),
        "",
        "# Inputs",
        *_inputs(cfg, costs),
    ]
    if any(split.shared for split, _ in rows):
        lines.insert(
            2,
            "Too few GPUs for engines and learners apart: rows marked * take turns, with both"
            " bounds 0.",
        )
    return "\n".join(lines)


def _gpus(split: Split) -> str:
    return f"{split.gpus}{'*' if split.shared else ''}"


def _speed(cfg: Config, split: Split, found: Measured, needed: float) -> list[str]:
    engines = "+".join(str(split.engines[role]) for role in cfg.roles)
    ranks = "+".join(str(split.ranks[name]) for name in learners(cfg))
    hourly = f"{3600 / found.step:.4g}" if found.step else "-"
    busy = needed / split.gpus / found.step if found.step else 1.0
    speed = [f"{found.step:.4g}", hourly, f"{found.tokens / split.gpus:.0f}", f"{busy:.0%}"]
    return [_gpus(split), engines, ranks, str(split.judges), *speed]


def _waits(cfg: Config, split: Split, found: Measured, kinds: Sequence[str]) -> list[str]:
    bubbles = [f"{max(0.0, found.bubble[kind]):.0%}" for kind in kinds]
    full = [f"{min(1.0, found.fill[role]):.0%}" for role in cfg.roles]
    ages = ["{:.2f} / {:g}".format(*found.staleness[role]) for role in cfg.roles]
    return [_gpus(split), *bubbles, *full, *ages, f"{found.searches:.3g}"]


def _inputs(cfg: Config, costs: Costs) -> list[str]:
    """Every input with its value, and whether it was assumed."""
    lines = []
    for role in cfg.roles:
        cost, block = role_costs(cfg, role, costs), cfg.block(role)
        how = (
            "its settings"
            if block.engine.kind in ACTED
            else f"computed from {block.model} on an H100, or typed"
        )
        least, most = cost.searches
        lines.append(
            f"{role}: a decode step {1e3 * cost.pace.base:.3g} ms + {1e3 * cost.pace.each:.2g} ms a"
            f" sequence, at most {cost.pace.sequences} at once; a trained token"
            f" {1e3 * cost.token:.3g} ms of a GPU; turns of {cost.tokens:.0f} tokens, sigma"
            f" {cost.sigma:g}, at most {cost.cap}; {least} to {most} searches ({how})"
        )
    values = replace(costs, judge_s=judge_seconds(cfg, costs))
    shown = {"search_s", "judge_s", "sync_s", "spread"} | ({"valid"} if cfg.asks else set())
    for item in fields(Costs):
        if item.name in shown:
            source = "an assumption" if getattr(costs, item.name) == item.default else "typed"
            lines.append(
                f"{item.name} = {getattr(values, item.name):g}: {item.metadata['meaning']}"
                f" ({source})"
            )
    lines.append(
        "Others are typed as --assume key=value. Prefill, memory and evaluation are not counted."
    )
    return lines

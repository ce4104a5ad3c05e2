"""A plan in words: a row for each number of GPUs, what limits it, and which inputs nobody
measured."""

from collections.abc import Sequence
from dataclasses import fields, replace

from ssp.capacity.placement.tables import table
from ssp.capacity.plan.costs import Costs, Split, choose, judge_seconds, own, role_costs, work
from ssp.capacity.plan.layouts import Loader, compare
from ssp.capacity.plan.simulate import Measured, simulate
from ssp.config.crews import bound, learners
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
    splits = [own(cfg, costs)] if gpus is None else choose(cfg, gpus, costs)
    tried = [(split, simulate(cfg, split, costs)) for split in splits]
    return min(tried, key=lambda pair: pair[1].step)


def describe(cfg: Config, gpus: Sequence[int], costs: Costs, loader: Loader) -> str:
    """The whole text."""
    plans = [plan(cfg, count, costs) for count in gpus] or [plan(cfg, None, costs)]
    play, learn = work(cfg, costs)
    needed = sum(play.values()) + sum(learn.values())

    bounds = ", ".join(f"{role} {bound(cfg, role)}" for role in cfg.roles)
    flight = "not in flight"
    if cfg.schedule.in_flight:
        flight = "weights reach engines in the middle of turns"
    lines = [
        "# Schedule",
        f"Staleness bounds: {bounds}; {flight}. A step needs {needed:.4g} GPU seconds with full"
        " engines.",
    ]
    if any(split.shared for split, _ in plans):
        lines.append(
            "In rows marked * engines and learners take turns on the same GPUs, with all bounds 0."
        )

    speeds = [_speed(cfg, split, measured, needed) for split, measured in plans]
    lines += ["", "# Split and speed", table(SPEED, speeds)]

    kinds = [*cfg.roles, *(f"learner-{name}" for name in learners(cfg))]
    header = ["GPUs", *(f"bubble {kind}" for kind in kinds)]
    header += [f"{role} slots full" for role in cfg.roles]
    header += [f"{role} staleness" for role in cfg.roles]
    waits = [_waits(cfg, split, measured, kinds) for split, measured in plans]
    lines += ["", "# Who waits, how old the data is", table([*header, "searches/s"], waits)]

    if cfg.placement.engine_gpus > 0:
        lines += ["", *compare(cfg, plans, costs, loader, bool(gpus))]
    lines += ["", "# Inputs", *_inputs(cfg, costs)]
    return "\n".join(lines)


def _gpus(split: Split) -> str:
    return f"{split.gpus}*" if split.shared else f"{split.gpus}"


def _speed(cfg: Config, split: Split, measured: Measured, needed: float) -> list[str]:
    """A row of the table of speeds."""
    engines = "+".join(str(split.engines[role]) for role in cfg.roles)
    ranks = "+".join(str(split.ranks[name]) for name in learners(cfg))
    hourly, busy = "-", 1.0
    if measured.step:
        hourly = f"{3600 / measured.step:.4g}"
        busy = needed / split.gpus / measured.step
    tokens = measured.tokens / split.gpus
    speed = [f"{measured.step:.4g}", hourly, f"{tokens:.0f}", f"{busy:.0%}"]
    return [_gpus(split), engines, ranks, str(split.judges), *speed]


def _waits(cfg: Config, split: Split, measured: Measured, kinds: Sequence[str]) -> list[str]:
    """A row of the table of waits."""
    bubbles = [f"{max(0.0, measured.bubble[kind]):.0%}" for kind in kinds]
    full = [f"{min(1.0, measured.fill[role]):.0%}" for role in cfg.roles]
    ages = []
    for role in cfg.roles:
        mean, most = measured.staleness[role]
        ages.append(f"{mean:.2f} / {most:g}")
    return [_gpus(split), *bubbles, *full, *ages, f"{measured.searches:.3g}"]


def _inputs(cfg: Config, costs: Costs) -> list[str]:
    """Every input with its value, and whether it was assumed."""
    lines = []
    for role in cfg.roles:
        cost = role_costs(cfg, role, costs)
        block = cfg.block(role)
        how = f"computed from {block.model} on an H100, or typed"
        if block.engine.traits.acted:
            how = "its settings"
        pace = cost.pace
        least, most = cost.searches
        lines.append(
            f"{role}: a decode step {1e3 * pace.base:.3g} ms + {1e3 * pace.each:.2g} ms a"
            f" sequence, at most {pace.sequences} at once; a trained token"
            f" {1e3 * cost.token:.3g} ms of a GPU; turns of {cost.tokens:.0f} tokens, sigma"
            f" {cost.sigma:g}, at most {cost.cap}; {least} to {most} searches ({how})"
        )

    values = replace(costs, judge_s=judge_seconds(cfg, costs))
    for item in fields(Costs):
        shown = item.name in ("search_s", "judge_s", "sync_s", "spread")
        if shown or (item.name == "valid" and cfg.asks):
            value = getattr(values, item.name)
            assumed = getattr(costs, item.name) == item.default
            source = "an assumption" if assumed else "typed"
            lines.append(f"{item.name} = {value:g}: {item.metadata['meaning']} ({source})")
    lines.append(
        "Others are typed as --assume key=value. Prefill, checkpoints, evaluation, and a cache that"
        " has no room for engine.sequences, are not counted."
    )
    return lines

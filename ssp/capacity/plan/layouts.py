"""The layouts in which a configuration could run on the same GPUs: hours, GPU-hours, memory, and the
settings of the quickest one that fits. Only layouts that train the same thing are compared: none
puts adapters in place of whole weights."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ssp.base.errors import InputError
from ssp.capacity.memory import size
from ssp.capacity.placement import fits, lay
from ssp.capacity.placement.tables import table
from ssp.capacity.plan.costs import Costs, Split, choose, own
from ssp.capacity.plan.simulate import Measured, simulate
from ssp.config.crews import bound, judge_gpus, learners
from ssp.config.nodes import GB, Node, parse
from ssp.config.schema import Config

CARD = 80
"""GB of a GPU that nobody described."""
OF_A_NODE = 8
"""GPUs of a node that nobody described."""
LESS = (0.75, 0.65, 0.55, 0.45)
"""Values of `engine.memory` that are tried where the configured one does not fit."""
HEADER = ("layout", "engines", "ranks", "GPUs", "s a step", "hours", "GPU-hours", "fullest GPU")

Loader = Callable[[list[str]], Config]
"""The configuration with these settings typed behind what was typed."""
Planned = tuple[Split, Measured]


@dataclass(frozen=True)
class Layout:
    """A row of the table. `typed`: what has to be typed for it; `hours`: None where it does not
    fit, as `lack` says."""

    cells: tuple[str, ...]
    typed: list[str]
    hours: float | None
    gpu_hours: float
    lack: str


def compare(
    cfg: Config, plans: Sequence[Planned], costs: Costs, loader: Loader, chosen: bool
) -> list[str]:
    """The table of layouts, in lines: those of `plans`, and others on as many GPUs. `chosen`: the
    plans are the best of their layout already."""
    listed = []
    for split, measured in plans:
        typed = [] if split == own(cfg, costs) else settings(cfg, split)
        listed.append(_layout(cfg, split, measured, typed, loader))
        for other in _others(cfg, split, costs, chosen):
            laid = copy.deepcopy(cfg)
            laid.placement.layout = "colocate" if other.colocated else "separate"
            measured = simulate(laid, other, costs)
            listed.append(_layout(laid, other, measured, settings(laid, other), loader))

    lines = [f"# Layouts, over {cfg.steps:,} steps", table(HEADER, [one.cells for one in listed])]
    lines += [f"{one.cells[0]} does not fit: {one.lack}" for one in listed if one.lack]
    fitting = [one for one in listed if one.hours is not None]
    if fitting:
        best = min(fitting, key=lambda one: one.hours or 0.0)
        how = f"type {' '.join(best.typed)}" if best.typed else "as configured"
        hours = f"{best.hours:,.3g} hours, {best.gpu_hours:,.3g} GPU-hours"
        lines.append(f"Quickest that fits: {best.cells[0]}, {hours}: {how}")
    return lines


def _others(cfg: Config, split: Split, costs: Costs, chosen: bool) -> Iterator[Split]:
    """Other splits of the GPUs of `split`: each with GPUs of its own, and taking turns."""
    place = cfg.placement
    asleep = all(cfg.block(role).engine.traits.sleeps for role in cfg.roles)  # who can be
    if place.layout == "shared-base" or not asleep:
        return
    for layout in ("separate", "colocate"):
        if chosen and layout == cfg.placement.layout:
            continue
        laid = copy.deepcopy(cfg)
        laid.placement.layout = layout  # type: ignore[assignment]
        for other in choose(laid, split.gpus, costs):
            if other != split and other.shared == (layout == "colocate"):
                yield other


def _layout(
    cfg: Config, split: Split, measured: Measured, words: list[str], loader: Loader
) -> Layout:
    """The row of a split of GPUs, whose settings, `words`, are checked and whose memory is planned.
    Beside what a sleeping learner keeps, an engine may have to do with less."""
    hours = cfg.steps * measured.step / 3600
    tries = [words]
    for memory in LESS if split.colocated else ():
        tries.append([*words, *(f"{role}.engine.memory={memory:g}" for role in cfg.roles)])
    for typed in tries:
        gpus, fullest, lack = _memory(split, typed, loader)
        if not lack:
            break
    name = cfg.placement.layout + ("" if typed else ", as configured")
    counts = ["+".join(map(str, some.values())) for some in (split.engines, split.ranks)]
    times = [f"{measured.step:.4g}", f"{hours:,.3g}", f"{hours * gpus:,.3g}"]
    cells = (name, *counts, str(gpus), *times, "too small" if lack else fullest)
    return Layout(cells, typed, None if lack else hours, hours * gpus, lack)


def _memory(split: Split, typed: list[str], loader: Loader) -> tuple[int, str, str]:
    """GPUs that are reserved, what is on the fullest, and why that is too much; "" where it is
    not."""
    try:
        laid = loader(typed)
        plan = lay(laid, _nodes(laid, split.gpus))
        used = plan.used()
        fits(laid, plan)
    except InputError as error:
        return split.gpus, "", f"{error.rule}. Found: {error.found}"
    return len(used), size(max(used.values(), default=0)), ""


def settings(cfg: Config, split: Split) -> list[str]:
    """What is typed over `cfg`, whose layout is that of the split, for its numbers."""
    place = cfg.placement
    share = 0.5 if split.colocated else 1
    words = [f"placement.layout={place.layout}"]
    words += [f"placement.engine_gpus={share:g}", f"placement.learner_gpus={share:g}"]
    words += [f"placement.{role}s={count}" for role, count in split.engines.items()]
    for name, roles in learners(cfg).items():
        words += [f"{role}.learner.ranks={split.ranks[name]}" for role in roles]
    if split.judges != place.judges and not judge_gpus(cfg):
        words.append(f"placement.judges={split.judges}")
    if split.colocated and any(bound(cfg, role) for role in cfg.roles):
        preset = [f"schedule.max_staleness.{role}=0" for role in cfg.roles]
        words += ["schedule.preset=sync"] if cfg.schedule.preset else preset
    if split.colocated and cfg.schedule.in_flight:
        words.append("schedule.in_flight=false")
    return words


def _nodes(cfg: Config, gpus: int) -> list[Node]:
    """The nodes that `cfg` describes, where they have so many GPUs; else like them."""
    described = parse(cfg.placement.nodes) if cfg.placement.nodes else []
    if sum(node.gpus for node in described) >= gpus:
        return described
    first = described[0] if described else Node("node 0", OF_A_NODE, CARD * GB)
    count = math.ceil(gpus / first.gpus)
    return [Node(f"node {at}", first.gpus, first.gpu, first.host) for at in range(count)]

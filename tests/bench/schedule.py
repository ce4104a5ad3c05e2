"""What the schedule reaches with the cost model of docs/plan.md, in simulated time: the curve over staleness bounds.

    python tests/bench/schedule.py [--gpus 16] [--games 10000]

One role on given questions: 64 sequences a GPU and step, lognormal lengths (mean 2k, sigma 0.8, cap 16k), a decode step of
6 ms and 0.07 ms a sequence, at most 64 sequences an engine, 0.16 ms of a GPU a trained token. `of the bound`: the speed-up
over the synchronous system in which all GPUs first play and then learn, as a share of (G/u + T) / (G + T), G and T being
GPU seconds of play with full engines and of learning, and u the engines' occupancy there. Every row is the best of all splits
of the GPUs into engines and ranks of the learner around G : T. Exits 1 when bound 4 stays below 85 %, when an episode was
trained too stale or dropped for it, in any row or in the long run of `--games`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from ssp.capacity.plan.costs import Costs, Split, work
from ssp.capacity.plan.simulate import Measured, simulate
from ssp.config.schema import Config
from ssp.selfplay.settings import load

FREE = Costs(search_s=0.0, judge_s=0.0)
ATTEMPTS, A_GPU, GOAL = 16, 64, 0.85
MODEL = [
    "game.questions=dataset",
    "data.questions=world:train",
    "schedule.preset=",
    f"game.attempts={ATTEMPTS}",
    "solver.engine.sequences=64",
    "solver.engine.simulated.tokens=2000",
    "solver.engine.simulated.step_ms=6",
    "solver.limits.searches=0",
    "solver.limits.turn_tokens=16000",
    "solver.limits.total_tokens=16100",
]


def config(gpus: int, bound: int, flight: bool) -> Config:
    """The run with one staleness bound."""
    typed = [f"solver.batch={gpus * A_GPU // ATTEMPTS}", f"schedule.max_staleness.solver={bound}"]
    return load("simulated", [*MODEL, *typed, f"schedule.in_flight={str(flight).lower()}"])


def best(cfg: Config, gpus: int, around: int) -> tuple[Measured, int]:
    """The best of the splits with `around` engines, and a few more or fewer."""
    found = []
    for engines in sorted({around + shift * max(1, gpus // 16) for shift in (-1, 0, 1, 2)}):
        split = Split({"solver": engines}, {"solver": gpus - engines}, gpus, gpus)
        found.append((simulate(cfg, split, FREE), engines))
    return min(found, key=lambda pair: pair[0].step)


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--games", type=int, default=10_000)
    args = parser.parse_args()
    gpus, began = args.gpus, time.process_time()
    cfg = config(gpus, 0, False)
    play, learn = work(cfg, FREE)
    perfect = (play["solver"] + learn["solver"]) / gpus
    together = simulate(cfg, Split({"solver": gpus}, {"solver": gpus}, gpus, gpus, True), FREE)
    bound = together.step / perfect
    print(f"all GPUs play, then learn: {together.step:.1f} s a step; without a bubble {perfect:.1f} s")
    print(f"(G/u + T) / (G + T) = {bound:.2f}")
    print("bound  in flight  engines:ranks  s a step  speed-up  of the bound  slots full  staleness mean / max")
    around = round(gpus * play["solver"] / (play["solver"] + learn["solver"]))
    wrong = []
    for limit, flight in ((0, False), (1, False), (1, True), (2, False), (2, True), (4, False), (4, True)):
        found, engines = best(config(gpus, limit, flight), gpus, around)
        age, most = found.staleness["solver"]
        share = together.step / found.step / bound
        print(
            f"{limit:5}  {'yes' if flight else 'no':>9}  {engines:>6}:{gpus - engines:<6}  {found.step:8.1f}  "
            f"{together.step / found.step:8.2f}  {share:12.0%}  {found.fill['solver']:10.0%}  {age:9.2f} / {most:g}"
        )
        if most > limit or found.dropped.get("stale"):
            wrong.append(f"bound {limit}: staleness {most:g}")
        if limit == 4 and flight and share < GOAL:
            wrong.append(f"bound 4 reaches {share:.0%} of the bound")
    cfg = config(1, 4, True)
    rounds = -(-args.games // cfg.solver.batch)
    long = simulate(cfg, Split({"solver": 1}, {"solver": 1}, 2, 1), FREE, rounds)
    most = long.staleness["solver"][1]
    print(f"{long.games} games on one engine: staleness at most {most:g}, dropped {long.dropped.get('stale', 0)}")
    if most > 4 or long.dropped.get("stale"):
        wrong.append(f"{long.games} games: staleness {most:g}")
    print(f"{time.process_time() - began:.0f} CPU seconds, load average {os.getloadavg()[0]:.1f}")
    sys.exit("; ".join(wrong) or 0)


if __name__ == "__main__":
    main()

"""Self-play and the kinds of matchmaking on rock-paper-scissors: how far from the equilibrium the last pair and the average
pair end.

    python tests/bench/league_toy.py [--seeds 3] [--rounds 600]

Two softmax learners with the plain policy gradient (`tests/bench/league_toys.py`); the kinds differ in nothing but who is
met. 0 is the equilibrium, 1 the
furthest. `last`: mean of the last 150 rounds; `worst`: their maximum; `average`: of the mean of all mixtures that were
played; mean and range over seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from league_toys import play, toy  # noqa: E402

from ssp.config.schema import LeagueConfig  # noqa: E402

ARMS: dict[str, LeagueConfig] = {
    "self": toy("self"),
    "prioritised, power 4": toy("prioritised"),
    "half self, half power 1": toy("mix", power=1.0),
    "half self, half power 4": toy("mix"),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=600)
    args = parser.parse_args()
    print(f"{'':24}  {'last':>18}  {'worst':>6}  {'average':>19}")
    began = time.process_time()
    for name, settings in ARMS.items():
        runs = [play(settings, seed, args.rounds) for seed in range(args.seeds)]
        last = [float(run.last[-150:].mean()) for run in runs]
        average = [float(run.average[-1]) for run in runs]
        worst = max(float(run.last[-150:].max()) for run in runs)
        cells = [f"{sum(v) / len(v):.3f} ({min(v):.3f}-{max(v):.3f})" for v in (last, average)]
        print(f"{name:24}  {cells[0]:>18}  {worst:6.3f}  {cells[1]:>19}", flush=True)
    print(f"{time.process_time() - began:.0f} CPU seconds, load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

"""One run of the game in one process, without Ray: what a synchronous run on a cluster computes, for experiments.

    python tests/bench/experiments/alone.py --config quickstart run.dir=runs/alone [key=value ...]

With bound 0 and the torch engine the work plan is fixed (law 7), so this gives the losses and the ledger digest of
`ssp train` with the same settings, and spends no CPU on a cluster. Needs bounds of 0: rounds do not overlap here.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))


def main(argv: Sequence[str] | None = None) -> int:
    """Play the run that the arguments of `ssp train` describe."""
    from launch.cli import parse
    from launch.train import flags
    from ssp import corpora, runfolder
    from ssp.errors import InputError
    from ssp.selfplay.coordinator import SelfPlay
    from ssp.selfplay.evaluator import Evaluator
    from ssp.selfplay.local import local_cast
    from ssp.selfplay.report import Report
    from ssp.selfplay.scene import read_scene
    from ssp.telemetry.console import Console
    from ssp.telemetry.display import Display

    parsed = parse(argv, "alone", "Play a synchronous run in one process.", flags)
    cfg = parsed.load()
    bounds = cfg.schedule.max_staleness
    if bounds.proposer or bounds.solver:
        given = f"bounds {bounds.proposer}, {bounds.solver}"
        raise InputError("one process plays one round at a time", given, "use ssp train")
    console = Console()
    scene = read_scene(cfg, console.progress)
    cfg = scene.cfg
    folder = runfolder.open_run(cfg, parsed.config)
    spent: dict[int, float] = {}  # CPU seconds of this process by step: unlike wall time they hold on a busy machine
    display = Display(cfg, folder, console, [lambda step, role, values: spent.setdefault(step, time.process_time())])
    cast = local_cast(cfg, scene.models, corpora.search(cfg), folder.ledger, folder.episodes)
    report = Report(display, scene.oracle, 1, cfg.roles)
    game = SelfPlay(cfg, cast, folder, scene.targets(), report, Evaluator(cfg, scene.sets))
    try:
        asyncio.run(game.run())
        display.finish()
    finally:
        display.close()
        console.stop()
        (folder.path / "cpu.json").write_text(json.dumps(spent))
    return 0


if __name__ == "__main__":
    from launch.main import run

    sys.exit(run(main, sys.argv[1:]))

"""One run of the game in one process, without Ray: what a synchronous run on a cluster computes, for experiments.

    python tests/bench/experiments/alone.py --config quickstart run.dir=runs/alone [key=value ...]

With bound 0 and the torch engine the work plan is fixed (law 7), so this gives the losses and the ledger digest of
`ssp train` with the same settings, and spends no CPU on a cluster. With a bound above 0 rounds and learners take turns as
the event loop lets them, which is the same every time: batches are as stale as the bound allows, but no time is won.

Wrong on purpose: `--uncorrected` takes every episode for one of the policy in training. `--outages void` makes services
fail (`outages.py`), `--outages ssp` with SSP's way of taking it, `--services` says which (default: one after the other).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.cli import Parsed

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parent)]


def main(argv: Sequence[str] | None = None) -> int:
    """Play the run that the arguments of `ssp train` describe."""
    from launch.cli import Parser, parse
    from launch.train import flags

    def more(parser: Parser) -> None:
        flags(parser)
        parser.add_argument("--uncorrected", action="store_true", help="behaviour log-probs count as the policy's own")
        parser.add_argument("--outages", choices=("void", "ssp"), help="services fail; how that is taken")
        parser.add_argument("--services", default="retriever,verifier,judge", help="which ones")

    parsed = parse(argv, "alone", "Play a synchronous run in one process.", more)
    if parsed.flags.uncorrected:
        uncorrected()
    with ExitStack() as services:
        return play(parsed, services)


def uncorrected() -> None:
    """From here on every ratio of this process is 1: gradients are those of episodes by the policy in training."""
    from ssp.learning.losses import Tokens

    Tokens.ratio = lambda self: (self.logprobs - self.logprobs.detach()).exp()  # type: ignore[method-assign]


def play(parsed: Parsed, services: ExitStack) -> int:
    """The run itself; a judge over HTTP lives as long as `services`."""
    from aliases import lay
    from outages import FailingSearch, Outages, inject, judge, write

    from ssp.base.episode import SOLVER
    from ssp.game import corpora
    from ssp.record import runfolder
    from ssp.selfplay.coordinator import SelfPlay
    from ssp.selfplay.evaluator import Evaluator
    from ssp.selfplay.report import Report
    from ssp.selfplay.scene import read_scene
    from ssp.telemetry.console import Console
    from ssp.telemetry.display import Display
    from tests.local import local_cast

    cfg = parsed.load()
    outages = None
    world = lay(cfg) if cfg.judge.kind == "llm" else None
    if world is not None:
        ways = parsed.flags.outages
        outages = Outages(cfg.seed, ways == "ssp", parsed.flags.services.split(",") if ways else ())
        cfg.judge.url = services.enter_context(judge(outages, world))
        # as many as the small server takes at once; every failure is the outage's
        cfg.judge.concurrency, cfg.void.probe_every = 4, 0.01
    console = Console()
    scene = read_scene(cfg)
    cfg = scene.cfg
    folder = runfolder.open_run(cfg, parsed.config)
    spent: dict[int, float] = {}  # CPU seconds of this process by step: unlike wall time they hold on a busy machine
    display = Display(cfg, folder, console, {"time": lambda step, *_: spent.setdefault(step, time.process_time())})
    search = corpora.search(cfg)
    search = FailingSearch(search, outages) if outages else search
    cast = local_cast(cfg, scene.models, search, folder.ledger, folder.episodes)
    if outages and world:
        cast = inject(cast, cfg, scene.models[SOLVER], outages, world)
    report = Report(display, world or scene.oracle, 1, cfg.spec)
    game = SelfPlay(cfg, cast, folder, scene.targets(), report, Evaluator(cfg, scene.sets))
    try:
        asyncio.run(game.run())
        display.finish()
        if outages:
            write(folder.path, folder.ledger, outages)
    finally:
        display.close()
        console.stop()
        (folder.path / "cpu.json").write_text(json.dumps(spent))
    return 0


if __name__ == "__main__":
    from launch.main import run

    sys.exit(run(main, sys.argv[1:]))

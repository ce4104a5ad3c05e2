"""What the control plane costs: games/s and CPU milliseconds a game when engines and learners cost nothing.

    python tests/bench/control_plane.py --peer PATH/ray_selfplay.py -n 3     # 2.5 minutes on two idle cores
    python tests/bench/control_plane.py --players scripted --round 64 --steps 12        # the whole rollout loop
    python tests/bench/control_plane.py --off ledger,laws,figures,transcripts           # what is left without them

A game is a proposal, its verdict, 8 attempts, 8 grades, the settled round's hand-over to two learners, and their commit.
It is `ssp train` itself, with 2 proposers, 4 solvers, one judge and two simulated learners as real Ray actors, `--round`
games a round, staleness bound `--bound`: so many rounds and one more are in flight, and their stages overlap. On are the
ledger, law 3 after every step, figures in every sink (metrics.jsonl, TensorBoard, Ray), the timeline, transcripts in
parquet, supervision. `--players free`: players are the real ones, but for the rollout loop, in whose place episodes of
288 tokens are made from nothing, as the peer's engines do; `scripted`: with the rollout loop, tokenizer and searches.

Steps 4 to `--steps` - 2 count. `--peer`: after each of our runs one of that script, `--design coarse`, with 4,096 games;
ratios are pair by pair. CPU is of all processes of the run, driver and Ray's own included, by kind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
WARM, TAIL = 3, 2
"""Steps at both ends that do not count: what starts, and rounds after which none is admitted."""

PROMPT, DRAWN, LOGPROBS = [1] * 32, [2] * 256, [-0.5] * 256
TEXT = "p" * 40 + "x" * 216
PARTS = ("ledger", "laws", "figures", "transcripts")


def made(engine: Any, renderer: Any, search: Any, tasks: list[Any], settings: Any) -> tuple[list[Any], Any]:
    """In place of `ssp.game.rollout.rollout`: an episode a task, in no time. The question is its answer backwards; half the
    attempts know that."""
    from ssp.base.episode import Episode
    from ssp.base.tokenlog import Kind, TokenLog

    block = []
    for task in tasks:
        log = TokenLog()
        log.append(Kind.PROMPT, PROMPT)
        log.append_model(DRAWN, LOGPROBS, engine.version)
        if task.role == "proposer":
            final = f"what is {task.fields['target'][::-1]} ?"
        else:
            final = task.fields["question"][8:-2][::-1] if task.seed % 2 else "x"
        block.append(
            Episode(task.id, task.game, task.role, task.attempt, task.seed, log, TEXT, 40, final, stopped="final")
        )
    return block, {"generate": 0.0, "search": 0.0}


def cfg(args: argparse.Namespace, folder: Path) -> Any:
    """The run's configuration."""
    from ssp.selfplay.settings import load

    typed = [
        "steps=" + str(args.steps),
        f"run.dir={folder}",
        "ray.dashboard=-1",
        "game.attempts=8",
        f"proposer.batch={args.round}",
        f"solver.batch={args.round}",
        f"schedule.max_staleness.proposer={args.bound}",
        f"schedule.max_staleness.solver={args.bound}",
        "schedule.in_flight=false",
        "schedule.preset=",
        "placement.proposers=2",
        "placement.solvers=4",
        "placement.judges=1",
        "defaults.engine.kind=scripted",
        "defaults.engine.sequences=256",
        "defaults.engine.simulated.step_ms=6.0",
        "save.every=20",
        *(["solver.reward=em"] if args.players == "free" else []),
        "eval.final_questions_per_hop=1",
        *args.typed,
    ]
    made = load("simulated", typed)
    for block in (made.proposer, made.solver):
        block.learner.token_ms = 0.0  # learners cost nothing
    return made


class Meter:
    """CPU seconds of this process and all below it, by kind."""

    def __init__(self) -> None:
        self.at, self.cpu = time.perf_counter(), Counter[str]()
        here = psutil.Process()
        for process in [here, *here.children(recursive=True)]:
            try:
                times, line = process.cpu_times(), " ".join(process.cmdline())
            except psutil.Error:
                continue
            self.cpu["driver" if process == here else kind(line)] += times.user + times.system


def kind(line: str) -> str:
    """What a process is, by its command line, in which an actor shows its class."""
    actor = re.match(r"ray::(Bench|Simulated)?(\w+?)(Actor)?(\.|\s|$)", line)
    return actor[2].lower() if actor else "Ray's own"


def ours(args: argparse.Namespace) -> None:
    """One run in this process; prints one RESULT line."""
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory(prefix="control-plane-") as place:
        config = cfg(args, Path(place) / "run")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        from actors import cluster

        cluster.environment(config.ray)
        meters = _wired(args)
        from launch import train

        code = train.train(config, "simulated")
        if code or len(meters) != 2:
            sys.exit(f"the run ended with {code} after {len(meters)} of 2 readings")
        size = sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
    start, end = meters
    games, wall = args.round * (args.steps - TAIL - WARM), end.at - start.at
    spent = {name: 1e3 * (end.cpu[name] - start.cpu[name]) / games for name in end.cpu}
    figures = {
        "games_per_s": games / wall,
        "cpu_ms": sum(spent.values()),
        "by_kind": {name: round(value, 3) for name, value in sorted(spent.items(), key=lambda item: -item[1])},
        "games": games,
        "megabytes": size / 1e6,
    }
    print("RESULT " + json.dumps(figures), flush=True)


def _wired(args: argparse.Namespace) -> list[Meter]:
    """Put the free players, and what is off, into the run's program; the two readings it will take."""
    import ray

    from actors import metrics, program, restarts, services, workers
    from ssp.selfplay import report
    from ssp.telemetry import runlog, timeline

    off, free, meters = set(args.off.split(",")) - {""}, args.players == "free", list[Meter]()
    if odd := off - set(PARTS):
        sys.exit(f"--off is of {', '.join(PARTS)}, not {odd}")

    class Timed(report.Report):
        def learned(self, step: int, stats: Any) -> bool:
            last = super().learned(step, stats)
            if last and step in (WARM, args.steps - TAIL):
                meters.append(Meter())
            return last and "laws" not in off

    report.Report = Timed  # type: ignore[misc]

    class Player(workers._Player):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            if free:
                from ssp.selfplay.workers import player as module

                module.rollout = made  # type: ignore[assignment]

        def play(self, tasks: Any, order: Any, *given: Any) -> Any:
            return super().play(tasks, replace(order, stem="") if "transcripts" in off else order, *given)

    bench = type("BenchPlayer", (Player,), {})
    restarts.POLICIES[bench.__name__] = restarts.POLICIES["PlayerActor"]
    program.PlayerActor = ray.remote(concurrency_groups={"transfer": 1})(bench)  # type: ignore

    if "figures" in off:
        runlog.RunLog.write = timeline.Timeline.span = lambda *given, **more: None  # type: ignore
        metrics.RayMetrics.add = lambda *given: None  # type: ignore
    if "ledger" in off:
        restarts.POLICIES["_no_ledger.<locals>.NoLedger"] = restarts.POLICIES["LedgerActor"]
        program.LedgerActor = ray.remote(_no_ledger(services.Alive))  # type: ignore
    return meters


def _no_ledger(alive: Any) -> Any:
    class NoLedger(alive):
        """Hands out numbers and forgets everything."""

        def __init__(self, file: Any) -> None:
            self._given = 0

        def next_version(self, *given: Any) -> int:
            self._given += 1
            return self._given

        def _nothing(self, *given: Any) -> Any:
            return ""

        create_games = create = advance = settle = commit = rollback = _nothing
        check = keep = where = fold = outcomes = _nothing

    return NoLedger


def run(command: list[str]) -> dict[str, Any]:
    """The last RESULT of a command, which has a machine to itself but for others' load."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT {")]
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return dict(found[-1])


def main() -> None:
    """Pairs, one after the other, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", choices=("free", "scripted"), default="free")
    parser.add_argument("--round", type=int, default=256, help="games a round")
    parser.add_argument("--bound", type=int, default=2, help="staleness bound of both roles")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--off", default="", help=f"what of {', '.join(PARTS)} is left out")
    parser.add_argument("--peer", help="ray_selfplay.py, to alternate with")
    parser.add_argument("-n", type=int, default=1, help="runs, or pairs")
    parser.add_argument("--here", action="store_true", help="one run in this process")
    parser.add_argument("typed", nargs="*", help="further settings of the run")
    args = parser.parse_intermixed_args()
    if args.here:
        ours(args)
        return
    mine = [__file__, "--here", *[a for a in sys.argv[1:] if a != "--here"]]
    ratios = []
    for _ in range(args.n):
        found = run([sys.executable, *mine])
        kinds = ", ".join(f"{name} {value:.2f}" for name, value in found["by_kind"].items())
        print(
            f"ours: {found['games_per_s']:.0f} games/s, {found['cpu_ms']:.2f} CPU ms a game ({kinds}); "
            f"{found['games']} games, run folder {found['megabytes']:.0f} MB, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if args.peer:
            peer = [sys.executable, args.peer, "--design", "coarse", "--episodes", "4096"]
            theirs = run(peer)
            speed, cpu = theirs["episodes_per_s"], theirs["cpu_ms_per_episode"]
            print(f"peer: {speed:.0f} games/s, {cpu:.2f} CPU ms a game, load {os.getloadavg()[0]:.1f}", flush=True)
            ratios.append((found["games_per_s"] / speed, found["cpu_ms"] / cpu))
    if ratios:
        faster, dearer = (statistics.median(values) for values in zip(*ratios, strict=True))
        print(f"ours to peer, median of {len(ratios)} pairs: games/s {faster:.2f}x, CPU a game {dearer:.2f}x")


if __name__ == "__main__":
    main()

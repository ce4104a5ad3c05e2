"""`ssp train`: read, check, start, play, report what happened."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from launch.cli import INTERRUPTED, Parsed, Parser, end_politely, hear, on_hangup, parse, run
from ssp.base import devices
from ssp.base.errors import InputError, refuse
from ssp.base.printable import say

if TYPE_CHECKING:  # what --help does without
    from launch.warmup import Course
    from ssp.capacity.placement import Plan
    from ssp.config.schema import Config
    from ssp.record.runfolder import RunFolder
    from ssp.selfplay.scene import Scene
    from ssp.telemetry.console import Console

ABOUT = """examples:
  ssp train                                        the duel in small: two CPU cores, 75 seconds
  ssp train --config gpu8-own data.corpus=my-index data.targets=mine.jsonl --dry-run
                                                   what 8 GPUs would hold, shown on any machine
  ssp train --config search-r1-qwen2.5-7b-grpo data.corpus=my-index data.questions=train.jsonl
                                                   one policy on given questions, no self-play
  ssp train --config quickstart run.dir=runs/quickstart-001 resume=auto steps=120
                                                   go on with a run, for more steps

configs (--config NAME; how long they take: ssp plan --config NAME):
  two CPU cores     quickstart english simulated
  self-play         gpu1 gpu8 gpu8-own (no judge) gpu32 english-gpu1
                    ssp-qwen2.5-7b ssp-qwen3-8b ssp-llama3.1-8b
  given questions   search-r1-qwen2.5-3b-grpo search-r1-qwen2.5-3b-ppo search-r1-qwen2.5-7b-grpo
                    search-r1-qwen2.5-7b-ppo ema-pg-qwen2.5-3b research-qwen2.5-7b
                    research-qwen2.5-32b ssrl-llama3.2-3b ssrl-qwen2.5-7b
  other games       dr-zero-qwen2.5-3b r-zero-qwen3-4b spice-qwen3-4b searchmaster-qwen3-8b
                    cross-fit-qwen2.5-3b

keys used most (all of them: --dry-run, docs/settings.md):
  how long          steps eval.every save.every
  data              data.corpus data.targets data.questions data.eval retriever.url judge.url
  models            defaults.model proposer.model solver.model
  the game          game.kind game.questions game.attempts solver.batch solver.reward
  learning          solver.learner.lr proposer.learner.lr solver.kl.coef defaults.algorithm
  lengths           defaults.limits.searches defaults.limits.turn_tokens
  where             placement.solvers placement.proposers solver.learner.ranks
  the run           run.dir run.name resume seed"""
HASTY = 5.0
"""Seconds that a judge has to answer once it is clear that the run does not start."""


def main(argv: Sequence[str]) -> int:
    """Train the policies that play. Returns the exit code."""
    summary = "Play the game and train both policies, or one on given questions."
    parsed = parse(argv, "train", summary, flags)
    cfg = configured(parsed)
    if parsed.flags.dry_run:
        return dry_run(cfg, parsed.config)
    # Code that sets no number of threads computes on one; set before torch is imported anywhere.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    devices.one_heap()
    end_politely()
    return train(cfg, parsed.config)


def configured(parsed: Parsed) -> Config:
    """The checked configuration that the command line asks for."""
    from ssp.selfplay.settings.tiny import shrunk  # costs what --help does without

    return shrunk(parsed.config, parsed.overrides) if parsed.flags.tiny else parsed.load()


def dry_run(cfg: Config, config_name: str) -> int:
    """Print what would start, and start nothing. InputError for a run folder that `train` would
    refuse."""
    from launch.shown.dryrun import describe
    from ssp.record import runfolder
    from ssp.selfplay.settings import warnings

    _warn(warnings(cfg))
    for section in describe(cfg):
        say(section)
    runfolder.check(cfg, config_name)
    return 0


def train(cfg: Config, config_name: str) -> int:
    """Play a checked config's run, from its folder to its final table. Returns the exit code."""
    from actors import cluster
    from launch import warmup
    from ssp.capacity.memory.processes import object_store
    from ssp.record import runfolder
    from ssp.selfplay.checkpoint import go_back
    from ssp.telemetry.console import Console

    console = Console()
    checked = _checked(cfg, config_name, console)
    if checked is None:
        return 0
    scene, courses = checked
    from actors import deaths, metrics, placement
    from actors.program import needed_cpus

    folder: RunFolder | None = None

    def gone() -> str:
        console.stop()
        if folder is None or not (folder.has_state or folder.start.exists()):
            return "Nothing was saved. Next: start again"
        what = "A warm start"
        if folder.has_state:
            what = f"Step {json.loads(folder.state.read_text(encoding='utf-8'))['step']}"
        return f"{what} is saved. Next: the same command with {_again(folder)}"

    dashboard = cluster.connect(cfg.ray, needed_cpus(scene.cfg), gone, object_store(scene.cfg))
    try:
        end_politely()  # Ray puts its own handler there, which prints a stack
        with _explained():
            plan = placement.planned(scene.cfg)
        folder = runfolder.open_run(cfg, config_name)
        step = runfolder.step_of(cfg.resume)
        if step is not None:
            go_back(folder, step)
        say(f"run folder: {folder.path}")
        if dashboard:
            say(f"dashboard: http://{dashboard}\nmetrics: {metrics.endpoint()}")
        warmup.take(courses, folder, console, f"the same command with {_again(folder)}")
        code = play(scene, folder, console, plan)
        end_politely()  # what heard signals in the loop was its own
        from ssp.telemetry.spent import spent
        from ssp.views.board.saved import leave_page

        console.say(spent(folder, len(plan.used()), len(plan.nodes)))
        # once the actors are gone: a large ledger takes its time
        console.say("\n".join(leave_page(folder)))
        return code
    finally:
        console.stop()
        # What is said of an actor that died names its log.
        cluster.disconnect(keep=folder is not None and (folder.path / deaths.FILE).exists())


def _checked(cfg: Config, config_name: str, console: Console) -> tuple[Scene, list[Course]] | None:
    """What a run is played with, and the warm starts that it begins with; None where nothing is
    left to play. InputError for all that is refused: GPUs, memory and what is missing at once,
    before any data is read."""
    from actors import cluster
    from launch import warmup
    from ssp.capacity import needs
    from ssp.capacity.placement import machine, make, short
    from ssp.config.rules import refused
    from ssp.record import runfolder
    from ssp.selfplay.checkpoint import check_resumable, nothing_left
    from ssp.selfplay.scene import read_scene
    from ssp.selfplay.settings import warnings
    from ssp.telemetry import wandb_log

    place = runfolder.check(cfg, config_name)
    wandb_log.check(cfg.telemetry.wandb)
    if nothing_left(place, cfg):
        done = f"{place.path} has its {cfg.steps} steps and its last evaluation"
        say(f"nothing is left to play: {done}")
        more = f"more steps={2 * cfg.steps} {_again(place)}"
        say(f"next: ssp compare {place.path}; where the rate is constant, {more}")
        return None
    cluster.environment(cfg.ray)
    cluster.check_sockets()
    # a cluster that is joined is asked for its GPUs once it is
    here = [] if os.environ.get("RAY_ADDRESS") else [machine.here()]
    refusals = []
    if here:
        try:
            with _explained():
                make(cfg, here)
        except InputError as error:
            refusals.append(error)
    seconds = HASTY if refusals else math.inf
    for looks in needs.looks(cfg, seconds).values():
        told = {error.rule for error in refusals}
        refusals += [error for error in refused(cfg, looks) if error.rule not in told]
    refuse(refusals)
    try:
        scene = read_scene(cfg)
    finally:
        console.stop()
    if place.resumed or place.ledger.is_file():
        _warn(check_resumable(place, scene.cfg, scene.targets()))
    courses = warmup.due(scene.cfg, place)
    _warn([*warnings(cfg), *scene.warnings()])
    if here:
        with _explained():
            _warn(short(scene.cfg, make(scene.cfg, here)))
    return scene, courses


def _again(folder: RunFolder) -> str:
    return f"run.dir={folder.path} resume=auto"


@contextmanager
def _explained() -> Iterator[None]:
    """Show a run that does not fit as a table, before the paragraph that says what to type."""
    from ssp.capacity.placement import DoesNotFit

    try:
        yield
    except DoesNotFit as error:
        say(error.table)
        raise


def _warn(lines: Sequence[str]) -> None:
    """Print warnings, once nothing is refused any more: a refusal is one paragraph."""
    for line in lines:
        say(f"warning: {line}", file=sys.stderr)


def play(scene: Scene, folder: RunFolder, console: Console, plan: Plan) -> int:
    """Play the run with actors. Returns the exit code; KeyboardInterrupt where a signal came before
    they were ready."""
    try:
        return asyncio.run(_play(scene, folder, console, plan))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _play(scene: Scene, folder: RunFolder, console: Console, plan: Plan) -> int:
    """Start the actors, run the coordinator, print the table. Ctrl-C finishes what is in flight and
    saves."""
    from actors import deaths
    from actors.metrics import RayMetrics, watch
    from actors.process import started
    from actors.program import Program, computing
    from ssp.selfplay.coordinator import SelfPlay
    from ssp.selfplay.evaluator import Evaluator
    from ssp.selfplay.report import Report
    from ssp.selfplay.rollout_queue import RolloutQueue
    from ssp.selfplay.workers import build

    # A signal never becomes KeyboardInterrupt inside the loop: asyncio prints the stack of a task
    # that ends by it.
    task: Any = asyncio.current_task()
    under_way = SimpleNamespace(stop=task.cancel)
    interrupted = _stop_on_interrupt(under_way, console)
    cfg = scene.cfg
    models = {role: build.model_dir(cfg, role, folder).absolute() for role in cfg.roles}
    program = Program(cfg, folder, models, console.event, plan)
    # Only now: it brings tensorboardX and with that torch, a second that the actors start in.
    from ssp.selfplay.crews.watched import watched
    from ssp.telemetry.display import Display

    metrics = RayMetrics(folder.name)
    display = Display(cfg, folder, console, {"Ray metrics": metrics.write})
    queues: dict[str, RolloutQueue] = {}  # once the game is there
    live = watch(metrics, display.activity, program, queues)
    watching = asyncio.create_task(deaths.surely("live metrics", live, display.event))
    try:
        display.event(f"{len(program.actors)} actors are starting")
        await program.ready()
        started()
        report = Report(display, scene.oracle, computing(cfg), cfg.spec, display.earlier)
        cast = watched(program.cast, display.activity, cfg)
        game = SelfPlay(cfg, cast, folder, scene.targets(), report, Evaluator(cfg, scene.sets))
        queues |= game.queues
        under_way.stop = game.stop
        async with deaths.watched(
            folder.path / deaths.FILE, cfg.placement.restarts, program, display.event
        ):
            await game.run()
        display.finish()
        return INTERRUPTED if interrupted else 0
    finally:
        watching.cancel()
        display.close()
        program.end()


def _stop_on_interrupt(game: Any, display: Any) -> list[int]:
    """Let the first Ctrl-C, SIGTERM or closed terminal call `game.stop` in the loop: the run ends
    saved. The second one ends the process, whatever the loop is doing."""
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def handle() -> None:
        seen.append(signal.SIGINT)
        if len(seen) > 1:
            display.stop()
            os._exit(INTERRUPTED)
        display.event(
            "stopping: the run finishes and saves what is in flight; Ctrl-C again ends it at once"
        )
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: game.stop())  # as it is when the loop comes to it

    hear((signal.SIGINT, signal.SIGTERM), handle)
    on_hangup(handle)
    return seen


def flags(parser: Parser) -> None:
    """The options of `ssp train`."""
    parser.epilog = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    said = "print actors, placement, memory and config, and exit"
    parser.add_argument("--dry-run", action="store_true", help=said)
    said = "the recipe in small: a tiny policy and world, 2 steps"
    parser.add_argument("--tiny", action="store_true", help=said)


if __name__ == "__main__":
    raise SystemExit(run(main))

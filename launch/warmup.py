"""`ssp warmup`: teach a policy from traces before it plays (supervised fine-tuning), and write it
as a model folder; and the same for `ssp train`, whose run starts from it.

All is checked before anything starts; the folder is whole at every moment; Ctrl-C and SIGTERM leave
the policy as it is by then, from which the same command goes on."""

import asyncio
import fcntl
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors import cluster
from launch.cli import Parser, end_politely, on_hangup, parse, run
from ssp.base import models
from ssp.base.episode import PROPOSER, ROLES, SOLVER, Episode
from ssp.base.errors import Fault, SspError, hold, holding
from ssp.base.printable import say
from ssp.config.crews import apart, warmed
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.referee.referee import VERIFIERS
from ssp.game.world import files
from ssp.learning.warmup import loop, traces
from ssp.learning.warmup.loop import Saves, began, fingerprint, finished
from ssp.record import runfolder
from ssp.record.manifest import check_files
from ssp.selfplay.workers import build
from ssp.telemetry.console import Console

COPIES = 8
"""How often a folder holds the weights, in float32: a save and the one before it, each with two
moments, and the weights after two epochs."""
UNUSED = ("referee.verifier=none", "referee.evidence=none", "referee.rules=[]")
"""A warm start asks no referee, so nothing of it can be wrong."""
ALL = "all"
"""The `--role` that means one policy of all roles: the solver's model and learner."""


@dataclass(frozen=True)
class Course:
    """A warm start whose settings and traces were checked. The learner of `role` makes it, by the
    recipe in `cfg`, from the model in `folder`; or, where it `goes_on`, from what the course before
    it made."""

    cfg: Config
    role: str
    folder: Path
    episodes: list[Episode]
    saves: Saves
    goes_on: bool = False


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns the exit code."""
    summary = "Teach a policy from traces, and write it as a model folder."
    parsed = parse(argv, "warmup", summary, flags)
    cfg = replace(parsed, overrides=[*parsed.overrides, *UNUSED]).load()
    taught = parsed.flags.role
    played = f"{taught}, but game.questions={cfg.game.questions}"
    hold(taught in (ALL, *cfg.roles), "--role plays", played, "leave it out")
    out = models.resolve(parsed.flags.out or f"runs/warmup-{taught}", "--out")
    if out.exists():
        began(out)  # InputError unless it is an interrupted warm start's
    out.parent.mkdir(parents=True, exist_ok=True)
    mine = out.with_name(f".{out.name}.lock")
    with mine.open("a") as lock:
        rule = "one warm start at a time fills a folder"
        with holding(BlockingIOError, rule, lambda _: out, "wait, or set --out"):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            # What sets no number of its own computes on one thread; before torch is imported.
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            end_politely()
            course = prepare(cfg, taught, out)
            start(course)
        finally:
            mine.unlink(missing_ok=True)
    whose = "defaults" if taught == ALL else taught
    say(f"policy: {out}\nnext: ssp train --config {parsed.config} {whose}.model={out}")
    return 0


def start(course: Course) -> None:
    """Teach the course on a cluster, and leave that."""
    cfg = course.cfg
    ranks = cfg.block(course.role).learner.ranks
    cluster.environment(cfg.ray)
    cluster.connect(cfg.ray, cfg.placement.cpus * ranks)
    try:
        end_politely()  # Ray puts its own handler there, which prints a stack
        teach(course, Console(), "the same command")
    finally:
        cluster.disconnect()


def due(cfg: Config, run: runfolder.RunFolder) -> list[Course]:
    """The courses that a run takes before its game, and has not taken yet: one of all roles, and an
    epoch of the traces for the proposer alone where there are any. InputError for what the game
    could not go on from."""
    if cfg.warmup.warms and run.start.exists():
        for role in warmed(cfg):
            build.model_dir(cfg, role, run)
    if not cfg.warmup.warms or run.has_state:
        return []
    courses = [] if finished(run.start) else [prepare(cfg, ALL, run.start)]
    data = _data(cfg)
    begun = run.proposer_start.exists()
    owed = apart(cfg) and not finished(run.proposer_start) and not data.is_dir()
    if owed and (begun or any(trace.alone for trace in traces.read(data))):
        once = replace(cfg, warmup=replace(cfg.warmup, epochs=1))
        course = prepare(once, PROPOSER, run.proposer_start, alone=True)
        courses.append(replace(course, goes_on=True))
    return courses


def take(courses: Sequence[Course], run: runfolder.RunFolder, console: Console, again: str) -> None:
    """Take the courses that were `due`, into the run's folder. `again`: the command that goes on
    with them."""
    for course in courses:
        if course.goes_on:
            course = replace(course, folder=run.start)
        teach(course, console, again)


def prepare(cfg: Config, taught: str, out: Path, alone: bool = False) -> Course:
    """Check the warm start of the role `taught`, or of `ALL`, which is saved to `out`. `alone`: on
    the traces for that role alone. InputError for what it cannot do."""
    role = SOLVER if taught == ALL else taught
    rule = "a warm start learns from warmup.data"
    hold(cfg.warmup.data, rule, "none is set", "type warmup.data=traces.jsonl")
    rule = "a warm start has an epoch at least"
    hold(cfg.warmup.warms, rule, "warmup.epochs=0", "set warmup.epochs=1")
    build.check_learners(cfg, [role])
    folder = build.model_dir(cfg, role)
    check_files(folder)
    for name in warmed(cfg) if taught == ALL else (taught,):
        build.check_model(cfg, name, folder)
    episodes = read(cfg, taught, folder, alone)

    # The other role learns nothing meanwhile, so that it shares no cores.
    blocks = {
        name: replace(block, policy="frozen", warmup_steps=0) for name, block in cfg.blocks.items()
    }
    own = blocks[role] = loop.recipe(cfg.block(role), cfg.warmup.lr)
    course = fingerprint(cfg, cfg.warmup, role, episodes)
    saves = Saves(out, {"role": role, **protocols.get(cfg.protocol).mark}, course)
    saves.begun()  # InputError for that of another course

    model = sum(file.stat().st_size for file in folder.iterdir())
    there = sum(file.stat().st_size for file in saves.files())
    shape = models.read_json(folder / "config.json")
    widened = 1 if shape.get("dtype", shape.get("torch_dtype")) == "float32" else 2
    copies = 2 if own.learner.lora.rank else COPIES * widened
    runfolder.check_space(out, model * copies - there)
    steps = loop.steps(len(episodes), cfg.warmup)
    taught_cfg = replace(cfg, steps=steps, blocks=blocks)
    return Course(taught_cfg, role, folder.absolute(), episodes, saves)


def _data(cfg: Config) -> Path:
    return models.resolve(files.resolve(cfg.warmup.data, "traces"), "warmup.data")


def read(cfg: Config, taught: str, folder: Path, alone: bool = False) -> list[Episode]:
    """The episodes of `warmup.data` for the role `taught`, or for all that start from one model: of
    a file of traces, or the good ones of a run. `ALL` leaves out traces for a role `alone`, and
    has the verifier's, which reads what a proposer writes. InputError for anything else."""
    verifiers = VERIFIERS if cfg.asks else ()
    roles = (*warmed(cfg), *verifiers) if taught == ALL else (taught,)
    renderers = {}
    for role in roles:
        plays = role in ROLES
        renderers[role] = build.renderer(cfg, role if plays else SOLVER, folder, plays=plays)
    data = _data(cfg)
    if data.is_dir():
        return traces.of_run(data, {role: renderers[role] for role in ROLES if role in roles})

    there = traces.read(data)
    if alone:
        wanted = [trace for trace in there if trace.alone]
    else:
        wanted = [trace for trace in there if taught != ALL or not trace.alone]
    episodes = []
    for role, renderer in renderers.items():
        limits = cfg.block(role).limits.at(None) if role in ROLES else traces.verifies(cfg.referee)
        mine = [trace for trace in wanted if trace.role == role]
        episodes += traces.episodes(mine, renderer, limits, cfg.retriever.topk)
    rule = f"warmup.data holds traces of: {', '.join(roles)}"
    hold(episodes, rule, f"only of: {traces.kinds(there)}", "give another --role, or file")
    return episodes


def teach(course: Course, console: Console, again: str) -> None:
    """Teach the policy on the cluster that was joined, saving as it goes. `again`: the command that
    goes on from there."""
    saves = course.saves
    begun = course.saves.begun()
    size = f"{len(course.episodes)} episodes of {loop.tokens(course.episodes)} tokens"
    said = f"{size}, {course.cfg.steps} updates at most"
    if begun is not None:
        said += f"; it goes on from update {begun[0]}, in {saves.out}"
    say(said)
    try:
        taught = asyncio.run(_taught(course, console, begun[0] if begun else 0))
    except Fault as fault:  # its learner has died
        there = f", from {saves.out}" if saves.out.exists() else ""
        lost = f"the warm start's learner is lost: {fault}"
        raise SspError(f"{lost}. Next: {again} goes on{there}") from fault
    except (KeyboardInterrupt, asyncio.CancelledError):
        if saves.out.exists():
            say(f"! the policy so far is {saves.out}; {again} goes on from there")
        raise KeyboardInterrupt from None
    end_politely()  # the loop that has ended took its handlers along
    said = f"{taught.steps} updates on {taught.learned} episodes"
    if taught.before is not None:
        said += f"; held-out {taught.before:.4f} -> {taught.after:.4f} nats a token"
    say(said)


async def _taught(course: Course, console: Console, done: int) -> loop.Summary:
    """Start the learner, train, end it. `done`: updates before this start."""
    from actors import learners
    from actors.crew import Patience

    # SIGTERM, and a closed terminal, are Ctrl-C, which cancels this task. (A shell has its
    # background jobs ignore SIGINT.)
    task: Any = asyncio.current_task()
    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGTERM, task.cancel)
    on_hangup(lambda: running.call_soon_threadsafe(task.cancel))
    cfg = course.cfg
    role = course.role
    name = f"warmup-{os.getpid()}-learner-{role}"
    gpus = math.ceil(cfg.placement.learner_gpus)

    def options(rank: int) -> dict[str, Any]:
        return {"name": f"{name}-{rank}", "num_cpus": cfg.placement.cpus, "num_gpus": gpus}

    patience = Patience(cfg.placement.call_timeout, cfg.ray.start_timeout)
    crew = learners.LearnerCrew(cfg, role, course.folder, name, options, patience, console.event)
    try:
        await crew.ready()
        console.start(cfg.steps, done)
        return await loop.train(
            crew.first, course.episodes, cfg.warmup, cfg.seed, console.update, course.saves
        )
    finally:
        console.stop()
        crew.end()


def flags(parser: Parser) -> None:
    """The options of `ssp warmup`."""
    said = f"whose policy, prompts and learner ({ALL}, the default: one policy of all roles)"
    parser.add_argument("--role", choices=(ALL, *ROLES), default=ALL, help=said)
    said = "the policy's new folder (default: runs/warmup-ROLE)"
    parser.add_argument("--out", default="", metavar="DIR", help=said)


if __name__ == "__main__":
    raise SystemExit(run(main))

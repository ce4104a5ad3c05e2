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
from ssp.base.errors import Fault, InputError, SspError, hold, holding
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
"""A save and the one before it, weights and two moments each, and the weights after two epochs, in
float32."""
UNUSED = ("referee.verifier=none", "referee.evidence=none", "referee.rules=[]")
"""A warm start asks no referee, so nothing of it can be wrong."""
ALL = "all"
"""What `--role` says for one policy of all roles: the solver's model and learner."""


@dataclass(frozen=True)
class Course:
    """A warm start whose settings and traces were checked. `cfg`: with the recipe of `role`, whose
    learner makes it from the model in `folder`, or where it `goes_on` from what the course before
    it made."""

    cfg: Config
    role: str
    folder: Path
    episodes: list[Episode]
    saves: Saves
    goes_on: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    parsed = parse(
        argv, "warmup", "Teach a policy from traces, and write it as a model folder.", _flags
    )
    cfg, taught = replace(parsed, overrides=[*parsed.overrides, *UNUSED]).load(), parsed.flags.role
    if taught not in (ALL, *cfg.roles):
        raise InputError(
            "--role plays", f"{taught}, but game.questions={cfg.game.questions}", "leave it out"
        )
    out = models.resolve(parsed.flags.out or f"runs/warmup-{taught}", "--out")
    if out.exists():
        began(out)  # InputError unless it is an interrupted warm start's
    out.parent.mkdir(parents=True, exist_ok=True)
    mine = out.with_name(f".{out.name}.lock")
    with mine.open("a") as lock:
        with holding(
            BlockingIOError,
            "one warm start at a time fills a folder",
            lambda _: out,
            "wait, or set --out",
        ):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            _make(cfg, taught, out)
        finally:
            mine.unlink(missing_ok=True)
    whose = "defaults" if taught == ALL else taught
    say(f"policy: {out}\nnext: ssp train --config {parsed.config} {whose}.model={out}")
    return 0


def _make(cfg: Config, taught: str, out: Path) -> None:
    # What sets no number of its own computes on one thread; before torch is imported anywhere.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    end_politely()
    course = prepare(cfg, taught, out)
    cluster.environment(cfg.ray)
    cluster.connect(cfg.ray, cfg.placement.cpus * course.cfg.block(course.role).learner.ranks)
    try:
        end_politely()  # Ray puts its own handler there, which prints a stack
        teach(course, Console(), "the same command")
    finally:
        cluster.disconnect()


def due(cfg: Config, run: runfolder.RunFolder) -> list[Course]:
    """The courses that a run takes before its game, and has not taken yet: one of all roles, and
    where there are traces of the proposer alone an epoch of these. InputError for what the game
    could not go on from."""
    if cfg.warmup.data and run.start.exists():
        for role in warmed(cfg):
            build.model_dir(cfg, role, run)
    if not cfg.warmup.data or run.has_state:
        return []
    courses = [] if finished(run.start) else [prepare(cfg, ALL, run.start)]
    data, begun = _data(cfg), run.proposer_start.exists()
    owed = apart(cfg) and not finished(run.proposer_start) and not data.is_dir()
    if owed and (begun or any(trace.alone for trace in traces.read(data))):
        once = replace(cfg, warmup=replace(cfg.warmup, epochs=1))
        courses.append(
            replace(prepare(once, PROPOSER, run.proposer_start, alone=True), goes_on=True)
        )
    return courses


def take(courses: Sequence[Course], run: runfolder.RunFolder, console: Console, again: str) -> None:
    """What was `due`, into the run's folder."""
    for course in courses:
        teach(replace(course, folder=run.start) if course.goes_on else course, console, again)


def prepare(cfg: Config, taught: str, out: Path, alone: bool = False) -> Course:
    """The warm start of the role `taught`, or of `ALL`, that is saved to `out`; `alone`: on the
    traces for that role alone. InputError for what it cannot do."""
    role = SOLVER if taught == ALL else taught
    # The other role learns nothing meanwhile, so that it shares no cores.
    blocks = {
        name: replace(block, policy="frozen", warmup_steps=0) for name, block in cfg.blocks.items()
    }
    hold(
        cfg.warmup.data,
        "a warm start learns from warmup.data",
        "none is set",
        "type warmup.data=traces.jsonl",
    )
    build.check_learners(cfg, [role])
    folder = build.model_dir(cfg, role)
    check_files(folder)
    for name in warmed(cfg) if taught == ALL else (taught,):
        build.check_model(cfg, name, folder)
    episodes = read(cfg, taught, folder, alone)
    steps = loop.steps(len(episodes), cfg.warmup)
    blocks[role] = own = loop.recipe(cfg.block(role), cfg.warmup.lr)
    what = fingerprint(cfg, cfg.warmup, role, episodes)
    saves = Saves(out, {"role": role, **protocols.get(cfg.protocol).mark}, what)
    saves.begun()  # InputError for that of another course
    whole, there = (
        sum(file.stat().st_size for file in files) for files in (folder.iterdir(), saves.files())
    )
    shape = models.read_json(folder / "config.json")
    wide = 1 if shape.get("dtype", shape.get("torch_dtype")) == "float32" else 2
    runfolder.check_space(out, whole * (2 if own.learner.lora.rank else COPIES * wide) - there)
    return Course(
        replace(cfg, steps=steps, blocks=blocks), role, folder.absolute(), episodes, saves
    )


def _data(cfg: Config) -> Path:
    return models.resolve(files.resolve(cfg.warmup.data, "traces"), "warmup.data")


def read(cfg: Config, taught: str, folder: Path, alone: bool = False) -> list[Episode]:
    """The episodes of `warmup.data` for the role `taught`, or of all that start from one model (for
    a role `alone` are not theirs; a verifier reads what a proposer writes): traces, or the good
    ones of a run. InputError for anything else."""
    verifiers = VERIFIERS if PROPOSER in cfg.roles else ()
    roles = (*warmed(cfg), *verifiers) if taught == ALL else (taught,)
    renderers = {
        role: build.renderer(cfg, role if role in ROLES else SOLVER, folder, plays=role in ROLES)
        for role in roles
    }
    data = _data(cfg)
    if data.is_dir():
        return traces.of_run(data, {role: renderers[role] for role in ROLES if role in roles})
    there, episodes = traces.read(data), list[Episode]()
    told = [one for one in there if (one.alone if alone else taught != ALL or not one.alone)]
    for role, renderer in renderers.items():
        limits = cfg.block(role).limits.at(None) if role in ROLES else traces.verifies(cfg.referee)
        mine = [trace for trace in told if trace.role == role]
        episodes += traces.episodes(mine, renderer, limits, cfg.retriever.topk)
    found = (
        "only of:"
        f" {', '.join(sorted({f'{one.role}, alone' if one.alone else one.role for one in there}))}"
    )
    hold(
        episodes,
        f"warmup.data holds traces of: {', '.join(roles)}",
        found,
        "give another --role, or file",
    )
    return episodes


def teach(course: Course, console: Console, again: str) -> None:
    """Make it on the cluster that was joined, saving as it goes. `again`: what goes on from
    there."""
    saves, begun = course.saves, course.saves.begun()
    goes_on = "" if begun is None else f"; it goes on from update {begun[0]}, in {saves.out}"
    size = f"{len(course.episodes)} episodes of {loop.tokens(course.episodes)} tokens"
    say(f"{size}, {course.cfg.steps} updates at most{goes_on}")
    try:
        made = asyncio.run(_taught(course, console, begun[0] if begun else 0))
    except Fault as fault:  # its learner has died
        there = f", from {saves.out}" if saves.out.exists() else ""
        raise SspError(
            f"the warm start's learner is lost: {fault}. Next: {again} goes on{there}"
        ) from fault
    except (KeyboardInterrupt, asyncio.CancelledError):
        if saves.out.exists():
            say(f"! the policy so far is {saves.out}; {again} goes on from there")
        raise KeyboardInterrupt from None
    end_politely()  # the loop that has ended took its handlers along
    heldout = (
        ""
        if made.before is None
        else f"; held-out {made.before:.4f} -> {made.after:.4f} nats a token"
    )
    say(f"{made.steps} updates on {made.learned} episodes{heldout}")


async def _taught(course: Course, console: Console, done: int) -> loop.Summary:
    from actors import learners
    from actors.crew import Patience

    # SIGTERM, and a closed terminal, are Ctrl-C, which cancels this task. (A shell has its
    # background jobs ignore SIGINT.)
    task, own = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    own.add_signal_handler(signal.SIGTERM, task.cancel)
    on_hangup(lambda: own.call_soon_threadsafe(task.cancel))
    cfg, role = course.cfg, course.role
    name, gpus = f"warmup-{os.getpid()}-learner-{role}", math.ceil(cfg.placement.learner_gpus)

    def options(rank: int) -> dict[str, Any]:
        return {"name": f"{name}-{rank}", "num_cpus": cfg.placement.cpus, "num_gpus": gpus}

    patience = Patience(cfg.placement.call_timeout, cfg.ray.start_timeout)
    made = learners.LearnerCrew(cfg, role, course.folder, name, options, patience, console.event)
    try:
        await made.ready()
        console.start(cfg.steps, done)
        return await loop.train(
            made.first, course.episodes, cfg.warmup, cfg.seed, console.update, course.saves
        )
    finally:
        console.stop()
        made.end()


def _flags(parser: Parser) -> None:
    said = f"whose policy, prompts and learner ({ALL}, the default: one policy of all roles)"
    parser.add_argument("--role", choices=(ALL, *ROLES), default=ALL, help=said)
    parser.add_argument(
        "--out",
        default="",
        metavar="DIR",
        help="the policy's new folder (default: runs/warmup-ROLE)",
    )


if __name__ == "__main__":
    raise SystemExit(run(main))

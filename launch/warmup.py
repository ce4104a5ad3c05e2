"""`ssp warmup`: teach a policy from traces before it plays (supervised fine-tuning), and write it as a model folder.

All is checked before anything starts; the folder is whole at every moment; Ctrl-C and SIGTERM leave the policy as it is by
then, from which the same command goes on.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.cli import Parser, end_politely, on_hangup, parse, run, whole
from ssp.base import models
from ssp.base.episode import PROPOSER, ROLES, SOLVER, Episode
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.learning.warmup import loop, traces
from ssp.learning.warmup.loop import Saves, began, fingerprint
from ssp.record import runfolder
from ssp.record.manifest import check_files
from ssp.selfplay.workers import build
from ssp.telemetry.console import Console

COPIES = 6
"""A save and the one before it: weights and two moments each, in float32."""
UNUSED = ("referee.verifier=none", "referee.evidence=none", "referee.rules=[]")
"""A warm start asks no referee, so nothing of it can be wrong."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    parsed = parse(argv, "warmup", "Teach a policy from traces, and write it as a model folder.", _flags)
    cfg, role = replace(parsed, overrides=[*parsed.overrides, *UNUSED]).load(), parsed.flags.role
    if role not in cfg.roles:
        raise InputError("--role is one that plays", f"{role}, but game.questions={cfg.game.questions}", "leave it out")
    course = loop.WarmupConfig(parsed.flags.epochs, parsed.flags.batch)
    out = models.resolve(parsed.flags.out or f"runs/warmup-{role}", "--out")
    if out.exists():
        began(out)  # InputError unless it is an interrupted warm start's
    out.parent.mkdir(parents=True, exist_ok=True)
    # What sets no number of its own computes on one thread; before torch is imported anywhere.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for other in set(cfg.roles) - {role}:
        cfg.block(other).policy = "frozen"  # so that it shares no cores
    end_politely()
    build.check_learners(cfg, [role])
    folder = build.model_dir(cfg, role)
    check_files(folder)
    episodes = read(cfg, role, folder, parsed.flags.data)
    taught: dict[str, Any] = {"steps": loop.steps(len(episodes), course), role: loop.recipe(cfg.block(role))}
    what = fingerprint(cfg, course, role, episodes)
    saves = Saves(out, {"role": role, **protocols.get(cfg.protocol).mark}, what)
    begun, whole = saves.begun(), sum(file.stat().st_size for file in folder.iterdir())
    cfg = replace(cfg, **taught)
    runfolder.check_space(out, whole * (2 if cfg.block(role).learner.lora.rank else COPIES))
    goes_on = "" if begun is None else f"; it goes on from update {begun[0]}, in {out}"
    say(f"{len(episodes)} episodes of {loop.tokens(episodes)} tokens, {cfg.steps} updates{goes_on}")
    summary = _run(cfg, course, role, folder, episodes, saves)
    heldout = "" if summary.before is None else f"; held-out {summary.before:.4f} -> {summary.after:.4f} nats a token"
    say(f"{summary.steps} updates on {summary.learned} episodes{heldout}")
    say(f"policy: {out}\nnext: ssp train --config {parsed.config} {role}.model={out}")
    return 0


def read(cfg: Config, role: str, folder: Path, given: str) -> list[Episode]:
    """The episodes of `role` that are `given`: traces, or the good ones of a run. InputError for anything else."""
    renderer, limits = build.renderer(cfg, role, folder), cfg.block(role).limits.at(None)
    data = models.resolve(given, "--data")
    if data.is_dir():
        return traces.of_run(data, role, renderer)
    found = [trace for trace in traces.read(data) if trace.role == role]
    if not found:
        other = PROPOSER if role == SOLVER else SOLVER
        raise InputError(f"--data holds traces of the {role}", f"only of the {other}", f"add --role {other}")
    return traces.episodes(found, renderer, limits, cfg.retriever.topk)


def _run(
    cfg: Config, course: loop.WarmupConfig, role: str, folder: Path, episodes: list[Episode], saves: Saves
) -> loop.Summary:
    """Join or start a cluster, and train there; its actors end with the connection."""
    from actors import cluster

    learner, gpus = cfg.block(role).learner, math.ceil(cfg.placement.learner_gpus)
    cluster.environment(cfg.ray)
    cluster.connect(cfg.ray, cfg.placement.cpus * learner.ranks)
    try:
        end_politely()  # Ray puts its own handler there, which prints a stack
        return asyncio.run(_train(cfg, course, role, folder, episodes, saves, gpus))
    finally:
        cluster.disconnect()


async def _train(
    cfg: Config, course: loop.WarmupConfig, role: str, folder: Path, episodes: list[Episode], saves: Saves, gpus: int
) -> loop.Summary:
    from actors import learners
    from actors.crew import Patience

    # SIGTERM, and a closed terminal, are Ctrl-C, which cancels this task.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os.kill, os.getpid(), signal.SIGINT)
    on_hangup(lambda: os.kill(os.getpid(), signal.SIGINT))
    console = Console()
    name = f"warmup-{os.getpid()}-learner-{role}"

    def options(rank: int) -> dict[str, Any]:
        return {"name": f"{name}-{rank}", "num_cpus": cfg.placement.cpus, "num_gpus": gpus}

    patience = Patience(cfg.placement.call_timeout, cfg.ray.start_timeout)
    made = learners.LearnerCrew(cfg, role, folder, name, options, patience, console.event)
    await made.ready()
    console.start(cfg.steps, began(saves.out)[0] if saves.out.exists() else 0)
    try:
        return await loop.train(made.first, episodes, course, cfg.seed, console.update, saves)
    except asyncio.CancelledError:
        if saves.out.exists():
            console.event(f"the policy so far is {saves.out}; the same command goes on from there")
        raise
    finally:
        console.stop()


def _flags(parser: Parser) -> None:
    parser.add_argument("--role", choices=ROLES, default=SOLVER, help="whose policy, prompts and learner")
    parser.add_argument("--data", required=True, help="traces (jsonl), or a run's folder")
    parser.add_argument("--epochs", type=whole(1), default=1, help="passes over them (default 1)")
    parser.add_argument("--batch", type=whole(1), default=32, help="episodes an update (default 32)")
    parser.add_argument("--out", default="", metavar="DIR", help="the policy's new folder (default: runs/warmup-ROLE)")


if __name__ == "__main__":
    raise SystemExit(run(main))

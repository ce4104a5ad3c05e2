"""`ssp warmup`: teach a policy from traces before it plays (supervised fine-tuning), and write it as a model folder.

Owns the command's order: read and check everything, then start the learner, then train, then write. Promises that nothing
is started for input that will be refused, that the folder appears whole or not at all, and that Ctrl-C and SIGTERM end what
was started. Refuses to go on from the middle: a warm start is made again.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from launch.cli import Parser, end_politely, parse
from ssp import build, protocols, runfolder
from ssp.config.schema import Config
from ssp.episode import PROPOSER, ROLES, SOLVER
from ssp.errors import Fault, InputError
from ssp.warmup import loop, runs, traces

if TYPE_CHECKING:
    from ssp.episode import Episode
    from ssp.selfplay.crew import Crew


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    parsed = parse(argv, "warmup", "Teach a policy from traces, and write it as a model folder.", _flags)
    cfg, role = parsed.load(), parsed.flags.role
    if role not in cfg.roles:
        raise InputError("--role is one that plays", f"{role}, but game.questions={cfg.game.questions}", "leave it out")
    if not cfg.warmup.data:
        raise InputError("warmup.data names traces (jsonl) or a run's folder", "''", "set warmup.data=FILE")
    out = _out(parsed.flags.out, role)
    # Actors share the cores: one thread a process, set before torch is imported anywhere.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    end_politely()
    build.check_learners(cfg, [role])
    folder = build.model_dir(cfg, role)
    episodes = read(cfg, role, folder)
    taught: dict[str, Any] = {"steps": loop.steps(len(episodes), cfg.warmup), role: loop.recipe(cfg.block(role))}
    cfg = replace(cfg, **taught)
    runfolder.check_space(out, sum(file.stat().st_size for file in folder.iterdir()))
    summary = _run(cfg, role, folder, episodes, out)
    console = Console(highlight=False, soft_wrap=True)
    heldout = "" if summary.before is None else f"; held-out {summary.before:.4f} -> {summary.after:.4f} nats a token"
    console.print(f"{summary.steps} updates on {summary.learned} episodes{heldout}")
    console.print(f"policy: {out}\nnext: ssp train --config {parsed.config} {role}.model={out}")
    return 0


def read(cfg: Config, role: str, folder: Path) -> list[Episode]:
    """The episodes that `warmup.data` stands for, of `role`. InputError for what is not that, or too few to learn."""
    renderer, limits = build.renderer(cfg, role, folder), cfg.block(role).limits.at(None)
    data = runfolder.resolve(cfg.warmup.data, "warmup.data")
    if data.is_dir():
        return loop.enough(runs.episodes(data, role, cfg.warmup.least_reward, renderer), cfg.warmup)
    found = [trace for trace in traces.read(data) if trace.role == role]
    if not found:
        other = PROPOSER if role == SOLVER else SOLVER
        raise InputError(f"warmup.data holds traces of the {role}", f"only of the {other}", f"add --role {other}")
    return loop.enough(traces.episodes(found, renderer, limits, cfg.retriever.topk), cfg.warmup)


def _run(cfg: Config, role: str, folder: Path, episodes: list[Episode], out: Path) -> loop.Summary:
    """Join or start a cluster, and train there; its actors end with the connection."""
    from actors import cluster

    learner, gpus = cfg.block(role).learner, math.ceil(cfg.placement.learner_gpus)
    cluster.environment(cfg.ray)
    cluster.connect(cfg.ray, cfg.placement.cpus * learner.ranks)
    try:
        end_politely()  # Ray puts its own handler there, which prints a stack
        import ray

        there = ray.cluster_resources().get("GPU", 0)
        if there < gpus * learner.ranks:
            rule = f"the cluster has a GPU for each rank of the {role}'s learner, {gpus * learner.ranks}"
            raise InputError(rule, f"{there:g}", f"set placement.learner_gpus=0, or lower {role}.learner.ranks")
        return asyncio.run(_train(cfg, role, folder, episodes, out, gpus))
    finally:
        cluster.disconnect()


async def _train(cfg: Config, role: str, folder: Path, episodes: list[Episode], out: Path, gpus: int) -> loop.Summary:
    from actors import learners
    from actors.crew import Patience

    console = Console(highlight=False, soft_wrap=True)
    name = f"warmup-{os.getpid()}-learner-{role}"

    def options(rank: int) -> dict[str, Any]:
        return {"name": f"{name}-{rank}", "num_cpus": cfg.placement.cpus, "num_gpus": gpus}

    patience = Patience(cfg.placement.call_timeout, cfg.ray.start_timeout)
    made = learners.make(cfg, role, folder, name, options, patience, console.print)
    await made.ready()
    crew: Crew = made
    lesson = crew, episodes, cfg.warmup, cfg.seed, _teller(console, cfg.steps)
    try:
        summary = await loop.train(*lesson)
    except Fault as fault:
        if not fault.cause.endswith("_memory"):
            raise
        summary = await loop.train(*lesson)  # the ranks begin anew, with half the tokens a micro-batch, as they said
    await crew.call(0, "export", str(out), {"role": role, **protocols.get(cfg.protocol).mark})
    return summary


def _teller(console: Console, steps: int) -> Any:
    every = max(1, steps // 20)

    def tell(step: int, nll: float) -> None:
        if step % every == 0 or step == steps:
            console.print(f"step {step}/{steps}: {nll:.4f} nats a token")

    return tell


def _out(typed: str, role: str) -> Path:
    """Where the policy goes: a folder that is not there yet."""
    out = runfolder.resolve(typed or f"runs/warmup-{role}", "--out")
    if out.exists():
        raise InputError("--out is a folder that does not exist yet", out, "give another one, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _flags(parser: Parser) -> None:
    parser.add_argument("--role", choices=ROLES, default=SOLVER, help="whose policy, prompts and learner")
    parser.add_argument("--out", default="", metavar="DIR", help="the policy's new folder (default: runs/warmup-ROLE)")


if __name__ == "__main__":
    from launch.main import run

    sys.exit(run(main, sys.argv[1:]))

"""Learners of several ranks, in processes of their own: jobs that end killed, and the same jobs gone on with.

`python rankruns.py MODEL OUT PHASE LAYER RANK`: phase `first` trains twice, saves, trains once more and kills itself; phase `again`
loads and trains once. Rank 0 leaves figures and weights of each job in OUT. Before they meet in phase `first`, each rank
does its part of the jobs to compare with, alone.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

BASE = {
    "kl.coef": 0.1,
    "kl.kind": "k3",
    "entropy_coef": 0.01,
    "learner.minibatch": 6,
    "learner.token_budget": 100,
    "learner.lr": 1e-3,
}
ZERO = {"learner.kind": "deepspeed"}
GAE = {"algorithm": "gae", "kl.place": "reward", "kl.kind": "k1", "critic.lr": 1e-3}
EMA = {"kl.ema_tau": 0.5, "kl.ema_every": 1, "kl.target": 0.01}
LORA = {"learner.lora.rank": 4}
AGAIN = {"rehearsal.share": 0.25, "rehearsal.coef": 0.5}

ALONE = {"whole": {}, "gae": GAE, "ema": EMA, "lora": LORA, "again": AGAIN}
"""Settings that one process trains, to compare with."""

JOBS = {
    "zero1": ("whole", {**ZERO, "learner.zero": 1}),
    "zero2": ("whole", {**ZERO, "learner.zero": 2}),
    "zero3": ("whole", {**ZERO, "learner.zero": 3}),
    "zero3-small": ("whole", {**ZERO, "learner.zero": 3, "learner.checkpointing": True, "learner.token_budget": 30}),
    "zero2-host": ("whole", {**ZERO, "learner.zero": 2, "learner.offload": "optimizer"}),
    "zero3-host": ("whole", {**ZERO, "learner.zero": 3, "learner.offload": "all"}),
    "zero2-gae": ("gae", {**ZERO, "learner.zero": 2, **GAE}),
    "zero3-ema": ("ema", {**ZERO, "learner.zero": 3, **EMA}),
    "zero2-lora": ("lora", {**ZERO, "learner.zero": 2, **LORA}),
    "zero3-again": ("again", {**ZERO, "learner.zero": 3, **AGAIN}),
    "zero2-bf16": ("", {**ZERO, "learner.zero": 2, "learner.dtype": "bfloat16", **EMA}),
}
"""What two ranks train: the settings to compare with, and their own."""

NIGHTLY = ("zero1", "zero3-small", "zero2-host")
"""Jobs of the nightly layer: each differs by one setting from one of the others."""


def jobs(layer: str) -> dict[str, tuple[str, dict]]:
    """The jobs of a layer, "ray" or "nightly"."""
    return {name: job for name, job in JOBS.items() if (name in NIGHTLY) is (layer == "nightly")}


TWO = 2


def spawn(model: Path, out: Path, phase: str, layer: str) -> None:
    """Run a phase to its end; AssertionError with what the ranks said when one of them fails."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.getcwd()])}
    arguments = [sys.executable, __file__, str(model), str(out), phase, layer]
    ranks = [
        subprocess.Popen([*arguments, str(rank)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(TWO)
    ]
    said = [process.communicate(timeout=900)[0] for process in ranks]
    wanted = -signal.SIGKILL if phase == "first" else 0
    assert [process.returncode for process in ranks] == [wanted] * TWO, "\n".join(said)


def role(settings):
    from ssp.config.role import RoleConfig

    block = RoleConfig()
    for key, value in {**BASE, **settings}.items():
        *path, last = key.split(".")
        target = block
        for step in path:
            target = getattr(target, step)
        setattr(target, last, value)
    return block


@functools.cache
def batch(model, seed):
    """Twelve made-up episodes in groups of four, sampled by the start model."""
    import numpy as np
    import torch
    from conftest import _episodes
    from transformers import AutoModelForCausalLM

    from ssp.learning.batch import collate
    from ssp.learning.forward import score

    episodes = _episodes(12, seed)
    rewards = [float(r) for r in np.random.default_rng(seed + 1).integers(0, 2, 12)]
    made = collate(episodes, rewards, [e.game for e in episodes])
    with torch.no_grad():
        start = AutoModelForCausalLM.from_pretrained(model).eval()
        made.logprobs[made.mask] = score(start, made.ids, made.mask, 1.0)[0]
    return made


def watched(learner):
    """Largest gradient of a last hidden state that predicts no trained token, and of one that does, from now on."""
    import torch

    masks, pairs = [], []
    learner.policy.register_forward_pre_hook(lambda module, args: masks.append(args[1]))

    def keep(module, args, output):
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state.retain_grad()
            pairs.append((masks[-1], output.last_hidden_state))

    handle = learner.policy.model.base_model.register_forward_hook(keep)

    def read():
        handle.remove()
        off = [hidden.grad[~mask[:, 1:]].abs() for mask, hidden in pairs]
        on = [hidden.grad[mask[:, 1:]].abs() for mask, hidden in pairs]
        return float(torch.cat(off).max()), float(torch.cat(on).max())

    return read


def job(model, out, name, settings, phase, group):
    """One job of a phase; rank 0 writes what came out."""
    import torch
    from conftest import _episodes

    from ssp.learning.learner import PolicyLearner
    from ssp.learning.rehearsal import Rehearsal

    block = role(settings)
    learner, record = PolicyLearner(model, {"solver": block}, ranks=group), {}
    if block.rehearsal.share:
        learner.objectives["solver"].rehearsal = Rehearsal(block, _episodes(10, 9), "solver", 0)
    if phase == "again":
        learner.load(out / f"{name}-saved")
    else:
        read = watched(learner)
        learner.update({"solver": batch(model, 0)})
        record["gradient"] = read()
        learner.update({"solver": batch(model, 1)})
        learner.save(out / f"{name}-saved", {"role": "solver"})
    figures = learner.update({"solver": batch(model, 2)})["solver"]
    weights = learner.weights()
    if group.rank == 0:
        torch.save({"figures": figures, "weights": weights, **record}, out / f"{name}-{phase}.pt")


def main(model: Path, out: Path, phase: str, layer: str, rank: int) -> None:
    from ssp.base.imports import uncollected, without
    from ssp.selfplay.workers.learner import NEEDLESS

    with without(*NEEDLESS), uncollected():  # as a learner's actor does
        import torch

        from ssp.learning import learner  # noqa: F401
        from ssp.learning.backends import ranks

    torch.set_num_threads(1)
    listener, place = None, out / f"{phase}.address"
    if rank == 0:
        listener = socket.create_server((ranks.LOOPBACK, 0))
        place.with_suffix(".tmp").write_text(json.dumps(listener.getsockname()))
        place.with_suffix(".tmp").rename(place)
    if phase == "first":
        alone = {first: ALONE[first] for first, _ in jobs(layer).values() if first}
        for name in [*alone][rank::TWO]:
            job(model, out, name, ALONE[name], phase, ranks.SOLO)
    while not place.exists():
        time.sleep(0.05)
    group = ranks.join(rank, TWO, tuple(json.loads(place.read_text())), 120.0, listener)
    for name, (_, settings) in jobs(layer).items():
        job(model, out, name, settings, phase, group)
    group.total([0.0])
    if phase == "first":
        os.kill(os.getpid(), signal.SIGKILL)
    # gloo's threads would else let go of tensors while the interpreter ends, which aborts the process now and then
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5]))

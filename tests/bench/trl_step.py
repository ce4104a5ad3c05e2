"""One GRPO step of a multi-turn search agent, generation and training, on the work that TRL's trainer is measured on.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python tests/bench/trl_step.py [--mix uniform] [--latency-ms 20] ...

Work of one step: --prompts x --n rollouts, a prompt of --prompt-len tokens, --turns turns of exactly --new-tokens
tokens, an observation of --obs-len tokens between two turns. A random model never calls a tool, so the calls are
forced; with --mix uniform a rollout takes 1 to --turns turns, drawn from a hash of its tokens. Every call is a task of
its own that sleeps --latency-ms; with --lanes above 1 one part of the rollouts generates while another one waits. Then
the rewards, one update of the learner (GRPO, all rollouts in one optimizer step), and its weights into the engine.

Prints `RESULT {json}` with the keys of the side that it is compared with. One thread, unless --threads says more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil  # noqa: E402
import torch  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from ssp.base.episode import Episode, Outcome  # noqa: E402
from ssp.base.tokenlog import Kind  # noqa: E402
from ssp.config.role import RoleConfig  # noqa: E402
from ssp.engines.base import Engine, Sampling  # noqa: E402
from ssp.engines.torch_engine import TorchEngine  # noqa: E402
from ssp.learning.batch import collate  # noqa: E402
from ssp.learning.learner import PolicyLearner  # noqa: E402

VOCAB, SPECIALS, OPEN, CLOSE = 1024, 10, 5, 6
SIZES = {"tiny": (128, 512, 4, 4, 2), "small": (512, 1536, 8, 8, 2)}  # hidden, mlp, layers, heads, kv heads


def main() -> int:
    """Steps, then one line of results."""
    options = read_options()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or random_model(Path(folder), options.size)
        config = RoleConfig(algorithm="grpo", loss="ppo_clip")
        config.learner.lr, config.learner.token_budget = 1e-6, options.tokens
        config.learner.packing, config.learner.dtype = options.packing, options.dtype
        learner = PolicyLearner(model, {"solver": config}, "mini")
        engine = TorchEngine(model, options.engine_dtype or options.dtype)
        runs = [one_step(engine, learner, options, number) for number in range(options.steps)]
    report(options, runs[options.warmup :])
    return 0


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="a Qwen2 folder (default: a random one)")
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--prompt-len", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--obs-len", type=int, default=64)
    parser.add_argument("--mix", default="fixed", choices=["fixed", "uniform"])
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1, help="first steps not counted")
    parser.add_argument("--tokens", type=int, default=4096, help="learner.token_budget")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--engine-dtype", default="", choices=["", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def random_model(folder: Path, size: str) -> Path:
    """A Qwen2 with random weights, as the other side builds it."""
    hidden, mlp, layers, heads, kv = SIZES[size]
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@dataclass
class Run:
    """Wall and CPU seconds of one step and its parts, and what was drawn."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    calls: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    others: float = 0.0


def one_step(engine: Engine, learner: PolicyLearner, options: argparse.Namespace, number: int) -> Run:
    """Rollouts, rewards, update, new weights."""
    run, busy = Run(), machine()
    with timed(run, "step"):
        episodes = first_turns(options, number)
        with timed(run, "gen"):
            asyncio.run(play(engine, episodes, options, number, run))
        rewards = [sum(episode.log.ids[-8:]) % 7 / 7 for episode in episodes]
        batch = collate(episodes, rewards, [episode.game for episode in episodes])
        with timed(run, "train"):
            run.figures = learner.update({"solver": batch})["solver"]
        engine.load(learner.weights(), learner.step)
    run.others = max(0.0, (machine() - busy - run.cpu["step"]) / run.seconds["step"])
    return run


def first_turns(options: argparse.Namespace, number: int) -> list[Episode]:
    """--n episodes for each of --prompts new prompts."""
    draw = random.Random(number)
    prompts = [[draw.randrange(SPECIALS, VOCAB) for _ in range(options.prompt_len)] for _ in range(options.prompts)]
    episodes = []
    for which, prompt in enumerate(prompts):
        for attempt in range(options.n):
            episode = Episode(f"{number}-{which}-{attempt}", f"{which}", "solver", attempt, outcome=Outcome.SCORED)
            episode.log.append(Kind.PROMPT, prompt)
            episodes.append(episode)
    return episodes


async def play(engine: Engine, episodes: list[Episode], options: argparse.Namespace, number: int, run: Run) -> None:
    """All turns of all episodes, lane by lane: a lane whose searches are under way leaves the engine to the others."""
    turn = asyncio.Lock()
    size = -(-len(episodes) // options.lanes)
    lanes = [range(start, min(start + size, len(episodes))) for start in range(0, len(episodes), size)]

    async def lane(which: range) -> None:
        slots = dict(zip(which, engine.open([number * len(episodes) + i for i in which]), strict=True))
        pending = {i: episodes[i].log.ids[:] for i in which}
        sampling = Sampling(temperature=1.0, max_tokens=options.new_tokens)
        for count in range(1, options.turns + 1):
            async with turn:
                drawn = engine.step([slots[i] for i in pending], list(pending.values()), sampling)
                await asyncio.sleep(0)
            for i, made in zip(pending, drawn, strict=True):
                episodes[i].log.append_model(made.ids, made.logprobs, made.version)
                run.tokens += len(made.ids)
            going = [i for i, made in zip(pending, drawn, strict=True) if more_turns(made.ids, count, options)]
            queries = [episodes[i].log.ids[-options.new_tokens :] for i in going]
            found = await asyncio.gather(*(search(query, options) for query in queries))
            run.calls += len(found)
            for i, ids in zip(going, found, strict=True):
                episodes[i].log.append(Kind.OBSERVATION, ids)
            pending = dict(zip(going, found, strict=True))
            if not pending:
                break
        engine.close(list(slots.values()))

    await asyncio.gather(*(lane(which) for which in lanes))


async def search(query: list[int], options: argparse.Namespace) -> list[int]:
    """What a search server without load answers."""
    if options.latency_ms:
        await asyncio.sleep(options.latency_ms / 1000)
    draw = random.Random(hash(tuple(query)))
    return [OPEN, *(draw.randrange(SPECIALS, VOCAB) for _ in range(options.obs_len - 2)), CLOSE]


def more_turns(ids: list[int], turn: int, options: argparse.Namespace) -> bool:
    """Whether a rollout goes on after turn number `turn` (from 1): the other side's rule."""
    if turn >= options.turns or options.mix == "fixed":
        return turn < options.turns
    drawn = (sum(ids) * 2654435761) & 0xFFFFFFFF
    left = options.turns - turn
    return (drawn >> 8) % 1000 < 1000 * left // (left + 1)


@contextmanager
def timed(run: Run, name: str) -> Iterator[None]:
    """Wall and CPU seconds of this process meanwhile."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    run.seconds[name], run.cpu[name] = time.perf_counter() - wall, time.process_time() - cpu


def machine() -> float:
    """CPU seconds of all processes since the machine started."""
    busy = psutil.cpu_times()
    return float(sum(busy) - busy.idle - getattr(busy, "iowait", 0.0))


def report(options: argparse.Namespace, runs: list[Run]) -> None:
    """One line, medians."""

    def middle(values: Iterator[float]) -> float:
        return statistics.median(values)

    total = options.prompts * options.n
    middles = SimpleNamespace(
        gen=middle(run.seconds["gen"] for run in runs), step=middle(run.seconds["step"] for run in runs)
    )
    tokens = middle(run.tokens for run in runs)
    found = {
        "rollouts_per_s": total / middles.gen,
        "rollouts_per_s_step": total / middles.step,
        "gen_tokens_per_s": tokens / middles.gen,
        "rollout_s": middles.gen,
        "step_s": middles.step,
        "train_s": middle(run.seconds["train"] for run in runs),
        "gen_cpu_s": middle(run.cpu["gen"] for run in runs),
        "step_cpu_s": middle(run.cpu["step"] for run in runs),
        "train_cpu_s": middle(run.cpu["train"] for run in runs),
        "others_cores": middle(run.others for run in runs),
        "gen_tokens": tokens,
        "calls": middle(run.calls for run in runs),
        "mismatch_max": max(run.figures["logprob_mismatch/max"] for run in runs),
        "all_steps": [round(run.seconds["step"], 3) for run in runs],
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    names = ("size", "mix", "latency_ms", "lanes", "packing", "dtype", "engine_dtype", "tokens", "threads")
    settings = {name: getattr(options, name) for name in names}
    rounded = {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in found.items()}
    print("RESULT " + json.dumps({"name": "ssp_grpo", **settings, "rollouts": total, **rounded}), flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""How far from the machine's limit are the embedded engine and the learner, and what is between?

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python tests/bench/roofline.py [--models tiny] [--rounds 3] [--ops 10]

The work is that of `trl_step.py`: rollouts of some turns, several of which share a prompt, then one update of the learner,
as the learner's actor computes it (`devices.keep_pages`). Rounds give its CPU seconds. As many rounds, in turn with
these, count and time each operator that torch starts, backward too (medians); the products of one are then timed alone,
in their shapes and layouts. On a loaded machine a round and its parts may differ by more than what `python` says.

- `alone`: seconds of the matrix products (weights times activations) by themselves; `rate`: GFLOP/s of these.
- `products`, `attention`, `memory`: seconds of the operators in the work: products, what mixes values by scores, and all
  others, which pass over memory (norms, positions, activations, softmax, gathers, Adam).
- `python`: the rest of the round: Python, autograd's bookkeeping, the way to an operator.
- `share`: `alone` / the round: what is reached of what the products alone allow.

bfloat16 is measured where the CPU multiplies it. Prints a table, and `RESULT {json}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from trl_step import Run, first_turns, play, random_model  # noqa: E402

from ssp.base import devices, models, products  # noqa: E402
from ssp.config.role import RoleConfig  # noqa: E402
from ssp.engines.torch_engine import TorchEngine  # noqa: E402
from ssp.learning.batch import collate  # noqa: E402
from ssp.learning.learner import PolicyLearner  # noqa: E402

MODELS = {  # prompts, rollouts that share one, turns
    "tiny": (32, 8, 3),
    "smollm2-135m": (1, 4, 2),
}
ONEDNN = "_linear_pointwise"
PRODUCTS = ("mm", "addmm", "matmul", ONEDNN)
ATTENTION = ("bmm", "baddbmm", "softmax", "_softmax", "_softmax_backward_data")
PARTS = ("products", "attention", "memory")


class Layout(NamedTuple):
    """A tensor without its numbers; a weight that oneDNN has laid out has no strides."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        return cls(tensor.shape, () if tensor.is_mkldnn else tensor.stride(), tensor.dtype)


Product = tuple[Any, tuple[Any, ...]]
"""An operator, and its arguments, of tensors their layouts."""


@dataclass
class Clock(TorchDispatchMode):
    """Seconds of this thread in each operator, and how often each product was made."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)
    products: Counter[Product] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and take note."""
        name = func.overloadpacket.__name__
        started = time.thread_time()
        made = func(*args, **(kwargs or {}))
        self.seconds[name] += time.thread_time() - started
        self.calls[name] += 1
        if part_of(name) == "products":
            self.products[func, tuple(map(described, args))] += 1
        return made

    def part(self, name: str) -> float:
        """Seconds in the operators of one of `PARTS`."""
        return sum(seconds for operator, seconds in self.seconds.items() if part_of(operator) == name)


def described(arg: Any) -> Any:
    """An argument as part of a `Product`."""
    if isinstance(arg, torch.Tensor):
        return Layout.of(arg)
    return tuple(arg) if isinstance(arg, list) else arg


def part_of(name: str) -> str:
    """The one of `PARTS` that an operator counts to."""
    if name in PRODUCTS:
        return "products"
    return "attention" if name in ATTENTION or "scaled_dot_product" in name else "memory"


def alone(counts: Counter[Product]) -> tuple[float, float]:
    """Seconds, and operations, of these products by themselves: each kind as its median over five turns."""
    made = {}
    operations = 0.0
    taken = defaultdict[Product, list[float]](list)
    for turn in range(6):  # kind after kind, so that none finds its tensors in the processor's small caches
        for product in counts:
            if product not in made:
                made[product] = [like(arg) if isinstance(arg, Layout) else arg for arg in product[1]]
            started = time.thread_time()
            result = product[0](*made[product])
            taken[product].append(time.thread_time() - started)
            if not turn:
                operations += counts[product] * 2.0 * result.numel() * inner(product)
    seconds = sum(count * statistics.median(taken[product][1:]) for product, count in counts.items())
    return seconds, operations


def inner(product: Product) -> int:
    """The length of the sums that a product is made of."""
    operator, args = product
    layouts = [arg for arg in args if isinstance(arg, Layout)]
    first = layouts[0] if operator.overloadpacket.__name__ == ONEDNN else layouts[-2]
    return first.shape[-1]


def like(layout: Layout) -> torch.Tensor:
    """Random numbers in that layout."""
    if not layout.stride:
        return products.laid(torch.randn(layout.shape).to(layout.dtype))
    last = sum((size - 1) * step for size, step in zip(layout.shape, layout.stride, strict=True))
    return torch.randn(last + 1).to(layout.dtype).as_strided(layout.shape, layout.stride)


@dataclass
class Measured:
    """What one kind of work costs: CPU seconds of the rounds, and the operators of those that were looked into."""

    rounds: list[float]
    clocks: list[Clock]
    alone: float
    operations: float

    def figures(self) -> dict[str, Any]:
        """The columns."""
        whole = statistics.median(self.rounds)
        parts = {name: statistics.median(clock.part(name) for clock in self.clocks) for name in PARTS}
        shares = [self.alone / seconds for seconds in self.rounds]
        return {
            "cpu_s": whole,
            "alone": self.alone,
            "rate": self.operations / self.alone / 1e9,
            **parts,
            "python": whole - sum(parts.values()),
            "share": statistics.median(shares),
            "share_low": min(shares),
            "share_high": max(shares),
        }


def measure(work: Callable[[], object], rounds: int) -> Measured:
    """`work` some times, as it is and with each operator timed in turn, then its products alone."""
    work()  # warms up
    seconds = []
    clocks = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
        clock = Clock()
        with clock:
            work()
        clocks.append(clock)
    return Measured(seconds, clocks, *alone(clocks[0].products))


def measured(folder: Path, dtype: str, options: argparse.Namespace) -> dict[str, Measured]:
    """The engine, and the learner with rows side by side and padded, on the rollouts that the engine made."""
    engine = TorchEngine(folder, dtype)
    episodes = first_turns(options, 0)

    def generate() -> None:
        nonlocal episodes
        episodes = first_turns(options, 0)
        asyncio.run(play(engine, episodes, options, 0, Run()))

    results = {"engine": measure(generate, options.rounds)}
    rewards = [sum(episode.log.ids[-8:]) % 7 / 7 for episode in episodes]
    batch = collate(episodes, rewards, [episode.game for episode in episodes])
    for name in options.learners:
        config = RoleConfig(algorithm="grpo", loss="ppo_clip")
        config.learner.lr, config.learner.token_budget = 1e-6, options.tokens
        config.learner.packing, config.learner.dtype = name == "packed", dtype
        learner = PolicyLearner(folder, {"solver": config}, "mini")
        update = partial(learner.update, {"solver": batch})
        results[f"learner, {name}"] = measure(update, options.rounds)
    return results


def main() -> int:
    """One line for each model, type and kind of work."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--learners", nargs="*", choices=["packed", "padded"], default=["packed", "padded"])
    parser.add_argument("--prompts", type=int, help="default: the model's, 32 and 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096, help="of one micro-batch, learner.token_budget")
    parser.add_argument("--ops", type=int, default=0, help="print so many of the slowest operators of each line")
    options = parser.parse_args()
    options.lanes, options.latency_ms, options.mix = 1, 0.0, "fixed"
    options.prompt_len, options.new_tokens, options.obs_len = 64, 32, 64
    torch.set_num_threads(1)
    devices.keep_pages()
    dtypes = ["float32", "bfloat16"] if devices.dtype("auto", "cpu") == "bfloat16" else ["float32"]
    asked = options.prompts

    columns = ("cpu_s", "alone", "rate", *PARTS, "python", "share")
    print(f"{'model':13} {'type':9} {'work':16}" + "".join(f"{name:>10}" for name in columns))
    lines = []
    for model in options.models:
        prompts, options.n, options.turns = MODELS[model]
        options.prompts = asked or prompts
        with tempfile.TemporaryDirectory() as made:
            folder = random_model(Path(made), model) if model == "tiny" else models.folder(model, "the model")
            for dtype in dtypes:
                for work, one in measured(folder, dtype, options).items():
                    figures = one.figures()
                    print(f"{model:13} {dtype:9} {work:16}" + "".join(f"{figures[name]:10.3g}" for name in columns))
                    slowest = sorted(one.clocks[0].seconds.items(), key=lambda pair: -pair[1])
                    for name, seconds in slowest[: options.ops]:
                        print(f"    {seconds:8.3f} s {one.clocks[0].calls[name]:7} {name}")
                    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
                    lines.append({"model": model, "dtype": dtype, "work": work, **rounded})
                    sys.stdout.flush()
    print("RESULT " + json.dumps({"load": os.getloadavg()[0], "dtypes": dtypes, "lines": lines}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

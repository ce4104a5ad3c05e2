"""How fast does the learner compute, and how much of the machine is that?

    OMP_NUM_THREADS=1 python tests/bench/learner_speed.py [--sizes 1M 25M 100M] [--rounds 5] [--tokens 4096]

For each random Qwen2 shape, forward and backward of one micro-batch in every variant, in turn, with a product of large
float32 matrices between them; the best round of each counts, by the CPU seconds of this thread. Work is what the model
needs (`ssp.learning.figures`: 6 operations a weight and trained token, plus attention; padding and recomputation count
nothing). `share`: of the float32 matrix rate of the same minute, so that of bfloat16 can exceed 1. `mismatch`: 99th
percentile of |log-prob - the padded float32 log-prob|.

Rows are ragged (uniform in half the longest to the longest), with a third of the tokens trained; groups of `--group`
rows share their prompt, a fifth of the longest row.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ssp.config.role import LearnerConfig  # noqa: E402
from ssp.learning.batch import lengths, micro_batches  # noqa: E402
from ssp.learning.figures import Work  # noqa: E402
from ssp.learning.forward import score  # noqa: E402
from ssp.learning.packing import prepare  # noqa: E402

SHAPES = {  # words, hidden, mlp, layers, heads, kv heads, longest row
    "tiny": (550, 64, 128, 2, 4, 2, 450),
    "1M": (1024, 128, 512, 4, 4, 2, 288),
    "25M": (8192, 512, 1536, 8, 8, 2, 512),
    "100M": (16384, 768, 2304, 12, 12, 4, 512),
}
VARIANTS = ("padded", "packed", "packed bfloat16", "padded bfloat16", "packed checkpointing")
PROBE = 1024


def main() -> int:
    """Print one line a shape and variant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096, help="of one micro-batch, learner.token_budget")
    parser.add_argument("--group", type=int, default=1, help="rows that share a prompt")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':6} {'variant':21} {'tokens/s':>9} {'GFLOP/s':>8} {'share':>6} {'mismatch':>9}  rounds' spread")
    for size in options.sizes:
        measure(size, options.rounds, options.tokens, options.group, options.variants)
    return 0


def measure(size: str, rounds: int, tokens: int, group: int, variants: list[str]) -> None:
    """One shape in all variants."""
    words, hidden, mlp, layers, heads, kv, longest = SHAPES[size]
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        tie_word_embeddings=True,
    )
    plain = Qwen2ForCausalLM(config).eval()
    ids, mask = rows(max(group, 2 * tokens // longest), longest, words, group)
    ends, work = lengths(mask), Work(plain)
    models: dict[str, PreTrainedModel] = {}
    parts = {}
    for name in variants:
        models[name] = twin(plain)
        packing, checkpointing = name.startswith("packed"), name.endswith("checkpointing")
        prepare(models[name], LearnerConfig(packing=packing, checkpointing=checkpointing))
        parts[name] = micro_batches(ends, torch.arange(len(ids)), tokens, ids if packing else None)
    times: dict[str, list[float]] = {name: [] for name in variants}
    rates: list[float] = []
    logprobs: dict[str, Tensor] = {}
    for number in range(rounds + 1):  # the first one only warms up
        for name in variants:
            part = parts[name][-1]
            taken, found = timed(
                lambda name=name, part=part: step(models[name], ids[part], mask[part], "bfloat16" in name)
            )
            left, right = torch.randn(PROBE, PROBE), torch.randn(PROBE, PROBE)
            probe, _ = timed(lambda left=left, right=right: left @ right)
            if number:
                done = work.operations(ends[part].tolist(), int(mask[part].sum()), backward=True)
                times[name].append(taken / done)
                rates.append(2 * PROBE**3 / probe)
            elif "padded" in variants:
                with torch.no_grad():
                    logprobs[name] = (found - score(models["padded"], ids[part], mask[part], 1.0)[0]).abs()
    for name in variants:
        part = parts[name][-1]
        done = work.operations(ends[part].tolist(), int(mask[part].sum()), backward=True)
        best, spread = min(times[name]), statistics.median(times[name]) / min(times[name])
        mismatch = f"{float(logprobs[name].quantile(0.99)):9.1e}" if name in logprobs else " " * 9
        print(
            f"{size:6} {name:21} {int(ends[part].sum()) / (best * done):9.0f} {1e-9 / best:8.1f}"
            f" {1 / best / max(rates):6.2f} {mismatch}  {spread:.2f}",
            flush=True,
        )
    print(
        f"{size:6} matrix rate {max(rates) / 1e9:.1f} GFLOP/s, median {statistics.median(rates) / 1e9:.1f}", flush=True
    )


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights, not a second copy of them, with modules of its own."""
    kept = {id(parameter): parameter for parameter in model.parameters()}
    return copy.deepcopy(model, kept)


def rows(count: int, longest: int, words: int, group: int) -> tuple[Tensor, Tensor]:
    """ids and mask [count, longest]: prompt, then model tokens and observations in turn, 1 to 2."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, words, (count, longest), generator=generator)
    mask = torch.zeros(count, longest, dtype=torch.bool)
    prompt = longest // 5
    for row in range(count):
        ids[row, :prompt] = ids[row - row % group, :prompt]
        end = int(torch.randint(longest // 2, longest + 1, (1,), generator=generator))
        place = torch.arange(longest - prompt) % (longest // 5)
        mask[row, prompt:] = (place < longest // 10) & (torch.arange(prompt, longest) < end)
    return ids, mask


def step(model: PreTrainedModel, ids: Tensor, mask: Tensor, low: bool) -> Tensor:
    """Forward and backward of a micro-batch as the learner's; its log-probs."""
    length = int(lengths(mask).max())
    with torch.autocast("cpu", torch.bfloat16) if low else contextlib.nullcontext():
        logprobs, _, _ = score(model, ids[:, :length], mask[:, :length], 1.0)
    logprobs.sum().backward()
    model.zero_grad(set_to_none=True)
    return logprobs.detach()


def timed(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """CPU seconds of this thread, and the result."""
    started = time.thread_time()
    result = work()
    return time.thread_time() - started, result


if __name__ == "__main__":
    sys.exit(main())

"""The token law for agents that nobody here wrote: what is trained is what was sampled, where it was sampled.

    python tests/bench/agent_law.py --episodes 1000

A plain loop over the `openai` SDK, and the agents of `tests/rollout/frameworks.py` (those that are installed) play so many episodes
each of three turns with a search after each, every second turn streamed, against the torch engine with a small random Qwen2
(float32, temperature 1). Of every episode each model token's log-prob is computed again in its own row by transformers; the
batch's mask is compared with the log's. Prints a line an agent: episodes, voids, mistakes of
the policy, model tokens, rows, and the largest difference (1e-4 is allowed).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Not this folder: `agents` there is no SDK.
sys.path[:1] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "rollout")]

import families  # noqa: E402
import torch  # noqa: E402
from frameworks import AGENTS, PACKAGES  # noqa: E402
from scripts import Books, limits, tasks  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from ssp.base.episode import Outcome  # noqa: E402
from ssp.base.tokenlog import Kind  # noqa: E402
from ssp.engines.torch_engine import ContinuousEngine  # noqa: E402
from ssp.game import protocols  # noqa: E402
from ssp.game.protocols.renderer import Renderer  # noqa: E402
from ssp.game.rollout import Settings, agents, rollout  # noqa: E402
from ssp.learning.batch import collate  # noqa: E402

AT_ONCE, CLOSE = 50, 1e-4


def check(model: Any, episodes: list[Any]) -> tuple[int, int, float]:
    """Model tokens, rows, and the largest difference of a log-prob. AssertionError where another token would be trained."""
    tokens = rows = 0
    largest = 0.0
    for episode in episodes:
        episode.outcome = Outcome.SCORED
        log, views = episode.log, episode.log.views()
        batch = collate([episode], [1.0], [0])
        assert int(batch.mask.sum()) == log.kinds.count(int(Kind.MODEL)) and len(batch) == len(views)
        for row, (positions, mask) in enumerate(views):
            ids = torch.tensor([[log.ids[at] for at in positions]])
            assert batch.ids[row, : len(positions)].tolist() == ids[0].tolist()
            assert batch.mask[row, : len(positions)].tolist() == mask.tolist()
            with torch.no_grad():
                logprobs = torch.log_softmax(model(ids).logits[0].float(), -1)
            for place in mask.nonzero()[0].tolist():
                at = positions[place]
                largest = max(largest, abs(float(logprobs[place - 1, log.ids[at]]) - log.logprobs[at]))
                tokens += 1
        rows += len(views)
    assert largest < CLOSE, largest
    return tokens, rows, largest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*", help="names of agents; all by default")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first episode's seed, to play the rest another time")
    args = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = families.qwen()
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=4096, **size)
    model = Qwen2ForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        engine = ContinuousEngine(Path(folder))
    renderer = Renderer(protocols.get("chat-tools"), tokenizer)
    for solve in AGENTS:
        if args.only and solve.__name__ not in args.only:
            continue
        name = PACKAGES.get(solve.__name__, solve.__name__)
        if importlib.util.find_spec(name) is None:
            print(f"{solve.__name__}: {name} is not installed")
            continue
        agent = agents.find("bench", lambda _, solve=solve: solve, 300.0)
        settings = Settings(limits(searches=9, turn_tokens=16, total_tokens=3900), 1.0, 3, agent=agent)
        done = tokens = rows = voids = mistakes = 0
        largest = 0.0
        while done < args.episodes:
            given = tasks(min(AT_ONCE, args.episodes - done))
            given = [replace(task, seed=args.first + done + number) for number, task in enumerate(given)]
            episodes, _ = rollout(engine, renderer, Books(), given, settings)
            voids += sum(episode.outcome is Outcome.VOID for episode in episodes)
            mistakes += sum(episode.stopped == "mistake" for episode in episodes)
            found = check(model, [episode for episode in episodes if episode.outcome is not Outcome.VOID])
            done, tokens, rows, largest = (
                done + len(episodes), tokens + found[0], rows + found[1], max(largest, found[2])
            )  # fmt: skip
        print(
            f"{solve.__name__}: {done} episodes, {voids} void, {mistakes} mistakes, {tokens} model tokens, {rows} rows,"
            f" {largest:.1e}",
            flush=True,
        )
    engine.stop()


if __name__ == "__main__":
    main()

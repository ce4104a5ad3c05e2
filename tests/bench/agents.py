"""Agents beside the built-in loop, on the same work: 64 episodes at once of a policy of the English world.

    python tests/bench/agents.py POLICY          # a model folder that plays the protocol `english`

The loop, and an agent over the `openai` client that does what the loop does (one context: `/v1/completions`, search, go on), answer
the same 64 held-out questions, greedy, with the same engine settings; arms take turns. Prints one line `RESULT {json}`: sampled
tokens a second of wall time and of CPU time by arm, their ratios by pair, exact match, and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from ssp.base.episode import SOLVER, Task  # noqa: E402
from ssp.base.tokenlog import Kind  # noqa: E402
from ssp.data.readers import read_questions  # noqa: E402
from ssp.engines.torch_engine import ContinuousEngine, TorchEngine  # noqa: E402
from ssp.game import corpora  # noqa: E402
from ssp.game.judge import same  # noqa: E402
from ssp.game.rollout import Settings, agents, rollout  # noqa: E402
from ssp.selfplay.scene import concrete  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402
from ssp.selfplay.workers import build  # noqa: E402


def looped(renderer: Any, turns: int) -> Any:
    """What the built-in loop does, over the endpoint."""

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        prompt = renderer.prompt(SOLVER, {"question": question})
        for _ in range(turns + 1):
            said = await client.completions.create(model=model, prompt=prompt, stop=["</search>", "</answer>"])
            text = said.choices[0].text
            if "<search>" not in text:
                return text.partition("<answer>")[2].strip()
            found = await tools.call("search", {"query": text.partition("<search>")[2].strip()})
            prompt += f"{text}</search>\n<information>\n{found}\n</information>\n"
        return ""

    return solve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy", type=Path)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cfg = concrete(load("english", ["warmup.data=", f"defaults.model={args.policy}"]))
    renderer, search = build.renderer(cfg, SOLVER, args.policy), corpora.search(cfg, ["train"])
    asked = list(read_questions(cfg.data.eval[0].file))[:: 768 // args.episodes][: args.episodes]
    tasks = [
        Task(f"t{i}", f"g{i}", SOLVER, 0, i, {"question": question.question}, "train")
        for i, question in enumerate(asked)
    ]
    plain = build.settings(cfg, SOLVER, 0.0)
    agent = agents.find("bench", lambda _: looped(renderer, cfg.solver.limits.searches), 600.0)
    arms = {
        "loop": (TorchEngine(args.policy, "bfloat16"), plain),
        "loop, free": (ContinuousEngine(args.policy, "bfloat16"), plain),
        "agent": (ContinuousEngine(args.policy, "bfloat16"), Settings(plain.limits, 0.0, plain.topk, agent=agent)),
    }
    told: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for _ in range(args.rounds):
        for name, (engine, settings) in arms.items():
            began, cpu = time.perf_counter(), time.process_time()
            episodes, _ = rollout(engine, renderer, search, tasks, settings)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            tokens = sum(episode.log.count(Kind.MODEL) for episode in episodes)
            right = sum(same(e.final or "", q.answers) for e, q in zip(episodes, asked, strict=True))
            rows = sum(len(episode.log.views()) for episode in episodes)
            told[name].append(
                {"wall": tokens / wall, "cpu": tokens / cpu, "right": right, "tokens": tokens, "rows": rows}
            )
            print(name, told[name][-1], flush=True)
    result: dict[str, Any] = {
        "episodes": len(tasks),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for part in ("wall", "cpu"):
        for name in ("loop", "loop, free"):
            ratios = [a[part] / b[part] for a, b in zip(told["agent"], told[name], strict=True)]
            result[f"agent / {name}, {part}"] = [
                round(x, 3) for x in (statistics.median(ratios), min(ratios), max(ratios))
            ]
    print("RESULT", json.dumps({**result, "arms": told}))


if __name__ == "__main__":
    main()

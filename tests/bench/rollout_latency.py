"""Rollouts against a search service with latency: how much of it shows.

    python tests/bench/rollout_latency.py --latency-ms 20 --policy tiny

Starts a search server (HTTP on loopback, its answers held back by --latency-ms), plays rounds of --episodes episodes over
it, and prints one line `RESULT {json}` with rollouts a second of wall clock (median over the rounds), its spread, and CPU
seconds of this process. Pair two of these with a script that runs them in turn.

--policy coldstart is the shipped one, of one token a word; tiny speaks protocol search-r1 in byte pairs, with longer turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ssp.base.episode import SOLVER, Task  # noqa: E402
from ssp.data.readers import read_questions  # noqa: E402
from ssp.game import corpora
from ssp.game.rollout import Search, Settings, rollout  # noqa: E402
from ssp.game.world import files  # noqa: E402
from ssp.search.hits import Answers  # noqa: E402
from ssp.search.router import Options  # noqa: E402
from ssp.search.source import HttpSearch  # noqa: E402
from ssp.selfplay.scene import concrete  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402
from ssp.selfplay.settings.tiny import shrunk  # noqa: E402
from ssp.selfplay.workers import build  # noqa: E402


class Late:
    """A search whose answers take a while longer."""

    def __init__(self, inner: Search, seconds: float) -> None:
        self._inner, self._seconds = inner, seconds

    def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
        found = Answers(self._inner.search(list(queries), k, "train"))
        time.sleep(self._seconds)
        return found


def serve(seconds: float, port: Connection) -> None:
    """The server's process."""
    import uvicorn

    from launch.cli import bind
    from ssp.search.serving.api import SearchApi, Served

    cfg = concrete(load("quickstart", []))
    with bind("127.0.0.1", 0) as listener:
        port.send(listener.getsockname()[1])
        app = SearchApi(3, workers=16)
        app.open(Served(Late(corpora.search(cfg, ["train"]), seconds)))
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--policy", choices=("coldstart", "tiny"), default="coldstart")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)

    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(args.latency_ms / 1000, theirs), daemon=True
    )
    server.start()
    try:
        search = HttpSearch(f"http://127.0.0.1:{ours.recv()}", timeout=20.0)
        rates, seconds = play(search, args)
    finally:
        server.terminate()
        server.join()
    figures = {
        "policy": args.policy, "latency_ms": args.latency_ms, "episodes": args.episodes,
        "rollouts_per_s": round(statistics.median(rates), 1),
        "lowest": round(min(rates), 1), "highest": round(max(rates), 1), "cpu_s": round(seconds, 2),
    }  # fmt: skip
    print("RESULT " + json.dumps(figures))


def play(search: Search, args: argparse.Namespace) -> tuple[list[float], float]:
    """Rollouts a second of each round after two for warming up, and CPU seconds of them all."""
    cfg = concrete(load("quickstart", []) if args.policy == "coldstart" else shrunk("search-r1-qwen2.5-3b-ppo", []))
    folder = build.model_dir(cfg, SOLVER)
    engine, renderer = build.engine(cfg.solver, folder), build.renderer(cfg, SOLVER, folder)
    questions = read_questions(files.resolve("world:train", "questions"))
    settings = Settings(cfg.solver.limits, 1.0, cfg.retriever.topk)
    rates, cpu = [], time.process_time()
    for round_ in range(args.rounds + 2):
        tasks = [
            Task(
                f"{i}", f"{i}", SOLVER, 0, 1000 * round_ + i, {"question": questions[(64 * round_ + i) % 500].question}
            )
            for i in range(args.episodes)
        ]
        began = time.perf_counter()
        rollout(engine, renderer, search, tasks, settings)
        rates.append(args.episodes / (time.perf_counter() - began))
    return rates[2:], time.process_time() - cpu


if __name__ == "__main__":
    main()

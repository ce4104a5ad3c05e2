"""BM25 over so many made-up passages of 100 words, and dense indexes of a quarter as many vectors. See growth.py."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

WORDS, VOCABULARY = 100, 500_000
"""Words of a passage, and how many there are; they are as frequent as in English (Zipf)."""
QUERIES, DEPTH = 400, 10
VECTORS, WIDTH = 4, 64
"""Passages for each vector, and numbers of a vector."""
FACTORIES = {"Flat": 0, "IVF256,Flat": 8, "IVF256,PQ8x6": 8}
"""Factory → lists that are looked at. Codes have few bits, since faiss takes a minute of CPU to train 8 of them."""


def measure(passages: int) -> dict[str, float]:
    """Build and ask an index of so many passages."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="growth-", dir=os.environ.get("GROWTH_DIR")) as folder:
        corpus, index = Path(folder) / "corpus.jsonl", Path(folder) / "index"
        write(corpus, passages)
        command = [sys.executable, "-m", "launch.main", "index", "--corpus", str(corpus), "--out", str(index)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures["build CPU s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        figures["build MB"] = after.ru_maxrss / 1e3
        figures["corpus MB"] = corpus.stat().st_size / 1e6
        figures["disk MB"] = sum(file.stat().st_size for file in index.rglob("*") if file.is_file()) / 1e6
        done = subprocess.run([sys.executable, __file__, str(index)], check=True, stdout=subprocess.PIPE, text=True)
        figures |= json.loads(done.stdout.splitlines()[-1])
    return figures | vectors(passages // VECTORS)


def drawn(rng: np.random.Generator, number: int) -> np.ndarray:
    """Words by their rank, the frequent ones first."""
    return (VOCABULARY ** rng.random(number)).astype(np.int64)


def write(corpus: Path, passages: int) -> None:
    """A corpus file."""
    rng = np.random.default_rng(0)
    with corpus.open("w", encoding="utf-8") as file:
        for start in range(0, passages, 10_000):
            for row in range(start, min(passages, start + 10_000)):
                text = " ".join(f"w{word}" for word in drawn(rng, WORDS).tolist())
                file.write(f'{{"id": "{row}", "contents": "\\"Title {row}\\"\\n{text}"}}\n')


def ask(index: Path) -> None:
    """Open an index in this process and ask it; prints the figures."""
    from ssp.search.hits import Knobs
    from ssp.search.index.store import open_shard
    from ssp.search.shard import BM25

    began = time.perf_counter()
    shard = open_shard(index)
    shard.search(["w100 w1000"], None, DEPTH, Knobs(), BM25)
    figures = {"start s": time.perf_counter() - began}
    rng = np.random.default_rng(1)
    walls = []
    spent = time.process_time()
    for _ in range(QUERIES):
        words = " ".join(f"w{word}" for word in drawn(rng, 6).tolist())
        began = time.perf_counter()
        shard.search([words], None, DEPTH, Knobs(), BM25)
        walls.append(1e3 * (time.perf_counter() - began))
    figures["CPU ms a query"] = 1e3 * (time.process_time() - spent) / QUERIES
    walls.sort()
    figures |= {"p50 ms": walls[QUERIES // 2], "p99 ms": walls[int(0.99 * QUERIES)]}
    figures["server MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(figures))


def vectors(rows: int) -> dict[str, float]:
    """Seconds of build, MB, CPU of a query and recall@10 of dense indexes over points around 200 centres."""
    from ssp.search.hits import Knobs
    from tests.bench import index_speed

    index_speed.faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(1)
    points, queries = index_speed.clustered(rows, WIDTH, rng), index_speed.clustered(QUERIES, WIDTH, rng)
    exact = index_speed.FlatIndex(points).search(queries, DEPTH)
    figures = {}
    for factory, lists in FACTORIES.items():
        began = time.process_time()
        index, _, megabytes = index_speed.build(factory, points, index_speed.CONSTRUCTION)
        figures[f"{factory} build CPU s"] = time.process_time() - began
        figures[f"{factory} MB"] = megabytes
        knobs = Knobs(nprobe=lists) if lists else Knobs()
        began = time.process_time()
        answers = index.search(queries, DEPTH, knobs)
        figures[f"{factory} CPU ms a query"] = 1e3 * (time.process_time() - began) / QUERIES
        figures[f"{factory} recall@10"] = index_speed.recall(answers, exact)
    return figures


if __name__ == "__main__":
    ask(Path(sys.argv[1]))

"""What sharding over Ray costs: two shard actors on this machine against the index in this process, the same queries.

    python tests/bench/shard_overhead.py [--rows 100000] [--batch 128] [--rounds 15] [--only bm25|flat]

BM25: `--rows` passages of 60 words. Flat: as many random unit vectors of width 384, queries given as vectors. Both sides
answer `--batch` different queries in one call, turn about, caches off. Prints for each the median milliseconds a batch and
the CPU milliseconds a query (this process and the shards), the ratio, and whether ids, scores and ties are the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE)]

import numpy as np  # noqa: E402
from shardruns import configured, questions, shards, write_corpus  # noqa: E402

from actors.cluster import connect, disconnect  # noqa: E402
from actors.fleet import connect_router  # noqa: E402
from ssp.config.schema import Config  # noqa: E402
from ssp.game import corpora  # noqa: E402
from ssp.search.encoders.families import EncoderSpec  # noqa: E402
from ssp.search.index.builder import IndexPlan, build_index  # noqa: E402
from ssp.search.router import (  # noqa: E402
    Corpus,  # noqa: E402
    LocalFleet,
    Options,
    Router,
)

WIDTH = 384
K = 10


class Given:
    """An encoder that knows the vector of each query."""

    def __init__(self, texts: list[str], vectors: Any) -> None:
        self._vectors = dict(zip(texts, vectors, strict=True))

    def encode_queries(self, texts: Any) -> tuple[Any, dict[str, float]]:
        """`[n, d] float32`."""
        return np.stack([self._vectors[text] for text in texts]), {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("bm25", "flat"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = write_corpus(Path(folder) / "corpus.jsonl", args.rows, 60)
        cfg = configured(file, "ray.dashboard=-1")
        cfg.retriever.max_batch = args.batch
        connect(cfg.ray)
        try:
            for kind in [args.only] if args.only else ["bm25", "flat"]:
                measure(kind, _folder(kind, file, args.rows), cfg, args)
        finally:
            disconnect()


def _folder(kind: str, file: Path, rows: int) -> Path:
    folder = file.parent / kind
    if kind == "bm25":
        build_index(file, folder, IndexPlan())
        return folder
    table = np.random.default_rng(3).standard_normal((rows, WIDTH), dtype=np.float32)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    table[1::1000] = table[::1000][: len(table[1::1000])]  # ties
    np.save(file.parent / "table.npy", table)
    plan = IndexPlan(kind="dense", encoder=EncoderSpec("given"), embedding=file.parent / "table.npy")
    build_index(file, folder, plan, encode=_never)
    return folder


def _never(texts: Any) -> Any:
    raise AssertionError("the vectors are given")


def measure(kind: str, folder: Path, cfg: Config, args: argparse.Namespace) -> None:
    """Both sides in turn, on batches that neither has seen."""
    cfg.data.corpus = str(folder)
    asked = questions(args.batch * args.rounds)
    vectors = np.random.default_rng(4).standard_normal((len(asked), WIDTH), dtype=np.float32)
    if kind == "flat":  # some ask for a row that is there twice
        twice = np.load(folder.parent / "table.npy", mmap_mode="r")[::1000]
        vectors[::50] = twice[np.arange(len(vectors[::50])) % len(twice)]
    encoder = Given(asked, vectors) if kind == "flat" else None
    whole = corpora.shard(folder, cfg.retriever, 0, 1)
    options = Options("dense" if encoder else "bm25")
    alone = Router({"train": Corpus(whole.retriever, LocalFleet([whole]), options, encoder)}, cfg.retriever.cache)
    corpora.encoders = lambda cfg: 0  # the queries' vectors are given
    with shards(cfg, kind) as handles:
        spread = _over_ray(cfg, kind, encoder)
        sides = {"in process": alone, "2 shards": spread}
        for side in sides.values():  # warm
            side.search(asked[: args.batch], K, "train")
        walls: dict[str, list[float]] = {name: [] for name in sides}
        cpus: dict[str, list[float]] = {name: [] for name in sides}
        stages: dict[str, float] = {}
        same = True
        import ray

        pids = ray.get([handle.ping.remote() for handle in handles.values()])
        for start in range(0, len(asked), args.batch):
            some, found = asked[start : start + args.batch], {}
            for name, side in list(sides.items())[:: -1 if start // args.batch % 2 else 1]:
                cpu, began = _cpu(pids), time.perf_counter()
                found[name] = side.search(some, K, "train")
                walls[name].append(time.perf_counter() - began)
                cpus[name].append(_cpu(pids) - cpu)
            for stage, seconds in found["2 shards"].seconds.items():
                stages[stage] = stages.get(stage, 0.0) + 1000 * seconds / args.rounds
            same &= found["in process"] == found["2 shards"]
    wall = {name: 1000 * statistics.median(values) for name, values in walls.items()}
    cpu_ms = {name: 1000 * statistics.mean(values) / args.batch for name, values in cpus.items()}
    print(f"{kind}: {args.rows:,} rows, batch {args.batch}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name in sides:
        low, high = 1000 * min(walls[name]), 1000 * max(walls[name])
        print(f"  {name:<11} {wall[name]:8.1f} ms a batch ({low:.1f} to {high:.1f}), CPU {cpu_ms[name]:.3f} ms a query")
    ratio, quickest = wall["2 shards"] / wall["in process"], min(walls["2 shards"]) / min(walls["in process"])
    print(f"  ratio {ratio:.2f} of the medians, {quickest:.2f} of the quickest; same ids, scores, ties: {same}")
    print("  stages of 2 shards, mean ms: " + ", ".join(f"{name} {ms:.1f}" for name, ms in stages.items()), flush=True)


def _over_ray(cfg: Config, run: str, encoder: Given | None) -> Any:
    router = connect_router(cfg, run)
    router.corpora["train"].encoder = encoder
    return router


def _cpu(pids: list[int]) -> float:
    """CPU seconds of this process and of these."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ticks = sum(sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) for pid in pids)
    return own.ru_utime + own.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

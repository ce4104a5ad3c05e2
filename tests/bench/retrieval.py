"""Search servers side by side under the same load, and an index in this process: the table of figures.

    python tests/bench/retrieval.py --corpus corpus.jsonl --ours http://127.0.0.1:8000 --pid ours=PID \\
        --peer lucene=http://127.0.0.1:8124 --pid lucene=PID
    python tests/bench/retrieval.py --corpus corpus.jsonl --index INDEX [--exact FLAT_INDEX]

It starts no server. Every server answers Search-R1's POST /retrieve over the same corpus. A case is BATCHxCLIENTS: each
client keeps one request of BATCH queries under way (closed loop) for --seconds. For each case ours and the peers are loaded
in turn, --rounds times, with the same queries in a round. A query is --words words of one random document, and
hardly one is asked twice, so a cache of answers gains nothing. The figures of a row are medians over the rounds; a ratio is
ours over the peer's of the same round, as median (lowest..highest). The server's CPU time is that of the process trees of
its pids (several: 12,34, for actors that are no children of the server); `others` is the cores that the rest of the machine
kept busy.

--index asks in this process, one thread: CPU ms a query, ms of each stage, 500 random documents, and with --exact (an exact
index of the same corpus) the share of its best k that is found, and how much faster the index is.

Prints the table, and one line `RESULT {json}` for each row. Exits with 1 when an answer was missing or of a wrong form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

OURS = "ours"
CASES = "1x1,10x1,128x1,1x16,1x64,10x16,10x64"


@dataclass(frozen=True)
class Load:
    """What one server did in one round of one case. Times in ms; `cpu` ms a query, None without a pid."""

    rate: float
    p50: float
    p99: float
    cpu: float | None
    others: float
    wrong: int


class Queries:
    """Endless different queries of words that stand together in a document; the same for the same seed."""

    def __init__(self, corpus: Path, words: int, most: int = 50_000) -> None:
        self._words = words
        with corpus.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for _, line in zip(range(most), lines, strict=False)]
        texts = (row.get("contents") or f"{row['title']} {row['text']}" for row in rows)
        self._documents = [words for text in texts if (words := text.replace('"', " ").split())]

    def drawn(self, seed: str) -> Iterator[str]:
        """A stream of queries."""
        rng = random.Random(seed)
        while True:
            document = rng.choice(self._documents)
            yield " ".join(rng.choices(document, k=self._words))


class Processes:
    """CPU seconds of process trees, also of those that ended since."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]

    def cpu(self) -> float:
        """Seconds so far."""
        total = 0.0
        for root in self._roots:
            for process in [root, *root.children(recursive=True)]:
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += times.user + times.system
        return total


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


async def loaded(
    url: str, processes: Processes | None, batch: int, clients: int, queries: Iterator[str], args: argparse.Namespace
) -> Load:
    """One server under `clients` clients for a while."""
    import aiohttp

    latencies: list[float] = []
    wrong = 0
    headers = {"Content-Type": "application/json"}
    limits = aiohttp.ClientTimeout(total=120)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limits) as session:

        async def one(read: bool = False) -> None:
            nonlocal wrong
            asked = [next(queries) for _ in range(batch)]
            body = json.dumps({"queries": asked, "topk": args.topk, "return_scores": True}).encode()
            began = time.perf_counter()
            async with session.post(url, data=body, headers=headers) as reply:
                data = await reply.read()
            latencies.append(time.perf_counter() - began)
            wrong += reply.status != 200 or (read and not _fits(data, batch, args.topk))

        async def client(until: float) -> None:
            while time.perf_counter() < until:
                await one()

        await one(read=True)
        await asyncio.gather(*[client(time.perf_counter() + args.warm) for _ in range(clients)])
        latencies.clear()
        before, machine, began = processes.cpu() if processes else 0.0, _busy(), time.perf_counter()
        mine = time.process_time()
        await asyncio.gather(*[client(began + args.seconds) for _ in range(clients)])
        wall, mine = time.perf_counter() - began, time.process_time() - mine
        cpu = (processes.cpu() if processes else 0.0) - before
        others = max(0.0, (_busy() - machine - mine - cpu) / wall)
        await one(read=True)
    n = len(latencies[:-1]) * batch
    used = 1000 * cpu / n if processes else None
    ms = [1000 * value for value in latencies[:-1]]
    return Load(n / wall, quantile(ms, 0.5), quantile(ms, 0.99), used, others, wrong)


def _fits(data: bytes, batch: int, topk: int) -> bool:
    """Whether the body is the answer of `batch` queries: lists of up to `topk` documents with scores."""
    try:
        result = json.loads(data)["result"]
        return len(result) == batch and all(
            0 < len(hits) <= topk and all(isinstance(hit["document"], dict) and "score" in hit for hit in hits)
            for hits in result
        )
    except (ValueError, KeyError, TypeError):
        return False


def _busy() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def median(values: Sequence[float | None]) -> float | None:
    """Of the known values; None when one is missing."""
    return None if None in values else statistics.median(values)  # type: ignore[type-var]


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> tuple[float, float, float] | None:
    """Median, lowest and highest of ours over theirs, round by round."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b]
    return (statistics.median(pairs), min(pairs), max(pairs)) if len(pairs) == len(ours) else None


def servers(args: argparse.Namespace, queries: Queries) -> int:
    """The table of the servers; the number of wrong answers."""
    urls = dict([*([(OURS, args.ours)] if args.ours else []), *args.peer])
    pids = {name: Processes([int(pid) for pid in some.split(",")]) for name, some in args.pid}
    print(
        f"{'case':8}{'server':16}{'q/s':>9}{'p50 ms':>10}{'p99 ms':>10}{'CPU ms/q':>10}{'others':>8}   ours/peer",
        end="",
    )
    print(f"\n{'':71}{'q/s':>20}{'p99':>20}{'CPU':>20}")
    wrong = 0
    for case in args.cases.split(","):
        batch, clients = (int(part) for part in case.split("x"))
        rounds: dict[str, list[Load]] = {name: [] for name in urls}
        for number in range(args.rounds):
            for name, url in urls.items():
                stream = queries.drawn(f"{args.seed} {case} {number}")
                target = url.rstrip("/") + "/retrieve"
                rounds[name].append(asyncio.run(loaded(target, pids.get(name), batch, clients, stream, args)))
        for name, loads in rounds.items():
            wrong += sum(load.wrong for load in loads)
            _row(case, name, loads, rounds.get(OURS) if name != OURS else None)
    return wrong


def _row(case: str, name: str, loads: list[Load], ours: list[Load] | None) -> None:
    figures = {key: median([getattr(load, key) for load in loads]) for key in ("rate", "p50", "p99", "cpu", "others")}
    shown = "".join(f" {'-' if value is None else f'{value:.3g}' if value < 100 else f'{value:.0f}':>{width}}"
                    for value, width in zip(figures.values(), (8, 9, 9, 9, 7), strict=True))  # fmt: skip
    over = {}
    if ours:
        over = {
            key: ratios([getattr(a, key) for a in ours], [getattr(b, key) for b in loads])
            for key in ("rate", "p99", "cpu")
        }
        shown += "".join(f"{'-' if r is None else f'{r[0]:.2f} ({r[1]:.2f}..{r[2]:.2f})':>20}" for r in over.values())
    print(f"{case:8}{name:16}{shown}")
    wrong = sum(load.wrong for load in loads)
    row = {"case": case, "server": name, **figures, "wrong": wrong, "ours_over_it": over}
    print("RESULT " + json.dumps(row), file=sys.stderr, flush=True)


def in_process(args: argparse.Namespace, queries: Queries) -> None:
    """The lines of the index, and of the exact one."""
    from ssp.config.schema import Config
    from ssp.game.corpora import search
    from ssp.search.hits import Answers
    from ssp.search.router import Router

    opened: dict[str, Router] = {}
    for name, folder in (("index", args.index), ("exact", args.exact)):
        if folder:
            cfg = Config()
            cfg.data.corpus, cfg.retriever.cache, cfg.retriever.shards = str(folder), 0, 1
            for setting in args.set if name == "index" else ():
                key, value = setting.split("=", 1)
                setattr(cfg.retriever, key, type(getattr(cfg.retriever, key))(value))
            router = search(cfg, ["train"])
            assert isinstance(router, Router)
            opened[name] = router
    print(f"{'index':8}{'batch':>6}{'ms/q':>9}{'CPU ms/q':>10}   stages, ms a query")
    searched: dict[tuple[str, int], float] = {}
    for batch in (1, 10, 128):
        for name, router in opened.items():
            stream, seconds, n = queries.drawn(f"{args.seed} {batch}"), dict[str, float](), 0
            router.search([next(stream) for _ in range(batch)], args.topk, "train")
            began, cpu = time.perf_counter(), time.process_time()
            while (wall := time.perf_counter() - began) < args.seconds:
                answers: Answers = router.search([next(stream) for _ in range(batch)], args.topk, "train")
                n += batch
                for stage, value in answers.seconds.items():
                    seconds[stage] = seconds.get(stage, 0.0) + value
            cpu = time.process_time() - cpu
            stages = {stage: 1000 * value / n for stage, value in seconds.items()}
            words = "  ".join(f"{stage} {value:.4f}" for stage, value in stages.items())
            share = seconds.get("fetch", 0.0) / sum(seconds.values())
            searched[name, batch] = stages["search"]
            print(f"{name:8}{batch:>6}{1000 * wall / n:>9.3f}{1000 * cpu / n:>10.3f}   {words}  (fetch {share:.1%})")
            row: dict[str, Any] = {"index": name, "batch": batch, "ms": 1000 * wall / n, "cpu": 1000 * cpu / n}
            print("RESULT " + json.dumps(row | {"stages_ms": stages}), file=sys.stderr, flush=True)
    _fetch(opened["index"])
    if "exact" in opened:
        asked = [query for query, _ in zip(queries.drawn(f"{args.seed} recall"), range(500), strict=False)]
        found, best = ([{d.id for d in a} for a in r.search(asked, args.k, "train")] for r in opened.values())
        recall = statistics.mean(len(a & b) / max(1, len(b)) for a, b in zip(found, best, strict=True))
        faster = ", ".join(f"{searched['exact', n] / searched['index', n]:.1f}x at batch {n}" for n in (1, 10, 128))
        print(f"search against the exact index: {faster}")
        print(f"recall@{args.k} of the index against the exact one: {recall:.4f} ({len(asked)} queries)")


def _fetch(router: Any) -> None:
    """500 random documents, warm."""
    import numpy as np

    corpus = router.corpora["train"]
    times = []
    for seed in range(5):
        for _ in range(2):
            rows = np.sort(np.random.default_rng(seed).integers(0, corpus.total, 500))
            began = time.perf_counter()
            corpus.fleet.fetch({0: rows})
        times.append(1000 * (time.perf_counter() - began))
    print(f"500 random documents of {corpus.total:,}: {statistics.median(times):.2f} ms")


def main() -> int:
    """Run what the flags name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = {"type": lambda text: tuple(text.split("=", 1)), "action": "append", "default": []}
    parser.add_argument("--corpus", type=Path, required=True, help="jsonl of {id, contents}: queries are drawn from it")
    parser.add_argument("--ours", help="address of our server")
    parser.add_argument("--peer", metavar="NAME=URL", help="another server; may be given again", **named)
    parser.add_argument("--pid", metavar="NAME=PID[,PID]", help="processes of a server, for its CPU time", **named)
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm", type=float, default=1.0, help="seconds of load before the measured ones")
    parser.add_argument("--topk", type=int, default=3)
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the queries (default: another each time)")
    parser.add_argument("--index", type=Path, help="index folder or corpus file to search in this process")
    parser.add_argument("--exact", type=Path, help="exact index of the same corpus, for recall")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="retriever.KEY for --index")
    parser.add_argument("--k", type=int, default=10, help="documents that recall is counted over")
    args = parser.parse_args()
    queries = Queries(args.corpus, args.words)
    wrong = servers(args, queries) if args.ours or args.peer else 0
    if args.index:
        in_process(args, queries)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

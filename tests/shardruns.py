"""Retriever actors for tests and benchmarks: a corpus, its shards on a cluster, and many clients while one is killed.

Owns the truth: what every set of shards must answer, from the same shards in this process. Promises to end what it
started. Refuses to time anything for an assertion.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.hits import Knobs, merge
from ssp.selfplay.settings import load

K = 5


def write_corpus(path: Path, rows: int, words: int = 40, seed: int = 0) -> Path:
    """`rows` passages of `words` words, drawn as words of a language are: few often, many seldom."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for i in range(rows):
            text = " ".join(f"w{min(int(draw.paretovariate(0.7)), 30_000)}" for _ in range(words))
            file.write(json.dumps({"id": f"d{i}", "contents": f'"Title {i}"\n{text}'}) + "\n")
    return path


def questions(n: int, words: int = 5, seed: int = 1) -> list[str]:
    """`n` different queries over the words of such a corpus."""
    draw = random.Random(seed)
    return [
        f"q{i} " + " ".join(f"w{min(int(draw.paretovariate(0.7)), 30_000)}" for _ in range(words)) for i in range(n)
    ]


def configured(corpus: Path, *settings: str) -> Config:
    """Quickstart's settings over one corpus, every search made anew."""
    cfg = load("quickstart", [f"data.corpus={corpus}", *settings])
    cfg.data.eval, cfg.retriever.cache = [], 0
    return cfg


@contextmanager
def shards(cfg: Config, run: str) -> Iterator[dict[tuple[int, int], Any]]:
    """Every shard actor of a run, by (shard, replica); encoders, where the corpus asks them, by (-1, replica)."""
    import ray

    from actors.members import ENCODER, SHARD, actor_name, names
    from actors.retriever import EncoderActor, ShardActor, placed

    start: Any = ShardActor
    encode: Any = EncoderActor
    block = cfg.retriever
    handles = {
        (i, r): start.options(name=actor_name(run, SHARD, i, r), **placed(cfg)).remote(cfg, i)
        for i in range(block.shards)
        for r in range(block.replicas)
    }
    for r in range(corpora.encoders(cfg)):
        handles[-1, r] = encode.options(name=actor_name(run, ENCODER, 0, r), **placed(cfg)).remote(cfg)
    try:
        yield handles
    finally:
        for handle in [*handles.values(), *map(ray.get_actor, names(run, SHARD))]:
            ray.kill(handle)


class Truth:
    def __init__(self, cfg: Config) -> None:
        path, n = corpora.named(cfg)["train"], cfg.retriever.shards
        self._shards = [corpora.shard(path, cfg.retriever, i, n) for i in range(n)]
        self._known: dict[str, list[Document]] = {}

    def answer(self, query: str) -> list[Document]:
        if query not in self._known:
            hits = merge([shard.search([query], None, K, Knobs(), "bm25")[0] for shard in self._shards], K)
            self._known[query] = [self._document(row, score, self._shards) for row, score in hits.lists()[0]]
        return self._known[query]

    @staticmethod
    def _document(row: int, score: float, parts: list[Any]) -> Document:
        import numpy as np

        (document,) = next(s for s in parts if s.span[0] <= row < s.span[1]).fetch(np.array([row]))
        return Document(document.id, document.contents, score)


@dataclass
class Tally:
    """What the clients of one crowd saw. `longest`: seconds of the slowest answer."""

    asked: int = 0
    answered: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)
    longest: float = 0.0


def crowd(
    search: Any, truth: Truth, clients: int, seconds: float, kill: Callable[[], None], after: float = 0.3
) -> Tally:
    """`clients` threads ask one query after the other for `seconds`, and until `kill()`, called at the share `after` of them,
    is over: on a busy machine it may take longer."""
    tally, lock, began, over = Tally(), threading.Lock(), time.monotonic(), threading.Event()
    asked = questions(2000)

    def client(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < began + seconds or not over.is_set():
                query, at = draw.choice(asked), time.monotonic()
                with lock:
                    tally.asked += 1
                try:
                    answers = search.search([query], K, "train")
                except Fault as fault:
                    with lock:
                        tally.faults[fault.cause] = tally.faults.get(fault.cause, 0) + 1
                    continue
                now = time.monotonic()
                with lock:
                    tally.answered += 1
                    tally.longest = max(tally.longest, now - at)
                    if answers[0] != truth.answer(query):
                        tally.wrong.append(query)
        except BaseException as error:  # noqa: BLE001 (the caller looks at it)
            tally.broken.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(after * seconds)
    try:
        kill()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return tally


def sound(tally: Tally) -> None:
    """Assert that no answer was wrong, none missing or void."""
    assert not tally.broken and not tally.wrong, (tally.broken[:3], tally.wrong[:3])
    assert tally.answered == tally.asked > 0 and not tally.faults

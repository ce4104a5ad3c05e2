"""One call a shard for a search, over the shards' own code in this process: the texts travel with the hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shardruns import configured, questions, write_corpus

from actors import fleet as module
from actors.fleet import RayFleet
from actors.retriever import ShardActor
from ssp.base.errors import Fault
from ssp.game import corpora
from ssp.search.hits import Hits
from ssp.search.router import Corpus, Options, Router
from ssp.search.shard import HYBRID

ROWS = 301


class Crew:
    """Stands for `Members`: the shards answer at once, but for those that are `dead`. Counts the calls."""

    deadline = 0.0

    def __init__(self, cfg: Any) -> None:
        start = ShardActor.__ray_metadata__.modified_class
        self.shards = [start(cfg, i) for i in range(cfg.retriever.shards)]
        self.dead: set[int] = set()
        self.asked: Counter[tuple[str, int]] = Counter()

    def ask(self, method: str, orders: Mapping[int, tuple[Any, ...]], deadline: float) -> dict[int, Any]:
        answers = {}
        for part, args in orders.items():
            self.asked[method, part] += 1
            if part not in self.dead:
                answers[part] = getattr(self.shards[part], method)(*args)
        return answers

    def counted(self) -> Counter[str]:
        """Calls by method since the last look."""
        counts = Counter[str]()
        for (method, _), times in self.asked.items():
            counts[method] += times
        self.asked.clear()
        return counts


class Longest:
    """A cross-encoder that likes the longest document."""

    def scores(self, queries: Any, documents: Any) -> list[list[float]]:
        return [[float(len(d.contents)) for d in some] for some in documents]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Passages, some of them twice: ties within a shard, and across."""
    path = write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", ROWS - 40)
    lines = path.read_text().splitlines(keepends=True)
    again = [line.replace('"id": "', '"id": "again-') for line in lines[:40]]
    path.write_text("".join(lines + again))
    return path


def routed(corpus: Path, n: int) -> tuple[Crew, Router, Router]:
    """Shards over a crew, and the whole corpus in this process."""
    cfg = configured(corpus, f"retriever.shards={n}")
    crew = Crew(cfg)
    local = corpora.search(cfg)
    assert isinstance(local, Router)
    spans = [crew.shards[i].describe()["train"].span for i in range(n)]
    routes = {"train": Corpus("x", RayFleet(crew, "train", spans), reranker=Longest())}  # type: ignore[arg-type]
    local.corpora["train"].reranker = Longest()
    return crew, Router(routes, 0), local


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_search_is_one_call_a_shard(corpus: Path, n: int) -> None:
    crew, router, local = routed(corpus, n)
    for query in [*questions(20), "w1", "w1 w2", "nothing here"]:
        assert router.search([query], 5, "train") == local.search([query], 5, "train")  # texts, scores, ties
        assert crew.counted() == {"search": n}
    several = questions(6, seed=2)
    assert router.search(several, 5, "train") == local.search(several, 5, "train")
    assert crew.counted() == {"search": n}


def test_many_texts_that_nobody_reads_stay_where_they_are(corpus: Path) -> None:
    crew, router, local = routed(corpus, 2)
    for queries, k in ((["w1"], module.SPARE + 1), (questions(30), module.SPARE // 25)):
        assert router.search(queries, k, "train") == local.search(queries, k, "train")
        assert crew.counted() == {"search": 2, "fetch": 2}
    crew, router, _ = routed(corpus, 1)  # of one shard nothing is for nothing
    router.search(["w1"], ROWS, "train")
    assert crew.counted() == {"search": 1}


def test_reranked_and_fused_searches_fetch_what_they_show(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew, router, local = routed(corpus, 2)
    reranked = Options(rerank=9)
    assert router.search(["w1"], 3, "train", reranked) == local.search(["w1"], 3, "train", reranked)
    assert crew.counted() == {"search": 2, "fetch": 2}

    def twice(shard: Any, texts: Any, vectors: Any, k: int, knobs: Any, kind: str) -> list[Hits]:
        return [shard.bm25.search(texts, k)] * 2

    monkeypatch.setattr("ssp.search.shard.Shard.search", twice)
    for each in (router, local):
        monkeypatch.setattr(each.corpora["train"], "encoder", _Unasked())
    fused = Options(HYBRID)
    assert router.search(["w1"], 3, "train", fused) == local.search(["w1"], 3, "train", fused)
    assert crew.counted() == {"search": 2, "fetch": 2}


class _Unasked:
    def encode_queries(self, texts: Any) -> tuple[Any, dict[str, float]]:
        return None, {}


def test_a_dead_shard_is_a_fault_whatever_the_others_brought(corpus: Path) -> None:
    crew, router, _ = routed(corpus, 2)
    crew.dead = {1}
    with pytest.raises(Fault, match="retriever_partial: 150 of 301 rows .* shard 1"):
        router.search(["w1"], 3, "train")
    crew.dead = {0, 1}
    with pytest.raises(Fault, match="retriever_down: 0 of 301 rows"):
        router.search(["w1"], 3, "train")
    assert crew.counted() == {"search": 4}

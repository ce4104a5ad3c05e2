"""Search over shard actors on a cluster: the answers of the single index, whoever dies, hangs, joins or leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
from shardruns import K, Tally, Truth, configured, crowd, questions, shards, sound, write_corpus
from trainruns import PATIENCE, REPO, Cluster, alive, until

from actors.fleet import connect_search, join, leave
from actors.members import SHARD, names
from ssp.base.errors import Fault, InputError
from ssp.game import corpora
from ssp.search.encoders.families import detect
from ssp.search.index.builder import IndexPlan, build_index

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("joined")]
ROWS = 2001


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose two shards differ in size."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", ROWS)


def pid(handle: Any) -> int:
    return int(ray.get(handle.ping.remote(), timeout=PATIENCE))


def states(handles: dict[tuple[int, int], Any]) -> list[dict[str, float]]:
    return ray.get([handle.state.remote() for handle in handles.values()], timeout=PATIENCE)


@pytest.mark.parametrize("n", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_shards_answer_as_the_single_index(corpus: Path, n: int) -> None:
    cfg = configured(corpus, f"retriever.shards={n}")
    cfg.retriever.max_batch = 16
    local = corpora.search(cfg)
    with shards(cfg, f"exact{n}") as handles:
        search = connect_search(cfg, f"exact{n}")
        asked = [*questions(60), "w1", "w1 w2", "nothing here"]
        answers = search.search(asked, 10, "train")
        assert answers == local.search(asked, 10, "train")  # ids, texts, scores, ties
        assert {"search", "merge", "fetch"} == set(answers.seconds)
        before = states(handles)
        assert search.search(["w1 w2"], 10, "train") == local.search(["w1 w2"], 10, "train")
        assert [new["calls"] - old["calls"] for old, new in zip(before, states(handles), strict=True)] == [1] * n
        assert search.search(asked, 10, "none") == [[]] * len(asked)
        with pytest.raises(InputError, match="names a loaded corpus"):
            search.search(asked, 10, "elsewhere")


def test_requests_of_many_are_merged_and_a_group_asks_once(corpus: Path) -> None:
    cfg = configured(corpus)
    cfg.retriever.window = 0.2
    with shards(cfg, "merged") as handles:
        players = [connect_search(cfg, "merged") for _ in range(4)]
        players[0].search(["w1"], K, "train")
        before = states(handles)
        gate = threading.Barrier(4 * 8)

        def attempt(player: Any) -> None:
            gate.wait(PATIENCE)
            found.append(player.search(["w3 w4"], K, "train"))

        found: list[Any] = []
        threads = [threading.Thread(target=attempt, args=(player,)) for player in players for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for old, new in zip(before, states(handles), strict=True):
            grown = {key: new[key] - old[key] for key in new}
            assert grown["calls"] < 4 * 8 and grown["batches"] < 4 * 8  # one each, else
            assert grown["computed"] == grown["batches"] and grown["under_way"] == 0  # once in a batch
        assert len(found) == 32 and all(answers == found[0] for answers in found)


def end(actor: Any) -> None:
    """Kill it, and wait until it answers no more: Ray kills behind the call."""
    pid = ray.get(actor.ping.remote())
    ray.kill(actor)
    until("the actor has ended", lambda: not alive(pid))


def test_a_lost_shard_is_a_fault_and_known_answers_stay(corpus: Path) -> None:
    cfg = configured(corpus, "retriever.timeout=2")
    cfg.retriever.cache = 8192
    with shards(cfg, "lost") as handles:
        search, local = connect_search(cfg, "lost"), corpora.search(cfg)
        known = search.search(["w5"], K, "train")
        end(handles[1, 0])
        with pytest.raises(Fault, match=r"retriever_partial: 1000 of 2001 rows .* shard 1"):
            search.search(["w6"], K, "train")
        end(handles[0, 0])
        with pytest.raises(Fault, match="retriever_down: 0 of 2001 rows"):
            search.search(["w6"], K, "train")
        assert search.search(["w5"], K, "train") == known == local.search(["w5"], K, "train")


@pytest.mark.covers("SR-42")
def test_hybrid_and_reranked_search_over_actors_is_that_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPO / "tests" / "search"))
    from tinymodels import PLACES, save, sentence_transformer

    monkeypatch.setitem(PLACES, "max_position_embeddings", 512)  # what a pair may need
    (tmp_path / "bert").mkdir()
    (tmp_path / "cross").mkdir()
    model = sentence_transformer(save(tmp_path / "bert", "bert"), {"pooling_mode_mean_tokens": True})
    corpus = write_corpus(tmp_path / "corpus.jsonl", 301, words=8)
    plan = IndexPlan(kind="hybrid", encoder=detect(model, str(model)), folder=model)
    build_index(corpus, tmp_path / "index", plan)
    asked, reranker = questions(20), save(tmp_path / "cross", "cross1")
    settings = ("retriever.replicas=2", f"retriever.reranker={reranker}")
    cfg = configured(tmp_path / "index", *settings)
    local = corpora.search(cfg).search(asked, K, "train")
    with shards(cfg, "hybrid") as handles:
        search = connect_search(cfg, "hybrid")
        found = search.search(asked, K, "train")
        assert set(found.seconds) == {"tokenise", "encode", "search", "merge", "fetch", "rerank"}
        for mine, other in zip(found, local, strict=True):
            assert [d.id for d in mine] == [d.id for d in other]
            assert [d.score for d in mine] == pytest.approx([d.score for d in other], abs=1e-4)
        os.kill(pid(handles[-1, 0]), signal.SIGKILL)  # the other encoder steps in
        assert len(search.search([f"{query} again" for query in asked], K, "train")) == len(asked)


VARIANTS = {
    "the whole is waited for": ["retriever.timeout=60"],
    "a replica steps in": ["retriever.timeout=60", "retriever.replicas=2"],
}
NAMES = [*VARIANTS]


def killed(corpus: Path, run: str, settings: list[str], clients: int, seconds: float) -> Tally:
    """A crowd over two shards, of which one is killed; the whole answers again at the end."""
    cfg = configured(corpus, *settings)
    with shards(cfg, run) as handles:
        search, truth = connect_search(cfg, run), Truth(cfg)
        victim = pid(handles[1, 0])
        tally = crowd(search, truth, clients, seconds, lambda: os.kill(victim, signal.SIGKILL))
        assert len(search.search(["w1"], K, "train")) == 1
        until("its process is a new one", lambda: _pid_now(handles[1, 0]) not in (None, victim))
    return tally


@pytest.mark.parametrize("name", [pytest.param(NAMES[0], marks=pytest.mark.nightly), NAMES[1]])
def test_a_shard_is_killed_under_load(corpus: Path, name: str) -> None:
    sound(killed(corpus, "crowd", VARIANTS[name], 8, 3.0))


def test_a_hung_replica_is_hedged_killed_and_back(corpus: Path) -> None:
    cfg = configured(corpus, "retriever.replicas=2", "retriever.timeout=2")
    with shards(cfg, "hung") as handles:
        search, truth = connect_search(cfg, "hung"), Truth(cfg)
        victim = pid(handles[0, 1])
        os.kill(victim, signal.SIGSTOP)
        for query in questions(20):
            answers = search.search([query], K, "train")
            assert answers[0] == truth.answer(query)

        def back() -> bool:
            return bool(search.search(["w1"], K, "train")) and _pid_now(handles[0, 1]) not in (None, victim)

        until("the hung replica is killed by those who search, and back", back)


def _pid_now(handle: Any) -> int | None:
    try:
        return int(ray.get(handle.ping.remote(), timeout=1.0))
    except ray.exceptions.RayError:
        return None


def test_replicas_join_and_leave_under_load(corpus: Path) -> None:
    cfg = configured(corpus)
    with shards(cfg, "moving") as handles:
        search, truth = connect_search(cfg, "moving"), Truth(cfg)
        with pytest.raises(InputError, match="has another one"):
            leave("moving", 1, 0)
        with pytest.raises(InputError, match="one running run"):
            join(cfg, "nobody", 0)

        def move() -> None:
            assert join(cfg, "moving", 1) == "moving-shard-1-1"
            newcomer = ray.get_actor("moving-shard-1-1")
            until("players found it", lambda: ray.get(newcomer.state.remote(), timeout=PATIENCE)["calls"] > 0)
            leave("moving", 1, 0)

        tally = crowd(search, truth, 8, 3.0, move, 0.1)
        sound(tally)
        assert set(names("moving", SHARD)) == {"moving-shard-0-0", "moving-shard-1-1"}
        with pytest.raises(ray.exceptions.RayActorError):
            while True:
                pid(handles[1, 0])


def test_another_process_may_add_a_replica_that_outlives_it(corpus: Path, ray_cluster: Cluster) -> None:
    cfg = configured(corpus)
    program = (
        "import sys; from pathlib import Path; from actors.cluster import connect; from actors.fleet import join, leave\n"
        "from shardruns import configured\n"
        "cfg = configured(Path(sys.argv[1])); connect(cfg.ray)\n"
        "print(join(cfg, 'apart', 0)); leave('apart', 0, 0)"
    )
    with shards(cfg, "apart"):
        search = connect_search(cfg, "apart")
        env = {**os.environ, **ray_cluster.env, "PYTHONPATH": f"{REPO}{os.pathsep}{REPO / 'tests'}"}
        command = [sys.executable, "-c", program, str(corpus)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "apart-shard-0-1", done.stderr
        until("the old one is gone", lambda: set(names("apart", SHARD)) == {"apart-shard-0-1", "apart-shard-1-0"})
        assert search.search(["w1 w2"], K, "train") == corpora.search(cfg).search(["w1 w2"], K, "train")

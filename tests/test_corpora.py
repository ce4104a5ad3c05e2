"""Corpora and the settings that they are searched with: what does not fit is told before anything starts."""

from __future__ import annotations

from pathlib import Path

import folders
import pytest

from launch.shown.dryrun import describe
from ssp.base.errors import InputError
from ssp.game import corpora
from ssp.search.index.builder import build_index
from ssp.selfplay.settings import load


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with BM25 and HNSW in two parts."""
    home = tmp_path_factory.mktemp("graph")
    build_index(
        folders.corpus(home / "c.jsonl", 60), home / "index", folders.dense("HNSW8", parts=2), encode=folders.Encode()
    )
    return home / "index"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (["retriever.shards=3"], "divides 2"),
        (["retriever.shards=2", "retriever.nprobe=4"], "retriever.nprobe"),
        (["retriever.shards=2", "retriever.kind=dense"], "world:heldout has no dense index"),
    ],
)
def test_what_an_index_folder_cannot_do_is_refused_by_the_dry_run_too(
    graph: Path, settings: list[str], word: str
) -> None:
    cfg = load("quickstart", [f"data.corpus={graph}", *settings])
    with pytest.raises(InputError, match=word):
        "".join(describe(cfg))
    with pytest.raises(InputError):
        corpora.check(cfg)


def test_what_it_can_do_is_not(graph: Path) -> None:
    fitting = [f"data.corpus={graph}", "retriever.shards=2", "retriever.ef_search=40"]
    assert "retriever x2" in "".join(describe(load("quickstart", fitting)))
    words = [f"data.corpus={graph}", "retriever.shards=3", "retriever.kind=bm25", "retriever.nprobe=4"]
    corpora.check(load("quickstart", words))


def test_a_knob_that_the_index_has_not_is_refused_where_it_is_searched_in_one_process(graph: Path) -> None:
    cfg = load("quickstart", [f"data.corpus={graph}", "retriever.nprobe=4", "retriever.shards=3"])
    with pytest.raises(InputError, match=r"retriever\.nprobe"):
        corpora.search(cfg, [corpora.TRAIN])

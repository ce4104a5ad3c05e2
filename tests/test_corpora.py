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


def made(home: Path, factory: str, parts: int = 1) -> Path:
    plan = folders.dense(factory, parts=parts)
    build_index(folders.corpus(home / "c.jsonl", 60), home / "index", plan, encode=folders.Encode())
    return home / "index"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("graph"), "HNSW8", 2)


def test_what_an_index_folder_cannot_do_is_refused_by_the_dry_run_too(graph: Path) -> None:
    cfg = load("quickstart", [f"data.corpus={graph}", "retriever.shards=3"])
    with pytest.raises(InputError, match="divides 2"):
        "".join(describe(cfg))
    with pytest.raises(InputError):
        corpora.check(cfg)


def test_what_it_can_do_is_not(graph: Path) -> None:
    fitting = [f"data.corpus={graph}", "retriever.shards=2"]
    (graph / "effort").write_text("40\n")
    assert corpora.effort(graph) == 40
    assert "retriever x2" in "".join(describe(load("quickstart", fitting)))


def test_an_effort_that_the_index_cannot_take_is_refused_in_one_process_too(tmp_path: Path) -> None:
    index = made(tmp_path, "Flat")
    cfg = load("quickstart", [f"data.corpus={index}", "retriever.shards=2"])
    (index / "effort").write_text("4")
    for ask in (lambda: "".join(describe(cfg)), lambda: corpora.search(cfg, [corpora.TRAIN])):
        with pytest.raises(InputError, match="a file effort"):
            ask()


def test_an_encoder_in_the_index_goes_before_the_one_that_it_names(tmp_path: Path) -> None:
    index = made(tmp_path, "Flat")
    part = corpora.dense(index)
    assert part is not None and corpora.encoder_of(index, part) == part.encoder.model == "fake/encoder"
    (index / "encoder").symlink_to(tmp_path)
    assert corpora.encoder_of(index, part) == str(index / "encoder")

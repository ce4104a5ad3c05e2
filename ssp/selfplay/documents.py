"""Rows that are documents: passages of a corpus, each with the number of hops for its question."""

from pathlib import Path

import numpy as np

from ssp.base import models
from ssp.base.errors import hold
from ssp.base.seeds import generator
from ssp.config.schema import Config
from ssp.data.readers import read_corpus
from ssp.game import corpora
from ssp.game.world import files
from ssp.search.index import store
from ssp.selfplay.rows import TargetRow

MOST = 65_536
"""Passages that a run asks about at most; from a larger corpus they are drawn."""


def place(cfg: Config) -> Path:
    """The file or index folder of the passages. InputError where the corpus is on a server."""
    named = cfg.data.documents
    rule = f"game.kind={cfg.game.kind} asks about passages of a corpus that is here"
    there = named == cfg.data.corpus and corpora.elsewhere(cfg, corpora.TRAIN)
    hold(not there, rule, "a search server", "set data.targets to a corpus file or index")
    return models.resolve(files.resolve(named, "corpus"), "data.targets")


def read(cfg: Config) -> list[TargetRow]:
    """The passages that a run asks about, in the corpus's order. InputError for a bad corpus."""
    path = place(cfg)
    draw = generator(cfg.seed, "documents")
    if path.is_dir():
        mapped = store.open_documents(path)
        passages = mapped.gather(np.array(_rows(draw, mapped.rows)))
    else:
        whole = read_corpus(path)
        passages = [whole[row] for row in _rows(draw, len(whole))]
    rows = []
    for passage in passages:
        rows.append(TargetRow("", hints={"document": passage.contents, "source": passage.id}))
    hops = cfg.spec.hops
    if hops:
        shares = np.array(hops) / sum(hops)
        numbers = generator(cfg.seed, "hops").choice(len(hops), len(rows), p=shares) + 1
        for row, number in zip(rows, numbers.tolist(), strict=True):
            row.hints["searches"] = str(number)
    return rows


def _rows(draw: np.random.Generator, total: int) -> list[int]:
    """All rows of a corpus, or `MOST` that are drawn."""
    if total <= MOST:
        return list(range(total))
    rows: list[int] = np.sort(draw.choice(total, MOST, replace=False)).tolist()
    return rows

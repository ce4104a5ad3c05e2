"""What a resampled episode must have in common with its record, where the engine promises bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ssp.episode import Episode
from ssp.replay.again import Resampled, _compared
from ssp.replay.record import Found
from ssp.runfolder import RunFolder
from ssp.tokenlog import Kind


def played() -> Episode:
    """As an engine draws it: by a version whose number it does not know."""
    episode = Episode("s1", "g1", "solver", 0, final="rota")
    episode.log.append(Kind.PROMPT, [1, 2])
    episode.log.append_model([3, 4], [-0.5, -0.25], 0)
    episode.log.append(Kind.OBSERVATION, [5, 6])
    episode.log.append_model([7], [-1.5], 0)
    return episode


def against(change: Callable[[Episode], object]) -> Resampled:
    """The episode beside its record, of version 3, which `change` was done to."""
    record = played()
    record.log.versions = [3 if version == 0 else version for version in record.log.versions]
    change(record)
    return _compared(Found(record, "f:0", RunFolder(Path("run")), {}, {}), played())


def ends(record: Episode) -> None:
    """A fault where the search should have answered."""
    for name in ("ids", "kinds", "logprobs", "versions"):
        setattr(record.log, name, getattr(record.log, name)[:4])
    record.final = None
    record.void("retriever_timeout")


@pytest.mark.parametrize("change", [lambda record: None, ends])
def test_an_honest_record_is_exact(change: Callable[[Episode], object]) -> None:
    """A void one up to where its record ends: the fault needs not come again."""
    result = against(change)
    assert result.same and result.exact and result.at is None and result.others == ()


@pytest.mark.parametrize(
    ("change", "others"),
    [
        (lambda record: record.log.logprobs.__setitem__(2, -0.75), ()),
        (lambda record: record.log.logprobs.__setitem__(2, math.nan), ()),
        (lambda record: record.log.kinds.__setitem__(2, int(Kind.OBSERVATION)), ("mask",)),
        (lambda record: record.log.versions.__setitem__(2, -1), ("versions",)),
        (lambda record: setattr(record, "final", "nuvo"), ("final",)),
        (lambda record: (ends(record), record.log.kinds.__setitem__(2, int(Kind.OBSERVATION))), ("mask",)),
    ],
)
def test_the_same_tokens_are_not_enough(change: Callable[[Episode], object], others: tuple[str, ...]) -> None:
    result = against(change)
    assert result.same and not result.exact and result.others == others


def test_a_record_that_ends_early_is_another_one_unless_it_is_void() -> None:
    def cut(record: Episode) -> None:
        ends(record)
        record.outcome = None

    assert against(cut).at == 4 and not against(cut).exact

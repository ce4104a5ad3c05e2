"""Workers answer what their Protocol asks: the same methods, the same parameters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from ssp.base.crew import CrewCall, LocalCrew, call, calls
from ssp.learning.warmup.taught import Taught
from ssp.record.ledger import HomeLedger
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.seams import Judges, Learners, Players
from ssp.selfplay.workers.judge import Judge
from ssp.selfplay.workers.learner import Learner, SimulatedLearner
from ssp.selfplay.workers.player import Player

SEAMS = [(Players, Player), (Judges, Judge), (Learners, Learner), (LedgerWriter, HomeLedger)]


def taken(method: Any) -> list[tuple[str, bool]]:
    """Whether each parameter has a default; a star's name."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return [(p.name if p.kind is p.VAR_POSITIONAL else "", p.default is not p.empty) for p in parameters]


@pytest.mark.parametrize(("kind", "worker"), SEAMS)
def test_a_worker_takes_what_it_is_asked(kind: type, worker: type) -> None:
    for name in calls(kind):
        asked, answers = taken(getattr(kind, name)), taken(getattr(worker, name))
        assert asked == answers[: len(asked)], f"{worker.__name__}.{name}"
        assert all(default for _, default in answers[len(asked) :]), f"{worker.__name__}.{name}"


def test_a_simulated_learner_is_asked_what_a_learner_is() -> None:
    lacks = {name for name in calls(Learners) if not hasattr(SimulatedLearner, name)}
    assert lacks == {"learn", "measure"}  # of a warm start, which it has none of


def test_what_a_call_is_allowed_stands_at_its_method() -> None:
    known = calls(Learners)
    assert known["update"] == CrewCall("update", payload=True, computes=True, work="learn")
    assert known["save"] == calls(Taught)["save"]
    assert all(one.repeats for one in calls(LedgerWriter).values())
    with pytest.raises(TypeError, match="twice"):
        call(twice=True)(Learners.save)


def test_nobody_is_asked_for_what_its_protocol_does_not_have() -> None:
    crew: LocalCrew[Any] = LocalCrew(Judges, "judge", lambda i: None)
    with pytest.raises(AttributeError, match="Judges has no call figures"):
        crew.first.figures()

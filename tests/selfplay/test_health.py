"""Alarms on figures, one cause each, and what a collapse looks like in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.config.schema import HealthConfig
from ssp.selfplay.health import Alarm, HealthWatch
from tests.blocks import made

WELL = {
    "logprob_mismatch/kl": 1e-6,
    "ratio/mean": 1.0,
    "ratio/samples": 0.9,
    "grad_norm": 1.0,
    "entropy": 0.8,
    "groups/flat": 0.3,
    "reward/all": 0.5,
    "searches": 2.0,
}


def watch(**changes: Any) -> HealthWatch:
    return HealthWatch(made(HealthConfig, **{"patience": 3, **changes}), ROLES)


def run(watch: HealthWatch, rows: list[dict[str, float]], role: str = SOLVER, first: int = 1) -> list[Alarm]:
    return [alarm for step, row in enumerate(rows, first) for alarm in watch.see(role, step, {**WELL, **row})]


CAUSES = [
    ("mismatch", {}, {"logprob_mismatch/kl": 0.2}, "limit: 0.1"),
    ("ratio", {}, {"ratio/mean": 1.6}, "limit: 0.5"),
    ("ratio", {}, {"ratio/mean": 0.4}, "limit: 0.5"),
    ("samples", {}, {"ratio/samples": 0.05}, "limit: 0.1"),
    ("grad_norm", {}, {"grad_norm": 101.0}, "limit: 100"),
    ("reward collapse", {"collapse": 0.2}, {"reward/all": 0.05}, "limit: 0.2"),
    ("search collapse", {"collapse": 0.2}, {"searches": 0.0}, "limit: 0.2"),
]


@pytest.mark.parametrize(("cause", "settings", "sick", "limit"), CAUSES)
def test_a_breach_for_patience_updates_is_one_alarm_with_its_cause(
    cause: str, settings: dict[str, Any], sick: dict[str, float], limit: str
) -> None:
    seen = watch(**settings)
    assert run(seen, [{}] * 20) == []
    assert run(seen, [sick, sick, {}, sick, sick], first=21) == []  # never three in a row
    (alarm,) = run(seen, [sick, sick, sick], first=26)
    assert alarm.text.startswith(f"health alarm: {cause} of the solver at step 26") and limit in alarm.text
    assert "Next: " in alarm.text and f"{next(iter(sick.values())):.3g}"[:3] in alarm.text
    assert alarm.collapse == ("collapse" in cause) and seen.alarms(SOLVER) == 1 and seen.alarms(PROPOSER) == 0
    assert run(seen, [{}], first=29) == [] and seen.alarms(SOLVER) == 0


def test_what_is_no_number_passes_every_limit_and_what_is_not_there_none() -> None:
    seen = watch()
    assert len(run(seen, [{"logprob_mismatch/kl": float("nan"), "ratio/mean": float("inf")}] * 3)) == 2
    seen = watch()
    sick = {**WELL, "ratio/mean": 2.0}
    found = [seen.see(SOLVER, step, row) for step, row in enumerate([sick, sick, {}, sick])]
    assert [len(alarms) for alarms in found] == [0, 0, 0, 1]  # a step without an update neither counts nor clears
    json.dumps(seen.state(SOLVER), allow_nan=False)


def test_noise_that_training_has_is_no_alarm() -> None:
    """Norms that vary tenfold, rewards of small batches that touch 0, a solver that needs fewer searches."""
    rows = [
        {"grad_norm": 10.0 ** (i % 3 - 1), "reward/all": 0.0 if i % 4 == 3 else 0.6, "searches": 2.0 / (1 + i / 20)}
        for i in range(60)
    ]
    assert run(watch(collapse=0.1, patience=5), rows) == []


def test_a_role_that_never_searched_does_not_stop_searching() -> None:
    rows = [{"searches": 0.1}] * 9 + [{"searches": 0.0}] * 9
    assert run(watch(collapse=0.5), rows) == []


def test_a_proposer_that_is_answered_has_not_collapsed() -> None:
    rows = [{"reward/all": 0.5}] * 9 + [{"reward/all": 0.01}] * 9
    assert run(watch(collapse=0.5), rows, PROPOSER) == []
    assert run(watch(collapse=0.5), [{"searches": 2.0}] * 9 + [{"searches": 0.0}] * 3, PROPOSER)[0].collapse


@pytest.mark.covers("X-03")
@pytest.mark.parametrize("sick", [{"reward/all": 0.02}, {"searches": 0.0, "reward/all": 0.9}])
def test_a_collapse_is_found_within_five_updates(sick: dict[str, float]) -> None:
    """Reward up, then answer-only: with the default patience."""
    rising = [{"reward/all": 0.1 + 0.02 * i} for i in range(30)]
    seen = HealthWatch(HealthConfig(), ROLES)
    assert run(seen, rising) == [] and not seen.suspects(SOLVER)
    assert run(seen, [sick], first=31) == [] and seen.suspects(SOLVER)
    alarms = run(seen, [sick] * 4, first=32)
    assert [alarm.collapse for alarm in alarms] == [True] and "at step 35" in alarms[0].text


def test_memory_survives_a_restart() -> None:
    whole, first, second = watch(collapse=0.2), watch(collapse=0.2), watch(collapse=0.2)
    rows = [{"reward/all": 0.1 * (i % 5), "grad_norm": float(i + 1)} for i in range(15)] + [{"reward/all": 0.0}] * 2
    run(whole, rows)
    run(first, rows)
    second.restore(json.loads(json.dumps({role: first.state(role) for role in ROLES})))
    assert second.suspects(SOLVER) and second.state(SOLVER) == whole.state(SOLVER)
    assert run(second, [{"reward/all": 0.0}], first=18) == run(whole, [{"reward/all": 0.0}], first=18) != []


def drifts(values: list[float], **changes: Any) -> list[Alarm]:
    return run(watch(patience=5, **changes), [{"likelihood/drift_right": value} for value in values])


@pytest.mark.covers("U15")
def test_a_likelihood_that_falls_is_an_alarm() -> None:
    """The figures of two runs of the experiment `stability`, of seed 0: the first fell to a third of its best reward from
    update 9 on; the second learned."""
    (alarm,) = drifts([-0.18, -0.02, 0.0, -0.01, -0.01, -0.02])
    assert alarm.text.startswith(
        "health alarm: drift of the solver at step 5: what earned more lost 0.044 nats a token"
    )
    assert "limit: 0.025" in alarm.text and "solver.llds_coef=1" in alarm.text and not alarm.collapse
    assert drifts([-0.02, -0.04, -0.01, -0.04, 0.0, 0.0, 0.0, 0.0]) == drifts([0.05, -0.04] * 10) == []
    assert len(drifts([float("nan")] * 5)) == 1

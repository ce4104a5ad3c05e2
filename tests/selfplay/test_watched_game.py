"""A whole game as it is watched: every figure is listed, every actor has its track, rounds say what they wait for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from fakes import Stage, config
from traces import busy, trace

from ssp.selfplay.crews.watched import watched
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display
from ssp.telemetry.figures import find
from ssp.telemetry.runlog import read_metrics


def watch(path: Path, **changes: Any) -> tuple[Stage, str, dict[str, float]]:
    """A game whose sink is the one of a real run, what it printed, and the busy seconds of its actors."""
    stage, out = Stage(config(**changes), path), io.StringIO()
    display = Display(stage.cfg, stage.folder, Console(out))
    stage.sink = display  # type: ignore[assignment]
    stage.cast = watched(stage.cast, display.activity, stage.cfg)
    stage.play()
    display.finish()
    display.close()
    return stage, out.getvalue(), display.activity.busy()


@pytest.mark.parametrize("bound", [0, 2])
def test_a_game_is_watched_whole(bound: int, tmp_path: Path) -> None:
    stage, said, did = watch(tmp_path / "run", bounds=(bound, bound), **({"proposer__loss": "tis"} if bound else {}))
    rows = read_metrics(stage.folder.metrics)
    for row in rows:
        for name in set(row) - {"step", "role", "time", "not_finite"}:
            find(name, row["role"])
    shares = next(row for row in rows if row["role"] == "game" and row["step"] == 2)
    kinds = ("proposer", "solver", "judge", "learner_proposer", "learner_solver")
    assert all(0 <= shares[f"time/idle_share_{kind}"] <= 1 for kind in kinds)
    assert "step 3/3  proposer " in said and "games/s" in said and "voids 0" in said

    spans = trace(stage.folder.timeline)
    assert {"proposer-0", "solver-0", "judge-0", "learner-proposer-0", "learner-solver-0", "round-0"} <= set(spans)
    assert {track for track in spans if track.startswith("round-")} <= {f"round-{slot}" for slot in range(bound + 1)}
    proposed = [event["args"] for event in spans["proposer-0"] if event["name"] == "propose"]
    assert [args["step"] for args in proposed] == [1, 2, 3] and all(args["version"] >= 1 for args in proposed)
    learned = [event["args"]["step"] for event in spans["learner-solver-0"] if event["name"] == "learn"]
    assert learned == [1, 2, 3]
    names = {event["name"] for found in spans.values() for event in found}
    assert {"propose", "verify", "solve", "grade", "learn", "save", "evaluate"} <= names
    drawn = {actor: busy(spans, actor) for actor in did}
    assert drawn == pytest.approx(did, abs=0.002)  # what is left shows who was idle, and when

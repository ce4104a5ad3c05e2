"""One run as `ssp compare` reads it: its scores over the steps, what it cost, how it ended, which checkpoint is best.

Promises that a checkpoint is named only when it is there, and that the metric has one value a step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ssp.base.episode import EVAL, SOLVER
from ssp.base.errors import InputError
from ssp.game.evaluation.summary import Estimate
from ssp.record import runfolder
from ssp.record.reader import read_metrics
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC
from ssp.views.compare.answers import Answer, Answers, accuracy
from ssp.views.replay.record import Records
from ssp.views.replay.weights import Weights


@dataclass(frozen=True)
class Point:
    """The metric after `step`, with the interval of its questions where it is an accuracy that can be counted again."""

    step: int
    value: float
    estimate: Estimate | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Kept:
    """A checkpoint that is there: the step whose weights it has, its version and folder."""

    step: int
    version: int
    folder: Path


class Run:
    """A run and its values of `metric`. InputError for a folder that is no run, and for a metric that it never logged."""

    def __init__(self, folder: RunFolder, metric: str = METRIC) -> None:
        self.folder, self.metric, self.name = folder, metric, folder.name
        self.records = Records(folder)
        self.settings = runfolder.settings(self.records.cfg)  # a world's name and its file's path are the same
        lines = read_metrics(folder.metrics)
        self._times = [float(line["time"]) for line in lines]
        self.steps = max((int(line["step"]) for line in lines), default=0)
        told = [line for line in lines if line["role"] == EVAL]  # of what learners log the highest is not the best
        known = sorted({name for line in told for name in line if "accuracy" in name and line[name] is not None})
        if metric not in known:
            rule = f"{folder.path} has logged the metric that runs are compared by, an accuracy of its evaluations"
            raise InputError(
                rule, metric, f"--metric is one of {', '.join(known) or 'none yet: let it evaluate first'}"
            )
        self.values = {int(line["step"]): float(line[metric]) for line in told if line.get(metric) is not None}

    @property
    def start(self) -> Point:
        """The first value."""
        return self._point(min(self.values))

    @property
    def end(self) -> Point:
        """The last value."""
        return self._point(max(self.values))

    @property
    def best(self) -> Point:
        """The highest value; of equal ones the first."""
        return self._point(max(sorted(self.values), key=self.values.__getitem__))

    def _point(self, step: int) -> Point:
        return Point(step, self.values[step], accuracy(self.metric, self.answers(step)))

    def answers(self, step: int) -> dict[str, Answer]:
        """What the evaluation after `step` answered."""
        return self._answers.of(self.metric, step)

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.records)

    @property
    def checkpoints(self) -> list[Kept]:
        """The solver's checkpoints that are there, by step; the policy that it started from is none."""
        weights, found = Weights(self.folder, self.records.cfg, self.records.versions), {}
        for version, path in weights.kept(SOLVER).items():
            step = weights.step(SOLVER, version)
            if step is not None and path.is_relative_to(self.folder.path):
                found[step] = Kept(step, version, path)
        return [found[step] for step in sorted(found)]

    def nearest(self, step: int) -> Kept | None:
        """The checkpoint of `step`, else the one of the nearest step that is there; of two the later one."""
        return min(self.checkpoints, key=lambda kept: (abs(kept.step - step), -kept.step), default=None)

    @property
    def ended(self) -> str:
        """done, running (a process plays in the folder), or stopped before its last step."""
        if self.steps >= self.records.cfg.steps:
            return "done"
        try:
            self.folder.check_idle()
        except InputError:
            return "running"
        return f"stopped, {self.records.cfg.steps} asked"

    @property
    def seconds(self) -> float:
        """From the first line of metrics.jsonl to the last, pauses of a run that was gone on with included."""
        return max(self._times) - min(self._times)

    @property
    def cpu(self) -> float | None:
        """CPU seconds of a run in one process (tests/bench/experiments), None where nobody counted them."""
        file = self.folder.path / "cpu.json"
        return max(json.loads(file.read_text()).values(), default=None) if file.is_file() else None

    @cached_property
    def voids(self) -> dict[str, int]:
        """Void episodes by cause."""
        with self.records.reader.ledger() as ledger:
            found = ledger.outcomes()
        return {name.removeprefix("void/"): n for name, n in sorted(found.items()) if name.startswith("void/") and n}


def differing(runs: Sequence[Run], hidden: Sequence[str]) -> dict[str, list[object]]:
    """Settings in which the runs differ → each run's value, without the keys and blocks of `hidden`."""
    keys = sorted({key for run in runs for key in run.settings})
    found = {key: [run.settings.get(key) for run in runs] for key in keys if key.split(".")[0] not in hidden}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}

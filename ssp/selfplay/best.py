"""The checkpoint on the disk with the best held-out evaluation of its run."""

from collections.abc import Iterable
from pathlib import Path

from ssp.base.values import Values
from ssp.record.manifest import read_record
from ssp.record.reader import BACK, RunReader, Tail, line_of
from ssp.record.runfolder import RunFolder

METRIC = "eval/accuracy_mean123"
"""The metric by which runs and their checkpoints are compared."""

PLAIN = "eval/accuracy"
"""The metric where not all of 1, 2 and 3 hops were asked."""


def usual(runs: Iterable[RunFolder]) -> str:
    """`METRIC` where all runs have logged it, else `PLAIN`."""
    for run in runs:
        if not any(METRIC in line for line in RunReader(run).metrics()):
            return PLAIN
    return METRIC


class Evaluations:
    """The evaluations of one run. Each line of its metrics is read once, however often one asks."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tail = Tail(folder.metrics)
        self._scores: dict[int, Values] = {}

    def best(self, learner: str) -> Path | None:
        """The best checkpoint of a learner, the earliest of equals; None where none that is there
        was evaluated. Step 0 is the start policy and does not count."""
        for text in self._tail.lines():
            line = line_of(self._folder.metrics, text)
            back = line.get(BACK)
            if back is not None:
                kept = {step: scores for step, scores in self._scores.items() if step <= back}
                self._scores = kept
            scores = {name: line[name] for name in (METRIC, PLAIN) if line.get(name) is not None}
            if scores:
                self._scores[line["step"]] = scores

        metric = METRIC if any(METRIC in scores for scores in self._scores.values()) else PLAIN
        scored = {}
        for path in self._folder.versions(learner):
            step = read_record(path).get("run_step", 0)
            value = self._scores.get(step, {}).get(metric)
            if value is not None and step > 0:
                scored[value, -step] = path  # the newest folder of a step
        return scored[max(scored)] if scored else None

"""The checkpoint on the disk with the best held-out evaluation of its run."""

from collections.abc import Iterable
from pathlib import Path

from ssp.record.manifest import read_record
from ssp.record.reader import RunReader
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


def best(folder: RunFolder, learner: str) -> Path | None:
    """The best checkpoint of a learner, the earliest of equals; None where none that is there was
    evaluated. Step 0 is the start policy and does not count."""
    metric = usual([folder])
    values: dict[int, float] = {}
    for line in RunReader(folder).metrics():
        if line.get(metric) is not None and line["step"] > 0:
            values[line["step"]] = line[metric]
    scored = {}
    for path in folder.versions(learner):
        step = read_record(path).get("run_step", 0)
        if step in values:
            scored[values[step], -step] = path  # the newest folder of a step
    return scored[max(scored)] if scored else None

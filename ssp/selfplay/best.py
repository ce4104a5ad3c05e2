"""Which checkpoint the held-out evaluations during a run speak best for, of those that are on the
disk."""

from collections.abc import Iterable
from pathlib import Path

from ssp.record.manifest import read_record
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder

METRIC = "eval/accuracy_mean123"
"""By which runs are compared, and their checkpoints."""

PLAIN = "eval/accuracy"
"""The same where not all of 1, 2 and 3 hops were asked."""


def usual(runs: Iterable[RunFolder]) -> str:
    """`METRIC` where all runs have logged it, else `PLAIN`."""
    return (
        METRIC
        if all(any(METRIC in line for line in RunReader(run).metrics()) for run in runs)
        else PLAIN
    )


def best(folder: RunFolder, learner: str) -> Path | None:
    """The checkpoint; None where none that is there was evaluated. One of step 0 is the start
    policy, and none."""
    metric, lines = usual([folder]), RunReader(folder).metrics()
    values = {
        line["step"]: line[metric]
        for line in lines
        if line.get(metric) is not None and line["step"] > 0
    }
    # the newest of each step
    there = {read_record(path).get("run_step", 0): path for path in folder.versions(learner)}
    scored = [(values[step], -step, path) for step, path in there.items() if step in values]
    return max(scored)[2] if scored else None

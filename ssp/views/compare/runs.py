"""Runs as `ssp compare` reads them, alone and in pairs. The means are those of metrics.jsonl, the
solver's and not its anchor's; a void is in none; a pair's difference is taken on the questions that
both answered at the last step after which both were evaluated; no seed counts twice."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ssp.base.episode import EVAL
from ssp.base.errors import InputError
from ssp.base.intervals import Estimate, of_differences, of_numbers, of_shares, together
from ssp.config.load import dotted
from ssp.game.judge import same
from ssp.record.ledger.rows import EpisodeRow
from ssp.record.manifest import read_record
from ssp.record.reader import read_metrics
from ssp.record.runfolder import MAY_CHANGE, RunFolder
from ssp.selfplay.best import METRIC
from ssp.selfplay.versions import ANCHORS
from ssp.views.replay.record import Records

Answers = dict[str, tuple[int, float]]
"""Id of a question → its hops, and whether it was answered right (1, or 0)."""

_ACCURACY = re.compile(r"eval/(?:([^/]+)/)?accuracy(?:_(?:(\d+)hop|mean123))?$")

ANYWAY = tuple(key for key in MAY_CHANGE if key != "steps")
"""What else they may differ in: a longer run is another arm."""
HIDDEN = ("run", "resume", "ray", "telemetry")
"""Settings of where a run is and who watches it."""


@dataclass(frozen=True)
class Point:
    """The metric after `step`, with the interval of its questions where it is an accuracy that can
    be counted again."""

    step: int
    value: float
    estimate: Estimate | None = field(default=None, compare=False)


class Run:
    """A run and its values of `metric`. InputError for a folder that is no run, and for a metric
    that it never logged."""

    def __init__(self, folder: RunFolder, metric: str = METRIC) -> None:
        self.folder, self.metric, self.name = folder, metric, folder.name
        self.records = Records(folder)
        self.settings = dotted(self.records.cfg)  # a world's name and its file's path are the same
        lines = read_metrics(folder.metrics)
        times = [float(line["time"]) for line in lines] or [0.0]
        self.seconds = max(times) - min(times)  # pauses of a run that was gone on with included
        self.steps = max((int(line["step"]) for line in lines), default=0)
        # of what learners log the highest is not the best
        told = [line for line in lines if line["role"] == EVAL]
        known = sorted(
            {
                name
                for line in told
                for name in line
                if "accuracy" in name and line[name] is not None
            }
        )
        if metric not in known:
            rule = (
                f"{folder.path} has logged the metric that runs are compared by, an accuracy of its"
                " evaluations"
            )
            next_step = (
                f"--metric is one of {', '.join(known) or 'none yet: let it evaluate first'}"
            )
            raise InputError(rule, metric, next_step)
        self.values = {
            int(line["step"]): float(line[metric]) for line in told if line.get(metric) is not None
        }
        self.start, self.end = self._point(min(self.values)), self._point(max(self.values))
        # of equal ones the first
        self.best = self._point(max(sorted(self.values), key=self.values.__getitem__))
        asked = self.records.cfg.steps
        self.ended = (
            "done"
            if self.steps >= asked
            else "running"
            if folder.held
            else f"stopped, {asked} asked"
        )
        with self.records.reader.ledger() as ledger:
            counts = sorted(ledger.outcomes(self.records.cfg.spec.asks).items())
        self.voids = {name[5:]: n for name, n in counts if name.startswith("void/") and n}

    def _point(self, step: int) -> Point:
        return Point(step, self.values[step], _over(self.metric, self.answers(step), of_shares))

    def answers(self, step: int) -> Answers:
        """As the last evaluation at `step` answered the questions that the metric is about; {}
        without one."""
        records, named = self.records, _ACCURACY.match(self.metric)
        if named is None or not records.cfg.data.eval:
            return {}
        name, hops = (
            named[1] or records.cfg.data.eval[0].name,
            {int(named[2])} if named[2] else set(),
        )
        if self.metric.endswith("mean123"):
            hops = {1, 2, 3}
        files = defaultdict[str, list[EpisodeRow]](list)
        found = self._evaluations.get((f"eval/{name}", step), {})
        solver = [
            at
            for at, rows in found.items()
            if all((row["policy_version_max"] or 0) < ANCHORS for row in rows)
        ]
        # the EMA anchor is evaluated beside it, and later
        for row in found[max(solver)] if solver else []:
            if row["outcome"] != "void":
                files[row["file"] or ""].append(row)
        answers = {}
        for file, rows in files.items():
            said = records.reader.columns(file, ["final", "text"])
            for row in rows:
                id, one = row["item"] or "", said[row["row"] or 0]
                asked = records.question(name, id, one["text"])
                if not hops or asked.hops in hops:
                    answers[id] = asked.hops, float(same(one["final"] or "", asked.answers))
        return answers

    @cached_property
    def _evaluations(self) -> dict[tuple[str, int], dict[tuple[int, int], list[EpisodeRow]]]:
        """Set and step → start of the run and number of the evaluation → its episodes."""
        found: dict[tuple[str, int], dict[tuple[int, int], list[EpisodeRow]]] = {}
        for row in self.records.played(EVAL):
            at = found.setdefault((row["game_id"], row["round"]), {})
            at.setdefault((row["incarnation"], row["attempt"]), []).append(row)
        return found

    @property
    def checkpoint(self) -> Path | None:
        """The solver's checkpoint of the best step, where it is there."""
        there = {
            read_record(path).get("run_step"): path
            for path in self.folder.versions(self.records.cfg.spec.answerer)
        }
        return there.get(self.best.step)


def difference(metric: str, ours: Answers, theirs: Answers) -> tuple[Estimate | None, int]:
    """Ours minus theirs, question by question, and how many questions both answered."""
    both = {id: (hops, right - theirs[id][1]) for id, (hops, right) in ours.items() if id in theirs}
    return _over(metric, both, of_differences), len(both)


def _over(
    metric: str, values: Answers, mean: Callable[[Sequence[float]], Estimate]
) -> Estimate | None:
    """The `mean` of all values, of `mean123` that of each hop count's; None without any."""
    if not values or not metric.endswith("mean123"):
        return mean([value for _, value in values.values()]) if values else None
    by_hops = {
        hops: [value for other, value in values.values() if other == hops] for hops in (1, 2, 3)
    }
    if not all(by_hops.values()):
        return None
    return together([mean(part) for part in by_hops.values()])


def differing(runs: Sequence[Run]) -> dict[str, list[object]]:
    """Settings in which the runs differ → each run's value, without those of `HIDDEN`."""
    keys = sorted({key for run in runs for key in run.settings})
    found = {
        key: [run.settings.get(key) for run in runs]
        for key in keys
        if key.split(".")[0] not in HIDDEN
    }
    return {
        key: values for key, values in found.items() if any(value != values[0] for value in values)
    }


def paired(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every other arm against the first run's, where any of their runs pair: the `pairs`, with the
    difference of ours and theirs at the last `step` after which both were evaluated (None when no
    question is in both, or when that is the start), and where there are several its `mean`, over
    pairs. `ends`: at which step each was evaluated last."""
    arms: dict[str, dict[str, Run]] = {}
    for run in runs:
        arm, start = _place(run)
        arms.setdefault(arm, {}).setdefault(start, run)
    theirs, *others = arms.values()
    found = []
    for those in others:
        pairs, known = list[dict[str, Any]](), list[float]()
        for start, ours in those.items():
            if other := theirs.get(start):
                step = max(ours.values.keys() & other.values.keys(), default=0)
                made, questions = None, 0
                if step > 0:
                    made, questions = difference(
                        ours.metric, ours.answers(step), other.answers(step)
                    )
                known += [] if made is None else [made.mean]
                told = {"step": step, "questions": questions, "difference": _interval(made)}
                ends = [ours.end.step, other.end.step]
                pairs.append({"ours": ours.name, "theirs": other.name, "ends": ends, **told})
        if pairs:
            over = of_numbers(known) if len(known) > 1 else None
            found.append({"pairs": pairs, "mean": _interval(over)})
    return found


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that is known of runs, their settings and their pairs, as numbers, texts and
    lists."""
    told = {
        "metric": runs[0].metric,
        "runs": [_run(one) for one in runs],
        "settings": differing(runs),
    }
    return {**told, "differences": paired(runs)}


def _run(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(run, name) for name in ("name", "steps", "ended", "seconds", "voids")
    }
    kept = run.checkpoint
    found["checkpoint"] = (
        None if kept is None else {"version": int(kept.name[1:]), "folder": str(kept)}
    )
    found |= {"folder": str(run.folder.path), "evaluations": len(run.values)}
    for name in ("start", "end", "best"):
        point: Point = getattr(run, name)
        found[name] = {
            "step": point.step,
            "value": point.value,
            "interval": _interval(point.estimate),
        }
    return found


def _interval(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate._asdict()


def _place(run: Run) -> tuple[str, str]:
    """What a run is, but for its seed and start, and for where it runs; and these two."""
    arm, start = list[object](), list[object]()
    for key, value in sorted(run.settings.items()):
        starts = key == "seed" or (key.endswith(".model") and key != "judge.model")
        if key.split(".")[0] not in ANYWAY:
            (start if starts else arm).append((key, value))
    return repr(arm), repr(start)

"""Runs as `ssp compare` reads them, alone and in pairs.

The means are those of metrics.jsonl: the solver's and not its anchor's. No void counts, and no seed
counts twice. A pair's difference is taken over the questions that both answered, at the last step
after which both were evaluated."""

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
from ssp.config import games
from ssp.config.load import dotted
from ssp.game.judge import same
from ssp.record.ledger.rows import EpisodeRow
from ssp.record.manifest import read_record
from ssp.record.reader import read_metrics
from ssp.record.resumed import MAY_CHANGE
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC
from ssp.selfplay.versions import ANCHORS
from ssp.views.replay.record import Records

Answers = dict[str, tuple[int, float]]
"""Id of a question → its hops, and whether it was answered right (1, or 0)."""

_ACCURACY = re.compile(r"eval/(?:([^/]+)/)?accuracy(?:_(?:(\d+)hop|mean123))?$")

ANYWAY = tuple(key for key in MAY_CHANGE if key != "steps")
"""Settings in which runs of one arm may differ: a longer run is another arm."""
GRADERS = ("judge.model", "referee.model")
"""Models that nobody begins with: another one is another arm."""
NO_METRIC = "none yet: let it evaluate first"
HIDDEN = ("run", "resume", "ray", "telemetry")
"""Settings that say where a run is and who watches it."""


@dataclass(frozen=True)
class Point:
    """The metric after `step`, with the interval over its questions where it is an accuracy that
    can be counted again."""

    step: int
    value: float
    estimate: Estimate | None = field(default=None, compare=False)


class Run:
    """A run and its values of `metric`. InputError for a folder that is no run, and for a metric
    that it never logged."""

    def __init__(self, folder: RunFolder, metric: str = METRIC) -> None:
        self.folder = folder
        self.metric = metric
        self.name = folder.name
        self.records = Records(folder, roles=[EVAL])
        self.settings = dotted(self.records.cfg)  # a world's name and its file's path are the same
        self.settings["game.kind"] = games.place(self.records.cfg.game.kind)
        lines = read_metrics(folder.metrics)
        times = [float(line["time"]) for line in lines] or [0.0]
        self.seconds = max(times) - min(times)  # pauses of a run that was gone on with included
        self.steps = max((int(line["step"]) for line in lines), default=0)
        # of what learners log the highest is not the best
        evaluations = [line for line in lines if line["role"] == EVAL]
        known = set()
        for line in evaluations:
            known |= {name for name in line if "accuracy" in name and line[name] is not None}
        if metric not in known:
            raise InputError(
                f"{folder.path} has logged the metric that runs are compared by, an accuracy of its"
                " evaluations",
                metric,
                f"--metric is one of {', '.join(sorted(known)) or NO_METRIC}",
            )
        logged = [line for line in evaluations if line.get(metric) is not None]
        self.values = {int(line["step"]): float(line[metric]) for line in logged}
        self.start = self._point(min(self.values))
        self.end = self._point(max(self.values))
        # of equal ones the first
        self.best = self._point(max(sorted(self.values), key=self.values.__getitem__))
        asked = self.records.cfg.steps
        if self.steps >= asked:
            self.ended = "done"
        else:
            self.ended = "running" if folder.held else f"stopped, {asked} asked"
        with self.records.reader.ledger() as ledger:
            counts = sorted(ledger.outcomes(self.records.cfg.spec.asks).items())
        self.voids = {name[5:]: n for name, n in counts if name.startswith("void/") and n}

    def _point(self, step: int) -> Point:
        return Point(step, self.values[step], _over(self.metric, self.answers(step), of_shares))

    def answers(self, step: int) -> Answers:
        """What the last evaluation at `step` answered to the questions of the metric; {} without
        one."""
        records = self.records
        named = _ACCURACY.match(self.metric)
        if named is None or not records.cfg.data.eval:
            return {}
        name = named[1] or records.cfg.data.eval[0].name
        hops = {int(named[2])} if named[2] else set()
        if self.metric.endswith("mean123"):
            hops = {1, 2, 3}

        evaluations = []
        for at, rows in self._evaluations.get((f"eval/{name}", step), {}).items():
            # the EMA anchor is evaluated beside the solver, and later
            if all((row["policy_version_max"] or 0) < ANCHORS for row in rows):
                evaluations.append((at, rows))
        if not evaluations:
            return {}
        _, last = max(evaluations, key=lambda evaluation: evaluation[0])
        files: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
        for row in last:
            if row["outcome"] != "void":
                files[row["file"] or ""].append(row)

        answers = {}
        for file, rows in files.items():
            said = records.reader.columns(file, ["final", "text"])
            for row in rows:
                id = row["item"] or ""
                transcript = said[row["row"] or 0]
                asked = records.question(name, id, transcript["text"])
                if not hops or asked.hops in hops:
                    right = same(transcript["final"] or "", asked.answers)
                    answers[id] = asked.hops, float(right)
        return answers

    @cached_property
    def _evaluations(self) -> dict[tuple[str, int], dict[tuple[int, int], list[EpisodeRow]]]:
        """Set and step → start of the run and number of the evaluation → its episodes."""
        evaluations: dict[tuple[str, int], dict[tuple[int, int], list[EpisodeRow]]] = {}
        for row in self.records.played(EVAL):
            of_the_step = evaluations.setdefault((row["game_id"], row["round"]), {})
            of_the_step.setdefault((row["incarnation"], row["attempt"]), []).append(row)
        return evaluations

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
    """The `mean` of all values; for mean123, the mean of the three hop counts' means. None without
    any."""
    if not values or not metric.endswith("mean123"):
        return mean([value for _, value in values.values()]) if values else None
    parts = []
    for hops in (1, 2, 3):
        part = [value for other, value in values.values() if other == hops]
        if not part:
            return None
        parts.append(mean(part))
    return together(parts)


def differing(runs: Sequence[Run]) -> dict[str, list[object]]:
    """Settings in which the runs differ → each run's value, without those of `HIDDEN`."""
    different = {}
    for key in sorted({key for run in runs for key in run.settings}):
        values = [run.settings.get(key) for run in runs]
        shown = key.split(".")[0] not in HIDDEN
        # What lies in a block stands by its own key; an empty one says nothing.
        if shown and {} not in values and any(value != values[0] for value in values):
            different[key] = values
    return different


def paired(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every other arm against the first run's, where any of their runs pair: the `pairs` (see
    `_pair`), and where several have a difference its `mean`, over pairs."""
    arms: dict[str, dict[str, Run]] = {}
    for run in runs:
        arm, start = _place(run)
        arms.setdefault(arm, {}).setdefault(start, run)
    theirs, *others = arms.values()
    differences = []
    for those in others:
        both = [(ours, theirs[start]) for start, ours in those.items() if start in theirs]
        pairs = [_pair(ours, other) for ours, other in both]
        if pairs:
            known = [pair["difference"]["mean"] for pair in pairs if pair["difference"] is not None]
            over = of_numbers(known) if len(known) > 1 else None
            differences.append({"pairs": pairs, "mean": _interval(over)})
    return differences


def _pair(ours: Run, theirs: Run) -> dict[str, Any]:
    """The `difference` of ours and theirs at the last `step` after which both were evaluated; None
    when no question is in both, or when that is the start. `ends`: the step of each's last
    evaluation."""
    step = max(ours.values.keys() & theirs.values.keys(), default=0)
    estimate, questions = None, 0
    if step > 0:
        estimate, questions = difference(ours.metric, ours.answers(step), theirs.answers(step))
    return {
        "ours": ours.name,
        "theirs": theirs.name,
        "ends": [ours.end.step, theirs.end.step],
        "step": step,
        "questions": questions,
        "difference": _interval(estimate),
    }


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that is known of runs, their settings and their pairs, as numbers, texts and
    lists."""
    return {
        "metric": runs[0].metric,
        "runs": [_alone(run) for run in runs],
        "settings": differing(runs),
        "differences": paired(runs),
    }


def _alone(run: Run) -> dict[str, Any]:
    """What is known of one run."""
    names = ("name", "steps", "ended", "seconds", "voids")
    told: dict[str, Any] = {name: getattr(run, name) for name in names}
    kept = run.checkpoint
    told["checkpoint"] = None
    if kept is not None:
        told["checkpoint"] = {"version": int(kept.name[1:]), "folder": str(kept)}
    told |= {"folder": str(run.folder.path), "evaluations": len(run.values)}
    for name, point in (("start", run.start), ("end", run.end), ("best", run.best)):
        interval = _interval(point.estimate)
        told[name] = {"step": point.step, "value": point.value, "interval": interval}
    return told


def _interval(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate._asdict()


def _place(run: Run) -> tuple[str, str]:
    """A run's arm, which is all its settings but seed, start and place; and its seed and start."""
    arm: list[object] = []
    start: list[object] = []
    for key, value in sorted(run.settings.items()):
        starts = key == "seed" or (key.endswith(".model") and key not in GRADERS)
        if key.split(".")[0] not in ANYWAY:
            (start if starts else arm).append((key, value))
    return repr(arm), repr(start)

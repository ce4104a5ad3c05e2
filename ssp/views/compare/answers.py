"""What a run's evaluations answered, question by question, and a metric's estimate from it.

Promises that the means are those of metrics.jsonl, the solver's and not its anchor's, and that a void is in none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ssp.base.episode import EVAL
from ssp.base.errors import InputError
from ssp.game.evaluation.summary import Estimate, estimate, mean
from ssp.game.judge import same
from ssp.record.ledger.rows import EpisodeRow
from ssp.selfplay.versions import ANCHORS
from ssp.views.replay.record import Records

_ACCURACY = re.compile(r"eval/(?:([^/]+)/)?accuracy(?:_(?:(\d+)hop|mean123))?$")


@dataclass(frozen=True)
class Answer:
    """One question's hops, and whether it was answered right."""

    hops: int
    right: bool


class Answers:
    """The evaluations of one run."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._rows: dict[tuple[str, int], dict[tuple[int, int], list[EpisodeRow]]] = {}
        for row in records.played(EVAL):
            at = self._rows.setdefault((row["game_id"], row["round"]), {})
            at.setdefault((row["incarnation"], row["attempt"]), []).append(row)

    def of(self, metric: str, step: int) -> dict[str, Answer]:
        """The questions that `metric` is about, by id, as the last evaluation at `step` answered them; {} without one."""
        named = _ACCURACY.match(metric)
        sets = self._records.cfg.data.eval
        if named is None or not sets:
            return {}
        name, hops = named[1] or sets[0].name, {int(named[2])} if named[2] else set()
        if metric.endswith("mean123"):
            hops = {1, 2, 3}
        found = self._rows.get((f"eval/{name}", step), {})
        asked, files = self._records.questions(name), defaultdict[str, dict[int, str]](dict)
        solver = [at for at, rows in found.items() if all((row["policy_version_max"] or 0) < ANCHORS for row in rows)]
        for row in found[max(solver)] if solver else []:  # the EMA anchor is evaluated beside it, and later
            id = row["item"]
            if id not in asked:
                rule = f"the questions that a run was evaluated with stand in the file of its set {name!r}"
                raise InputError(rule, f"no {id} there", "restore the files of data.eval")
            if row["outcome"] != "void" and (not hops or asked[id].hops in hops):
                files[row["file"] or ""][row["row"] or 0] = id
        answers = {}
        for file, rows in files.items():
            said = self._records.reader.columns(file, ["final"])
            for place, id in rows.items():
                right = same(said[place]["final"] or "", asked[id].answers)
                answers[id] = Answer(asked[id].hops, right)
        return answers


def accuracy(metric: str, answers: Mapping[str, Answer]) -> Estimate | None:
    """The share of right answers, as `metric` counts it; None without any."""
    return _over(metric, {id: (answer.hops, float(answer.right)) for id, answer in answers.items()})


def difference(metric: str, ours: Mapping[str, Answer], theirs: Mapping[str, Answer]) -> tuple[Estimate | None, int]:
    """Ours minus theirs, question by question, and how many questions both answered."""
    both = {id: (a.hops, float(a.right) - float(theirs[id].right)) for id, a in ours.items() if id in theirs}
    return _over(metric, both), len(both)


def _over(metric: str, values: Mapping[str, tuple[int, float]]) -> Estimate | None:
    """The mean, of `mean123` that of each hop count's."""
    if not values:
        return None
    if not metric.endswith("mean123"):
        return estimate([value for _, value in values.values()], 0, metric)
    by_hops = {hops: [value for other, value in values.values() if other == hops] for hops in (1, 2, 3)}
    if not all(by_hops.values()):
        return None
    return mean([estimate(found, 0, f"{metric} {hops}") for hops, found in by_hops.items()])

"""Where a run's figures go: metrics.jsonl and TensorBoard, the timeline, the console, the cluster's
metrics, W&B."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any

from ssp.base import causes
from ssp.base.values import Values
from ssp.config import heldout
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry.activity import Activity
from ssp.telemetry.console import REWARD, Console
from ssp.telemetry.gpus import Gpus
from ssp.telemetry.outlet import PATIENCE, Outlet
from ssp.telemetry.runlog import NO_SINKS, RunLog, anew
from ssp.telemetry.runlog import Sink as Mirror
from ssp.telemetry.timeline import Timeline
from ssp.telemetry.wandb_log import Sample, WandbLog

SCORE = "eval/accuracy"
TABLE = (
    ("{answerer}: {accuracy}", SCORE, ".1%"),
    ("  1 hop", "eval/accuracy_1hop", ".1%"),
    ("  2 hops", "eval/accuracy_2hop", ".1%"),
    ("  3 hops", "eval/accuracy_3hop", ".1%"),
    ("{answerer}: accuracy on the training world", "eval/train/accuracy", ".1%"),
    ("{answerer}: accuracy with search switched off", "eval/nosearch/accuracy", ".1%"),
    ("{asker}: hops of accepted questions", "game/hops_mean", ".2f"),
    ("{asker}: share of accepted questions", "game/valid_rate", ".1%"),
    ("game: {answerer}'s win rate", "game/win_rate", ".1%"),
    ("game: labels that are true", "audit/label_truth", ".1%"),
    ("game: judged right by a wrong label", "audit/false_agreement", ".1%"),
    ("game: right, and judged wrong", "audit/lost_credit", ".1%"),
)
"""Rows of the final table: label, figure, form. {asker}, {answerer}: the game's roles; {accuracy}:
what the accuracy on the first set is called."""

GAME = {"win_rate": "game/win_rate", "valid_rate": "game/valid_rate", "hops": "game/hops_mean"}
"""Key of the console → figure of a game's row."""

ENDS = 5
"""Steps whose mean stands for the start of a run, and for its end: one step's rate is of a few
dozen questions."""

MEASURED = 1000
"""Values of a figure that are remembered: the first `ENDS` and the newest, since a run may go back."""

SAMPLED = 10
"""Steps from one sample of questions to the next."""

UPLOAD = 60.0
"""Seconds that Weights & Biases gets at the end to send what it still has."""


class Display:
    """The `Sink` of a run's report. `sinks` get every row, by name; `activity` sees calls to
    actors. `earlier`: the rows of processes before this one, until play begins.

    Nothing that it is told reaches the run again: what cannot be written or sent is said and
    left."""

    def __init__(
        self,
        cfg: Config,
        folder: RunFolder,
        console: Console,
        sinks: Mapping[str, Mirror] = NO_SINKS,
    ) -> None:
        self._folder = folder
        self._console = console
        self._steps = cfg.steps
        self._last_role = cfg.roles[-1]
        # A line for the user, the terminal given back.
        self.event = console.event
        self.stop = console.stop
        console.keep(folder.path / "console.log")
        self._gpus = Gpus()
        self._log = RunLog(folder.path, sinks, self.event)
        self._bars = Outlet(folder.timeline.name, self.event)
        self._bars.do(self._open_timeline)
        self._wandb = None if cfg.telemetry.wandb == "none" else WandbLog(cfg, folder.path)
        self._remote = Outlet("W&B", self.event)
        if self._wandb is not None:
            self._remote.do(self._wandb.open)
        self.activity = Activity(self.span)
        self._accuracy = heldout.accuracy(cfg)
        asker, answerer = cfg.spec.asker, cfg.spec.answerer
        self._names = {"asker": asker, "answerer": answerer, "accuracy": self._accuracy}
        self._measured: dict[str, dict[int, float]] = {name: {} for _, name, _ in TABLE}
        self._voids: Counter[str] = Counter()
        self.earlier = self._log.earlier
        for line in self.earlier:  # a resumed run started where its first process did
            self._note(line["step"], line)
        self._pending: Values = {}

    def restart(self, step: int) -> None:
        """Play (re)starts after `step`."""
        for line in self.earlier:
            if line["step"] <= step:
                self._count(line)
        # A long run's rows take more memory than all else here.
        self.earlier = self._log.earlier = []
        for values in self._measured.values():  # what a run goes back behind is given up
            for later in list(values):
                if later > step:
                    del values[later]
        self._log.restart(step)
        self._console.start(self._steps, step, self.activity.now)

    def span(
        self,
        track: str,
        name: str,
        start: float,
        end: float,
        args: Mapping[str, float | str] | None = None,
    ) -> None:
        """A bar of the timeline, in perf_counter seconds."""
        told = dict(args) if args else None
        self._bars.do(lambda: self._timeline.span(track, name, start, end, told))

    def write(self, step: int, role: str, values: Values) -> None:
        """One row of metrics.jsonl; the console line follows the last one of a step."""
        if role == "game":
            values = {**values, **self.activity.idle(), **self._gpus.figures()}
        self._log.write(step, role, values)
        if self._wandb is not None:
            self._remote.do(partial(self._wandb.write, step, role, values))
        self._note(step, values)
        if role == "game":
            self._pending = self._game(step, values)
        elif role == "eval":
            if SCORE in values:
                self.event(f"step {step}: {self._accuracy} {values[SCORE]:.1%}")
        else:
            self._pending[role + REWARD] = values["reward/mean"]
            if role == self._last_role:
                scores = self._measured[SCORE]
                if scores:  # under "held-out" or "accuracy", with which its name begins
                    self._pending[self._accuracy.split()[0]] = scores[max(scores)]
                self._console.update(self._pending)

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Questions of a round with what became of them."""
        if self._wandb is not None and step % SAMPLED == 1:
            self._remote.do(partial(self._wandb.samples, step, rows))

    def _game(self, step: int, values: Mapping[str, float]) -> Values:
        """What the console shows of a game's row."""
        self._count(values)
        shown = {
            "step": float(step),
            "tokens_per_second": values["tokens_per_second"],
            "games_per_second": values["game/played"] / max(values["time/step"], 1e-9),
            "voids": float(self._voids.total()),
        }
        for key, name in GAME.items():
            if name in values:
                shown[key] = values[name]
        return shown

    def _count(self, values: Mapping[str, Any]) -> None:
        """Add the voids of a game's row."""
        for name, count in values.items():
            if name.startswith("void/") and count is not None:
                self._voids[name.removeprefix("void/")] += int(count)

    def finish(self) -> None:
        """The final table: what changed from the run's start to its end; no start for what was
        measured once."""
        rows = []
        most = 0
        for label, name, form in TABLE:
            values = [value for _, value in sorted(self._measured[name].items())]
            if not values:
                continue
            steps = 1
            if not name.startswith("eval/"):
                steps = min(ENDS, max(1, len(values) // 2))
                most = max(most, steps)
            what = label.format(**self._names)
            start = fmean(values[:steps]) if len(values) > 1 else None
            rows.append((what, start, fmean(values[-steps:]), form))
        run = self._folder
        paths = {
            "run folder": run.path,
            "figures": run.metrics,
            "ledger": run.ledger,
            "policies": run.checkpoints,
        }
        note = "start and end of accuracy: the first and the last evaluation"
        if most:
            means = f"means of the first and the last {most} steps"
            which = means if most > 1 else "the first and the last step"
            note += f"\nstart and end of the others: {which}"
        self._console.finish(rows, paths, note)

    def close(self) -> None:
        """Write what is still in memory, and print how many episodes were void, and why."""
        for cause, count in self._voids.most_common():
            known = causes.find(cause)
            void = f"void, without reward: {count} by {cause}: {known.meaning}"
            self.event(f"{void}. Next: {known.next_step}")
        self._bars.do(lambda: self._timeline.close(), PATIENCE)
        self._log.close()
        self._gpus.close()
        if self._wandb is not None:
            self._remote.do(self._wandb.close, UPLOAD)

    def _open_timeline(self) -> None:
        path = self._folder.timeline
        self._timeline = anew(path, lambda: Timeline(path), self.event)

    def _note(self, step: int, values: Mapping[str, Any]) -> None:
        for name, measured in self._measured.items():
            if values.get(name) is None:
                continue
            measured[step] = values[name]
            if len(measured) > MEASURED:
                del measured[next(islice(measured, ENDS, None))]

"""Where a run's figures go: metrics.jsonl and TensorBoard, the timeline, the console, the cluster's metrics, W&B."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from ssp.base import causes
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry.activity import Activity
from ssp.telemetry.console import Console, Row
from ssp.telemetry.outlet import PATIENCE, Outlet
from ssp.telemetry.runlog import NO_SINKS, RunLog, anew
from ssp.telemetry.runlog import Sink as Mirror
from ssp.telemetry.timeline import Timeline
from ssp.telemetry.wandb_log import WandbLog

TABLE = (
    ("solver: held-out accuracy", "eval/accuracy", ".1%"),
    ("  1 hop", "eval/accuracy_1hop", ".1%"),
    ("  2 hops", "eval/accuracy_2hop", ".1%"),
    ("  3 hops", "eval/accuracy_3hop", ".1%"),
    ("solver: accuracy on the training world", "eval/train/accuracy", ".1%"),
    ("solver: accuracy with search switched off", "eval/nosearch/accuracy", ".1%"),
    ("proposer: hops of accepted questions", "game/hops_mean", ".2f"),
    ("proposer: share of valid questions", "game/valid_rate", ".1%"),
    ("game: solver's win rate", "game/win_rate", ".1%"),
)
"""Rows of the final table: label, figure, form."""


UPLOAD = 60.0
"""Seconds that Weights & Biases gets at the end to send what it still has."""


class Display:
    """The `Sink` of a run's report. `sinks` get every row, by name; `activity` sees calls to actors.

    Nothing that it is told reaches the run again: what cannot be written or sent is said and left."""

    def __init__(
        self, cfg: Config, folder: RunFolder, console: Console, sinks: Mapping[str, Mirror] = NO_SINKS
    ) -> None:
        self._folder, self._console, self._steps, self._last_role = folder, console, cfg.steps, cfg.roles[-1]
        # A line for the user, the terminal given back.
        self.event, self.stop = console.event, console.stop
        self._log = RunLog(folder.path, sinks, self.event)
        self._bars = Outlet(folder.timeline.name, self.event)
        self._bars.do(self._open_timeline)
        self._wandb = None if cfg.telemetry.wandb == "none" else WandbLog(cfg, folder.path)
        self._remote = Outlet("W&B", self.event)
        if self._wandb is not None:
            self._remote.do(self._wandb.open)
        self.activity = Activity(self.span)
        self._first: dict[str, tuple[int, float]] = {}
        self._last: dict[str, tuple[int, float]] = {}
        self._voids: Counter[str] = Counter()
        for line in self._log.earlier:  # a resumed run started where its first process did
            self._note(line["step"], line)
        self._earlier = [*self._log.earlier]
        self._pending: dict[str, float] = {}

    def restart(self, step: int) -> None:
        """Play (re)starts after `step`."""
        for line in self._earlier:  # of processes before this one
            if line["step"] <= step:
                self._count(line)
        self._earlier = []
        self._log.restart(step)
        self._console.start(self._steps, step, self.activity.now)

    def span(
        self, track: str, name: str, start: float, end: float, args: Mapping[str, float | str] | None = None
    ) -> None:
        """A bar of the timeline, in perf_counter seconds."""
        told = dict(args) if args else None
        self._bars.do(lambda: self._timeline.span(track, name, start, end, told))

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """One row of metrics.jsonl; the console line follows the last one of a step."""
        if role == "game":
            values = {**values, **self.activity.idle()}
        self._log.write(step, role, values)
        if self._wandb is not None:
            self._remote.do(partial(self._wandb.write, step, role, values))
        self._note(step, values)
        if role == "game":
            self._pending = self._game(step, values)
        elif role == "eval":
            if "eval/accuracy" in values:
                self.event(f"step {step}: held-out accuracy {values['eval/accuracy']:.1%}")
        else:
            self._pending[f"{role}_reward"] = values["reward/mean"]
            if role == self._last_role:
                if "eval/accuracy" in self._last:
                    self._pending["accuracy"] = self._last["eval/accuracy"][1]
                self._console.update(self._pending)

    def _game(self, step: int, values: Mapping[str, float]) -> dict[str, float]:
        """What the console shows of a game's row."""
        names = {"win_rate": "game/win_rate", "valid_rate": "game/valid_rate", "hops": "game/hops_mean"}
        self._count(values)
        return {
            "step": float(step),
            "tokens_per_second": values["tokens_per_second"],
            "games_per_second": values["game/played"] / max(values["time/step"], 1e-9),
            "voids": float(self._voids.total()),
            **{key: values[name] for key, name in names.items() if name in values},
        }

    def _count(self, values: Mapping[str, Any]) -> None:
        self._voids.update(
            {name[5:]: int(n) for name, n in values.items() if name.startswith("void/") and n is not None}
        )

    def finish(self) -> None:
        """The final table: what changed from the run's first to its last figure; no start for what was measured once."""
        rows: list[Row] = []
        for label, name, form in TABLE:
            if name in self._last:
                (began, first), (ended, last) = self._first[name], self._last[name]
                rows.append((label, first if began < ended else None, last, form))
        run = self._folder
        paths = {"run folder": run.path, "figures": run.metrics, "ledger": run.ledger, "policies": run.checkpoints}
        self._console.finish(rows, paths)

    def close(self) -> None:
        """Write what is still in memory, and print how many episodes were void, and why."""
        for cause, count in self._voids.most_common():
            known = causes.find(cause)
            self.event(f"void, without reward: {count} by {cause}: {known.meaning}. Next: {known.next_step}")
        self._bars.do(lambda: self._timeline.close(), PATIENCE)
        self._log.close()
        if self._wandb is not None:
            self._remote.do(self._wandb.close, UPLOAD)

    def _open_timeline(self) -> None:
        path = self._folder.timeline
        self._timeline = anew(path, lambda: Timeline(path), self.event)

    def _note(self, step: int, values: Mapping[str, Any]) -> None:
        for name in values:
            if name.startswith(("eval/", "game/")) and values[name] is not None:
                self._first.setdefault(name, (step, values[name]))
                self._last[name] = (step, values[name])

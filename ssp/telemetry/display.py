"""Where a run's figures go: metrics.jsonl and TensorBoard, the timeline, the console, the cluster's metrics.

Owns the fan-out of one row and the final table. Promises that files are written before the console. Refuses to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ssp.runfolder import RunFolder
from ssp.telemetry.console import Console, Row
from ssp.telemetry.runlog import RunLog, read_metrics
from ssp.telemetry.timeline import Timeline

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


class Display:
    """The `Sink` of a run's report."""

    def __init__(
        self, folder: RunFolder, console: Console, steps: int, mirror: Callable[[int, str, dict[str, float]], None]
    ) -> None:
        self._folder, self._console, self._steps = folder, console, steps
        earlier = read_metrics(folder.metrics) if folder.metrics.exists() else []
        self._log = RunLog(folder.path, mirror)
        self._timeline = Timeline(folder.timeline)
        self._first: dict[str, tuple[int, float]] = {}
        self._last: dict[str, tuple[int, float]] = {}
        for line in earlier:  # a resumed run started where its first process did
            self._note(line["step"], line)
        self._pending: dict[str, float] = {}
        self._started = False

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """One row of metrics.jsonl; the console line follows the solver's row, the last one of a step."""
        self._log.write(step, role, values)
        self._note(step, values)
        if role == "game" and not self._started:
            self._console.start(self._steps, step - 1)
            self._started = True
        shown = {"step": float(step)}
        if role == "game":
            names = {"win_rate": "game/win_rate", "valid_rate": "game/valid_rate", "hops": "game/hops_mean"}
            shown |= {key: values[name] for key, name in names.items() if name in values}
            shown["tokens_per_second"] = values["tokens_per_second"]
            self._pending = shown
        elif role == "eval":
            self._timeline.save()
            if "eval/accuracy" in values:
                self.event(f"step {step}: held-out accuracy {values['eval/accuracy']:.1%}")
        else:
            self._pending[f"{role}_reward"] = values["reward/mean"]
            if role == "solver":
                if "eval/accuracy" in self._last:
                    self._pending["accuracy"] = self._last["eval/accuracy"][1]
                self._console.update(self._pending)

    def event(self, text: str) -> None:
        """One line for the user."""
        self._console.event(text)

    def span(self, track: str, name: str, start: float, end: float) -> None:
        """One bar of the timeline."""
        self._timeline.span(track, name, start, end)

    def finish(self) -> None:
        """The final table: what changed from the run's first to its last figure; no start for what was measured once."""
        rows: list[Row] = []
        for label, name, form in TABLE:
            if name in self._last:
                (began, first), (ended, last) = self._first[name], self._last[name]
                rows.append((label, first if began < ended else None, last, form))
        paths = {
            "run folder": self._folder.path,
            "figures": self._folder.metrics,
            "ledger": self._folder.ledger,
            "policies": self._folder.checkpoints,
        }
        self._console.finish(rows, paths)

    def close(self) -> None:
        """Write what is still in memory."""
        self._timeline.save()
        self._log.close()

    def _note(self, step: int, values: Mapping[str, Any]) -> None:
        for name in values:
            if name.startswith(("eval/", "game/")) and values[name] is not None:
                self._first.setdefault(name, (step, values[name]))
                self._last[name] = (step, values[name])

"""The sink of a run: files first, then the console; a resumed run goes on where the first one was."""

from __future__ import annotations

import io
from pathlib import Path

from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display
from ssp.telemetry.runlog import read_metrics

GAME = {
    "game/played": 6.0,
    "time/step": 3.0,
    "game/win_rate": 0.5,
    "game/hops_mean": 1.5,
    "game/valid_rate": 0.4,
    "tokens_per_second": 9.0,
}


def display(folder: Path) -> tuple[Display, io.StringIO]:
    folder.mkdir(exist_ok=True)
    out = io.StringIO()
    return Display(Config(steps=4), RunFolder(folder), Console(out, width=120)), out


def step(shown: Display, number: int, **game: float) -> None:
    shown.write(number, "game", {**GAME, **game})
    shown.write(number, "proposer", {"reward/mean": 0.25})
    shown.write(number, "solver", {"reward/mean": 0.75})


def test_one_line_a_step_and_a_table_from_first_to_last(tmp_path: Path) -> None:
    shown, out = display(tmp_path / "run")
    shown.restart(0)
    step(shown, 1)
    assert "held-out" not in out.getvalue()  # nothing was measured, so nothing is claimed
    shown.write(1, "eval", {"eval/accuracy": 0.5})
    step(shown, 2, **{"game/hops_mean": 2.5})
    shown.write(2, "eval", {"eval/accuracy": 0.75, "eval/nosearch/accuracy": 0.0})
    shown.finish()
    shown.close()
    text = out.getvalue()
    assert "step 2/4  proposer 0.25  solver 0.75  win 0.50  valid 0.40  hops 2.50  held-out 50.0%" in text
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in text.splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in rows["solver: held-out accuracy"]] == ["50.0%", "75.0%", "+25.0%"]
    assert [cell.strip() for cell in rows["proposer: hops of accepted questions"]] == ["1.50", "2.50", "+1.00"]
    once = [cell.strip() for cell in rows["solver: accuracy with search switched off"]]
    assert once == ["-", "0.0%", "-"]
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 8
    assert (tmp_path / "run" / "timeline.json").exists()


def test_a_resumed_run_knows_the_accuracy_and_the_start_of_the_first(tmp_path: Path) -> None:
    first, _ = display(tmp_path / "run")
    first.write(0, "eval", {"eval/accuracy": 0.25})
    step(first, 1)
    first.close()
    again, out = display(tmp_path / "run")
    again.restart(1)
    step(again, 2)
    again.write(2, "eval", {"eval/accuracy": 0.5})
    again.finish()
    again.close()
    assert "held-out 25.0%" in out.getvalue()
    assert "│ 25.0% │ 50.0% │ +25.0% │" in out.getvalue()

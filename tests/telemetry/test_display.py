"""The console, and the sink of a run: files first, then the console; a resumed run goes on where the first one was."""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry import gpus, wandb_log
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display
from ssp.telemetry.runlog import read_metrics

GAME = {"game/played": 6.0, "time/step": 3.0, "game/win_rate": 0.5, "game/hops_mean": 1.5, "game/valid_rate": 0.4}
GAME["tokens_per_second"] = 5123.0


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
    shown.event("proposer-0 died, restarting [again]")
    step(shown, 2, **{"game/hops_mean": 2.5})
    shown.write(2, "eval", {"eval/accuracy": 0.75, "eval/nosearch/accuracy": 0.0})
    shown.finish()
    shown.close()
    text = out.getvalue()
    assert "\x1b" not in text and "tok/s 5,123  voids 0  ETA " in text
    assert "! proposer-0 died, restarting [again]" in text.splitlines()
    assert "step 2/4  proposer 0.25  solver 0.75  win 0.50  valid 0.40  hops 2.50  held-out 50.0%" in text
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in text.splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in rows["solver: held-out accuracy"]] == ["50.0%", "75.0%", "+25.0%"]
    assert [cell.strip() for cell in rows["proposer: hops of accepted questions"]] == ["1.50", "2.50", "+1.00"]
    once = [cell.strip() for cell in rows["solver: accuracy with search switched off"]]
    assert once == ["-", "0.0%", "-"]
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 8
    assert (tmp_path / "run" / "timeline.json").exists()


def test_a_long_run_remembers_its_first_and_its_newest_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssp.telemetry.display.MEASURED", 20)
    shown, out = display(tmp_path / "run")
    shown.restart(0)
    for number in range(1, 41):
        step(shown, number, **{"game/hops_mean": float(number)})
    assert [*shown._measured["game/hops_mean"]] == [1, 2, 3, 4, 5, *range(26, 41)]
    shown.restart(38)
    step(shown, 39, **{"game/hops_mean": 10.0})
    shown.finish()
    shown.close()
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in out.getvalue().splitlines() if "│" in line}
    assert [cell.strip() for cell in rows["proposer: hops of accepted questions"]] == ["3.00", "31.20", "+28.20"]


def test_a_resumed_run_knows_the_accuracy_and_the_start_of_the_first(tmp_path: Path) -> None:
    first, _ = display(tmp_path / "run")
    first.write(0, "eval", {"eval/accuracy": 0.25})
    step(first, 1, **{"void/retriever_down": 7.0})
    first.close()
    again, out = display(tmp_path / "run")
    again.restart(1)
    step(again, 2)
    assert "voids 7 " in out.getvalue(), "all so far"
    again.write(2, "eval", {"eval/accuracy": 0.5})
    again.finish()
    again.close()
    assert "held-out 25.0%" in out.getvalue()
    assert "│ 25.0% │ 50.0% │ +25.0% │" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_goes_on_now_also_before_the_first_step(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    console = Console(out, width=60)
    console.start(80, now=lambda: "solver solve 2/2 3s, " + "x" * 100)
    console.stop()
    text = out.getvalue()
    assert "step 0/80  ░░░░░░░░░░░░░░░░░░░░   0%  ETA -" in text
    assert "now: solver solve 2/2 3s, xxx" in text and "…" in text and "x" * 60 not in text


def test_the_time_left_counts_only_this_process(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ssp.telemetry.console.time.monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(out)
    console.start(80, done=40)
    now[0] = 100.0
    console.update({"step": 50})
    assert out.getvalue().strip() == "step 50/80  ETA 5:00"


def test_the_rewards_of_any_games_roles_come_first():
    out = io.StringIO()
    console = Console(out)
    console.start(2)
    console.update({"win_rate": 0.5, "step": 1, "b_reward": 0.25, "a_reward": 0.5, "unknown": 1.0})
    assert out.getvalue().startswith("step 1/2  b 0.25  a 0.50  win 0.50  ETA ")


class Fake(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, float]] = []
        self.finished = 0
        self.tables: list[dict[str, Any]] = []

    def Table(self, **content: Any) -> str:  # noqa: N802
        self.tables.append(content)
        return "table"

    def Settings(self, **settings: Any) -> dict[str, Any]:  # noqa: N802
        return settings

    def init(self, **options: Any) -> Fake:
        self.inits.append(options)
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        assert (name, step_metric) == ("*", "step")

    def log(self, row: dict[str, float]) -> None:
        self.logged.append(row)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


def test_rows_go_there_and_a_resumed_folder_goes_on_in_its_run(fake: Fake, tmp_path: Path) -> None:
    cfg = Config(steps=2)
    cfg.telemetry.wandb = "offline"
    cfg.judge.url = "https://me:secret1@host/v1?key=secret2"
    for step in (1, 2):
        shown = Display(cfg, RunFolder(tmp_path), Console(io.StringIO()))
        shown.write(step, "eval", {"eval/accuracy": 0.5})
        shown.close()
    assert fake.logged == [{"eval/accuracy": 0.5, "step": 1}, {"eval/accuracy": 0.5, "step": 2}]
    first, second = fake.inits
    assert first == second and first["resume"] == "allow" and first["mode"] == "offline" and first["id"]
    assert first["settings"]["save_code"] is False and first["settings"]["console"] == "off"
    assert "secret" not in repr(fake.inits) and fake.finished == 2
    assert first["config"]["steps"] == 2 and first["config"]["judge.url"] == "https://host/v1"


def test_a_round_in_ten_shows_some_of_its_questions_there(fake: Fake, tmp_path: Path) -> None:
    cfg = Config(steps=2)
    cfg.telemetry.wandb = "offline"
    shown = Display(cfg, RunFolder(tmp_path), Console(io.StringIO()))
    for step in range(1, 13):
        shown.samples(step, [{"question": "who ?", "win rate": 0.5}])
    shown.samples(21, [])
    shown.close()
    assert fake.logged == [{"samples": "table", "step": 1}, {"samples": "table", "step": 11}]
    assert fake.tables[0] == {"columns": ["question", "win rate"], "data": [["who ?", 0.5]]}


def test_the_consoles_lines_stay_in_the_run_folder(tmp_path: Path) -> None:
    console = Console(io.StringIO(), width=120)
    console.say("12 actors are starting")  # before there is a folder
    shown = Display(Config(steps=4), RunFolder(tmp_path), console)
    shown.restart(0)
    shown.event("proposer-0 died\x1b[2J, restarting")
    step(shown, 1)
    shown.finish()
    shown.close()
    lines = [line[21:] for line in (tmp_path / "console.log").read_text().splitlines()]
    assert lines[:2] == ["12 actors are starting", "! proposer-0 died\\x1b[2J, restarting"]
    assert lines[2].startswith("step 1/4  proposer 0.25") and any("win rate" in line for line in lines)


class Nvml(ModuleType):
    """Two GPUs: one is busy and half full, one idle and empty."""

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:  # noqa: N802
        return at

    def nvmlDeviceGetMemoryInfo(self, at: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=40 * (1 - at), total=80)

    def nvmlDeviceGetUtilizationRates(self, at: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=100 * (1 - at))


def test_gpus_are_seen_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "EVERY", 0.01)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not there
    none = gpus.Gpus()
    monkeypatch.setitem(sys.modules, "pynvml", Nvml("pynvml"))
    seen = gpus.Gpus()
    end, figures = time.monotonic() + 20, {}
    while not figures and time.monotonic() < end:
        time.sleep(0.02)
        figures = seen.figures()
    seen.close()
    assert figures == {"gpu/utilisation": 0.5, "gpu/memory": 0.25, "gpu/memory_max": 0.5} and none.figures() == {}


def test_none_needs_nothing_and_the_rest_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "wandb" else find(name, *a))
    wandb_log.check("none")
    with pytest.raises(InputError, match="pip install 'wandb"):
        wandb_log.check("offline")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: object())
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb_log.check("offline")
    with pytest.raises(InputError, match="wandb login"):
        wandb_log.check("online")
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password abc\n")
    wandb_log.check("online")

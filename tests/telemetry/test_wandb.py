"""Weights & Biases, with a module in its place: what it is told, and what it never is."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry import wandb_log
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display


class Fake(ModuleType):
    """What of wandb is used."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, float]] = []
        self.finished = 0

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
    assert fake.logged == [{"eval/eval/accuracy": 0.5, "step": 1}, {"eval/eval/accuracy": 0.5, "step": 2}]
    first, second = fake.inits
    assert first == second and first["resume"] == "allow" and first["mode"] == "offline" and first["id"]
    assert first["settings"]["save_code"] is False and first["settings"]["console"] == "off"
    assert "secret" not in repr(fake.inits) and fake.finished == 2


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

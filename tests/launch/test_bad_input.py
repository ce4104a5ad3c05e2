"""Bad input to `ssp train`: exit code 2, one paragraph on stderr that helps, and nothing written. Starts no process."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from launch import train
from launch.main import run
from ssp import runfolder
from ssp.coldstart.store import ARTEFACT
from ssp.config import load

MODEL = f"defaults.model={ARTEFACT}"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where relative paths lead: empty, so that anything written there is seen."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("SSP_HOME", str(place))
    return place


def refused(capsys, home: Path, *settings: str) -> str:
    """The paragraph that `ssp train settings...` refuses with; asserts that it left nothing in `home`."""
    before = sorted(home.rglob("*"))
    code = run(train.main, ["--config", "quickstart", "steps=2", MODEL, *settings])
    printed = capsys.readouterr()
    assert code == 2, printed.err
    assert printed.err.startswith("ssp: ") and printed.err.count("\n") == 1 and "Next: " in printed.err
    assert sorted(home.rglob("*")) == before
    return printed.err


def test_a_missing_corpus(capsys, home, tmp_path):
    text = refused(capsys, home, f"data.corpus={tmp_path / 'nowhere.jsonl'}")
    assert "nowhere.jsonl" in text


def test_a_corpus_line_that_is_not_json_names_its_line(capsys, home, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    good = json.dumps({"id": "0", "contents": '"title"\ntext'})
    corpus.write_text(f"{good}\nnot json\n")
    text = refused(capsys, home, f"data.corpus={corpus}")
    assert "corpus.jsonl" in text and "line 2" in text


def test_an_empty_target(capsys, home, tmp_path):
    targets = tmp_path / "targets.jsonl"
    targets.write_text(json.dumps({"sys_question_example": "", "ground_truth": "", "search_turns": 1}) + "\n")
    assert "targets.jsonl" in refused(capsys, home, f"data.targets={targets}")


def test_a_typo_in_a_key_names_the_nearest_one(capsys, home):
    assert "game.attempts" in refused(capsys, home, "game.atempts=3")


def test_a_checkpoint_of_another_protocol(capsys, home, tmp_path):
    policy = tmp_path / "policy"
    shutil.copytree(ARTEFACT, policy)
    record = json.loads((policy / "ssp.json").read_text())
    (policy / "ssp.json").write_text(json.dumps({**record, "protocol": "other"}))
    text = refused(capsys, home, f"defaults.model={policy}")
    assert "other" in text and "mini" in text


def test_a_run_folder_that_exists(capsys, home, tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    assert str(taken) in refused(capsys, home, f"run.dir={taken}")
    assert not list(taken.iterdir())


def test_a_dashboard_port_in_use(capsys, home, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert str(port) in refused(capsys, home, f"ray.dashboard_port={port}")


def test_no_space_left(capsys, home, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(runfolder.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 0))
    assert "free" in refused(capsys, home)


def test_resume_with_a_changed_setting_shows_the_difference(capsys, home):
    cfg = load("quickstart", ["run.name=old", "steps=2", MODEL])
    folder = runfolder.open_run(cfg, "quickstart")
    folder.write_state({"step": 0, "folders": {}, "versions": {}, "pool": []})
    text = refused(capsys, home, "run.name=old", "resume=auto", "game.attempts=4")
    assert "game.attempts was 6 and is now 4" in text


def test_a_relative_run_dir_inside_a_jobs_copy(capsys, home, monkeypatch, tmp_path):
    copy = tmp_path / runfolder.RAY_COPY / "_ray_pkg_0"
    copy.mkdir(parents=True)
    monkeypatch.delenv("SSP_HOME")
    monkeypatch.chdir(copy)
    assert "SSP_HOME" in refused(capsys, home, "run.dir=somewhere")
    assert not os.listdir(copy)

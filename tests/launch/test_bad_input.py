"""Bad input to `ssp train`: exit code 2, one paragraph on stderr that helps, and nothing written. Starts no process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from fakejudge import Reply, serving

from launch import train
from launch.main import run
from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.judge import endpoint
from ssp.learning.coldstart import ARTEFACT
from ssp.record import runfolder
from ssp.record.ledger import Ledger
from ssp.selfplay.checkpoint import check_resumable
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load

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


WRONG = {
    "data.corpus={}/nowhere.jsonl": "nowhere.jsonl",
    "data.corpus={}/corpus.jsonl": "corpus.jsonl, line 2",
    "data.targets={}/targets.jsonl": "targets.jsonl",
    "defaults.model={}/policy": "mini",
    "run.dir={}/policy": "policy",
    "run.dir={}/corpus.jsonl/run": "writable",
    f"run.name={'a' * 300}": "usable path",
}


@pytest.mark.parametrize("typed", WRONG, ids=lambda typed: typed[:30])
def test_what_is_wrong_is_one_paragraph(capsys, home, tmp_path, typed):
    good = json.dumps({"id": "0", "contents": '"title"\ntext'})
    (tmp_path / "corpus.jsonl").write_text(f"{good}\nnot json\n")
    (tmp_path / "targets.jsonl").write_text('{"sys_question_example": "", "ground_truth": "", "search_turns": 1}\n')
    policy = shutil.copytree(ARTEFACT, tmp_path / "policy")
    record = json.loads((policy / "ssp.json").read_text())
    (policy / "ssp.json").write_text(json.dumps({**record, "protocol": "other"}))
    assert WRONG[typed] in refused(capsys, home, typed.format(tmp_path))


TOLD = {"fields": {"question": "who is it ?"}, "turns": ["<answer> none </answer>"]}
"""A trace of the solver, in protocol mini."""
REHEARSED = {
    "nowhere": (None, "nowhere.jsonl"),
    "torn": ("{", "is one JSON object"),
    "of another role": (
        {**TOLD, "role": "proposer", "fields": {"target": "x"}},
        "warmup.data holds traces of: solver",
    ),
    "of another protocol": ({**TOLD, "turns": ["<tool_call> search </tool_call>"]}, "the policy knows"),
    "of another layout": ({**TOLD, "turns": ["<question> none ? </question>"]}, "the last one hands in"),
    "too long": ({**TOLD, "turns": ["none " * 300 + "<answer> none </answer>"]}, "a trace fits solver.limits"),
}


@pytest.mark.parametrize("case", REHEARSED)
def test_what_cannot_be_rehearsed_is_refused(capsys, home, tmp_path, case):
    row, said = REHEARSED[case]
    file = tmp_path / "nowhere.jsonl"
    if row is not None:
        file.write_text((row if isinstance(row, str) else json.dumps(row)) + "\n")
    assert said in refused(capsys, home, "solver.rehearsal.share=0.2", f"warmup.data={file}", "warmup.epochs=0")


def test_traces_that_have_changed_are_not_gone_on_with(home, tmp_path):
    """Else other ones would be drawn than by the run that nobody interrupted."""
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(TOLD) + "\n")
    settings = ["steps=2", MODEL, "solver.rehearsal.share=0.2", f"warmup.data={file}", "warmup.epochs=0"]
    cursor = read_scene(load("quickstart", settings)).targets().state(0)
    read_scene(load("quickstart", settings)).targets().restore(cursor)
    file.write_text((json.dumps(TOLD) + "\n") * 2)
    with pytest.raises(InputError, match="solver.rehearsal.data has changed"):
        read_scene(load("quickstart", settings)).targets().restore(cursor)


WHOLE = {
    "step": 1,
    "folders": {"proposer": ".", "solver": "."},
    "versions": {"proposer": 1, "solver": 1},
    "pool": [],
    "cursor": {"next": 1, "open": []},
    "health": {},
    "rollbacks": 0,
    "good": {},
    "league": {},
    "credit": {},
}
RECORD = {"protocol": "mini", "protocol_version": 1, "version": 1, "run_step": 1, "step": 0}
"""What its checkpoints say of themselves."""


def ledger_of(folder: runfolder.RunFolder) -> None:
    ledger = Ledger(folder.ledger)
    for role in WHOLE["versions"]:
        ledger.next_version(role)
    ledger.close()


def resumable(tmp_path: Path) -> tuple[runfolder.RunFolder, tuple[str, ...]]:
    """A folder that a run could go on from, and the settings that do."""
    settings = (f"run.dir={tmp_path / 'run'}", "resume=auto", "ray.dashboard=0")
    cfg = load("quickstart", ["steps=2", MODEL, *settings])
    folder = runfolder.open_run(cfg, "quickstart")
    targets = read_scene(cfg).targets()
    folder.write_state({**WHOLE, "cursor": {**WHOLE["cursor"], "mark": targets.state(0)["mark"]}})
    (folder.path / "ssp.json").write_text(json.dumps(RECORD))
    ledger_of(folder)
    check_resumable(folder, cfg, targets)
    return folder, settings


def test_resume_with_a_ledger_older_than_the_checkpoint(capsys, home, tmp_path):
    """One that was restored from elsewhere: numbers that it gave out would be given again, episodes played twice."""
    folder, settings = resumable(tmp_path)
    folder.write_state({**folder.read_state(), "versions": {"proposer": 1, "solver": 2}})
    (folder.path / "ssp.json").write_text(json.dumps({**RECORD, "version": 2}))
    said = refused(capsys, home, MODEL, *settings)
    assert "solver weights up to version 1" in said and "the checkpoint is version 2" in said


def test_resume_with_other_rows_or_another_protocol(capsys, home, tmp_path):
    """A path may lead to another file than before: its rows, or the words they are asked in."""
    rows, own = tmp_path / "rows.jsonl", tmp_path / "own.yaml"
    rows.write_text('{"question": "nuvo mayor ?", "answer": "furi"}\n')
    own.write_text("id: own\nversion: 1\ninherits: mini\n")
    policy = shutil.copytree(ARTEFACT, tmp_path / "policy", ignore=shutil.ignore_patterns("ssp.json"))
    given = [f"data.questions={rows}", f"protocol={own}", f"defaults.model={policy}", "ray.dashboard=0"]
    settings = ("game.questions=dataset", *given, f"run.dir={tmp_path / 'run'}", "resume=auto")
    cfg = load("quickstart", ["steps=2", *settings])
    folder = runfolder.open_run(cfg, "quickstart")
    cursor = read_scene(cfg).targets().state(0)
    folder.write_state({**WHOLE, "folders": {"solver": "."}, "versions": {"solver": 1}, "cursor": cursor})
    ledger_of(folder)
    (folder.path / "ssp.json").write_text(json.dumps({**RECORD, "protocol": "own"}))

    def changed() -> str:
        protocols._read.cache_clear()  # a new process reads the file anew
        return refused(capsys, home, *settings)

    rows.write_text('{"question": "nuvo mayor ?", "answer": "fura"}\n')
    assert "rows and the words of the protocol" in changed()
    rows.write_text('{"question": "nuvo mayor ?", "answer": "furi"}\n')
    own.write_text("id: own\nversion: 1\ninherits: mini\nretry: again\n")
    assert "rows and the words of the protocol" in changed()
    own.write_text("id: own\nversion: 2\ninherits: mini\n")
    assert "own (version 2)" in changed()


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        '{"folders": {"solver": 5}}',
        json.dumps({**WHOLE, "step": "1"}),
        json.dumps({**WHOLE, "more": 1}),
        json.dumps({**WHOLE, "cursor": {"next": 1}}),
        json.dumps({**WHOLE, "folders": {"solver": "."}}),
        json.dumps({**WHOLE, "folders": {"proposer": ".", "solver": "nowhere"}}),
    ],
)
def test_resume_from_a_broken_state(capsys, home, tmp_path, state):
    folder, settings = resumable(tmp_path)
    folder.state.write_text(state)
    assert "state.json" in refused(capsys, home, *settings)


def test_resume_without_a_sound_ledger(capsys, home, tmp_path):
    folder, settings = resumable(tmp_path)
    content = folder.ledger.read_bytes()
    folder.ledger.write_bytes(os.urandom(8192))
    assert "restore it, or start a new run" in refused(capsys, home, *settings)
    folder.ledger.write_bytes(content[: 2 * 4096] + os.urandom(len(content) - 2 * 4096))
    assert "ledger" in refused(capsys, home, *settings)
    folder.ledger.unlink()
    assert "ledger" in refused(capsys, home, *settings)


@pytest.mark.covers("SP-07")
def test_a_judge_that_gives_no_verdict(capsys, home, monkeypatch):
    """Before a run starts, not after its first round."""
    monkeypatch.setattr(endpoint, "BACKOFF", 0.001)
    named = ["judge.kind=llm", "judge.model=m"]
    with serving(lambda said, number: Reply("The model `m` does not exist.", 404)) as server:
        text = refused(capsys, home, *named, f"judge.url={server.url}")
    assert "judge_refused" in text and "The model `m` does not exist." in text
    verifies = ["referee.verifier=judge", "referee.evidence=none", "judge.kind=exact"]
    assert "judge_down" in refused(capsys, home, *named, *verifies, f"judge.url={server.url}")

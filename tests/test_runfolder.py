"""Run folders: which one a run gets, what a resume accepts, what is never lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace

import pytest

from ssp.base.errors import InputError, InvariantError
from ssp.base.models import resolve
from ssp.config.load import load, names
from ssp.config.schema import Config, RunConfig
from ssp.record.runfolder import RunFolder, check_space, locate, open_run


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    return tmp_path


def with_state(folder: RunFolder, version: int = 1) -> RunFolder:
    paths = {role: folder.checkpoint(role, version) for role in ("proposer", "solver")}
    for path in paths.values():
        path.mkdir(parents=True)
    folder.write_state({"step": version, "folders": {role: folder.relative(path) for role, path in paths.items()}})
    return folder


def test_runs_are_numbered_by_config(home):
    names = [open_run(Config(), name).name for name in ("quickstart", "configs/quickstart.yaml", "other")]
    assert names == ["quickstart-001", "quickstart-002", "other-001"]
    assert open_run(Config(), "qwen2.5-7b-ppo").name == "qwen2.5-7b-ppo-001"
    folder = RunFolder(home / "runs" / "quickstart-001")
    assert folder.config.is_file() and folder.episodes.is_dir() and not folder.resumed
    assert not [path for path in (home / "runs").iterdir() if path.name.startswith(".")]


def test_an_explicit_name_or_folder_is_used_once(home):
    for run in (RunConfig(name="mine"), RunConfig(dir="elsewhere/x"), RunConfig(dir=str(home / "abs"))):
        open_run(Config(run=run), "quickstart")
        with pytest.raises(InputError, match="must not exist yet.*resume=auto"):
            open_run(Config(run=run), "quickstart")
    assert sorted(path.name for path in home.iterdir()) == ["abs", "elsewhere", "runs"]


def test_auto_continues_the_newest_run_with_a_checkpoint(home):
    cfg = Config(resume="auto")
    assert not open_run(cfg, "q").resumed
    with_state(open_run(cfg, "q"))
    again = open_run(replace(cfg, steps=200, run=RunConfig()), "q")
    assert (again.name, again.resumed) == ("q-002", True)
    assert "steps: 200" in again.config.read_text()


def test_a_run_of_an_earlier_version_goes_on(home):
    """It had not every key of today, which was then as its default is; and one that is gone since."""
    cfg = Config(resume="auto")
    folder = open_run(cfg, "q")
    with_state(folder)
    lines = folder.config.read_text().splitlines()
    kept = [line for line in lines if "kind: ''" not in line]
    assert len(kept) < len(lines)
    folder.config.write_text("\n".join([*kept, "transfer:", "  kind: auto", ""]))
    assert locate(cfg, "q").resumed
    with pytest.raises(InputError, match="game.kind was '' and is now 'duel'"):
        locate(replace(cfg, game=replace(cfg.game, kind="duel")), "q")


def test_auto_goes_on_with_the_newest_runs_warm_start(home):
    """Which is no checkpoint of the game; its settings count as a checkpoint's do."""
    cfg = Config(resume="auto")
    open_run(cfg, "q").start.mkdir()
    again = locate(cfg, "q")
    assert (again.name, again.resumed) == ("q-001", False)
    with pytest.raises(InputError, match="seed was 0 and is now 3"):
        locate(Config(resume="auto", seed=3), "q")


def test_auto_with_a_folder_starts_it_or_continues_it(home):
    cfg = Config(resume="auto", run=RunConfig(dir="x"))
    first = open_run(cfg, "q")
    assert not first.resumed and not open_run(cfg, "q").resumed
    with_state(first)
    assert open_run(cfg, "q").resumed
    (home / "foreign").mkdir()
    with pytest.raises(InputError, match="must not exist yet"):
        open_run(Config(resume="auto", run=RunConfig(dir="foreign")), "q")


def test_a_path_continues_there_and_nowhere_else(home):
    folder = with_state(open_run(Config(), "q"))
    assert open_run(Config(resume="runs/q-001"), "q").path == folder.path
    with pytest.raises(InputError, match="needs a run folder with a checkpoint"):
        locate(Config(resume="runs/none"), "q")
    with pytest.raises(InputError, match="leave run.dir out"):
        locate(Config(resume="runs/q-001", run=RunConfig(dir="y")), "q")


def test_a_changed_setting_is_refused_and_shown(home):
    folder = with_state(open_run(Config(), "q"))
    before = folder.config.read_bytes()
    changed = Config(resume="auto", seed=3)
    changed.solver.learner.lr = 0.1
    changed.placement.players["solver"] = 5
    with pytest.raises(InputError) as error:
        open_run(changed, "q")
    assert error.value.found == "seed was 0 and is now 3, solver.learner.lr was 0.0005 and is now 0.1"
    assert folder.config.read_bytes() == before


def test_the_steps_at_which_a_league_takes_members_are_no_saving_alone(home):
    def typed(every: int, match: str) -> Config:
        return load(
            "quickstart", [f"save.every={every}", f"league.match={match}", "resume=auto", f"run.dir=runs/{match}"]
        )

    for match in ("self", "prioritised"):
        with_state(open_run(typed(5, match), "q"))
    assert locate(typed(1, "self"), "q").resumed
    with pytest.raises(InputError, match=r"save\.every was 5 and is now 1"):
        locate(typed(1, "prioritised"), "q")


def test_a_setting_that_is_gone_counts_for_no_role_of_any_name(home):
    cfg = load("spice-qwen3-4b", ["resume=auto", "run.dir=runs/spice"])
    folder = with_state(open_run(cfg, "q"))
    stored = folder.config.read_text()
    assert "\nchallenger:\n" in stored
    folder.config.write_text(stored.replace("\nchallenger:\n", "\nchallenger:\n  gamma: 1.0\n"))
    assert locate(cfg, "q").resumed


def test_inside_a_job_a_relative_path_needs_a_home(tmp_path, monkeypatch):
    copy = tmp_path / "session_1" / "runtime_resources" / "working_dir_files" / "pkg"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    assert resolve("runs/x") == tmp_path / "runs" / "x"
    monkeypatch.delenv("SSP_HOME")
    with pytest.raises(InputError, match="inside a job a relative data.corpus needs SSP_HOME"):
        resolve("corpus.jsonl", "data.corpus")
    with pytest.raises(InputError, match="inside a job"):
        open_run(Config(), "q")
    assert resolve(str(tmp_path / "a")) == tmp_path / "a"
    monkeypatch.chdir(tmp_path)
    assert resolve("a") == tmp_path / "a"


def test_too_little_space_writes_nothing(home, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10**9, 10**9 - 5_000_000, 5_000_000))
    with pytest.raises(InputError, match=r"needs 200 MB of free space. Found: 5 MB at"):
        open_run(Config(), "q")
    assert not (home / "runs").exists()
    check_space(home / "not" / "yet", 4_000_000)
    with pytest.raises(InputError, match="free space"):
        check_space(home, 6_000_000)


def test_a_name_taken_in_between_gives_the_next_one(home, monkeypatch):
    real, taken = os.rename, []

    def rename(source, target):
        if not taken:
            taken.append(target)
            (target / "episodes").mkdir(parents=True)
        real(source, target)

    monkeypatch.setattr("os.rename", rename)
    assert open_run(Config(), "q").name == "q-002"
    assert sorted(path.name for path in (home / "runs").iterdir()) == ["q-001", "q-002"]


def test_one_process_plays_in_a_folder(home):
    cfg = Config(resume="auto", run=RunConfig(dir="x"))
    folder = with_state(open_run(cfg, "q"))
    before = folder.config.read_text()
    other = (
        "import sys; from ssp.config.schema import Config, RunConfig; from ssp.record.runfolder import open_run\n"
        "print(open_run(Config(steps=9, resume='auto', run=RunConfig(dir='x')), 'q').resumed)"
    )

    def resume() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)

    assert "one process plays in a run folder" in resume().stderr
    assert folder.config.read_text() == before
    os.close(folder._lock)
    assert resume().stdout == "True\n"
    folder.hold()  # that process has ended, so its lock has too


def test_a_folder_that_cannot_be_made_is_refused(home):
    (home / "file").write_text("")
    with pytest.raises(InputError, match="must be writable"):
        open_run(Config(run=RunConfig(dir="file/x")), "q")


def test_state_is_replaced_whole_and_checked(home):
    folder = open_run(Config(), "q")
    assert folder.read_state() is None
    with_state(folder, 1)
    assert folder.read_state()["folders"]["solver"] == "checkpoints/solver/v1"
    with pytest.raises(ValueError):
        folder.write_state({"folders": {}, "loss": float("nan")})
    assert folder.read_state()["step"] == 1
    folder.write_state({"folders": {"solver": "checkpoints/solver/v9"}})
    with pytest.raises(InputError, match="names .*v9"):
        folder.read_state()
    for broken in ("{", "[]", json.dumps({"folders": 3})):
        folder.state.write_text(broken)
        with pytest.raises(InputError, match=r"state.json must name"):
            folder.read_state()


@pytest.mark.covers("RS-09")
def test_pruning_keeps_the_newest_and_the_named(home):
    folder = open_run(Config(), "q")
    with pytest.raises(InvariantError):
        folder.prune(1)
    with_state(folder, 2)
    for version in (1, 9, 10, 11):
        folder.checkpoint("solver", version).mkdir()
    (folder.checkpoints / "solver" / ".v3.gone").mkdir()
    (folder.checkpoints / "solver" / "notes").mkdir()
    gone = folder.prune(2)
    assert [path.name for path in gone] == ["v1", "v9"]
    left = sorted(path.name for path in (folder.checkpoints / "solver").iterdir())
    assert left == ["notes", "v10", "v11", "v2"]
    assert folder.checkpoint("proposer", 2).is_dir()


def test_what_a_disk_does_not_give_up_ends_no_run(home, monkeypatch):
    """As NFS keeps a file that is open: the next save tries again."""
    folder = open_run(Config(), "q")
    with_state(folder, 2)
    folder.checkpoint("solver", 1).mkdir()
    (folder.checkpoint("solver", 1) / "model.safetensors").write_text("")
    with monkeypatch.context() as busy:
        busy.setattr("os.rmdir", lambda *args, **more: (_ for _ in ()).throw(OSError(39, "Directory not empty")))
        assert folder.prune(1) == [folder.checkpoint("solver", 1)] and folder.prune(1) == []
    folder.prune(1)
    assert [path.name for path in (folder.checkpoints / "solver").iterdir()] == ["v2"]


def test_a_disk_without_locks_is_named(home, monkeypatch):
    folder = open_run(Config(), "q")
    monkeypatch.setattr("fcntl.lockf", lambda *args: (_ for _ in ()).throw(OSError(38, "Function not implemented")))
    monkeypatch.setattr("fcntl.fcntl", lambda *args: (_ for _ in ()).throw(OSError(38, "Function not implemented")))
    with pytest.raises(InputError, match="has locks. Found: .*Function not implemented"):
        RunFolder(folder.path).hold()
    assert not RunFolder(folder.path).held


def test_a_run_with_options_of_a_reward_goes_on(home):
    """Each option stands in config.yaml by its own name, and none lies in the default."""
    cfg = Config(resume="auto")
    cfg.solver.reward_options = {"search_cost": 0.05}
    with_state(open_run(cfg, "q"))
    assert locate(cfg, "q").resumed
    cfg.solver.reward_options = {"search_cost": 0.1}
    with pytest.raises(InputError, match="solver.reward_options.search_cost was 0.05 and is now 0.1"):
        locate(cfg, "q")
    cfg.solver.reward_options = {}
    with pytest.raises(InputError, match="solver.reward_options.search_cost was 0.05 and is now None"):
        locate(cfg, "q")


@pytest.mark.parametrize("name", names())
def test_every_shipped_configuration_goes_on_with_its_own_settings(name, home):
    cfg = load(name, ["resume=auto"])
    with_state(open_run(cfg, "q"))
    assert locate(cfg, "q").resumed

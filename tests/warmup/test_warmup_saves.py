"""A warm start that is interrupted, or whose learner dies, loses nothing that was saved and ends with the same weights."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import pytest
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ssp.base.crew import Call, LocalCrew
from ssp.base.episode import Episode
from ssp.base.errors import Fault, InputError
from ssp.config.schema import Config, WarmupConfig
from ssp.learning.warmup import loop, saves, traces
from ssp.learning.warmup.taught import Taught
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.selfplay.workers.learner import Learner
from tests.blocks import made

WARMUP = made(WarmupConfig, data="x", epochs=2, batch=4, heldout=0.25)
STEPS = 6


@pytest.fixture(scope="module")
def cfg() -> Config:
    settings = ["solver.learner.lr=2e-3", "solver.learner.schedule=cosine", "solver.learner.warmup_steps=2"]
    made = load("quickstart", settings)
    return replace(made, warmup=WARMUP, solver=loop.recipe(made.solver), steps=STEPS)


@pytest.fixture(scope="module")
def folder(cfg: Config) -> Path:
    return Path(build.model_dir(cfg, "solver"))


@pytest.fixture(scope="module")
def episodes(cfg: Config, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    told = traces.read(lessons.write(tmp_path_factory.mktemp("lessons") / "traces.jsonl", 16))
    return traces.episodes(told, build.renderer(cfg, "solver", folder), cfg.solver.limits, 3)


class Mortal(LocalCrew):
    """A learner whose process ends in the calls of these numbers (from 1), by method, before they are made or after them;
    `cancels`: calls in which the command is told to end."""

    def __init__(self, cfg: Config, folder: Path, **ends: Any) -> None:
        self.fresh = lambda: Learner(cfg, "solver", folder)
        super().__init__(Taught, "learner", lambda i: self.fresh())
        self.ends, self.calls = {"before": {}, "after": {}, "cancels": {}, **ends}, Counter[str]()

    async def perform(self, worker: int, call: Call, *args: Any) -> Any:
        method = call.name
        self.calls[method] += 1
        if self._now("before", method):
            raise self._end()
        answer = await super().perform(worker, call, *args)
        if self._now("cancels", method):
            raise asyncio.CancelledError
        if self._now("after", method):
            raise self._end()
        return answer

    def _now(self, when: str, method: str) -> bool:
        return self.calls[method] in self.ends[when].get(method, ())

    def _end(self) -> Fault:
        self.workers[0] = self.fresh()
        return Fault("learner_died")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save after every second update."""
    due = iter([False, True] * 1000)
    monkeypatch.setattr(saves.Saves, "due", lambda self: next(due))


def taught(cfg: Config, crew: Mortal, episodes: list[Episode], out: Path, cfg_of: Config | None = None) -> list[float]:
    """Losses of the updates that were made."""
    seen: list[float] = []
    progress = loop.Progress(lambda values: seen.extend([values["nll"]] if "nll" in values else []))
    kept = saves.Saves(out, {"role": "solver"}, saves.fingerprint(cfg_of or cfg, "solver", episodes))
    asyncio.run(loop.train(crew[0], episodes, WARMUP, 0, progress, kept))
    return seen


@pytest.fixture(scope="module")
def whole(cfg: Config, folder: Path, episodes: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nobody interrupted."""
    out = tmp_path_factory.mktemp("whole") / "warm"
    assert len(taught(cfg, Mortal(cfg, folder), episodes, out)) == STEPS
    return out


def same(one: Path, other: Path) -> bool:
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (one, other))
    return ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("told", ["learn 1", "learn 4", "learn 6", "measure 3", "export 1"])
def test_what_is_there_after_ctrl_c_is_a_policy_and_goes_on(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path, told: str
) -> None:
    """In an update, in the last one, while the result is measured, and while it is written."""
    method, number = told.split()
    out = tmp_path / "warm"
    with pytest.raises(asyncio.CancelledError):
        taught(cfg, Mortal(cfg, folder, cancels={method: {int(number)}}), episodes, out)
    build.check_policy(cfg, "solver", out)
    AutoModelForCausalLM.from_pretrained(out)
    assert AutoTokenizer.from_pretrained(out).encode("<search>") == build.tokenizer(folder).encode("<search>")
    done, _ = saves.began(out)
    assert done == (int(number) if method == "learn" else STEPS)
    crew = Mortal(cfg, folder)
    assert len(taught(cfg, crew, episodes, out)) == STEPS - done == crew.calls["learn"]
    assert same(out, whole) and {path.name for path in tmp_path.iterdir()} == {"warm"}
    assert not list(out.glob("optimizer*")) and saves.ENTRY not in json.loads((out / "ssp.json").read_text())


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("ends", "again"),
    [
        ({"before": {"learn": {5}}}, 0),
        ({"after": {"learn": {4}}}, 1),
        ({"before": {"learn": {1, 3}}}, 1),
        ({"after": {"save": {1}}}, 0),
        ({"before": {"load": {1}, "learn": {5}}}, 0),
        ({"before": {"measure": {2}}}, 0),
        ({"after": {"export": {1}}}, 2),
    ],
)
def test_a_dead_learner_costs_what_was_learned_since_the_last_save(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path, ends: Any, again: int
) -> None:
    crew = Mortal(cfg, folder, **ends)
    assert len(taught(cfg, crew, episodes, tmp_path / "warm")) == STEPS + again
    assert same(tmp_path / "warm", whole)
    assert {path.name for path in tmp_path.iterdir()} == {"warm"}


def test_only_a_death_is_mended(cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path) -> None:
    crew = Mortal(cfg, folder, before={"learn": {2}})
    crew._end = lambda: Fault("payload_lost")  # type: ignore[method-assign]
    with pytest.raises(Fault, match="payload_lost"):
        taught(cfg, crew, episodes, tmp_path / "warm")
    with pytest.raises(Fault, match="learner_died"):  # always in the same update
        taught(cfg, Mortal(cfg, folder, before={"learn": {2, 4, 6}}), episodes, tmp_path / "other")


def test_what_is_not_this_warm_starts_is_refused(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path
) -> None:
    out = tmp_path / "warm"
    with pytest.raises(asyncio.CancelledError):
        taught(cfg, Mortal(cfg, folder, cancels={"learn": {2}}), episodes, out)
    faster = replace(cfg, solver=replace(cfg.solver, learner=replace(cfg.solver.learner, lr=1e-3)))
    smaller = replace(cfg, solver=replace(cfg.solver, learner=replace(cfg.solver.learner, token_budget=64)))
    for other, data in ((faster, episodes), (cfg, episodes[:-1])):
        with pytest.raises(InputError, match="the same data, model and settings"):
            taught(cfg, Mortal(cfg, folder), data, out, other)
    for foreign in (whole, folder, tmp_path):
        with pytest.raises(InputError, match="does not exist yet"):
            taught(cfg, Mortal(cfg, folder), episodes, foreign)
    taught(cfg, Mortal(cfg, folder), episodes, out, smaller)  # which may be what was wrong


@pytest.mark.parametrize("left", ["nothing else", "an older one", "half of one", "the finished one"])
def test_a_process_killed_between_two_renamings_leaves_a_save(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path, left: str
) -> None:
    out = tmp_path / "warm"
    with pytest.raises(asyncio.CancelledError):
        taught(cfg, Mortal(cfg, folder, cancels={"learn": {2}}), episodes, out)
    kept = saves.Saves(out, {}, saves.fingerprint(cfg, "solver", episodes))
    out.rename(tmp_path / ".warm.ssp-2")
    if left == "an older one":
        shutil.copytree(tmp_path / ".warm.ssp-2", tmp_path / ".warm.ssp-1")
        record = json.loads((tmp_path / ".warm.ssp-1" / "ssp.json").read_text())
        (tmp_path / ".warm.ssp-1" / "ssp.json").write_text(json.dumps({**record, "step": 1}))
    if left == "half of one":
        (tmp_path / ".warm.ssp-3.tmp-1").mkdir()
    if left == "the finished one":  # what is missing is learned again
        shutil.copytree(whole, tmp_path / ".warm.ssp-1")
    found = kept.begun()
    assert found is not None and found[0] == 2 and {path.name for path in tmp_path.iterdir()} == {"warm"}


def test_speed_and_time_left_from_the_first_measurement_on() -> None:
    now, shown = [0.0], []
    progress = loop.Progress(lambda values: shown.append(dict(values)), lambda: now[0])
    progress.begin(0, [300, 300, 600])
    assert progress.left() is None
    progress.measured(30, 1.0)  # 30 tokens a second forward, 10 to learn
    assert (progress.left(), shown[-1]) == (120.0, {"step": 0, "tokens_per_second": 10.0})
    now[0] = 20.0
    assert progress.left() == 100.0
    progress.learned(20.0, 2.5)
    assert (progress.left(), shown[-1]) == (60.0, {"step": 1, "tokens_per_second": 15.0, "nll": 2.5})
    now[0] = 500.0
    assert progress.left() == 0.0
    progress.begin(2, [300, 300, 600])
    progress.learned(30.0, 2.0)
    assert (progress.left(), shown[-1]["tokens_per_second"]) == (0.0, 20.0)

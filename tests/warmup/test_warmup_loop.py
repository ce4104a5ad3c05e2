"""A warm start learns what the policy should have said, and nothing else of the trace; interrupted, it loses nothing
that was saved and ends with the same weights."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ssp.base.crew import CrewCall, LocalCrew
from ssp.base.episode import Episode
from ssp.base.errors import InputError
from ssp.config.schema import Config, WarmupConfig
from ssp.learning.scored import Scored
from ssp.learning.warmup import loop, traces
from ssp.learning.warmup.taught import Taught
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.selfplay.workers.learner import Learner

WARMUP = WarmupConfig(epochs=2, batch=5)
STEPS = 6


@pytest.fixture(scope="module")
def cfg() -> Config:
    settings = ["solver.learner.lr=2e-3", "solver.learner.schedule=cosine", "solver.learner.warmup_steps=2"]
    made = load("quickstart", [*settings, "solver.learner.token_budget=2048"])
    return replace(made, blocks=made.blocks | {"solver": loop.recipe(made.solver)}, steps=STEPS)


@pytest.fixture(scope="module")
def folder(cfg: Config) -> Path:
    return Path(build.model_dir(cfg, "solver"))


@pytest.fixture(scope="module")
def episodes(cfg: Config, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    told = traces.read(lessons.write(tmp_path_factory.mktemp("lessons") / "traces.jsonl", 16))
    return traces.episodes(told, build.renderer(cfg, "solver", folder), cfg.solver.limits, 3)


class Interrupted(LocalCrew):
    """A learner; the command is told to end in call number `number` (from 1) of `method`."""

    def __init__(self, cfg: Config, folder: Path, method: str = "", number: int = 0) -> None:
        super().__init__(Taught, "learner", lambda i: Learner(cfg, "solver", folder))
        self.at, self.calls = (method, number), Counter[str]()

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        self.calls[call.name] += 1
        answer = await super().perform(worker, call, *args)
        if self.at == (call.name, self.calls[call.name]):
            raise asyncio.CancelledError
        return answer


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    due = iter([False, True] * 1000)
    monkeypatch.setattr(loop.Saves, "due", lambda self: next(due))


def taught(
    cfg: Config, crew: Interrupted, episodes: list[Episode], out: Path, cfg_of: Config | None = None
) -> tuple[loop.Summary, list[float]]:
    seen: list[float] = []
    kept = loop.Saves(out, {"role": "solver"}, loop.fingerprint(cfg_of or cfg, WARMUP, "solver", episodes))
    summary = loop.train(crew[0], episodes, WARMUP, 0, lambda values: seen.append(values["nll"]), kept)
    return asyncio.run(summary), seen


@pytest.fixture(scope="module")
def whole(cfg: Config, folder: Path, episodes: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "warm"
    summary, seen = taught(cfg, Interrupted(cfg, folder), episodes, out)
    assert (summary.steps, summary.learned) == (STEPS, 15) == (len(seen), 15)
    assert seen[-1] < 0.9 * seen[0]
    assert summary.before is not None and summary.after is not None and summary.after < summary.before
    return out


def same(one: Path, other: Path) -> bool:
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (one, other))
    return ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.covers("SR-08")
def test_what_it_writes_is_a_policy_that_has_learned(cfg: Config, folder: Path, whole: Path) -> None:
    assert not same(whole, folder)
    build.check_policy(cfg, "solver", whole)


def test_the_figure_is_the_mean_negative_log_prob_of_what_the_policy_wrote(
    cfg: Config, folder: Path, episodes: list[Episode]
) -> None:
    figures = Learner(cfg, "solver", folder).measure(
        [Scored(1.0, row, block="b", row=row) for row in range(4)], ["b"], episodes[:4]
    )
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    total, tokens = 0.0, 0
    for episode in episodes[:4]:
        ids = torch.tensor([episode.log.ids])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
        mask = episode.log.mask[1:]
        total -= float(logprobs[np.arange(len(mask)), ids[0, 1:]][torch.from_numpy(mask)].sum())
        tokens += int(mask.sum())
    assert figures["tokens"] == tokens < sum(len(episode.log) for episode in episodes[:4])
    assert figures["nll"] == pytest.approx(total / tokens, abs=1e-5)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("told", ["learn 1", "learn 4", "learn 6", "measure 3", "save 1", "export 2"])
def test_what_is_there_after_ctrl_c_is_a_policy_and_goes_on(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path, told: str
) -> None:
    """In an update, in the last one, while the result is measured, and while it is written."""
    method, number = told.split()
    out = tmp_path / "warm"
    with pytest.raises(asyncio.CancelledError):
        taught(cfg, Interrupted(cfg, folder, method, int(number)), episodes, out)
    build.check_policy(cfg, "solver", out)
    assert AutoTokenizer.from_pretrained(out).encode("<search>") == build.tokenizer(folder).encode("<search>")
    done, _ = loop.began(out)
    assert done == {"learn": int(number), "save": 2}.get(method, STEPS)
    crew = Interrupted(cfg, folder)
    summary, seen = taught(cfg, crew, episodes, out)
    assert len(seen) == STEPS - done == crew.calls["learn"] and not math.isnan(summary.after or 0.0)
    assert same(out, whole) and {path.name for path in tmp_path.iterdir()} == {"warm"}
    assert not list(out.glob("optimizer*")) and loop.ENTRY not in json.loads((out / "ssp.json").read_text())


def test_what_is_not_this_warm_starts_is_refused_and_what_was_moved_aside_comes_back(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path, whole: Path
) -> None:
    out = tmp_path / "warm"
    with pytest.raises(asyncio.CancelledError):
        taught(cfg, Interrupted(cfg, folder, "learn", 2), episodes, out)
    faster = replace(
        cfg, blocks=cfg.blocks | {"solver": replace(cfg.solver, learner=replace(cfg.solver.learner, lr=1e-3))}
    )
    smaller = replace(
        cfg, blocks=cfg.blocks | {"solver": replace(cfg.solver, learner=replace(cfg.solver.learner, token_budget=64))}
    )
    for other, data in ((faster, episodes), (cfg, episodes[:-1])):
        with pytest.raises(InputError, match="the same data, model and settings"):
            taught(cfg, Interrupted(cfg, folder), data, out, other)
    for foreign in (whole, folder, tmp_path):
        with pytest.raises(InputError, match="does not exist yet"):
            taught(cfg, Interrupted(cfg, folder), episodes, foreign)
    out.rename(tmp_path / ".warm.ssp-old")  # a process was killed between two renamings
    (tmp_path / ".warm.ssp-3.tmp-1").mkdir()
    found = loop.Saves(out, {}, loop.fingerprint(cfg, WARMUP, "solver", episodes)).begun()
    assert found is not None and found[0] == 2 and {path.name for path in tmp_path.iterdir()} == {"warm"}
    taught(cfg, Interrupted(cfg, folder), episodes, out, smaller)  # which may be what was wrong


class Told:
    """A learner whose held-out nats a token are `nats` by its number of updates; call `number` (from 1) of `method` ends
    in `error`, once it is done."""

    def __init__(self, nats: dict[int, float], method: str = "", number: int = 0, error: type[BaseException] = OSError):
        self.nats, self.step, self.at, self.error, self.calls = nats, 0, (method, number), error, Counter[str]()

    def _done(self, name: str) -> None:
        self.calls[name] += 1
        if self.at == (name, self.calls[name]):
            raise self.error

    async def learn(self, samples: object, names: object, block: object) -> dict[str, float]:
        self.step += 1
        self._done("learn")
        return {"nll": 0.0}

    async def measure(self, samples: object, names: object, block: object) -> dict[str, float]:
        self._done("measure")
        return {"nll": self.nats[self.step], "tokens": 7.0}

    async def save(self, folder: str, meta: dict[str, Any]) -> None:
        Path(folder).mkdir()
        (Path(folder) / "ssp.json").write_text(json.dumps({**meta, "step": self.step}))
        self._done("save")

    async def export(self, folder: str, meta: dict[str, Any]) -> None:
        Path(folder).mkdir()
        (Path(folder) / "ssp.json").write_text(json.dumps({**meta, "protocol": "mini", "updates": self.step}))
        self._done("export")

    async def load(self, folder: str) -> None:
        self.step = json.loads((Path(folder) / "ssp.json").read_text())["step"]


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("error", [asyncio.CancelledError, OSError])
@pytest.mark.parametrize(
    ("nats", "updates", "best", "after"),
    [((3, 2, 1.5, 1.6, 1), 9, 6, 1.5), ((3, 3.5, 3.6, 1, 1), 6, 3, 3.5), ((3, 2.0, 1.5, 1.4, 1), 12, 12, 1.0)],
    ids=["it rises", "it is worse than before", "it always falls"],
)
def test_it_ends_where_heldout_does_not_fall_and_keeps_the_epoch_before(
    episodes: list[Episode],
    tmp_path: Path,
    error: type[BaseException],
    nats: Any,
    updates: int,
    best: int,
    after: float,
) -> None:
    """Also when it was stopped, or killed, in any call: three updates an epoch, four epochs at most."""
    course, measured = WarmupConfig(epochs=4, batch=5), {3 * epoch: value for epoch, value in enumerate(nats)}

    def go(learner: Told, out: Path) -> loop.Summary:
        taught: Any = learner
        return asyncio.run(loop.train(taught, episodes, course, 0, lambda _: None, loop.Saves(out, {}, "this")))

    calls = Told(measured)
    assert go(calls, tmp_path / "whole") == loop.Summary(updates, 15, 3, after)
    for method, count in calls.calls.items():
        for number in range(1, count + 1):
            out = tmp_path / f"{method}-{number}"
            with pytest.raises(error):
                go(Told(measured, method, number, error), out)
            assert not loop.finished(out)
            assert go(Told(measured), out) == loop.Summary(updates, 15, 3, after), (method, number)
            assert loop.finished(out) and json.loads((out / "ssp.json").read_text())["updates"] == best
    assert not list(tmp_path.glob(".*"))

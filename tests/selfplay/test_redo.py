"""A learner that dies comes back alone: the weights of a run without a death, and the other role hears nothing of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import FakeLearner, Stage, config, scripted

from ssp.coldstart.store import ARTEFACT
from ssp.episode import PROPOSER, ROLES, SOLVER
from ssp.errors import Fault, SspError
from ssp.selfplay import local
from ssp.transfer import files
from ssp.workers import learner as learner_worker

SHARED = {"proposer__policy": "shared", "solver__policy": "shared"}


class Mortal(FakeLearner):
    """Its weights say which batches made them. A death takes weights and publications along, before the work or after it:
    `late` is of calls that die once they are done, by name. `born`: processes, by role."""

    late: dict[str, set[int]] = {}
    born: Counter[str] = Counter()
    dead: dict[str, int] = {}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        Mortal.born[self.role] += 1
        self.lineage: list[list[str]] = []

    def _maybe_die(self, method: str) -> None:
        try:
            super()._maybe_die(method)
        except Fault:
            self._end()
            raise

    def _end(self) -> None:
        self.close()
        Mortal.born[self.role] += 1
        self.lineage = []

    def _after(self, method: str, answer: Any = None) -> Any:
        name = f"{self.role}/{method}"
        if FakeLearner.calls[name] in Mortal.late.get(name, ()):
            self._end()
            raise Fault(f"learner-{self.role}_died")
        return answer

    def exported(self) -> dict[str, np.ndarray]:
        digest = np.frombuffer(repr(self.lineage).encode(), np.uint8).astype(np.int64)
        return {"w": np.array([len(self.lineage), (digest * np.arange(1, len(digest) + 1)).sum() % 2**20], np.float32)}

    def update(self, plan: Any, *blocks: Any) -> Any:
        self._maybe_die("update")
        self.lineage.append([blocks[block][row].id for block, row, *_ in plan])
        return self._after("update", self._publish({"loss": 0.0, "tokens": 1.0, "busy": 0.0}))

    def update_all(self, plans: Any, *blocks: Any) -> Any:
        self._maybe_die("update_all")
        self.lineage.append([blocks[block][row].id for plan in plans.values() for block, row, *_ in plan])
        parcel, figures = self._publish({"loss": 0.0, "tokens": 1.0, "busy": 0.0})
        return self._after("update_all", (parcel, {role: dict(figures) for role in plans}))

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        os.makedirs(f"{folder}.tmp-1")
        self._maybe_die("save")
        os.rename(f"{folder}.tmp-1", folder)
        (Path(folder) / "ssp.json").write_text(json.dumps({**meta, "lineage": self.lineage}))
        self._after("save")

    def load(self, folder: str) -> None:
        self._maybe_die("load")
        self.lineage = json.loads((Path(folder) / "ssp.json").read_text())["lineage"]


@pytest.fixture(autouse=True)
def _mortal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripted(monkeypatch)
    Mortal.late, Mortal.born = {}, Counter()
    monkeypatch.setattr(local, "Learner", Mortal)
    made = files.MemoryShelf
    monkeypatch.setattr("ssp.transfer.outbox.MemoryShelf", lambda run, role, keep: made(run, role, keep, tmp_path))


def played(path: Path, jitter: int | None = None, **changes: Any) -> Stage:
    FakeLearner.calls.clear()
    Mortal.born.clear()
    stage = Stage(config(**{"steps": 5, "save__every": 2, **changes}), path, jitter=jitter)
    stage.play()
    stage.settled()
    assert stage.state()["step"] == 5
    return stage


def lineages(stage: Stage) -> dict[str, list[list[str]]]:
    """What made the weights of the last checkpoint, by role: the batches, without how often a block was issued."""
    folders = {role: stage.folder.absolute(folder) for role, folder in stage.state()["folders"].items()}
    made = {role: json.loads((folder / "ssp.json").read_text())["lineage"] for role, folder in folders.items()}
    return {role: [[id.rsplit(".", 1)[0] for id in batch] for batch in batches] for role, batches in made.items()}


def trained(stage: Stage) -> Counter[str]:
    return Counter(row["id"].rsplit(".", 1)[0] for row in stage.rows() if row["state"] == "trained")


def alone(stage: Stage) -> bool:
    """Whether no death took the run back."""
    said = [text for text in stage.sink.events if "goes back to its last checkpoint" in text]
    return bool(said) and not any("back to the last checkpoint" in text for text in stage.sink.events)


@lru_cache
def undisturbed(bounds: tuple[int, int]) -> tuple[dict[str, list[list[str]]], Counter[str]]:
    """What a run learns in which nobody dies."""
    limits = {f"schedule__max_staleness__{role}": bound for role, bound in zip(ROLES, bounds, strict=True)}
    with TemporaryDirectory() as folder:
        stage = played(Path(folder) / "plain", **limits)
        return lineages(stage), trained(stage)


@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
@pytest.mark.parametrize(
    "death", ["early update 1", "early update 4", "late update 4", "early save 3", "late save 3", "late save 4"]
)
def test_the_weights_are_those_of_a_run_without_a_death(tmp_path: Path, death: str, bounds: tuple[int, int]) -> None:
    """Before the update, after it and before anybody hears, while a checkpoint is written and after that, in the last one."""
    limits = {f"schedule__max_staleness__{role}": bound for role, bound in zip(ROLES, bounds, strict=True)}
    made, learned = undisturbed(bounds)
    when, method, number = death.split()
    (Mortal.late if when == "late" else FakeLearner.fail_at)[f"proposer/{method}"] = {int(number)}
    stage = played(tmp_path / "run", **limits)
    assert alone(stage) and Mortal.born == {PROPOSER: 2, SOLVER: 1}
    assert lineages(stage) == made and trained(stage) == learned
    assert max(trained(stage).values()) == 1 and not stage.ledger.outcomes().get("drop/rolled_back")
    for role in ROLES:  # no version is skipped, no row is written twice
        assert [row["version"] for row in stage.figures(role)] == [2, 3, 4, 5, 6] and stage.sink.steps(role) == [
            1,
            2,
            3,
            4,
            5,
        ]
    folders = {path.name for path in (stage.folder.checkpoints / PROPOSER).iterdir()}
    assert not [name for name in folders if "tmp" in name]


@pytest.mark.parametrize("kind", ["shm", "disk", "object_store"])
def test_players_find_the_versions_that_they_had(tmp_path: Path, kind: str) -> None:
    """Files go with the process that wrote them; rounds under way still play by older versions."""
    limits = {f"schedule__max_staleness__{role}": 2 for role in ROLES}
    made, _ = undisturbed((2, 2))
    FakeLearner.fail_at = {"solver/update": {4}}
    stage = played(tmp_path / "run", transfer__kind=kind, **limits)
    assert alone(stage) and lineages(stage) == made


@pytest.mark.parametrize("call", ["update_all", "save"])
def test_a_shared_policy_comes_back_for_both_roles(tmp_path: Path, call: str) -> None:
    plain = played(tmp_path / "plain", **SHARED)
    FakeLearner.fail_at = {f"solver/{call}": {3}}
    stage = played(tmp_path / "run", **SHARED)
    assert alone(stage) and lineages(stage) == lineages(plain) and trained(stage) == trained(plain)


def test_the_other_role_goes_on_meanwhile(tmp_path: Path) -> None:
    """Within its bound: it makes further versions between the death and the return."""
    limits = {f"schedule__max_staleness__{role}": 2 for role in ROLES}
    stage = Stage(config(steps=6, save__every=2, **limits), tmp_path / "run", jitter=1)
    order: list[str] = []
    inner = stage.cast.learners

    def note(role: str) -> Any:
        async def call(worker: int, method: str, *args: Any) -> Any:
            order.append(f"{role} {method}")
            if role == PROPOSER and method == "load":
                for _ in range(20_000):
                    if order.count("solver update") >= before + 1:
                        break
                    await asyncio.sleep(0)
            return await real[role](worker, method, *args)

        return call

    real = {role: inner[role].call for role in ROLES}
    for role in ROLES:
        inner[role].call = note(role)  # type: ignore[method-assign]
    FakeLearner.fail_at = {"proposer/update": {3}}
    before = 2
    stage.play()
    stage.settled()
    died = [i for i, call in enumerate(order) if call == "proposer update"][2]
    back = order.index("proposer load")
    assert alone(stage) and "solver update" in order[died : order.index("proposer weights", back)]
    assert Mortal.born == {PROPOSER: 2, SOLVER: 1}


@pytest.mark.parametrize(
    ("room", "fails"),
    [
        (1, {"solver/update": {4}}),  # bytes: nothing is kept
        (None, {"solver/update": {4}, "solver/load": {1}}),  # it dies again while it loads,
        (None, {"solver/update": {4, 5}}),  # while it learns again,
        (None, {"solver/update": {4, 6}}),  # and in the update that was interrupted
    ],
)
def test_what_cannot_be_done_again_takes_the_run_back(tmp_path: Path, room: int | None, fails: Any) -> None:
    stage = Stage(config(steps=5, save__every=2), tmp_path / "run")
    stage.cfg.queue.bytes = room or stage.cfg.queue.bytes  # the queues are made
    FakeLearner.fail_at = fails
    stage.play()
    stage.settled()
    assert any("back to the last checkpoint" in text for text in stage.sink.events)
    assert stage.state()["step"] == 5 and stage.ledger.outcomes()["drop/rolled_back"] > 0
    assert len([text for text in stage.sink.events if "pass queue.bytes=1:" in text]) == (room is not None)


def test_a_loss_that_nobody_can_place_takes_the_run_back_at_once(tmp_path: Path) -> None:
    """The judges get every block; a learner that came back would lack the same."""
    stage = Stage(config(steps=4, save__every=2), tmp_path / "run")
    stage.cast.learners[SOLVER].fails = fakes.on_calls("update", 4, cause="payload_lost")  # type: ignore[attr-defined]
    stage.play()
    stage.settled()
    assert not alone(stage) and any("payload_lost; back to the last" in text for text in stage.sink.events)


def test_deaths_count_together(tmp_path: Path) -> None:
    FakeLearner.fail_at = {"solver/update": {2, 6}, "proposer/update": {3}}
    stage = Stage(config(steps=6, save__every=1, placement__restarts=2), tmp_path / "run")
    with pytest.raises(SspError, match="learners died 3 times: giving up"):
        stage.play()


@pytest.mark.parametrize("shared", [False, True])
def test_real_learners_come_back_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """With what an update changes beside the weights: a running baseline, an adaptive coefficient, an anchor, a
    rate that falls."""
    fail: dict[str, set[int]] = {}
    counts = Counter[str]()

    class Real(learner_worker.Learner):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._args = args

        def _maybe(self, name: str) -> None:
            counts[f"{self._role}/{name}"] += 1
            if counts[f"{self._role}/{name}"] in fail.get(f"{self._role}/{name}", ()):
                Real.__init__(self, *self._args)
                raise Fault(f"learner-{self._role}_died")

        def update(self, *args: Any) -> Any:
            self._maybe("update")
            return super().update(*args)

        def update_all(self, *args: Any) -> Any:
            self._maybe("update_all")
            return super().update_all(*args)

    monkeypatch.setattr(local, "Learner", Real)
    block = {
        "algorithm": "reinforce", "baseline": "running", "loss": "pg", "kl__coef": 0.1, "kl__target": 0.01,
        "kl__horizon": 20.0, "kl__ema_tau": 0.9, "kl__ema_every": 2, "learner__schedule": "cosine", "learner__lr": 1e-3,
    }  # fmt: skip
    settings = {f"{role}__{key}": value for role in ROLES for key, value in block.items()}
    settings |= {"steps": 4, "save__every": 2, "eval__every": 0, "proposer__batch": 4, "solver__batch": 3}
    settings |= SHARED if shared else {}

    def weights(name: str) -> dict[str, bytes]:
        counts.clear()
        stage = Stage(config(**settings), tmp_path / name, model=ARTEFACT)
        stage.play()
        stage.settled()
        assert not fail or alone(stage)
        folders = {role: stage.folder.absolute(folder) for role, folder in stage.state()["folders"].items()}
        return {
            f"{role}/{file}": (folder / file).read_bytes()
            for role, folder in folders.items()
            for file in ("model.safetensors", "ssp.json")
        }

    plain = weights("plain")
    fail |= {"solver/update_all" if shared else "solver/update": {4}}
    assert weights("run") == plain

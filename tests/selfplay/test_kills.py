"""Exactly once, whatever dies and when: whole runs whose workers, learners, ledger and driver are killed at every
call, before it is heard and after its effect, in the middle of a save and around the renaming of a checkpoint. What the
final weights were trained on is then compared with the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import MODEL, FakeLearner, Stage, config, world

from ssp.base.crew import Around, Crew, CrewCall, LocalCrew
from ssp.base.episode import Episode, Grade, Task, Verdict
from ssp.base.errors import Fault
from ssp.base.played import Brief
from ssp.config.crews import learners
from ssp.record.ledger import HomeLedger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.crews.cast import GONE, Cast
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.records import PlayReport
from ssp.selfplay.report import Report
from ssp.selfplay.targets import Targets
from tests import local


class Killed(BaseException):
    """The driver's process is gone: nothing of it goes on."""


class Killer:
    """Decides who dies, seeded. What has not been killed yet is killed soon; else one call of many."""

    def __init__(self, seed: int, rate: float, driver: float) -> None:
        self._rng, self._rate, self._driver = random.Random(seed), rate, driver
        self.kills, self.points = Counter[str](), Counter[str]()
        self.dead: asyncio.Event
        self.peace = False

    def strikes(self, point: str) -> bool:
        self.points[point] += 1
        rate = self._driver if point.startswith("driver") else self._rate
        rate = max(rate, 0.1) if self.kills[point] == 0 else rate
        hit = not self.peace and self._rng.random() < rate
        self.kills[point] += hit
        return hit

    async def pause(self) -> None:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)

    def at_once(self, point: str) -> None:
        """The driver dies inside a call of its own."""
        if self.dead.is_set() or self.strikes(point):
            self.dead.set()
            raise Killed(point)

    async def driver(self, point: str) -> None:
        """The driver dies while it waits: whatever it still does reaches nobody."""
        if self.dead.is_set() or self.strikes(point):
            self.dead.set()
            await asyncio.Event().wait()


class Mortal(Around[Any]):
    """A crew whose workers, and whose caller, die before a call is heard, or after it had its effect."""

    def __init__(self, inner: LocalCrew, killer: Killer, kind: str, fresh: Any = None) -> None:
        super().__init__(inner)
        self._killer, self._kind, self._fresh = killer, kind, fresh

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        where, idempotent = f"{self._kind}/{call.name}", call.repeats
        await self._killer.driver(f"driver before {where}")
        await self._killer.pause()
        if self._killer.strikes(f"before {where}") and not self._dies(worker, idempotent):
            raise Fault(f"{self.name}_died")
        answer = await self.inner.perform(worker, call, *args)
        if self._killer.strikes(f"after {where}"):
            if not self._dies(worker, idempotent):
                raise Fault(f"{self.name}_died")
            answer = await self.inner.perform(worker, call, *args)
        await self._killer.driver(f"driver after {where}")
        return answer

    def _dies(self, worker: int, idempotent: bool) -> bool:
        """It comes back without its state; True when the call is simply made again."""
        if self._fresh is not None:
            self.inner.workers[worker] = self._fresh()
        return idempotent


class Player:
    def __init__(self, cfg: Any, role: str, *args: Any) -> None:
        self.role = role

    def play(self, tasks: list[Task], order: Any, version: int, parcel: Any) -> tuple[list[Episode], PlayReport]:
        made = [Episode(t.id, t.game, t.role, t.attempt, t.seed, stopped="final", final=f"{t.game} ?") for t in tasks]
        for episode in made:
            episode.log.append_model([episode.seed % 97], [-0.5], version)
            if episode.seed % 29 == 0:
                episode.void(Fault("retriever_down"))
                episode.final = None
        return made, PlayReport([Brief.of(e, "", row) for row, e in enumerate(made)], {"busy": 0.0})


class Judge:
    """A quarter of the questions break a rule, now and then nobody can tell; two thirds of the answers are right."""

    def __init__(self, *args: Any) -> None:
        pass

    def verify(self, block: list[Episode], asked: list[Any], *live: Any) -> tuple[list[Verdict], float]:
        return [self._verdict(episode) for episode in block], 0.0

    def _verdict(self, episode: Episode) -> Verdict:
        if episode.outcome is not None or episode.seed % 31 == 0:
            return Verdict(False, void_cause=episode.cause or "judge_down")
        return Verdict(episode.seed % 4 != 0, "" if episode.seed % 4 else "leakage")

    def grade(self, block: list[Episode], items: list[Any]) -> tuple[list[Grade], float]:
        right = [block[row].seed % 3 > 0 for row, *_ in items]
        return [Grade(one, float(one)) for one in right], 0.0

    def answers(self) -> bool:
        return True


class Learner(FakeLearner):
    """Its weights are the list of all episodes that they were trained on."""

    killer: Killer

    def __init__(self, cfg: Any, role: str, model_dir: Path) -> None:
        super().__init__(cfg, role, model_dir)
        self.lineage: list[str] = []

    def update(self, samples: Any, *blocks: Any) -> Any:
        self.lineage += [sample.id for sample in samples[self.role]]
        return super().update(samples, *blocks)

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        aside = Path(f"{folder}.tmp-1")
        os.makedirs(aside)
        Learner.killer.at_once("driver in the middle of a save")
        text = json.dumps({**meta, "step": self.updates, "lineage": self.lineage})
        (aside / "ssp.json").write_text(text)
        Learner.killer.at_once("driver before a checkpoint is renamed")
        os.rename(aside, folder)

    def load(self, folder: str) -> None:
        super().load(folder)
        self.lineage = json.loads((Path(folder) / "ssp.json").read_text())["lineage"]


class Run(Stage):
    """A run folder, and processes that are made anew after each death of the driver."""

    def __init__(self, cfg: Any, path: Path, killer: Killer) -> None:
        self.killer = killer
        super().__init__(cfg, path)

    def wrap(self, cast: Cast, jitter: int | None) -> None:
        cfg, killer = self.cfg, self.killer

        def mortal(crew: Crew, kind: str, fresh: Any = None) -> Mortal:
            assert isinstance(crew, LocalCrew)
            return Mortal(crew, killer, kind, fresh)

        self.cast = replace(
            cast,
            players={role: mortal(crew, "player") for role, crew in cast.players.items()},
            judges=mortal(cast.judges, "judge"),
            learners={
                name: mortal(crew, "learner", lambda name=name: Learner(cfg, name, MODEL))
                for name, crew in cast.learners.items()
            },
            ledger=mortal(cast.ledger, "ledger", lambda: HomeLedger(self.folder.ledger)),
        )

    def game(self) -> SelfPlay:
        targets = Targets(self.items(), self.cfg.proposer.batch, self.cfg.seed)
        report = Report(self.sink, world(), workers=6, spec=self.cfg.spec)
        return SelfPlay(self.cfg, self.cast, self.folder, targets, report, Evaluator(self.cfg, []))

    async def live(self) -> bool:
        """Play until the end or the driver's death; False for the latter."""
        self.killer.dead = asyncio.Event()
        game = asyncio.create_task(self.game().run())
        death = asyncio.create_task(self.killer.dead.wait())
        await asyncio.wait({game, death}, return_when=asyncio.FIRST_COMPLETED)
        if not self.killer.dead.is_set():
            death.cancel()
            await game
            return True
        game.cancel()
        await asyncio.gather(game, return_exceptions=True)
        return False

    def lineage(self, role: str) -> list[str]:
        crew = self.cast.learners[role]
        assert isinstance(crew, Mortal)
        return list(crew.inner.workers[0].lineage)


def play_to_the_end(path: Path, killer: Killer, **changes: Any) -> tuple[Run, int]:
    """The run when it is over, and how often its driver died."""
    cfg = config(**{"eval__every": 0, "placement__restarts": 10**9, **changes})
    for deaths in range(10_000):
        stage = Run(cfg, path, killer)
        try:
            if asyncio.run(asyncio.wait_for(stage.live(), 300)):
                return stage, deaths
        except BaseException as error:
            if not killer.dead.is_set():
                raise
            assert _only_killed(error), error
    raise AssertionError("it never ends")


def _only_killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_only_killed, error.exceptions))
    return isinstance(error, Killed | asyncio.CancelledError)


def everything_once(stage: Run) -> None:
    """The laws, and each episode of the final weights is one trained row of the ledger and the other way round."""
    stage.settled()
    for learner, roles in learners(stage.cfg).items():
        assert roles == (learner,)
        lineage = stage.lineage(learner)
        assert max(Counter(lineage).values()) == 1
        rows = stage.rows(f"SELECT id FROM episodes WHERE role = '{learner}' AND state = 'trained'")
        assert {row["id"] for row in rows} == set(lineage)
    issued = Counter((row["id"].rsplit(".", 1)[0]) for row in stage.rows() if row["state"] == "trained")
    assert max(issued.values()) == 1  # of several issues of one task, one was trained


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeLearner.reset()
    for name, made in (("Player", Player), ("Judge", Judge), ("Learner", Learner)):
        monkeypatch.setattr(local, name, made)
    write = RunFolder.write_state

    def write_state(self: RunFolder, state: Any) -> None:
        Learner.killer.at_once("driver before state.json")
        write(self, state)
        Learner.killer.at_once("driver after state.json")

    monkeypatch.setattr(RunFolder, "write_state", write_state)


@pytest.mark.parametrize(("bound", "refill"), [(0, 1), (2, 1), (2, 3)])
def test_a_run_that_is_killed_at_many_points(tmp_path: Path, bound: int, refill: int) -> None:
    Learner.killer = killer = Killer(bound + refill, 0.03, 0.01)
    changes: dict[str, Any] = {"steps": 5, "bounds": (bound, bound), "game__refill": refill}
    stage, deaths = play_to_the_end(tmp_path / "run", killer, **changes)
    everything_once(stage)
    assert deaths >= 3 and killer.kills.total() >= 30
    assert stage.state()["step"] == 5


def test_a_run_that_is_told_to_end_while_a_learner_dies_ends(tmp_path: Path) -> None:
    """A task group whose task fails while it is cancelled raises the failure alone."""
    Learner.killer = killer = Killer(1, 0.0, 0.0)
    killer.peace = True
    stage = Run(config(eval__every=0, save__every=1, steps=4), tmp_path / "run", killer)
    crew = stage.cast.learners["solver"]
    calls: list[str] = []

    async def scenario() -> None:
        killer.dead = asyncio.Event()
        told = asyncio.create_task(stage.game().run())
        perform = crew.perform

        async def dies(worker: int, call: CrewCall, *args: Any) -> Any:
            calls.append(call.name)
            if call.name == "save" and calls.count("save") == 2:
                told.cancel()
                raise Fault(GONE)  # which takes the run back to its last checkpoint
            return await perform(worker, call, *args)

        crew.perform = dies  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await told

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert calls.count("save") == 2


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_ten_thousand_games_and_a_kill_at_every_kind_of_transition(tmp_path: Path) -> None:
    Learner.killer = killer = Killer(7, 0.02, 0.003)
    sizes = {"proposer__batch": 50, "solver__batch": 40, "save__every": 3}
    stage, deaths = play_to_the_end(tmp_path / "run", killer, steps=90, **sizes, bounds=(2, 1))
    everything_once(stage)
    (games,) = stage.rows("SELECT count(*) AS n FROM games")
    never = sorted(point for point, calls in killer.points.items() if calls >= 20 and not killer.kills[point])
    print(f"{games['n']} games, {killer.kills.total()} kills, {deaths} of the driver, at {len(killer.points)} points")
    assert games["n"] >= 10_000 and killer.kills.total() >= 200 and never == []

"""Engines and learners that share GPUs: whose turn it is, over whole games and over random schedules."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config

from ssp.base.crew import Crew, CrewCall
from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.base.errors import Fault, SspError
from ssp.config.crews import SharedGpus, shared_gpus, takes_turns
from ssp.engines import Generation, ScriptedEngine
from ssp.selfplay.crews import turns
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Learners, Players
from ssp.selfplay.workers import build

SHARED = {"proposer__policy": "shared", "solver__policy": "shared"}
COLOCATE = {"placement__layout": "colocate", "placement__engine_gpus": 0.5, "placement__learner_gpus": 0.5}
FLEET = {"placement__layout": "shared-base", "placement__engine_gpus": 0.5, "placement__learner_gpus": 0.25}
LAYOUTS = {"colocate": COLOCATE, "colocate-shared": COLOCATE | SHARED, "shared-base": FLEET}


# the map from settings to shared


def test_who_shares_gpus() -> None:
    assert shared_gpus(config()) == () and not takes_turns(config())
    assert shared_gpus(config(**COLOCATE)) == tuple(SharedGpus((role,), (role,), (role,)) for role in ROLES)
    assert shared_gpus(config(**COLOCATE, **SHARED)) == (SharedGpus(ROLES, ROLES, (SOLVER,)),)
    assert shared_gpus(config(**FLEET)) == (SharedGpus(ROLES, (SOLVER,), ROLES),)
    whole = {"placement__engine_gpus": 1.0, "placement__learner_gpus": 1.0}
    assert shared_gpus(config(**{**FLEET, **whole})) == ()
    alone = config(**COLOCATE, game__questions="dataset")
    assert shared_gpus(alone) == (SharedGpus((SOLVER,), (SOLVER,), (SOLVER,)),)
    frozen = config(**COLOCATE, proposer__policy="frozen")  # its learner holds weights on a CPU
    assert shared_gpus(frozen) == (SharedGpus((SOLVER,), (SOLVER,), (SOLVER,)),)
    assert takes_turns(frozen) and takes_turns(frozen, SOLVER) and not takes_turns(frozen, PROPOSER)


# whole games


class Sleepy(ScriptedEngine):
    """Gives its memory back; fails when it is asked to work in its sleep, or told twice."""

    made: list[Sleepy] = []

    def __init__(self) -> None:
        super().__init__(fakes.script)
        self.asleep, self.slept = False, 0
        Sleepy.made.append(self)

    def sleep(self) -> None:
        assert not self.asleep
        self.asleep, self.slept = True, self.slept + 1

    def wake(self) -> None:
        assert self.asleep
        self.asleep = False

    def step(self, *args: Any) -> list[Generation]:
        assert not self.asleep
        return super().step(*args)


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> None:
    Sleepy.made = []
    monkeypatch.setattr(build, "engine", lambda block, folder, sleeps=False: Sleepy() if sleeps else PLAIN)


PLAIN = ScriptedEngine(fakes.script)


def test_a_game_with_turns_is_the_game_without(sleepy: None, tmp_path: Path) -> None:
    made, plain = Stage(config(**COLOCATE), tmp_path / "turns", jitter=3), Stage(config(), tmp_path / "plain")
    made.whole()
    plain.play()
    assert made.ledger.digest() == plain.ledger.digest()
    assert len(Sleepy.made) == sum(made.cfg.placement.players.values())
    assert all(3 <= engine.slept <= 10 for engine in Sleepy.made)  # each step once, evaluations and the start


@pytest.mark.parametrize(("cause", "tries"), [("engine_awake", 1), ("solver_died", turns.TRIES)])
def test_a_player_that_does_not_sleep_ends_the_run(sleepy: None, tmp_path: Path, cause: str, tries: int) -> None:
    made = Stage(config(**COLOCATE), tmp_path / "run")
    made.cast.players["solver"].fails = lambda worker, method, *rest: cause if method == "sleep" and worker == 1 else ""  # type: ignore
    with pytest.raises(SspError, match=f"solver-1 shares its GPU .* does not sleep .{cause}.*Next: lower"):
        made.play()
    told = [worker for worker, method, _ in made.cast.players["solver"].calls if method == "sleep"]  # type: ignore[attr-defined]
    assert told.count(1) == tries


# any schedule


class Toy:
    """Crews on shared GPUs whose workers fail when a law is broken; each call takes some turns of the loop."""

    def __init__(self, cfg: Any, rng: random.Random) -> None:
        self.rng, self.awake, self.learning, self.playing = rng, dict.fromkeys(ROLES, True), "", Counter[str]()
        self.done: list[str] = []
        self.shared = shared_gpus(cfg)
        crews: Any = {role: ToyCrew(Players, role, self) for role in ROLES}
        learners: Any = {role: ToyCrew(Learners, f"learner-{role}", self) for role in ROLES}
        self.cast = Cast(crews, crews[SOLVER], learners, crews[SOLVER])

    def seats(self, name: str) -> SharedGpus:
        return next(v for v in self.shared if name in (*v.roles, *(f"learner-{n}" for n in v.learners)))


class ToyCrew(Crew[Any]):
    size = 1

    def __init__(self, kind: Any, name: str, toy: Toy) -> None:
        super().__init__(kind, name)
        self._toy = toy

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        method = call.name
        toy, gpus = self._toy, self._toy.seats(self.name)
        await self._while()
        if method in ("sleep", "wake"):
            assert not any(toy.playing[role] for role in gpus.roles) or method == "wake"
            if toy.rng.random() < 0.2:
                toy.awake[self.name] = True
                raise Fault("died")
            toy.awake[self.name] = method == "wake"
            return
        busy = [name for name in gpus.learners if toy.playing[f"learner-{name}"]]
        assert not busy, "somebody learns"
        if method == "update":
            assert not any(toy.playing[role] for role in gpus.roles) and not any(toy.awake[r] for r in gpus.sleepers)
        else:
            assert all(toy.awake[role] for role in gpus.sleepers)
        toy.playing[self.name] += 1
        try:
            await self._while()
            if toy.rng.random() < 0.1:
                raise Fault("died")
        finally:
            toy.playing[self.name] -= 1
        toy.done.append(self.name)

    async def _while(self) -> None:
        for _ in range(self._toy.rng.randrange(6)):
            await asyncio.sleep(0)


async def mess(toy: Toy, cfg: Any, rng: random.Random) -> tuple[int, list[BaseException]]:
    """Many tasks that play or learn, again and again; some are cancelled. How many ended well, and what went wrong."""
    cast = turns.seated(cfg, toy.cast)
    names = {role: (crew, "play") for role, crew in cast.players.items()}
    crews = [*names.values(), *((cast.learners[role], "update") for role in ROLES)]

    async def body(crew: Any, method: str) -> None:
        for _ in range(5):
            try:
                await getattr(crew[0], method)()
            except Fault:
                pass
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(body(*rng.choice(crews))) for _ in range(12)]
    for task in rng.sample(tasks, 3):
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        task.cancel()
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    wrong = [e for e in ended if isinstance(e, BaseException) and not isinstance(e, asyncio.CancelledError)]
    return sum(e is None for e in ended), wrong


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_schedule_breaks_a_turn_or_stands_still(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TRIES", 40)
    for seed in range(60):
        rng, cfg = random.Random(f"{layout}{seed}"), config(**LAYOUTS[layout])
        toy = Toy(cfg, rng)
        well, wrong = asyncio.run(mess(toy, cfg, rng))
        assert not wrong, (seed, wrong)
        assert well >= 9 and not any(toy.playing.values())


def test_turns_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    """A learner does not wait for plays that came after it, and these do not wait for a learner that came later."""
    toy = Toy(config(**FLEET), random.Random(1))
    toy.rng.random = lambda: 1.0  # type: ignore[method-assign]
    seen: list[str] = []

    async def schedule() -> None:
        floor = turns._Floor([toy.cast.players[SOLVER]])

        async def one(name: str) -> None:
            async with floor.learning() if name.isupper() else floor.playing():
                seen.append(name)
                await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(*map(one, "abLMcN")), 5)

    asyncio.run(schedule())
    assert "".join(seen) == "abLMcN"

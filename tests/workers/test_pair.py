"""A player of each role on one engine: whose turn it is, and who is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from actors.workers import RoleCrew
from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, SOLVER
from ssp.config.schema import Config
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.workers import build
from ssp.selfplay.workers.player import PlayerPair

BASE = Path("/models/base")


class Stub:
    """A player that says who it is, and waits for as many to play at once as it is told."""

    meets = threading.Barrier(2)

    def __init__(self, cfg: Config, role: str, model: Path, search: Any, episodes: Path, engine: str) -> None:
        self.role, self.engine, self.playing, self.most = role, engine, 0, 0

    def play(self, meets: bool) -> tuple[str, int]:
        self.playing += 1
        self.most = max(self.most, self.playing)
        if meets:
            self.meets.wait(10)
        else:
            time.sleep(0.02)
        self.playing -= 1
        return self.role, self.most

    def sleep(self) -> str:
        return f"{self.engine} sleeps"


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> PlayerPair:
    monkeypatch.setattr(build, "faces", lambda cfg, base, sleeps: {role: f"{base.name}-{role}" for role in cfg.roles})
    stub: Any = Stub
    return PlayerPair(Config(), dict.fromkeys((PROPOSER, SOLVER), BASE), None, Path(), stub)  # type: ignore[arg-type]


def test_both_roles_play_at_once_and_each_one_block_at_a_time(pair: PlayerPair) -> None:
    together = [threading.Thread(target=pair.play, args=(role, True)) for role in (PROPOSER, SOLVER)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join(20)
    assert not Stub.meets.broken, "each waited for the other, and it came"
    alone = [threading.Thread(target=pair.play, args=(SOLVER, False)) for _ in range(4)]
    for thread in alone:
        thread.start()
    for thread in alone:
        thread.join(20)
    assert pair.play(SOLVER, False) == (SOLVER, 1)


def test_a_crew_of_a_role_asks_its_player(pair: PlayerPair) -> None:
    pairs: Any = LocalCrew(Players, "engine", lambda i: pair, size=2)
    for role in (PROPOSER, SOLVER):
        crew = RoleCrew(pairs, role)
        assert (crew.name, crew.size) == (role, 2)
        assert asyncio.run(crew[1].play(False))[0] == role
        assert asyncio.run(crew[0].sleep()) == f"base-{role} sleeps"

"""Weights that change in the middle of play: tokens and episodes say so, versions only go up, nobody waits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import MODEL, brief, config, game, script, search, tasks, tokens

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError
from ssp.engines.base import Generation, LiveEngine, Sampling
from ssp.selfplay.records import PlayOrder
from ssp.selfplay.settle import settle
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.workers import build
from ssp.selfplay.workers.player import Player

PATIENCE = 30.0


class Live:
    """A live engine that plays the shared script, a token a call of `tick`; each token has the version of its moment."""

    def __init__(self) -> None:
        self.version, self._next = 0, 0
        self._slots: dict[int, tuple[int, list[int], int]] = {}
        self._gate = threading.Condition()
        self._left = 0
        self._pool = ThreadPoolExecutor(32)
        self.loads: list[tuple[int, bool, float]] = []
        self.drawn = 0

    def tick(self, count: int = 10**9) -> None:
        with self._gate:
            self._left += count
            self._gate.notify_all()

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        with self._gate:
            self.loads.append((version, keep, float(weights["w"][0])))
            self.version = version
            if not keep:
                self._slots.clear()

    def open(self, seeds: list[int]) -> list[int]:
        with self._gate:
            slots = list(range(self._next, self._next + len(seeds)))
            self._next += len(seeds)
            self._slots.update({slot: (seed, [], 0) for slot, seed in zip(slots, seeds, strict=True)})
            return slots

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        return self._pool.submit(self._turn, slot, pending, sampling)

    def _turn(self, slot: int, pending: list[int], sampling: Sampling) -> Generation:
        with self._gate:
            seed, ids, turn = self._slots[slot]
        ids = [*ids, *pending]
        said: list[int] = []
        versions: list[int] = []
        for id in script(ids, seed, turn)[: sampling.max_tokens]:
            with self._gate:
                assert self._gate.wait_for(lambda: self._left > 0, PATIENCE)
                self._left -= 1
                self.drawn += 1
                said.append(id)
                versions.append(self.version)
            if id in sampling.stop_ids or (sampling.stop_words is not None and sampling.stop_words.hit(said)):
                break
        with self._gate:
            self._slots[slot] = (seed, [*ids, *said], turn + 1)
        stopped = said[-1] in sampling.stop_ids or (sampling.stop_words is not None and sampling.stop_words.hit(said))
        return Generation(said, [0.0] * len(said), versions[-1], stopped, versions=versions)

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        futures = [self.submit(slot, ids, samplings) for slot, ids in zip(slots, pending, strict=True)]
        return [future.result() for future in futures]

    def close(self, slots: list[int]) -> None:
        with self._gate:
            for slot in slots:
                self._slots.pop(slot, None)

    def abort(self, slots: list[int]) -> None:
        """Nothing is aborted here."""

    def stop(self) -> None:
        self._pool.shutdown()


def parcel(version: int) -> Parcel:
    return Parcel({"w": np.array([version], np.float32)})


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    engine = Live()
    assert isinstance(engine, LiveEngine)
    monkeypatch.setattr(build, "engine", lambda *args: engine)
    monkeypatch.setattr(build, "tokenizer", lambda folder: tokens())
    return engine


def player(path: Path, **changes: Any) -> Player:
    cfg = config((0, 1), **{"schedule__in_flight": True, **changes})
    return Player(cfg, SOLVER, MODEL, search(), path)


@pytest.mark.covers("SP-06")
def test_a_version_that_comes_in_the_middle_is_on_the_tokens_that_it_drew(live: Live, tmp_path: Path) -> None:
    plays = player(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(plays.play, tasks(6), PlayOrder(1.0, ""), 3, parcel(3))
        live.tick(1)  # of more, one episode might draw all that it has
        deadline = time.monotonic() + PATIENCE
        while live.drawn < 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not future.done()
        assert set(plays.refresh(4, parcel(4))) == {"sync_transfer", "sync_load"}  # it does not wait for `play`
        live.tick()
        block, report = future.result(PATIENCE)
    drawn = [version for episode in block for version in episode.log.versions if version >= 0]
    assert drawn.count(3) == 1 and set(drawn) == {3, 4}
    mixed = [brief for brief in report.briefs if (brief.version_min, brief.version_max) == (3, 4)]
    assert mixed and {brief.version_max for brief in report.briefs} == {4}
    for episode in block:  # in a turn and over an episode they only go up
        versions = [version for version in episode.log.versions if version >= 0]
        assert versions == sorted(versions)
    assert live.loads == [(3, False, 3.0), (4, True, 4.0)]


def test_a_play_that_was_ordered_with_older_weights_goes_on_with_the_newer(live: Live, tmp_path: Path) -> None:
    plays = player(tmp_path)
    live.tick()
    plays.play(tasks(1), PlayOrder(1.0, ""), 3, parcel(3))
    plays.refresh(5, parcel(5))
    block, _ = plays.play(tasks(2), PlayOrder(1.0, ""), 4, parcel(4))
    assert {episode.log.version_span[0] for episode in block} == {5}
    assert plays.refresh(4, parcel(4)) == {} and [version for version, _, _ in live.loads] == [3, 5]


def test_out_of_flight_the_ordered_version_plays_and_caches_go(live: Live, tmp_path: Path) -> None:
    plays = player(tmp_path, schedule__in_flight=False)
    live.tick()
    for version in (3, 5, 4):
        block, _ = plays.play(tasks(1), PlayOrder(1.0, ""), version, parcel(version))
        assert {episode.log.version_span[1] for episode in block} == {version}
    assert [keep for _, keep, _ in live.loads] == [False] * 3


def test_a_lock_step_engine_is_refused_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "engine", lambda *args: object())
    monkeypatch.setattr(build, "tokenizer", lambda folder: tokens())
    with pytest.raises(InputError, match=r"schedule\.in_flight"):
        player(tmp_path)


def test_the_ledger_gets_lowest_and_highest_version_of_the_opponent() -> None:
    """A question that versions 4 to 6 tried to answer, asked by one whose tokens are of 0 and 3."""
    cfg = config(schedule__in_flight=True)
    made = game("g1", [True, False])
    made.proposal = brief("pg1", PROPOSER, version_min=0, version_max=3)
    spans = [(4, 5), (5, 6)]
    made.attempts = [brief(f"sg1a{i}", version_min=low, version_max=high) for i, (low, high) in enumerate(spans)]
    rows = {row["id"]: row for row in settle(cfg, [made], 2).rows}
    seen = {id: (row["opponent_version_min"], row["opponent_version_max"]) for id, row in rows.items()}
    assert seen == {"pg1": (4, 6), "sg1a0": (0, 3), "sg1a1": (0, 3)}
    own = {id: (row["policy_version_min"], row["policy_version_max"]) for id, row in rows.items()}
    assert own == {"pg1": (0, 3), "sg1a0": (4, 5), "sg1a1": (5, 6)}

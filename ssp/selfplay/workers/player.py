"""The player: plays episodes of one role on one engine; a pair of players shares one.

It uses exactly the weights that it was handed: a changed version reloads and resets every cache,
except in flight. Transcripts are on disk before the call returns. It knows no rewards, batches or
other workers."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssp.base.episode import Episode, Task
from ssp.base.played import Brief
from ssp.config.crews import takes_turns
from ssp.config.schema import Config
from ssp.engines import Engine
from ssp.engines.base import Sleeper
from ssp.game.rollout import Search, rollout
from ssp.record import episodes as transcripts
from ssp.selfplay.records import PlayOrder, PlayReport
from ssp.selfplay.transfer.loader import Loader
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.workers import build


class Player(Loader):
    """Plays episodes of one role with one engine. `engine`: one that is there already."""

    def __init__(
        self,
        cfg: Config,
        role: str,
        model_dir: Path,
        search: Search,
        episodes_dir: Path,
        engine: Engine | None = None,
    ) -> None:
        self._search, self._dir, self._asleep = search, Path(episodes_dir), False
        self._renderer = build.renderer(cfg, role, model_dir)
        engine = engine or build.acted(cfg, role, self._renderer)
        engine = engine or build.engine(cfg.block(role), model_dir, takes_turns(cfg, role))
        super().__init__(cfg, role, engine)

    def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Parcel
    ) -> tuple[list[Episode], PlayReport]:
        """Play `tasks` to the end with the weights of `version`; the block keeps the tasks' order.
        In flight, a newer version that comes by `refresh` is used at once, also within a turn."""
        started = time.perf_counter()
        synced = self.fit(version, parcel)
        settings = build.settings(self._cfg, self._role, order.temperature, order.step)
        if order.stem:
            said = self._dir.parent / "agents" / f"{order.stem}.log"
            settings = replace(settings, said=said)
        block, seconds = rollout(self._engine, self._renderer, self._search, list(tasks), settings)
        seconds |= synced
        file = f"{order.stem}.parquet" if order.stem else ""
        briefs = [Brief.of(episode, file, row) for row, episode in enumerate(block)]
        if file:
            writing = time.perf_counter()
            transcripts.write(self._dir / file, block)
            seconds["write"] = time.perf_counter() - writing
        seconds["busy"] = time.perf_counter() - started
        return block, PlayReport(briefs, seconds)

    def sleep(self, asleep: bool = True) -> None:
        """Give the GPU's memory back until `wake`. Fault `engine_awake` when too much of it stays
        taken."""
        if asleep is not self._asleep:
            assert isinstance(self._engine, Sleeper)  # a rule of placement says so
            (self._engine.sleep if asleep else self._engine.wake)()
            self._asleep = asleep

    def wake(self) -> None:
        """Take the memory again."""
        self.sleep(False)


class PlayerPair:
    """Plays both roles on one engine, which has an adapter for each (placement.layout=shared-base).
    `models`: the start model folder of each role, all the same one; `player`: the class of players.
    Several threads may call."""

    def __init__(
        self,
        cfg: Config,
        models: Mapping[str, Path],
        search: Search,
        episodes_dir: Path,
        player: type[Player] = Player,
    ) -> None:
        (base,) = {*models.values()}  # rules of placement say that it is one
        self._players, self._busy = {}, {}
        for role, engine in build.faces(cfg, base, takes_turns(cfg)).items():
            self._players[role] = player(cfg, role, base, search, episodes_dir, engine)
            self._busy[role] = threading.Lock()

    def play(self, role: str, *args: Any) -> tuple[list[Episode], PlayReport]:
        """`Player.play` of that role."""
        with self._busy[role]:
            return self._players[role].play(*args)

    def as_role(self, role: str, method: str, *args: Any) -> Any:
        """Call any other method of that role's player; sleep and wake concern both."""
        return getattr(self._players[role], method)(*args)

"""A player of each role over one engine, which has an adapter for each (placement.layout=shared-base)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssp.base.episode import Episode
from ssp.base.errors import InputError
from ssp.config.crews import takes_turns
from ssp.config.schema import Config
from ssp.game.rollout import Search
from ssp.selfplay.records import PlayReport
from ssp.selfplay.workers import build
from ssp.selfplay.workers.player import Player


class PlayerPair:
    """Plays both roles. `models`: the start model folder of each, which is one; `player`: what a player is made by.

    For several threads; InputError when the folders differ.
    """

    def __init__(
        self,
        cfg: Config,
        models: Mapping[str, Path],
        search: Search,
        episodes_dir: Path,
        player: type[Player] = Player,
    ) -> None:
        base = models[cfg.roles[-1]]
        if any(models[role] != base for role in cfg.roles):
            rule = "placement.layout=shared-base plays all roles on one start model"
            raise InputError(rule, ", ".join(str(models[role]) for role in cfg.roles), "give both roles one model")
        faces = build.faces(cfg, base, takes_turns(cfg))
        self._players = {role: player(cfg, role, base, search, episodes_dir, engine) for role, engine in faces.items()}
        self._busy = {role: threading.Lock() for role in faces}

    def play(self, role: str, *args: Any) -> tuple[list[Episode], PlayReport]:
        """`Player.play` of that role."""
        with self._busy[role]:
            return self._players[role].play(*args)

    def as_role(self, role: str, method: str, *args: Any) -> Any:
        """Any other method of that role's player; asleep and awake are both."""
        return getattr(self._players[role], method)(*args)

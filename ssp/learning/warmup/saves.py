"""The folder of a warm start: what was learned so far, and at the end the policy alone.

Owns when a save is due, and what a later process needs to go on: the learner's checkpoint, which is a model folder too, with
the entry `warmup` in its `ssp.json`. Promises that the folder is whole at every moment, and that a warm start goes on only
from the same data and settings. Refuses to know what a learner is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ssp.base.episode import Episode
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.learning.warmup.taught import Taught
from ssp.record.manifest import read_record

ENTRY = "warmup"
LEAST_SECONDS, SHARE = 60.0, 0.1
"""A save is due after so long, and later where a save takes more than this share of the time."""


class Saves:
    """Saves to the folder `out`. `meta`: entries of its `ssp.json`; `what`: what is learned, see `fingerprint`."""

    def __init__(self, out: Path, meta: Mapping[str, Any], what: str) -> None:
        self.out, self._meta, self._what = out, meta, what
        self._count = 0
        self._last, self._took = time.monotonic(), 0.0

    def begun(self) -> tuple[int, float | None] | None:
        """Updates that the warm start in the folder has made, held-out nats a token before the first; None where there is
        no folder. InputError: another one's."""
        left = [folder for folder in self._aside() if ENTRY in read_record(folder)]
        if left and not self.out.exists():  # of a process that was killed between two renamings
            max(left, key=lambda folder: began(folder)[0]).rename(self.out)
        self._tidy()
        if not self.out.exists():
            return None
        step, entry = began(self.out)
        if entry.get("what") != self._what:
            rule = "an interrupted warm start goes on with the same data, model and settings"
            raise InputError(rule, f"{self.out} began with others", "type those, give another --out, or remove it")
        return step, entry.get("before")

    def due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() - self._last >= max(LEAST_SECONDS, self._took / SHARE)

    async def save(self, learner: Taught, before: float | None) -> None:
        """Let the learner save what it has."""
        began = time.monotonic()
        entry = {"what": self._what, "before": before}
        await self._written(learner.save, {**self._meta, ENTRY: entry})
        self._last = time.monotonic()
        self._took = self._last - began

    async def finish(self, learner: Taught) -> None:
        """The policy alone, in place of what was saved."""
        await self._written(learner.export, dict(self._meta))

    async def _written(self, write: Callable[[str, dict[str, Any]], Awaitable[None]], record: dict[str, Any]) -> None:
        """Written aside, under a name that no call before had: one that was cancelled may still be under way."""
        self._count += 1
        new, old = (self.out.with_name(f".{self.out.name}.ssp-{self._count}-{name}") for name in ("new", "old"))
        await write(str(new), record)
        if self.out.exists():
            self.out.rename(old)
        new.rename(self.out)
        self._tidy()

    def _aside(self) -> list[Path]:
        return [path for path in self.out.parent.iterdir() if path.name.startswith(f".{self.out.name}.ssp-")]

    def _tidy(self) -> None:
        for left in self._aside():
            shutil.rmtree(left, ignore_errors=True)


def began(out: Path) -> tuple[int, dict[str, Any]]:
    """Updates of the unfinished warm start in the folder `out`, and its entry. InputError where it is anything else."""
    record = read_record(out)
    step, entry = record.get("step"), record.get(ENTRY)
    if not isinstance(step, int) or not isinstance(entry, dict):
        rule = "--out is a folder that does not exist yet, or a warm start's that was interrupted"
        raise InputError(rule, out, "give another one, or remove it")
    return step, entry


def fingerprint(cfg: Config, role: str, episodes: Sequence[Episode]) -> str:
    """A digest of what is learned, from what and how; not of how much fits into memory."""
    block = cfg.block(role)
    learner = {
        key: value for key, value in asdict(block.learner).items() if key not in ("token_budget", "checkpointing")
    }
    warmup = {key: value for key, value in asdict(cfg.warmup).items() if key != "data"}
    found = hashlib.sha256(json.dumps([block.model, cfg.protocol, cfg.seed, learner, warmup], sort_keys=True).encode())
    for episode in episodes:
        found.update(json.dumps([episode.log.ids, episode.log.mask.tolist()]).encode())
    return found.hexdigest()

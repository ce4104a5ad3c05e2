"""The loop of a warm start: epochs over the episodes, each batch one update of the role's learner; and its folder,
which holds a policy at every moment.

REINFORCE without a baseline on episodes that all earn 1 is maximum likelihood of what the policy wrote, so that the
learner needs no other loss (masks, packing, DeepSpeed, adapters as in training). Held-out episodes are measured before
and after, never learned; one seed gives one order. An unfinished folder is a checkpoint whose `ssp.json` has the entry
`warmup`; a later process goes on from it with the same data and settings alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ssp.base.episode import Episode
from ssp.base.errors import InputError
from ssp.base.seeds import generator
from ssp.config.role import CorrectionConfig, KlConfig, RoleConfig
from ssp.config.schema import Config
from ssp.learning.warmup.taught import PlanItem, Taught
from ssp.record.manifest import read_record

ENTRY = "warmup"
HELDOUT = 0.05
"""Share of the episodes that is measured and not learned."""
LEAST_SECONDS, SHARE = 60.0, 0.1
"""A save is due after so long, and later where a save takes more than this share of the time."""

Show = Callable[[Mapping[str, float]], None]
"""Hears of each update: `step`, `nll` (mean -log pi of the trained tokens, nats a token), `tokens_per_second`."""


@dataclass(frozen=True)
class WarmupConfig:
    """What is not held out is learned `epochs` times, `batch` episodes an update."""

    epochs: int = 1
    batch: int = 32


@dataclass(frozen=True)
class Summary:
    """What a warm start did. `before`, `after`: held-out nats a token; None without held-out episodes."""

    steps: int
    learned: int
    before: float | None
    after: float | None


def recipe(block: RoleConfig) -> RoleConfig:
    """The role's settings with the algorithm, loss and regularisers of maximum likelihood."""
    return replace(
        block,
        policy="own",
        algorithm="reinforce_none",
        loss="pg",
        aggregate="token-mean",
        entropy_coef=0.0,
        kl=KlConfig(),
        correction=CorrectionConfig(),
        learner=replace(block.learner, minibatch=0, combine=False),
    )


def steps(episodes: int, cfg: WarmupConfig) -> int:
    """Updates of a warm start on so many episodes."""
    learned = episodes - round(episodes * HELDOUT)
    return cfg.epochs * -(-learned // cfg.batch)


async def train(
    learner: Taught, episodes: Sequence[Episode], cfg: WarmupConfig, seed: int, show: Show, saves: Saves
) -> Summary:
    """Learn `episodes`. It goes on where `saves` stand, saves on the way and when it is cancelled, and finishes them."""
    order = generator(seed, "warmup", "split").permutation(len(episodes)).tolist()
    held = round(len(episodes) * HELDOUT)
    test, learn = [episodes[i] for i in order[:held]], [episodes[i] for i in order[held:]]
    blocks: list[list[Episode]] = []
    for epoch in range(cfg.epochs):
        places = generator(seed, "warmup", "epoch", epoch).permutation(len(learn)).tolist()
        blocks += [[learn[i] for i in places[at : at + cfg.batch]] for at in range(0, len(places), cfg.batch)]
    begun = saves.begun()
    if begun is not None:
        await learner.load(str(saves.out))
    saved, before = begun or (0, await _measure(learner, test, cfg.batch))
    asked = saved
    try:
        for block in blocks[saved:]:
            since, asked = time.monotonic(), asked + 1
            figures = await learner.learn(_plan(block), block)
            speed = tokens(block) / max(time.monotonic() - since, 1e-9)
            show({"step": asked, "nll": figures["nll"], "tokens_per_second": speed})
            if asked < len(blocks) and saves.due():
                await saves.save(learner, before)
                saved = asked
        after = await _measure(learner, test, cfg.batch)
        await saves.finish(learner)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if asked > saved:  # behind the update that is under way
            await saves.save(learner, before)
        raise
    return Summary(len(blocks), len(learn), before, after)


def tokens(episodes: Sequence[Episode]) -> int:
    """Tokens of these, those that are not learned too."""
    return sum(len(episode.log) for episode in episodes)


async def _measure(learner: Taught, episodes: Sequence[Episode], size: int) -> float | None:
    """Mean over all tokens of `episodes`."""
    total = tokens = 0.0
    for at in range(0, len(episodes), size):
        block = list(episodes[at : at + size])
        figures = await learner.measure(_plan(block), block)
        total, tokens = total + figures["nll"] * figures["tokens"], tokens + figures["tokens"]
    return total / tokens if tokens else None


def _plan(block: Sequence[Episode]) -> list[PlanItem]:
    """All earn 1, each a group of its own."""
    return [PlanItem(0, row, 1.0, row) for row in range(len(block))]


class Saves:
    """Saves to the folder `out`. `meta`: entries of its `ssp.json`; `what`: what is learned, see `fingerprint`."""

    def __init__(self, out: Path, meta: Mapping[str, Any], what: str) -> None:
        self.out, self._meta, self._what = out, meta, what
        self._count = 0
        self._last = time.monotonic()
        self._took = 0.0

    def begun(self) -> tuple[int, float | None] | None:
        """Updates that the warm start in the folder has made, held-out nats a token before the first; None where there
        is no folder. InputError: another one's."""
        if self._aside("old").exists() and not self.out.exists():  # of a process that was killed between two renamings
            self._aside("old").rename(self.out)
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
        await self._written(learner.save, {**self._meta, ENTRY: {"what": self._what, "before": before}})
        self._last = time.monotonic()
        self._took = self._last - began

    async def finish(self, learner: Taught) -> None:
        """The policy alone, in place of what was saved."""
        await self._written(learner.export, dict(self._meta))

    async def _written(self, write: Callable[[str, dict[str, Any]], Awaitable[None]], record: dict[str, Any]) -> None:
        """Written aside, under a name that no call before had: one that was cancelled may still be under way."""
        self._count += 1
        new = self._aside(str(self._count))
        await write(str(new), record)
        if self.out.exists():
            self.out.rename(self._aside("old"))
        new.rename(self.out)
        self._tidy()

    def _aside(self, name: str) -> Path:
        return self.out.with_name(f".{self.out.name}.ssp-{name}")

    def _tidy(self) -> None:
        for left in self.out.parent.iterdir():
            if left.name.startswith(self._aside("").name):
                shutil.rmtree(left, ignore_errors=True)


def began(out: Path) -> tuple[int, dict[str, Any]]:
    """Updates of the unfinished warm start in the folder `out`, and its entry. InputError where it is anything else."""
    record = read_record(out)
    step, entry = record.get("step"), record.get(ENTRY)
    if not isinstance(step, int) or not isinstance(entry, dict):
        rule = "--out is a folder that does not exist yet, or a warm start's that was interrupted"
        raise InputError(rule, out, "give another one, or remove it")
    return step, entry


def fingerprint(cfg: Config, course: WarmupConfig, role: str, episodes: Sequence[Episode]) -> str:
    """A digest of what is learned, from what and how; not of how much fits into memory."""
    block = cfg.block(role)
    learner = {**asdict(block.learner), "token_budget": None, "checkpointing": None}
    what = [block.model, cfg.protocol, cfg.seed, learner, block.engine.dtype, asdict(course)]
    found = hashlib.sha256(json.dumps(what, sort_keys=True).encode())
    for episode in episodes:
        found.update(json.dumps([episode.log.ids, episode.log.mask.tolist()]).encode())
    return found.hexdigest()

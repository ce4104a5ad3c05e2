"""The loop of a warm start: epochs over the episodes, each batch one update of the role's learner;
and its folder, which holds a policy at every moment.

REINFORCE without a baseline on episodes that all earn 1 is maximum likelihood of what the policy
wrote, so that the learner needs no other loss (masks, packing, DeepSpeed, adapters as in training).
Held-out episodes are measured before and after each epoch, never learned; where they have not
become likelier since the epoch before, that one's policy is the result. One seed gives one order.
An unfinished folder is a checkpoint whose `ssp.json` has the entry `warmup`; a later process goes
on from it with the same data and settings alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ssp.base.episode import Episode
from ssp.base.errors import hold
from ssp.base.seeds import generator
from ssp.config.role import CorrectionConfig, KlConfig, RehearsalConfig, RoleConfig
from ssp.config.schema import Config, WarmupConfig
from ssp.learning.scored import Scored
from ssp.learning.warmup.taught import Taught
from ssp.record.manifest import read_record

ENTRY = "warmup"
BLOCK = "episodes"
"""What the samples call the block that is given beside them."""
HELDOUT = 0.05
"""Share of the episodes that is measured and not learned."""
LEAST_SECONDS = 60.0
"""After so long a save is due."""
SHARE = 0.1
"""It is due later where a save would take more than this share of the time."""

Show = Callable[[Mapping[str, float]], None]
"""Hears of each update: `step`, `nll` (mean -log pi of the trained tokens, nats a token),
`tokens_per_second`."""
Measured = float | None
"""Held-out nats a token; None without held-out episodes."""
_KEPT = "epoch-"


@dataclass(frozen=True)
class Summary:
    """What a warm start did: updates that were made, episodes that were learned, `before` and
    `after` it."""

    steps: int
    learned: int
    before: Measured
    after: Measured


def recipe(block: RoleConfig, lr: float = 0.0) -> RoleConfig:
    """The role's settings with the algorithm, loss and regularisers of maximum likelihood. `lr`: 0
    is the role's."""
    return replace(
        block,
        policy="own",
        algorithm="reinforce_none",
        loss="pg",
        aggregate="token-mean",
        learner=replace(block.learner, minibatch=0, combine=False, lr=lr or block.learner.lr),
        entropy_coef=0.0,
        llds_coef=0.0,
        kl=KlConfig(),
        correction=CorrectionConfig(),
        rehearsal=RehearsalConfig(),
    )


def steps(episodes: int, cfg: WarmupConfig) -> int:
    """Updates of a warm start on so many episodes, at most."""
    learned = episodes - round(episodes * HELDOUT)
    return cfg.epochs * -(-learned // cfg.batch)


async def train(
    learner: Taught,
    episodes: Sequence[Episode],
    cfg: WarmupConfig,
    seed: int,
    show: Show,
    saves: Saves,
) -> Summary:
    """Learn `episodes`. It goes on where `saves` stand, saves on the way and when it is cancelled,
    and finishes them."""
    order = generator(seed, "warmup", "split").permutation(len(episodes)).tolist()
    held = round(len(episodes) * HELDOUT)
    test = [episodes[i] for i in order[:held]]
    learn = [episodes[i] for i in order[held:]]
    size = -(-len(learn) // cfg.batch)  # updates of an epoch
    begun = saves.begun()
    if begun is not None:
        await learner.load(str(saves.out))
        saved, heldout = begun
    else:
        saved = 0
        heldout = [await _measure(learner, test, cfg.batch)]
    made = saved
    now = heldout[-1]
    try:
        for epoch in range(len(heldout) - 1, cfg.epochs):
            places = generator(seed, "warmup", "epoch", epoch).permutation(len(learn)).tolist()
            for at in range((made - epoch * size) * cfg.batch, len(learn), cfg.batch):
                block = [learn[i] for i in places[at : at + cfg.batch]]
                made += 1
                since = time.monotonic()
                figures = await learner.learn(_samples(block), [BLOCK], block)
                speed = tokens(block) / max(time.monotonic() - since, 1e-9)
                show({"step": made, "nll": figures["nll"], "tokens_per_second": speed})
                if made < cfg.epochs * size and saves.due():
                    await saves.save(learner, heldout)
                    saved = made
            now = await _measure(learner, test, cfg.batch)
            if epoch and now is not None and not now < (heldout[-1] or 0.0):
                saves.settle(epoch)
                return Summary(made, len(learn), heldout[0], heldout[-1])
            if epoch + 1 < cfg.epochs:
                await saves.keep(learner, epoch + 1)
                heldout = [*heldout, now]
        await saves.finish(learner)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if made > saved:  # behind the update that is under way
            await saves.save(learner, heldout)
        raise
    return Summary(made, len(learn), heldout[0], now)


def tokens(episodes: Sequence[Episode]) -> int:
    """How many tokens the episodes have, those that are not learned too."""
    return sum(len(episode.log) for episode in episodes)


async def _measure(learner: Taught, episodes: Sequence[Episode], size: int) -> Measured:
    """The mean over all tokens of `episodes`, measured `size` of them at a time."""
    total = count = 0.0
    for at in range(0, len(episodes), size):
        block = list(episodes[at : at + size])
        figures = await learner.measure(_samples(block), [BLOCK], block)
        total += figures["nll"] * figures["tokens"]
        count += figures["tokens"]
    return total / count if count else None


def _samples(block: Sequence[Episode]) -> list[Scored]:
    """Samples that all earn 1, each in a group of its own."""
    samples = []
    for row, episode in enumerate(block):
        samples.append(Scored(1.0, row, id=episode.id, block=BLOCK, row=row, credit=(1.0,)))
    return samples


class Saves:
    """Saves to the folder `out`. `meta`: entries of its `ssp.json`; `what`: what is learned, see
    `fingerprint`."""

    def __init__(self, out: Path, meta: Mapping[str, Any], what: str) -> None:
        self.out = out
        self._meta = meta
        self._what = what
        self._count = 0
        self._last = time.monotonic()
        self._took = 0.0

    def begun(self) -> tuple[int, list[Measured]] | None:
        """Updates that the warm start in the folder has made, and what was measured before the
        first and after each epoch; None where there is no folder. InputError: another one's."""
        self._last = time.monotonic()
        old = self._aside("old")
        if old.exists() and not self.out.exists():  # killed between two renamings
            old.rename(self.out)
        if not self.out.exists():
            self._tidy()
            return None
        self._tidy(0)
        step, entry = began(self.out)
        rule = "an interrupted warm start goes on with the same data, model and settings"
        others = f"{self.out} began with others"
        next_step = "type those, begin in another folder, or remove it"
        hold(entry.get("what") == self._what, rule, others, next_step)
        return step, entry["heldout"]

    def files(self) -> Iterator[Path]:
        """Every file that was written."""
        yield from self.out.glob("*")
        for folder in self._beside():
            yield from folder.glob("*")

    def due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() - self._last >= max(LEAST_SECONDS, self._took / SHARE)

    async def save(self, learner: Taught, heldout: Sequence[Measured]) -> None:
        """Let the learner save what it has."""
        began = time.monotonic()
        entry = {"what": self._what, "heldout": list(heldout)}
        checkpoint = await self._written(learner.save, {**self._meta, ENTRY: entry})
        self._put(checkpoint, self.out)
        # a save before this one, which may still have needed older ones, is gone
        self._tidy(len(heldout) - 1)
        self._last = time.monotonic()
        self._took = self._last - began

    async def finish(self, learner: Taught) -> None:
        """Put the policy alone in place of what was saved."""
        policy = await self._written(learner.export, dict(self._meta))
        self._put(policy, self.out)
        self._tidy()

    async def keep(self, learner: Taught, epoch: int) -> None:
        """Put the policy after `epoch` (from 1) beside the folder."""
        policy = await self._written(learner.export, dict(self._meta))
        self._put(policy, self._aside(f"{_KEPT}{epoch}"))

    def settle(self, epoch: int) -> None:
        """Put what `keep` has of `epoch` in place of what was saved."""
        self._put(self._aside(f"{_KEPT}{epoch}"), self.out)
        self._tidy()

    async def _written(
        self, write: Callable[[str, dict[str, Any]], Awaitable[None]], record: dict[str, Any]
    ) -> Path:
        """The folder that `write` wrote aside. No call before had its name: one that was cancelled
        may still be under way."""
        self._count += 1
        new = self._aside(str(self._count))
        await write(str(new), record)
        return new

    def _put(self, new: Path, place: Path) -> None:
        if place.exists():
            place.rename(self._aside("old"))
        new.rename(place)
        shutil.rmtree(self._aside("old"), ignore_errors=True)

    def _aside(self, name: str) -> Path:
        return self.out.with_name(f".{self.out.name}.ssp-{name}")

    def _tidy(self, since: float = math.inf) -> None:
        """Remove what lies beside the folder, but for what is kept of the epochs from `since`
        on."""
        for left in self._beside():
            epoch = left.name.removeprefix(self._aside(_KEPT).name)
            if not (epoch.isdecimal() and int(epoch) >= since):
                shutil.rmtree(left, ignore_errors=True)

    def _beside(self) -> list[Path]:
        """What lies beside the folder; nothing where its own folder is not there yet."""
        beside = self._aside("").name
        return [left for left in self.out.parent.glob("*") if left.name.startswith(beside)]


def finished(out: Path) -> bool:
    """Whether a warm start has left its policy in the folder `out`."""
    if not out.exists():
        return False
    record = read_record(out)
    return "protocol" in record and ENTRY not in record


def began(out: Path) -> tuple[int, dict[str, Any]]:
    """Updates of the unfinished warm start in the folder `out`, and its entry. InputError where it
    is anything else."""
    record = read_record(out)
    step = record.get("step")
    entry = record.get(ENTRY)
    rule = "--out is a folder that does not exist yet, or a warm start's that was interrupted"
    is_one = isinstance(step, int) and isinstance(entry, dict)
    hold(is_one, rule, out, "give another one, or remove it")
    return record["step"], record[ENTRY]


def fingerprint(cfg: Config, course: WarmupConfig, role: str, episodes: Sequence[Episode]) -> str:
    """A digest of model, data and settings of a warm start, but not of how much fits into memory."""
    block = cfg.block(role)
    learner = {**asdict(block.learner), "token_budget": None, "checkpointing": None}
    warmup = asdict(replace(course, data=""))
    what = [block.model, cfg.protocol, cfg.seed, learner, block.engine.dtype, warmup]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode())
    for episode in episodes:
        log = [episode.log.ids, episode.log.mask.tolist()]
        digest.update(json.dumps(log).encode())
    return digest.hexdigest()

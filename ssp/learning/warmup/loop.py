"""The loop of a warm start: epochs over the episodes, each batch one update of the role's learner.

Owns the recipe: REINFORCE without a baseline on episodes that all earn 1 is maximum likelihood of what the policy wrote,
so that the learner needs no other loss (masks, packing, DeepSpeed, adapters as in training). Promises that held-out
episodes are measured before and after, never learned, and one order for one seed. Refuses to make episodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ssp.base.episode import Episode
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import generator
from ssp.config.role import CorrectionConfig, KlConfig, RoleConfig
from ssp.config.schema import WarmupConfig
from ssp.learning.warmup.progress import Progress
from ssp.learning.warmup.saves import Saves
from ssp.learning.warmup.taught import PlanItem, Taught

ENDED = ("_died", "_deadline")
"""Endings of a fault's cause after which the learner is a new process without its state."""
TRIES = 2
"""How often an update that ends its learner is made again."""
NLL = "nll"
"""Figure of an update or a measurement: mean -log pi of the trained tokens, nats a token."""


@dataclass(frozen=True)
class Summary:
    """What a warm start did. `before`, `after`: held-out nats a token; None without held-out episodes."""

    steps: int
    learned: int
    heldout: int
    before: float | None
    after: float | None


def recipe(block: RoleConfig) -> RoleConfig:
    """The role's settings with the algorithm, loss and regularisers of maximum likelihood."""
    learner = replace(block.learner, minibatch=0, combine=False)
    return replace(
        block,
        policy="own",
        algorithm="reinforce",
        baseline="none",
        loss="pg",
        aggregate="token-mean",
        entropy_coef=0.0,
        kl=KlConfig(),
        correction=CorrectionConfig(),
        learner=learner,
    )


def steps(episodes: int, cfg: WarmupConfig) -> int:
    """Updates of a warm start on so many episodes."""
    return cfg.epochs * -(-(episodes - _held(episodes, cfg)) // cfg.batch)


def enough(episodes: Sequence[Episode], cfg: WarmupConfig) -> list[Episode]:
    """The episodes, when some are left to learn. InputError otherwise."""
    if len(episodes) == _held(len(episodes), cfg):
        found = f"{len(episodes)} in all, warmup.heldout={cfg.heldout:g}"
        raise InputError("warmup.data holds an episode to learn", found, "give more, or set warmup.heldout=0")
    return list(episodes)


async def train(
    learner: Taught,
    episodes: Sequence[Episode],
    cfg: WarmupConfig,
    seed: int,
    progress: Progress,
    saves: Saves | None = None,
) -> Summary:
    """Learn `episodes`. With `saves` it goes on where these stand, at once and after a death of the
    learner, saves on the way and when it is cancelled, and finishes them. InputError for too few episodes."""
    order = generator(seed, "warmup", "split").permutation(len(enough(episodes, cfg))).tolist()
    held = _held(len(episodes), cfg)
    test, learn = [episodes[i] for i in order[:held]], [episodes[i] for i in order[held:]]
    blocks = []
    for epoch in range(cfg.epochs):
        places = generator(seed, "warmup", "epoch", epoch).permutation(len(learn)).tolist()
        blocks += [[learn[i] for i in places[at : at + cfg.batch]] for at in range(0, len(places), cfg.batch)]
    failed = Counter[int]()
    while True:
        try:
            before, after = await _learn(learner, blocks, test, cfg.batch, progress, saves)
            return Summary(len(blocks), len(learn), held, before, after)
        except Fault as fault:
            failed[progress.step] += 1
            if saves is None or not fault.cause.endswith(ENDED) or failed[progress.step] > TRIES:
                raise


async def _learn(
    learner: Taught,
    blocks: Sequence[list[Episode]],
    test: Sequence[Episode],
    size: int,
    progress: Progress,
    saves: Saves | None,
) -> tuple[float | None, float | None]:
    """The updates that are not made yet, in order, on a learner that has made none or has ended; `test` before and after."""
    begun = saves.begun() if saves is not None else None
    if begun is not None and saves is not None:
        await learner.load(str(saves.out))
    saved, before = begun or (0, None)
    asked = saved
    progress.begin(saved, [tokens(block) for block in blocks])
    if saved < len(blocks):  # a short one tells how fast it is
        least = min(blocks[saved], key=lambda episode: len(episode.log))
        since = progress.clock()
        await _measure(learner, [least], 1)
        progress.measured(tokens([least]), progress.clock() - since)
    before = await _measure(learner, test, size) if begun is None else before
    try:
        for block in blocks[saved:]:
            since, asked = progress.clock(), asked + 1
            figures = await learner.learn(_plan(block), block)
            progress.learned(progress.clock() - since, figures[NLL])
            if saves is not None and asked < len(blocks) and saves.due():
                await saves.save(learner, before)
                saved = asked
        after = await _measure(learner, test, size)
        if saves is not None:
            await saves.finish(learner)
        return before, after
    except (asyncio.CancelledError, KeyboardInterrupt):
        if saves is not None and asked > saved:  # behind the update that is under way
            await saves.save(learner, before)
        raise


def tokens(episodes: Sequence[Episode]) -> int:
    """Tokens of these, those that are not learned too."""
    return sum(len(episode.log) for episode in episodes)


def _held(episodes: int, cfg: WarmupConfig) -> int:
    return round(episodes * cfg.heldout)


async def _measure(learner: Taught, episodes: Sequence[Episode], size: int) -> float | None:
    """Mean over all tokens of `episodes`."""
    total = tokens = 0.0
    for at in range(0, len(episodes), size):
        block = list(episodes[at : at + size])
        figures = await learner.measure(_plan(block), block)
        total, tokens = total + figures[NLL] * figures["tokens"], tokens + figures["tokens"]
    return total / tokens if tokens else None


def _plan(block: Sequence[Episode]) -> list[PlanItem]:
    """All earn 1, each a group of its own."""
    return [PlanItem(0, row, 1.0, row) for row in range(len(block))]

"""The loop of a warm start: epochs over the episodes, each batch one update of the role's learner.

Owns the recipe: REINFORCE without a baseline on episodes that all earn 1 is maximum likelihood of what the policy wrote,
so that the learner needs no other loss (masks, packing, DeepSpeed, adapters as in training). Promises that held-out
episodes are measured before and after, never learned, and one order for one seed. Refuses to make episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ssp.config.role import CorrectionConfig, KlConfig, RoleConfig
from ssp.config.schema import WarmupConfig
from ssp.episode import Episode
from ssp.errors import InputError
from ssp.seeds import generator
from ssp.selfplay.crew import Crew

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
    crew: Crew, episodes: Sequence[Episode], cfg: WarmupConfig, seed: int, tell: Callable[[int, float], None]
) -> Summary:
    """Learn `episodes` on `crew`, a learner; `tell(step, nll)` hears of each update. InputError for too few episodes."""
    order = generator(seed, "warmup", "split").permutation(len(enough(episodes, cfg))).tolist()
    held = _held(len(episodes), cfg)
    test, learn = [episodes[i] for i in order[:held]], [episodes[i] for i in order[held:]]
    before = await _measure(crew, test, cfg.batch)
    step = 0
    for epoch in range(cfg.epochs):
        places = generator(seed, "warmup", "epoch", epoch).permutation(len(learn)).tolist()
        for at in range(0, len(places), cfg.batch):
            block = [learn[i] for i in places[at : at + cfg.batch]]
            figures = await crew.call(0, "learn", _plan(block), block)
            step += 1
            tell(step, figures[NLL])
    return Summary(step, len(learn), held, before, await _measure(crew, test, cfg.batch))


def _held(episodes: int, cfg: WarmupConfig) -> int:
    return round(episodes * cfg.heldout)


async def _measure(crew: Crew, episodes: Sequence[Episode], size: int) -> float | None:
    """Mean over all tokens of `episodes`."""
    total = tokens = 0.0
    for at in range(0, len(episodes), size):
        block = list(episodes[at : at + size])
        figures = await crew.call(0, "measure", _plan(block), block)
        total, tokens = total + figures[NLL] * figures["tokens"], tokens + figures["tokens"]
    return total / tokens if tokens else None


def _plan(block: Sequence[Episode]) -> list[tuple[int, int, float, int]]:
    """(block, row, reward, group) of each episode: all earn 1, each a group of its own."""
    return [(0, row, 1.0, row) for row in range(len(block))]

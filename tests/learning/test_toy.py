"""A game of two words with an observation in between: every estimator learns it, from under 0.2 to over 0.9."""

from __future__ import annotations

import pytest
from solo import SoloLearner

from ssp.base.episode import Episode, Outcome
from ssp.base.tokenlog import Kind
from ssp.config.role import CorrectionConfig, SamplingConfig
from ssp.engines.base import Sampling
from ssp.engines.torch_engine import TorchEngine
from ssp.learning import algorithms
from ssp.learning.batch import Batch, collate
from tests.blocks import made

GOOD = frozenset(range(6))
"""Of 40 words; the second word must be one of these."""
EPISODES, GROUP = 48, 6


def play(engine: TorchEngine, round_: int, temperature: float) -> tuple[Batch, float]:
    """One batch, and the share of episodes whose last word is good."""
    episodes = [Episode(f"e{i}", f"g{i // GROUP}", "solver", i, outcome=Outcome.SCORED) for i in range(EPISODES)]
    seeds = [round_ * EPISODES + i for i in range(EPISODES)]
    slots, read = engine.open(seeds), [[10 + i // GROUP, 20] for i in range(EPISODES)]
    for kind in (Kind.PROMPT, Kind.OBSERVATION):
        turns = engine.step(slots, read, Sampling(temperature, 1, ()))
        for episode, given, turn in zip(episodes, read, turns, strict=True):
            episode.log.append(kind, given)
            episode.log.append_model(turn.ids, turn.logprobs, turn.version)
        read = [[30 + i % 3, 31] for i in range(EPISODES)]
    engine.close(slots)
    rewards = [float(episode.log.ids[-1] in GOOD) for episode in episodes]
    return collate(episodes, rewards, [episode.game for episode in episodes]), sum(rewards) / EPISODES


@pytest.mark.covers("SR-01", "SR-03")
@pytest.mark.parametrize("name", sorted({*algorithms.names()} - {"remax", "reinforce_none"}))
def test_the_toy_is_learned(model_dir, role, name):
    role.algorithm, role.learner.lr, role.critic.lr = name, 6e-3, 2e-2
    role.clip_high = 0.2
    role.kl.coef, role.kl.kind, role.kl.place = (0.001, "k1", "reward") if name == "gae" else (0.0, "k3", "loss")
    learn(model_dir, role)


@pytest.mark.covers("SR-03")
@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "gspo", "clip_low": 0.05, "clip_high": 0.05},
        {"loss": "cispo"},
        {"loss": "decoupled", "correction": made(CorrectionConfig, mask="token", low=0.9, high=1.1)},
        {"loss": "tis", "correction": made(CorrectionConfig, mask="sequence", low=0.9, high=1.1)},
        {"algorithm": "reinforce_none", "sampling": SamplingConfig(0.6)},
    ],
    ids=str,
)
def test_the_toy_is_learned_with_every_loss_and_baseline(model_dir, role, settings):
    """In mini-batches, so that ratios are not 1."""
    role.learner.lr, role.learner.minibatch = 6e-3, 24
    for name, value in settings.items():
        setattr(role, name, value)
    learn(model_dir, role)


def learn(model_dir, role):
    """At most 200 updates. The learner finds the log-probs that the engine gave, of each version that it is given."""
    learner, engine, shares = SoloLearner(model_dir, role), TorchEngine(model_dir), []
    for version in range(1, 201):
        batch, share = play(engine, version, role.sampling.temperature)
        shares.append(share)
        if sum(shares[-5:]) / 5 > 0.9:
            break
        figures = learner.update(batch)
        assert figures["logprob_mismatch/max"] < 2e-4 and figures["logprob_mismatch/kl"] < 1e-8
        engine.load(learner.weights(), version)
    assert sum(shares[:3]) / 3 < 0.2 and sum(shares[-5:]) / 5 > 0.9

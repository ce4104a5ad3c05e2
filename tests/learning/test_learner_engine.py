"""The learner and the embedded engine speak of the same policy: log-probs agree, and weights travel."""

from __future__ import annotations

import numpy as np
import pytest
from solo import SoloLearner

from ssp.base.episode import Episode, Outcome
from ssp.base.tokenlog import Kind
from ssp.engines.base import Sampling
from ssp.engines.torch_engine import TorchEngine
from ssp.learning.batch import collate


def play(engine, n, temperature):
    """n two-turn episodes; paid for each token 7 that the policy wrote."""
    episodes = [Episode(f"e{i}", "g", "proposer", i, outcome=Outcome.SCORED) for i in range(n)]
    slots, pending = engine.open(list(range(n))), [[1, 2 + i % 5, 3] for i in range(n)]
    for kind in (Kind.PROMPT, Kind.OBSERVATION):
        turns = engine.step(slots, pending, Sampling(temperature, 12, (0,)))
        for episode, read, turn in zip(episodes, pending, turns, strict=True):
            episode.log.append(kind, read)
            episode.log.append_model(turn.ids, turn.logprobs, turn.version)
        pending = [[4, 5, 6 + i % 9] for i in range(n)]
    engine.close(slots)
    rewards = [float(sum(np.asarray(e.log.ids)[e.log.mask] == 7)) for e in episodes]
    return collate(episodes, rewards, [e.game for e in episodes]), sum(rewards) / n


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_agree_and_published_weights_earn_more(model_dir, role, temperature):
    role.algorithm, role.sampling.temperature, role.learner.lr = "reinforce", temperature, 5e-3
    learner, engine = SoloLearner(model_dir, role), TorchEngine(model_dir)
    earned = []
    for version in range(1, 13):
        batch, mean = play(engine, 64, temperature)
        figures = learner.update(batch)
        assert figures["logprob_mismatch/max"] < 2e-4 and figures["logprob_mismatch/kl"] < 1e-8
        engine.load(learner.weights(), version)
        earned.append(mean)
    assert sum(earned[-3:]) > 2 * sum(earned[:3])
    assert int(batch.versions.max()) == 11

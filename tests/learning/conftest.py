"""A tiny Qwen2 folder and made-up episodes whose behaviour log-probs are the model's own."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from ssp.base.episode import Episode, Outcome
from ssp.base.tokenlog import Kind
from ssp.config.role import RoleConfig
from ssp.learning.batch import Batch, collate
from ssp.learning.forward import score

VOCAB = 40


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """Random weights, protocol `mini`, a stand-in tokenizer file."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    (folder / "ssp.json").write_text(json.dumps({"protocol": "mini"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def role():
    """The default solver block, with small micro-batches."""
    config = RoleConfig()
    config.learner.token_budget = 200
    return copy.deepcopy(config)


def _episodes(n: int, seed: int = 0, versions: int = 3) -> list[Episode]:
    """n logs of prompt, model, observation, model, template: 15 to 45 tokens."""
    rng = np.random.default_rng(seed)
    episodes = []
    for i in range(n):
        episode = Episode(f"e{i}", f"g{i // 4}", "solver", i % 4, outcome=Outcome.SCORED)

        def draw(low, high):
            return rng.integers(0, VOCAB, rng.integers(low, high)).tolist()

        episode.log.append(Kind.PROMPT, draw(3, 8))
        first = draw(3, 9)
        episode.log.append_model(first, [-1.0] * len(first), versions)
        episode.log.append(Kind.OBSERVATION, draw(5, 15))
        second = draw(3, 9)
        episode.log.append_model(second, [-1.0] * len(second), versions)
        episode.log.append(Kind.TEMPLATE, draw(1, 4))
        episodes.append(episode)
    return episodes


@pytest.fixture
def make_episodes():
    return _episodes


@pytest.fixture
def make_batch(model_dir):
    """make_batch(n, seed, noise): GRPO groups of 4, rewards 0 or 1; behaviour = the start model plus noise."""
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()

    def build(n: int = 24, seed: int = 0, noise: float = 0.0, temperature: float = 1.0) -> Batch:
        episodes = _episodes(n, seed)
        rewards = [float(r) for r in np.random.default_rng(seed + 1).integers(0, 2, n)]
        batch = collate(episodes, rewards, [e.game for e in episodes])
        with torch.no_grad():
            own = score(model, batch.ids, batch.mask, temperature)[0]
        generator = torch.Generator().manual_seed(seed)
        batch.logprobs[batch.mask] = own + noise * torch.randn(own.shape, generator=generator)
        return batch

    return build

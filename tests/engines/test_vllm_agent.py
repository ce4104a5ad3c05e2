"""An agent of a user's own on the real vLLM engine: its turns are logged as they were sampled."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from vllmfactory import engine, needs_vllm

from ssp.base.episode import Outcome
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, agents, rollout

sys.path.append(str(Path(__file__).resolve().parents[1] / "rollout"))
import families  # noqa: E402
from frameworks import openai_loop  # noqa: E402
from scripts import Books, limits, tasks  # noqa: E402

from tests.bench.agent_law import check  # noqa: E402

pytest.importorskip("openai")
pytestmark = [pytest.mark.ray, needs_vllm, pytest.mark.timeout(600)]


@pytest.mark.covers("U14")
def test_an_agent_plays_on_vllm_and_each_token_is_trained_where_it_was_sampled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = families.qwen()
    size = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=4096, **size)
    model = Qwen2ForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    agent = agents.find("here", lambda _: openai_loop, 300.0)
    settings = Settings(limits(searches=9, turn_tokens=16, total_tokens=2000), 1.0, 3, agent=agent)
    with engine(tmp_path) as living:
        episodes, _ = rollout(living, Renderer(protocols.get("chat-tools"), tokenizer), Books(), tasks(4), settings)
    assert [(episode.outcome, episode.stopped) for episode in episodes] == [(None, "final")] * 4
    assert all(episode.outcome is not Outcome.VOID and len(episode.queries) == 3 for episode in episodes)
    tokens, rows, largest = check(model, episodes)
    assert rows == 4 and tokens > 40 and largest < 1e-4

"""The tiny policy: made alike each time, kept, and at home in every shipped protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from localsearch import local
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ssp.base import files
from ssp.base.episode import PROPOSER, SOLVER, Task
from ssp.config.role import LimitsConfig, RoleConfig
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.game.world import World
from ssp.learning.tiny import policy
from ssp.learning.tiny.reward import letters
from ssp.search.shard import in_memory
from ssp.selfplay.workers import build

LIMITS = LimitsConfig(searches=3, turn_tokens=160, observation_tokens=128, prompt_tokens=2048, total_tokens=4096)


def test_a_byte_level_vocabulary_knows_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its tokenizer names an unknown token: nothing is encoded to find that out."""
    letters = {letter: at for at, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    rust = Tokenizer(models.BPE(vocab={**letters, "<|end|>": 256}, merges=[]))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokens = PreTrainedTokenizerFast(tokenizer_object=rust, unk_token="<|end|>")
    assert tokens.unk_token_id == 256
    monkeypatch.setattr(PreTrainedTokenizerFast, "encode", lambda *args, **more: pytest.fail("encoded"))
    build.check_words(tokens, ["Who wrote \u0414\u0440\u0430\u043a\u0443\u043b\u0430 ?"])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "STEPS", 2)
    torch.set_num_threads(1)


@pytest.mark.usefixtures("hasty")
def test_it_is_the_same_each_time_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = protocols.get("search-r1")
    first, second = (policy.ensure(spoken, "plain", False, tmp_path / name) for name in "ab")
    for file in ("model.safetensors", "tokenizer.json"):
        assert files.digest(first / file) == files.digest(second / file)
    monkeypatch.setattr(policy, "_make", lambda *args: pytest.fail("it is there"))
    assert policy.ensure(spoken, "plain", False, tmp_path / "a") == first
    (first / "model.safetensors").write_bytes(b"half a policy is none")
    with pytest.raises(pytest.fail.Exception):
        policy.ensure(spoken, "plain", False, tmp_path / "a")


@pytest.mark.usefixtures("hasty")
def test_layout_and_self_search_make_another_one(tmp_path: Path) -> None:
    made = {
        policy.ensure(protocols.get("ssrl"), *how, tmp_path)
        for how in (("chatml", True), ("llama3", True), ("chatml", False))
    }
    assert len(made) == 3


@pytest.mark.slow
def test_it_plays_both_roles_where_searches_are_tool_calls(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    spoken, world = protocols.get("chat-tools"), World(3)
    folder = policy.ensure(spoken, "", False, tmp_path)
    renderer = Renderer(spoken, build.tokenizer(folder))
    search = local("train", in_memory(world.documents()))
    settings = Settings(LIMITS, 1.0, 1)
    for role in (PROPOSER, SOLVER):
        tasks = [Task(f"t{i}", f"g{i}", role, 0, i, dict(fields(world, i))) for i in range(24)]
        episodes, _ = rollout(build.engine(RoleConfig(), folder), renderer, search, tasks, settings)
        assert sum(len(episode.queries) for episode in episodes) >= 8
        assert sum(hits > 0 for episode in episodes for hits in episode.hits) >= 8
        assert sum(episode.final is not None for episode in episodes) >= 4


def fields(world: World, i: int) -> Iterator[tuple[str, str]]:
    yield "target", world.targets()[i]
    yield "question", f"{world.targets()[i]} seat ?"


def test_letters() -> None:
    assert (
        letters("", ["gold"]) == 0.0 and letters("ab1 ", ["gold"], structure=0.2) == 0.5 and letters("abc", []) == 1.0
    )
    assert letters("éé", []) == 0.0

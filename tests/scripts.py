"""Policies that play a script: text by text on the scripted engine, and on the torch engine a model whose next token follows
from the last one, so that a real engine plays it too. And a book to search in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import families
import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ssp.base.episode import Document, Episode, Outcome, Task
from ssp.base.errors import Fault
from ssp.config.role import LimitsConfig
from ssp.engines import Engine, ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.views.replay.tape import along

QWEN, LLAMA = families.qwen(tools=False), families.llama()
SEARCH_R1 = Renderer(protocols.get("search-r1"), QWEN)
LIMITS = LimitsConfig(searches=3, retries=3, turn_tokens=400, observation_tokens=400, total_tokens=4000)
ANSWER = "<answer> Paris </answer>"


def limits(**changes: object) -> LimitsConfig:
    return LimitsConfig(**{**vars(LIMITS), **changes})  # type: ignore[arg-type]


def search(query: str) -> str:
    return f"<think> t </think> <search> {query} </search>"


class Books:
    """Every query finds the same `documents`; `calls` are the queries of each request. `down`: all is out of order, or the
    corpus of that name."""

    def __init__(
        self, documents: Sequence[Document] = (Document("1", '"Paris"\nParis is the capital of France.'),)
    ) -> None:
        self.documents, self.calls, self.down = list(documents), [], False  # type: ignore[var-annotated]

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        self.calls.append(list(queries))
        if self.down in (True, corpus):
            raise Fault("retriever_down")
        return [self.documents[:k] for _ in queries]


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def scripted(turns: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase = QWEN) -> ScriptedEngine:
    """The slot with seed i plays `turns[i]`, one text a turn."""
    return ScriptedEngine(lambda history, seed, turn: encode(tokenizer, turns[seed][turn]), version=7)


def tasks(n: int, field: str = "question", role: str = "solver", corpora: Sequence[str] = ()) -> list[Task]:
    asked = {field: "Which city is it?"}
    return [Task(f"t{i}", f"g{i}", role, i, i, asked, *corpora[i : i + 1]) for i in range(n)]


def play(
    turns: Sequence[Sequence[str]],
    books: Books,
    renderer: Renderer = SEARCH_R1,
    limits: LimitsConfig = LIMITS,
    engine: Engine | None = None,
    corpora: Sequence[str] = (),
    **options: object,
) -> list[Episode]:
    """Episodes of a script, one a list of turns, each of which comes out of its record again (`ssp replay`)."""
    made, asked = engine or scripted(turns, renderer.tokenizer), tasks(len(turns), corpora=corpora)
    settings = Settings(limits, 0.0, 3, **options)  # type: ignore[arg-type]
    episodes, _ = rollout(made, renderer, books, asked, settings)
    for task, played in zip(asked, episodes, strict=True):
        if played.outcome is not Outcome.VOID:
            replayed(played, task, renderer, settings)
    return episodes


def replayed(played: Episode, task: Task, renderer: Renderer, settings: Settings) -> None:
    """What the rollout makes of the record, of whose documents nothing but the ids is known, is what was played."""
    record = replace(played, documents=[Document(document.id, "") for document in played.documents])
    now = along(record, task, renderer, settings)
    for name in ("queries", "hits", "final", "stopped", "invalid"):
        assert getattr(now, name) == getattr(played, name), name
    for name in ("ids", "kinds", "versions", "logprobs", "drops"):
        assert getattr(now.log, name) == getattr(played.log, name), name


def pieces(episode: Episode, tokenizer: PreTrainedTokenizerBase = QWEN) -> list[tuple[str, str]]:
    """(kind, text) of each stretch of the log."""
    stretches: list[tuple[int, list[int]]] = []
    for id_, kind in zip(episode.log.ids, episode.log.kinds, strict=True):
        if not stretches or stretches[-1][0] != kind:
            stretches.append((kind, []))
        stretches[-1][1].append(id_)
    names = ("prompt", "model", "observation", "template", "recalled")
    return [(names[kind], tokenizer.decode(ids)) for kind, ids in stretches]


def with_tokens(*texts: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that has these texts as tokens of their own."""
    core = families.byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], vocabulary=256)
    core.add_tokens(list(texts))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|im_end|>")


class Chain:
    """A Qwen2 model of random weights in which `follows` (token text → next token text) is what is most likely."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, follows: dict[str, str], strength: float = 40.0) -> None:
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM

        torch.manual_seed(1)
        size = len(tokenizer)
        hidden = size + (-size) % 16
        self.config = Qwen2Config(
            vocab_size=size,
            hidden_size=hidden,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=8,
            num_key_value_heads=2,
            initializer_range=0.04,
            tie_word_embeddings=False,
            max_position_embeddings=4096,
        )
        self.net = Qwen2ForCausalLM(self.config).eval()
        with torch.no_grad():
            embedding = self.net.model.embed_tokens.weight
            embedding.copy_(torch.eye(size, hidden) + 0.02 * torch.randn(size, hidden))
            for last, following in follows.items():
                ((a,), (b,)) = encode(tokenizer, last), encode(tokenizer, following)
                self.net.lm_head.weight[b, a] += strength / hidden**0.5

    def engine(self, version: int = 7) -> Engine:
        from ssp.engines.torch_engine import TorchEngine

        made = TorchEngine(self.config.to_dict())
        made.load({name: weight.detach().numpy() for name, weight in self.net.named_parameters()}, version)
        return made

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """Of each id after those before it, by a full forward; the first one's is 0. float [T]."""
        import torch

        with torch.no_grad():
            table = torch.log_softmax(self.net(torch.tensor([list(ids)])).logits[0, :-1].double(), -1)
        return np.concatenate([[0.0], table.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()])

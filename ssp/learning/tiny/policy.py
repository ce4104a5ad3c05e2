"""A tiny policy for any protocol: random weights, then a few seconds of practice in the protocol's
form.

A byte-level tokenizer (tags and stop strings in several tokens, Qwen's and Llama's special tokens,
a chat template with tools) and a Qwen2 of 2 layers, which searches and hands in what the protocol
asks for, with words drawn at random."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from ssp.base import cache
from ssp.base.episode import PROPOSER, SOLVER, Document, Episode, Outcome
from ssp.base.seeds import derive, generator
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.role import LearnerConfig, RoleConfig
from ssp.game.protocols import Protocol
from ssp.game.protocols.base import HOLE
from ssp.game.protocols.calls import written
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.referee import VERIFIERS
from ssp.game.world import World
from ssp.game.world.tokenizer import save
from ssp.game.world.vocabulary import NAMES, RELATIONS
from ssp.learning.batch import collate
from ssp.learning.learner import PolicyLearner
from ssp.learning.tiny.actor import WORDS, boxed, handing_in, question, result, searching
from ssp.learning.warmup.loop import recipe
from ssp.record.manifest import seal, sound

VERSION = 7
"""Raised whenever what is made changes."""
VOCABULARY = 1500
HIDDEN = 64
LAYERS = 2
CONTEXT = 8192
SPREAD = 0.12
"""Standard deviation of the first weights."""
STEPS = 90
"""Optimizer steps of practice."""
WARMUP = 10
"""Those of them with a lower rate."""
RATE = 8e-3
ROWS = 3
"""Episodes a role and step."""
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content"
    " }}\n\n{% endif %}You may call these functions:\n<tools>{% for tool in tools %}\n{{ tool |"
    " tojson }}{% endfor %}\n</tools>\nA call is JSON with name and arguments between <tool_call>"
    " and </tool_call>.<|im_end|>\n{% endif %}{% for m in messages %}{% if m.role == 'tool'"
    " %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n{% elif not"
    " (tools and m.role == 'system') %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%"
    " endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""In the manner of Qwen's: tools in the system message, a tool's reply in a user message."""


def ensure(protocol: Protocol, template: str, recalls: bool, root: Path, asks: str = "") -> Path:
    """The folder of the tiny policy of `protocol` under `root/tiny`; made there when it is not yet.

    `template`: the roles' layout; `recalls`: whether it writes its own information (self-search);
    `asks`: the prompt to which a question is handed in with its answer, "" for none."""
    parts = [VERSION, repr(protocol), template, recalls]
    parts += [asks] if asks else []
    what = json.dumps(parts)
    digest = hashlib.sha256(what.encode()).hexdigest()
    entry = root / "tiny" / f"{protocol.id}-{digest[:12]}"
    if sound(entry):
        return entry
    return cache.put(entry, lambda aside: _make(protocol, template, recalls, aside, asks), sound)


def _make(protocol: Protocol, template: str, recalls: bool, folder: Path, asks: str) -> None:
    """Random weights, and practice by the learner that trains every other policy too."""
    logging.disable_progress_bar()
    world = World(derive(0, "tiny") % 1000)
    tokens = tokenizer(protocol, world)
    config = Qwen2Config(
        vocab_size=len(tokens),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokens.eos_token_id,
        dtype="float32",
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,  # of 32 dimensions: what vLLM takes on CPUs too
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
    )
    # beside it, and thrown away like the rest of what was written aside
    start = folder.with_name("start")
    random_model(config, SPREAD, (0, "tiny")).save_pretrained(start)
    rate = LearnerConfig(lr=RATE, warmup_steps=WARMUP, schedule="cosine", packing=True)
    block = recipe(RoleConfig(learner=rate))
    learner = PolicyLearner(start, {SOLVER: block}, protocol.id, STEPS)
    practice = _Practice(Renderer(protocol, tokens, template), world, recalls, asks)
    for _ in range(STEPS):
        episodes = practice.episodes()
        count = len(episodes)
        batch = collate(episodes, [1.0] * count, range(count))
        learner.update({SOLVER: batch})
    learner.policy.model.save_pretrained(folder)
    save(tokens, folder)
    seal(folder, protocol.mark)


def random_model(config: Qwen2Config, spread: float, seed: Sequence[Any]) -> Qwen2ForCausalLM:
    """A float32 model of that shape: matrices are normal with deviation `spread`, drawn from
    `seed`; biases are 0 and the scales of norms 1."""
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draws = torch.Generator().manual_seed(derive(*seed, name))
            if weight.ndim == 2:
                weight.normal_(0.0, spread, generator=draws)
            else:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
    return model


def tokenizer(protocol: Protocol, world: World) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the protocol's prompts, the documents of `world` and tool calls."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    texts = [f"{role.system}\n{role.user}" for role in protocol.roles.values()] * 4
    texts += [document.contents for document in world.documents()]
    texts += [written(word, "tool") for word in WORDS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    made.chat_template = CHAT_TEMPLATE
    return made


class _Practice:
    """Episodes as a policy of the protocol plays them, with words drawn at random."""

    def __init__(self, renderer: Renderer, world: World, recalls: bool, asks: str) -> None:
        self._renderer = renderer
        self._asks = asks
        known = renderer.protocol.roles
        own = [name for name in known if name not in (PROPOSER, SOLVER, *VERIFIERS)]
        self._prompts = [*(name for name in (PROPOSER, SOLVER) if name in known), *own]
        self._recalls = recalls
        self._documents = world.documents()
        self._rng = generator(0, "tiny", "practice")

    def episodes(self) -> list[Episode]:
        """Of each prompt one, and some ways to go on from it."""
        episodes = []
        for role in self._prompts:
            fields = {
                "target": self._drawn(NAMES),
                "question": self._question(),
                "searches": str(self._rng.integers(1, 4)),
            }
            if role not in (PROPOSER, SOLVER):
                fields["document"] = self._document().contents
            # as some data sets have them
            examples = "\n".join(f"Question {n}: {self._question()}" for n in (1, 2, 3))
            if self._rng.random() < 0.5:
                fields["examples"] = examples
            protocol = self._renderer.protocol
            holes = HOLE.findall(protocol.role(role).system + protocol.role(role).user)
            for hole in dict.fromkeys(holes):
                if hole not in protocol.fields and hole not in fields:
                    fields[hole] = self._drawn(WORDS)
            prompt = self._renderer.prompt(role, fields)
            for _ in range(ROWS):
                log = self._log(role, prompt)
                episodes.append(Episode("", "", role, 0, log=log, outcome=Outcome.SCORED))
        return episodes

    def _log(self, role: str, prompt: str) -> TokenLog:
        """The prompt, searches with what they find, and what is handed in."""
        pieces = [(Kind.PROMPT, prompt)]
        for _ in range(2 if role == PROPOSER else int(self._rng.integers(1, 3))):
            pieces += self._search(role)
        last = handing_in(self._renderer, role, self._result(role))
        pieces.append((Kind.MODEL, last))
        log = TokenLog()
        encoded = self._renderer.encode([text for _, text in pieces])
        for (kind, _), ids in zip(pieces, encoded, strict=True):
            if kind is Kind.MODEL:
                log.append_model(ids, [0.0] * len(ids), 0)
            else:
                log.append(kind, ids)
        return log

    def _question(self) -> str:
        """A question: as this policy itself asks it, or of the world's form."""
        if self._rng.random() < 0.5:
            return self._result(PROPOSER)
        return f"{self._drawn(NAMES)} {self._drawn(RELATIONS)} ?"

    def _search(self, role: str) -> list[tuple[Kind, str]]:
        """One search, and what it finds; a policy that `recalls` writes that itself."""
        query = self._drawn(WORDS)
        if self._recalls:
            turn = searching(self._renderer, role, query, ended=False)
            tag = self._renderer.protocol.observation_form.tag
            return [(Kind.MODEL, f"{turn}\n<{tag}> {query} </{tag}>\n")]
        document = self._document()
        turn = searching(self._renderer, role, query)
        observation = self._renderer.observation([document])
        return [(Kind.MODEL, turn), (Kind.OBSERVATION, observation)]

    def _result(self, role: str) -> str:
        words = [self._drawn(WORDS) for _ in range(int(self._rng.integers(1, 3)))]
        if role == self._asks:
            return boxed(self._renderer, role, f"{question(words)} answer: {words[0]}")
        return result(self._renderer, role, words)

    def _document(self) -> Document:
        return self._documents[int(self._rng.integers(len(self._documents)))]

    def _drawn(self, words: Sequence[str]) -> str:
        return words[int(self._rng.integers(len(words)))]

"""A tiny policy for any protocol: random weights, then a few seconds of practice in the protocol's form.

A byte-level tokenizer (tags and stop strings in several tokens, the special tokens of the Qwen and Llama families, a
chat template with tools) and a Qwen2 of 2 layers, which searches and hands in what the protocol asks for, with words
drawn at random: it knows nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ssp.base import cache
from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.seeds import derive, generator
from ssp.game.protocols import Protocol
from ssp.game.protocols.calls import written
from ssp.game.protocols.renderer import Renderer
from ssp.game.world import World
from ssp.game.world.vocabulary import NAMES, RELATIONS
from ssp.learning.tiny.actor import WORDS, handing_in, result, searching
from ssp.record.manifest import seal, sound

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

MODEL = "tiny"
"""Value of `<role>.model` for this policy."""
VERSION = 6
"""Raised whenever what is made changes."""
VOCABULARY, HIDDEN, LAYERS, CONTEXT = 1500, 64, 2, 8192
STEPS, ROWS, RATE, SPREAD = 90, 3, 8e-3, 0.12
"""Practice: optimizer steps, episodes a role and step, learning rate; standard deviation of the first weights."""
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "You may call these functions:\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n"
    "A call is JSON with name and arguments between <tool_call> and </tool_call>.<|im_end|>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif not (tools and m.role == 'system') %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""In the manner of Qwen's: tools in the system message, a tool's reply in a user message."""


def ensure(protocol: Protocol, template: str, recalls: bool, root: Path) -> Path:
    """The folder of the tiny policy of `protocol` under `root/tiny`; made there when it is not yet.

    `template`: the roles' layout; `recalls`: whether it writes its own information (self-search).
    """
    what = json.dumps([VERSION, repr(protocol), template, recalls])
    entry = root / "tiny" / f"{protocol.id}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    return entry if sound(entry) else cache.put(entry, lambda aside: _make(protocol, template, recalls, aside), sound)


def _make(protocol: Protocol, template: str, recalls: bool, folder: Path) -> None:
    import torch
    from transformers.utils import logging

    from ssp.game.world.tokenizer import save
    from ssp.learning.supervised import fit, small_model

    logging.disable_progress_bar()
    world = World(derive(0, "tiny") % 1000)
    tokens = tokenizer(protocol, world)
    model = small_model(
        len(tokens),
        int(str(tokens.eos_token_id)),
        SPREAD,
        (0, "tiny"),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,  # of 32 dimensions: what vLLM takes on CPUs too
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
    )
    traces = _Traces(Renderer(protocol, tokens, template), world, recalls)
    work = ((_loss(model, *traces.draw(role)) for role in traces.roles) for _ in range(STEPS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
    for _ in fit(model, [optimizer], work, lambda peak, step: peak * min(1.0, (step + 1) / 10) * (1.0 - step / STEPS)):
        pass
    model.save_pretrained(folder)
    save(tokens, folder)
    seal(folder, protocol.mark)


def tokenizer(protocol: Protocol, world: World) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the protocol's prompts, the documents of `world` and tool calls."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    texts = [f"{role.system}\n{role.user}" for role in protocol.roles.values()] * 4
    texts += [document.contents for document in world.documents()] + [written(word, "tool") for word in WORDS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    made.chat_template = CHAT_TEMPLATE
    return made


def _loss(model: Qwen2ForCausalLM, prompt: list[int], rows: Sequence[tuple[list[int], list[bool]]]) -> Tensor:
    """Of what the policy writes. The prompt, most of the tokens, is read once and is not trained."""
    import torch

    from ssp.learning.supervised import nll

    with torch.no_grad():
        cache = model.model(torch.tensor([prompt[:-1]]), use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(rows))
    length = 1 + max(len(ids) for ids, _ in rows)
    tokens, mask = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.bool)
    tokens[:, 0] = prompt[-1]  # it says what comes first
    for row, (ids, mine) in enumerate(rows):
        tokens[row, 1 : len(ids) + 1] = torch.tensor(ids)
        mask[row, 1 : len(ids) + 1] = torch.tensor(mine)
    return nll(model, tokens, mask, cache)


class _Traces:
    """Episodes as a policy of the protocol plays them, with words drawn at random."""

    def __init__(self, renderer: Renderer, world: World, recalls: bool) -> None:
        self._renderer, self._protocol, self._recalls = renderer, renderer.protocol, recalls
        self._documents, self._rng = world.documents(), generator(0, "tiny", "practice")
        self.roles = [role for role in (PROPOSER, SOLVER) if role in self._protocol.roles]

    def draw(self, role: str) -> tuple[list[int], list[tuple[list[int], list[bool]]]]:
        """Ids of a prompt, and of what may follow it, with which of these the policy writes."""
        fields = {"target": self._drawn(NAMES), "question": self._asked(), "searches": str(self._rng.integers(1, 4))}
        examples = "\n".join(f"Question {n}: {self._asked()}" for n in (1, 2, 3))  # as some data sets have them
        fields |= {"examples": examples} if self._rng.random() < 0.5 else {}
        (prompt,) = self._renderer.encode([self._renderer.prompt(role, fields)])
        return prompt, [self._rest(role) for _ in range(ROWS)]

    def _rest(self, role: str) -> tuple[list[int], list[bool]]:
        pieces = []
        for _ in range(2 if role == PROPOSER else int(self._rng.integers(1, 3))):
            pieces += self._search(role)
        pieces.append((handing_in(self._renderer, role, self._result(role)), True))
        encoded = self._renderer.encode([text for text, _ in pieces])
        ids = [id_ for piece in encoded for id_ in piece]
        return ids, [mine for piece, (_, mine) in zip(encoded, pieces, strict=True) for _ in piece]

    def _asked(self) -> str:
        """A question: as this policy itself asks it, or of the world's form."""
        own = self._rng.random() < 0.5
        return self._result(PROPOSER) if own else f"{self._drawn(NAMES)} {self._drawn(RELATIONS)} ?"

    def _search(self, role: str) -> list[tuple[str, bool]]:
        """One search, and what it finds; a policy that `recalls` writes that itself."""
        tag, query = self._protocol.observation_form.tag, self._drawn(WORDS)
        if self._recalls:
            asked = searching(self._renderer, role, query, ended=False)
            return [(f"{asked}\n<{tag}> {query} </{tag}>\n", True)]
        found = self._documents[int(self._rng.integers(len(self._documents)))]
        return [(searching(self._renderer, role, query), True), (self._renderer.observation([found]), False)]

    def _result(self, role: str) -> str:
        return result(self._renderer, role, [self._drawn(WORDS) for _ in range(int(self._rng.integers(1, 3)))])

    def _drawn(self, words: Sequence[str]) -> str:
        return words[int(self._rng.integers(len(words)))]

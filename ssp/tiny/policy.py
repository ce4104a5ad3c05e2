"""A tiny policy for any protocol: random weights, then a few seconds of practice in the protocol's form.

Owns the tokenizer (byte-level, tags and stop strings in several tokens, the special tokens of the Qwen and Llama
families, a chat template with tools), the model (a Qwen2 of 2 layers) and its practice. Promises that it searches and
hands in what the protocol asks for, with words drawn at random: it knows nothing. Refuses to be a baseline.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ssp import cache
from ssp.episode import PROPOSER, SOLVER, Document
from ssp.protocols import Protocol
from ssp.protocols.calls import TOOL
from ssp.protocols.renderer import Renderer
from ssp.seeds import derive, generator
from ssp.world import World
from ssp.world.vocabulary import NAMES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

VERSION = 2
"""Raised whenever what is made changes."""
VOCABULARY, HIDDEN, LAYERS, CONTEXT = 1500, 64, 2, 8192
STEPS, ROWS, RATE = 60, 6, 4e-3
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

    def sound(folder: Path) -> bool:
        return (folder / "model.safetensors").is_file() and (folder / "tokenizer.json").is_file()

    if not sound(entry):
        cache.put(entry, lambda folder: _make(protocol, template, recalls, folder), sound)
    return entry


def _make(protocol: Protocol, template: str, recalls: bool, folder: Path) -> None:
    world = World(derive(0, "tiny") % 1000)
    tokens = tokenizer(protocol, world)
    renderer = Renderer(protocol, tokens, template)
    model = _model(len(tokens), int(str(tokens.eos_token_id)))
    _practise(model, renderer, world, recalls)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def tokenizer(protocol: Protocol, world: World) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the protocol's prompts and some documents of `world`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    texts = [f"{role.system}\n{role.user}" for role in protocol.roles.values()] * 4
    texts += [document.contents for document in world.documents()[:100]]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    made.chat_template = CHAT_TEMPLATE
    return made


def _model(vocabulary: int, end: int) -> Qwen2ForCausalLM:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,  # of 32 dimensions: what vLLM takes on CPUs too
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=None,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draws = torch.Generator().manual_seed(derive(0, "tiny", name))
            if weight.ndim == 2:
                weight.normal_(0.0, 0.05, generator=draws)
    return model


def _practise(model: Qwen2ForCausalLM, renderer: Renderer, world: World, recalls: bool) -> None:
    """A few steps of supervised learning on traces of every role that the protocol knows."""
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
    rng = generator(0, "tiny", "practice")
    roles = [role for role in (PROPOSER, SOLVER) if role in renderer.protocol.roles]
    for step in range(STEPS):
        rows = [_trace(renderer, world, roles[i % len(roles)], rng, recalls) for i in range(ROWS)]
        loss = torch.zeros(())
        for ids, written in rows:
            tokens, mask = torch.tensor([ids]), torch.tensor(written)
            logits = model(tokens).logits[0, :-1][mask[1:]]
            loss = loss + cross_entropy(logits, tokens[0, 1:][mask[1:]]) / len(rows)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 10) * (1.0 - step / STEPS)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _trace(
    renderer: Renderer, world: World, role: str, rng: np.random.Generator, recalls: bool
) -> tuple[list[int], list[bool]]:
    """Ids of one episode and which of them the policy writes."""
    fields = {"target": _words(rng, 1), "question": _words(rng, 5), "searches": "2", "examples": ""}
    pieces = [(renderer.prompt(role, fields), False)]
    for _ in range(2 if role == PROPOSER else int(rng.integers(1, 3))):
        query, documents = _words(rng, 1), [world.documents()[int(rng.integers(0, 100))]]
        pieces += _search(renderer, query, documents, recalls)
    pieces.append((_final(renderer.protocol, role, rng), True))
    encoded = renderer.encode([text for text, _ in pieces])
    ids = [id_ for piece in encoded for id_ in piece]
    written = [mine for piece, (_, mine) in zip(encoded, pieces, strict=True) for _ in piece]
    if renderer.protocol.observation_form.as_turn:  # a turn ends with the family's end, not with a tag
        ids, written = [*ids, renderer.ends[0]], [*written, True]
    return ids, written


def _search(renderer: Renderer, query: str, documents: list[Document], recalls: bool) -> list[tuple[str, bool]]:
    form, tag = renderer.protocol.search, renderer.protocol.observation_form.tag
    if recalls:
        return [(f"<{form.tag}> {query} </{form.tag}>\n<{tag}> {query} </{tag}>\n", True)]
    if form.form != "tool":
        return [(f"<{form.tag}> {query} </{form.tag}>", True), (renderer.observation(documents), False)]
    call = json.dumps({"name": TOOL, "arguments": {"query": query}})
    end = renderer.decode(renderer.ends[:1])
    return [(f"<{form.tag}>\n{call}\n</{form.tag}>{end}", True), (renderer.observation(documents), False)]


def _final(protocol: Protocol, role: str, rng: np.random.Generator) -> str:
    spoken = protocol.role(role)
    text = f"{_words(rng, 11)}?" if role == PROPOSER else _words(rng, int(rng.integers(1, 4)))
    text = f"\\boxed{{{text}}}" if spoken.boxed else text
    return f"<{spoken.final}> {text} </{spoken.final}>"


def _words(rng: np.random.Generator, count: int) -> str:
    return " ".join(NAMES[int(i)] for i in rng.integers(0, 60, count))

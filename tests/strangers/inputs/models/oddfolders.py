"""Model folders as tools in use leave them, each with one thing odd, made of the policy that the package ships."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ssp.learning.coldstart import ARTEFACT

EMBEDDINGS, HEAD, LAYERS = "model.embed_tokens.weight", "lm_head.weight", 2
Weights = dict[str, Tensor]


class Odd:
    """A folder in the making. `model`: what its weights are, by parameter; None where it is no model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for file in ARTEFACT.iterdir():
            if file.name not in ("model.safetensors", "ssp.json"):
                shutil.copyfile(file, folder / file.name)
        self.write("ssp.json", {"protocol": "mini", "protocol_version": 1})
        self.weights: Weights = load_file(ARTEFACT / "model.safetensors")
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.model: Weights = dict(self.weights)
        torch.manual_seed(3)

    def write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))

    def put(self, weights: Weights, name: str = "model.safetensors") -> None:
        kept = {key: tensor.contiguous().clone() for key, tensor in weights.items()}
        save_file(kept, self.folder / name, {"format": "pt"})

    def shards(self, weights: Weights, count: int) -> dict[str, str]:
        """Cut into `count` files. Returns the map of an index."""
        names, placed = sorted(weights), dict[str, str]()
        for part in range(count):
            name = f"model-0000{part + 1}-of-0000{count}.safetensors"
            mine = names[part * len(names) // count : (part + 1) * len(names) // count]
            self.put({key: weights[key] for key in mine}, name)
            placed |= dict.fromkeys(mine, name)
        return placed

    def index(self, placed: dict[str, str]) -> None:
        self.write("model.safetensors.index.json", {"metadata": {}, "weight_map": placed})

    def another(self) -> Weights:
        """Weights of another model of this shape."""
        return {key: tensor + 0.05 * torch.randn_like(tensor) for key, tensor in self.weights.items()}

    def own_head(self) -> Tensor:
        """A head that is not the embeddings."""
        embeddings = self.weights[EMBEDDINGS]
        return embeddings + 0.5 * torch.randn_like(embeddings)


def plain(odd: Odd) -> None:
    odd.put(odd.weights)


def tied_equal_head(odd: Odd) -> None:
    """As Qwen3 was published: the tied head is in the file once more."""
    odd.put({**odd.weights, HEAD: odd.weights[EMBEDDINGS]})


def tied_other_head(odd: Odd) -> None:
    """A trainer untied the head and left the flag."""
    odd.model[HEAD] = odd.own_head()
    odd.put(odd.model)


def untied_equal_head(odd: Odd) -> None:
    odd.config["tie_word_embeddings"] = False
    odd.model[HEAD] = odd.weights[EMBEDDINGS].clone()
    odd.put(odd.model)


def no_flag_own_head(odd: Odd) -> None:
    """The configuration leaves out what is its family's default: an own head."""
    del odd.config["tie_word_embeddings"]
    odd.model[HEAD] = odd.own_head()
    odd.put(odd.model)


def head_only(odd: Odd) -> None:
    """`safetensors.torch.save_model` keeps one name of two that share a tensor."""
    weights = dict(odd.weights)
    weights[HEAD] = weights.pop(EMBEDDINGS)
    odd.put(weights)


def head_only_in_shards(odd: Odd) -> None:
    weights = dict(odd.weights)
    weights[HEAD] = weights.pop(EMBEDDINGS)
    odd.index(odd.shards(weights, 2))


def inv_freq(odd: Odd) -> None:
    """Older Llama checkpoints hold buffers."""
    angles = 10000.0 ** -(torch.arange(0, 32, 2) / 32)
    names = [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in range(LAYERS)]
    odd.put({**odd.weights, **dict.fromkeys(names, angles)})


def second_file(odd: Odd) -> None:
    odd.put(odd.weights)
    odd.put(odd.another(), "model_backup.safetensors")


def left_shards(odd: Odd) -> None:
    """Saved again in two files, beside the three of before."""
    odd.shards(odd.another(), 3)
    odd.index(odd.shards(odd.weights, 2))


def generation_config(odd: Odd) -> None:
    """As of Vicuna: transformers reads it, and refuses to save it."""
    odd.write("generation_config.json", {"temperature": 0.6, "top_p": 0.9, "eos_token_id": 2})
    odd.put(odd.weights)


def half_precision(odd: Odd) -> None:
    odd.model = {key: tensor.to(torch.bfloat16).float() for key, tensor in odd.weights.items()}
    odd.put({key: tensor.to(torch.bfloat16) for key, tensor in odd.weights.items()})


TAKEN: list[Callable[[Odd], None]] = [
    *(plain, tied_equal_head, tied_other_head, untied_equal_head, no_flag_own_head, head_only, head_only_in_shards),
    *(inv_freq, second_file, left_shards, generation_config, half_precision),
]
"""Folders that are one model to everybody."""


def left_adapter(odd: Odd) -> None:
    """An adapter beside weights: whether it is merged into them nobody says."""
    odd.put(odd.weights)
    odd.write("adapter_config.json", {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})
    layers = [f"base_model.model.model.layers.{layer}.self_attn.q_proj" for layer in range(LAYERS)]
    down = {f"{layer}.lora_A.weight": torch.randn(4, 64) for layer in layers}
    odd.put(down | {f"{layer}.lora_B.weight": torch.randn(128, 4) for layer in layers}, "adapter_model.safetensors")


def adapter_alone(odd: Odd) -> None:
    left_adapter(odd)
    (odd.folder / "model.safetensors").unlink()


def pickled(odd: Odd) -> None:
    torch.save(odd.weights, odd.folder / "pytorch_model.bin")


def shards_without_index(odd: Odd) -> None:
    odd.shards(odd.weights, 2)


def shard_missing(odd: Odd) -> None:
    odd.index(odd.shards(odd.weights, 2))
    (odd.folder / "model-00002-of-00002.safetensors").unlink()


def torn_file(odd: Odd) -> None:
    odd.put(odd.weights)
    file = odd.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def broken_index(odd: Odd) -> None:
    odd.put(odd.weights)
    odd.write("model.safetensors.index.json", {"metadata": {}})


def index_outside(odd: Odd) -> None:
    placed = odd.shards(odd.weights, 2)
    odd.index({key: f"../{odd.folder.name}/{name}" for key, name in placed.items()})


def twice_whole(odd: Odd) -> None:
    """Saved whole over a folder of shards: transformers reads the one, vLLM the other."""
    odd.index(odd.shards(odd.another(), 2))
    odd.put(odd.weights)


def tensor_twice(odd: Odd) -> None:
    placed = odd.shards(odd.weights, 2)
    odd.put(odd.another(), sorted(set(placed.values()))[0])
    odd.index(placed)


def tensor_missing(odd: Odd) -> None:
    odd.put({key: tensor for key, tensor in odd.weights.items() if key != "model.norm.weight"})


def tensor_unknown(odd: Odd) -> None:
    """A value head that its trainer saved along."""
    odd.put({**odd.weights, "v_head.summary.weight": torch.zeros(1, 64)})


def layer_unknown(odd: Odd) -> None:
    """More layers than the configuration has."""
    more = {key.replace("layers.1.", "layers.2."): tensor for key, tensor in odd.weights.items() if "layers.1." in key}
    odd.put(odd.weights | more)


def head_missing(odd: Odd) -> None:
    odd.config["tie_word_embeddings"] = False
    odd.put(odd.weights)


def other_shape(odd: Odd) -> None:
    """Resized embeddings under the configuration of before."""
    odd.put({**odd.weights, EMBEDDINGS: torch.cat([odd.weights[EMBEDDINGS], torch.zeros(8, 64)])})


def whole_numbers(odd: Odd) -> None:
    """Quantised."""
    name = "model.layers.0.mlp.up_proj.weight"
    odd.put({**odd.weights, name: (100 * odd.weights[name]).to(torch.int8)})


def no_number(odd: Odd) -> None:
    odd.weights["model.norm.weight"][3] = float("nan")
    odd.put(odd.weights)


REFUSED: dict[Callable[[Odd], None], str] = {
    left_adapter: "adapter",
    adapter_alone: "holds model.safetensors",
    pickled: "holds model.safetensors",
    shards_without_index: "holds model.safetensors",
    shard_missing: "every file that",
    torn_file: "readable safetensors file",
    broken_index: "names the file of each tensor",
    index_outside: "names the file of each tensor",
    twice_whole: "its weights once",
    tensor_twice: "each tensor once",
    tensor_missing: "every parameter",
    tensor_unknown: "are parameters of the model",
    layer_unknown: "are parameters of the model",
    head_missing: "every parameter",
    other_shape: "of shape",
    whole_numbers: "floating-point numbers",
    no_number: "finite numbers",
}
"""Folders that are refused, and a part of the rule that each breaks."""


def context96(odd: Odd) -> None:
    odd.config["max_position_embeddings"] = 96
    odd.put(odd.weights)


def context830(odd: Odd) -> None:
    """Room for an episode of 800 tokens, and none for a verifier's prompt and answer."""
    odd.config["max_position_embeddings"] = 830
    odd.put(odd.weights)


def short_vocabulary(odd: Odd) -> None:
    """Tokens were added to the tokenizer, and the embeddings not resized."""
    odd.config["vocab_size"] = 540
    odd.put({**odd.weights, EMBEDDINGS: odd.weights[EMBEDDINGS][:540]})


def make(kind: Callable[[Odd], None], folder: Path) -> Odd:
    """Write the folder of that kind."""
    odd = Odd(folder)
    kind(odd)
    odd.write("config.json", odd.config)
    return odd

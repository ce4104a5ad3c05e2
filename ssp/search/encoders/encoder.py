"""Text to vectors with an encoder's own files.

Owns the pooling, and the order from texts to vectors. Promises that a text has one vector, alone or in any batch (1e-5 in
float32), in the caller's order, from any thread. Refuses what the files do not say (see families.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssp.base.errors import InputError
from ssp.search.encoders.families import POOLINGS, T5, EncoderSpec, body_folder, detect, read_json, read_modules
from ssp.search.hits import Vectors

if TYPE_CHECKING:
    import torch

    from ssp.search.encoders.forward import Batch, Forward

__all__ = ["EncoderSpec", "TextEncoder", "detect"]

_SIDES = {"DPRQuestionEncoder": "queries", "DPRContextEncoder": "passages"}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU")


class TextEncoder:
    """The encoder in `folder`, used as `spec` says, on one device. Safe in several threads. `dim`: of its vectors.

    `dtype`: float32, bfloat16 or float16, of the weights and of the arithmetic up to the pooling.
    DPR has two models: a folder of the question encoder takes queries only, one of the context encoder passages only.
    """

    def __init__(self, folder: Path, spec: EncoderSpec, dtype: str = "float32", device: str = "cpu") -> None:
        from ssp.search.encoders.forward import Forward

        folder = Path(folder)
        if spec.pooling not in POOLINGS:
            raise InputError("a pooling is known", spec.pooling, f"set --pooling to one of {', '.join(POOLINGS)}")
        body = body_folder(folder)
        kind, self._side = _kind(read_json(body / "config.json"), spec)
        self.spec = spec
        optional = () if spec.pooling == "pooler" else ("pooler.",)
        self._forward: Forward = Forward(body, kind, dtype, device, optional)
        self._start = int(getattr(self._forward.model.config, "decoder_start_token_id", None) or 0)
        self._queries = self._forward.tokenizer(spec.max_length)
        self._passages = self._forward.tokenizer(spec.passage_length)
        modules = (read_modules(folder) or []) if spec.projection else []
        self._projection = [_dense(path, self._forward.device) for name, path in modules if name == "Dense"]
        try:
            self.dim = int(self._run(self._passages.encode_batch_fast(["a"]))[0].shape[0])
        except (RuntimeError, AttributeError, TypeError) as error:
            found = f"{folder}: {type(error).__name__} {error}"
            raise InputError(f"an encoder gives a vector by {spec.pooling}", found, "set another --pooling") from error

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, dict[str, float]]:
        """`[n, dim] float32`, and seconds by stage (tokenise, encode)."""
        return self._encode(texts, "queries", self.spec.query_prefix, self._queries, self.spec.max_length)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """`[n, dim] float32`."""
        return self._encode(texts, "passages", self.spec.passage_prefix, self._passages, self.spec.passage_length)[0]

    def _encode(
        self, texts: Sequence[str], side: str, prefix: str, tokenizer: Any, length: int
    ) -> tuple[Vectors, dict[str, float]]:
        from ssp.search.encoders.forward import clean

        if self._side not in ("", side):
            raise InputError(
                f"{side} are encoded by DPR's other model", f"{self.spec.model} takes {self._side}", "name that folder"
            )
        begun = time.perf_counter()
        encodings = tokenizer.encode_batch_fast([clean(prefix + text, length) for text in texts])
        tokenised = time.perf_counter()
        vectors = self._run(encodings)
        return vectors, {"tokenise": tokenised - begun, "encode": time.perf_counter() - tokenised}

    def _run(self, encodings: Sequence[Any]) -> Vectors:
        import torch

        vectors = np.zeros((len(encodings), getattr(self, "dim", 0)), dtype=np.float32)
        with torch.inference_mode():
            for batch in self._forward.batches(encodings):
                pooled = self._pooled(batch).cpu().numpy()
                if not vectors.shape[1]:
                    vectors = np.zeros((len(encodings), pooled.shape[1]), dtype=np.float32)
                vectors[batch.rows] = pooled
        return vectors

    def _pooled(self, batch: Batch) -> torch.Tensor:
        """`[n, dim] float32` of one batch, on its device."""
        import torch

        how = self.spec.pooling
        if how == "decoder":
            start = torch.full_like(batch.ids[:, :1], self._start)
            hidden = self._forward(batch, decoder_input_ids=start).last_hidden_state
        else:
            output = self._forward(batch)
            hidden = output.pooler_output[:, None] if how == "pooler" else output.last_hidden_state
        if how in ("cls", "pooler", "decoder"):
            vectors = hidden[:, 0].float()
        elif how == "last":
            last = -1 if batch.mask is None else batch.mask.sum(1) - 1
            vectors = hidden[torch.arange(len(hidden), device=hidden.device), last].float()
        elif batch.mask is None:
            vectors = hidden.float().mean(1)
        else:
            weights = batch.mask[..., None].float()
            vectors = (hidden.float() * weights).sum(1) / weights.sum(1)
        for project in self._projection:
            vectors = project(vectors)
        return torch.nn.functional.normalize(vectors, dim=-1) if self.spec.normalise else vectors


def _kind(config: dict[str, Any], spec: EncoderSpec) -> tuple[Any, str]:
    """The class that loads the model, and the texts that it is for ("" = both)."""
    import transformers

    for name in config.get("architectures") or ():
        if name in _SIDES:
            return getattr(transformers, name), _SIDES[name]
    if spec.pooling != "decoder":
        only_encoder = config.get("model_type") in T5
        return transformers.AutoModelForTextEncoding if only_encoder else transformers.AutoModel, ""
    if not config.get("is_encoder_decoder"):
        raise InputError("pooling decoder needs a model with a decoder", spec.model, "set another --pooling")
    return transformers.AutoModel, ""


def _dense(folder: Path, device: torch.device) -> Any:
    """A Dense module of a sentence-transformers folder: a linear layer and its activation, in float32."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = read_json(folder / "config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    module = config.get("module_input_name", "sentence_embedding")
    if activation not in _ACTIVATIONS or config.get("use_residual") or module != "sentence_embedding":
        raise InputError(f"a Dense module ends in one of {', '.join(_ACTIVATIONS)}", config, "use another encoder")
    layer = torch.nn.Linear(int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True)))
    try:
        layer.load_state_dict(
            {k.removeprefix("linear."): v for k, v in load_file(folder / "model.safetensors").items()}
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise InputError(
            "a Dense module's folder holds its safetensors", f"{folder}: {error}", "save it again"
        ) from error
    return torch.nn.Sequential(layer, getattr(torch.nn, activation)()).requires_grad_(False).to(device)

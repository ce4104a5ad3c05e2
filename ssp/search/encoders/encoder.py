"""Text to vectors, and a query with each document to a score: the same (1e-5 in float32) alone or
in any batch."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ssp.base.episode import Document
from ssp.base.errors import InputError, hold, holding
from ssp.base.models import read_json
from ssp.search.encoders.families import POOLINGS, T5, EncoderSpec, body_folder
from ssp.search.encoders.forward import Forward, TextBatch, clean
from ssp.search.hits import Vectors

_SIDES = {"DPRQuestionEncoder": "queries", "DPRContextEncoder": "passages"}


class TextEncoder:
    """The encoder in `folder`, used as `spec` says, on one device. Safe in several threads. `dim`:
    of its vectors. `dtype`: float32, bfloat16 or float16, of the weights and of the arithmetic up
    to the pooling. DPR has two models: a folder of the question encoder takes queries only, one of
    the context encoder passages only."""

    def __init__(
        self, folder: Path, spec: EncoderSpec, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        hold(
            not spec.projection,
            "an encoder has no Dense modules",
            spec.model,
            "use another encoder",
        )
        if spec.pooling not in POOLINGS:
            raise InputError(
                "a pooling is known", spec.pooling, f"set --pooling to one of {', '.join(POOLINGS)}"
            )
        body = body_folder(folder)
        kind, self._side = _kind(read_json(body / "config.json"), spec)
        self.spec = spec
        self._forward = Forward(
            body, kind, dtype, device, () if spec.pooling == "pooler" else ("pooler.",)
        )
        self._start = int(getattr(self._forward.model.config, "decoder_start_token_id", None) or 0)
        self._queries = self._forward.tokenizer(spec.max_length)
        self._passages = self._forward.tokenizer(spec.passage_length)
        rule, odd = (
            f"an encoder gives a vector by {spec.pooling}",
            (RuntimeError, AttributeError, TypeError),
        )
        with holding(
            odd, rule, lambda e: f"{folder}: {type(e).__name__} {e}", "set another --pooling"
        ):
            self.dim = int(self._run(self._passages.encode_batch_fast(["a"]))[0].shape[0])

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, dict[str, float]]:
        """`[n, dim] float32`, and seconds by stage (tokenise, encode)."""
        return self._encode(
            texts, "queries", self.spec.query_prefix, self._queries, self.spec.max_length
        )

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """`[n, dim] float32`."""
        return self._encode(
            texts, "passages", self.spec.passage_prefix, self._passages, self.spec.passage_length
        )[0]

    def _encode(
        self, texts: Sequence[str], side: str, prefix: str, tokenizer: Any, length: int
    ) -> tuple[Vectors, dict[str, float]]:
        rule = f"{side} are encoded by DPR's other model"
        hold(
            self._side in ("", side),
            rule,
            f"{self.spec.model} takes {self._side}",
            "name that folder",
        )
        begun = time.perf_counter()
        encodings = tokenizer.encode_batch_fast([clean(prefix + text, length) for text in texts])
        tokenised = time.perf_counter()
        return self._run(encodings), {
            "tokenise": tokenised - begun,
            "encode": time.perf_counter() - tokenised,
        }

    def _run(self, encodings: Sequence[Any]) -> Vectors:
        vectors = np.zeros((len(encodings), getattr(self, "dim", 0)), dtype=np.float32)
        with torch.inference_mode():
            for batch in self._forward.batches(encodings):
                pooled = self._pooled(batch).cpu().numpy()
                if not vectors.shape[1]:
                    vectors = np.zeros((len(encodings), pooled.shape[1]), dtype=np.float32)
                vectors[batch.rows] = pooled
        return vectors

    def _pooled(self, batch: TextBatch) -> torch.Tensor:
        """`[n, dim] float32` of one batch, on its device."""
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
        return torch.nn.functional.normalize(vectors, dim=-1) if self.spec.normalise else vectors


def _kind(config: dict[str, Any], spec: EncoderSpec) -> tuple[Any, str]:
    """The class that loads the model, and the texts that it is for ("" = both)."""
    for name in config.get("architectures") or ():
        if name in _SIDES:
            return getattr(transformers, name), _SIDES[name]
    if spec.pooling != "decoder":
        only_encoder = config.get("model_type") in T5
        return transformers.AutoModelForTextEncoding if only_encoder else transformers.AutoModel, ""
    if not config.get("is_encoder_decoder"):
        raise InputError(
            "pooling decoder needs a model with a decoder", spec.model, "set another --pooling"
        )
    return transformers.AutoModel, ""


class CrossEncoder:
    """The cross-encoder in `folder`, on one device. Safe in several threads. `batch`: most pairs a
    forward pass; `max_length`: tokens of a pair; the longer of its two texts is cut until both fit.
    A model with one output gives it as it is (a logit), one with two gives the second minus the
    first (log odds of relevant). InputError for another number of outputs, and for what `Forward`
    refuses."""

    def __init__(
        self,
        folder: Path,
        dtype: str = "float32",
        device: str = "cpu",
        batch: int = 32,
        max_length: int = 512,
    ) -> None:
        self._forward = Forward(
            Path(folder), transformers.AutoModelForSequenceClassification, dtype, device
        )
        self._batch, self._length = batch, max_length
        self._outputs = int(self._forward.model.config.num_labels)
        rule = "a cross-encoder has one output, or two of which the second is relevant"
        hold(self._outputs in (1, 2), rule, f"{folder}: {self._outputs} outputs", "use another")
        self._pairs = self._forward.tokenizer(max_length)

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """One score a document, higher is better, in the order of `documents`."""
        texts = [
            (query, d.contents) for query, own in zip(queries, documents, strict=True) for d in own
        ]
        pairs = [tuple(clean(text, self._length) for text in pair) for pair in texts]
        scores = iter(self._run(self._pairs.encode_batch_fast(pairs)))
        return [[next(scores) for _ in own] for own in documents]

    def _run(self, encodings: Sequence[Any]) -> list[float]:
        scores = np.zeros(len(encodings), dtype=np.float32)
        with torch.inference_mode():
            for batch in self._forward.batches(encodings, self._batch):
                logits = self._forward(batch).logits.float()
                score = logits[:, 0] if self._outputs == 1 else logits[:, 1] - logits[:, 0]
                scores[batch.rows] = score.cpu().numpy()
        return scores.tolist()

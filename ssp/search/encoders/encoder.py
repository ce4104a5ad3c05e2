"""Text to vectors, and a query with each document to a score: the same numbers (1e-5 in float32)
alone or in any batch."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ssp.base.episode import Document
from ssp.base.errors import InputError, hold
from ssp.base.models import read_json
from ssp.base.values import Seconds
from ssp.search.encoders.families import POOLINGS, T5, EncoderSpec, body_folder
from ssp.search.encoders.forward import Forward, TextBatch, clean
from ssp.search.hits import Vectors

_SIDES = {"DPRQuestionEncoder": "queries", "DPRContextEncoder": "passages"}


class TextEncoder:
    """The encoder in `folder`, used as `spec` says, on one device. Safe in several threads. `dim`:
    the width of its vectors. `dtype`: float32, bfloat16 or float16, for the weights and the
    arithmetic up to the pooling. DPR has two models: a folder of the question encoder takes queries
    only, one of the context encoder passages only."""

    def __init__(
        self, folder: Path, spec: EncoderSpec, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        if spec.projection:
            raise InputError("an encoder has no Dense modules", spec.model, "use another encoder")
        if spec.pooling not in POOLINGS:
            step = f"set --pooling to one of {', '.join(POOLINGS)}"
            raise InputError("a pooling is known", spec.pooling, step)
        body = body_folder(folder)
        kind, self._side = _kind(read_json(body / "config.json"), spec)
        self.spec = spec
        optional = () if spec.pooling == "pooler" else ("pooler.",)
        self._forward = Forward(body, kind, dtype, device, optional)
        self._start = int(getattr(self._forward.model.config, "decoder_start_token_id", None) or 0)
        self._queries = self._forward.tokenizer(spec.max_length)
        self._passages = self._forward.tokenizer(spec.passage_length)
        self.dim = 0
        try:
            self.dim = self._run(self._passages.encode_batch_fast(["a"])).shape[1]
        except (RuntimeError, AttributeError, TypeError) as error:
            rule = f"an encoder gives a vector by {spec.pooling}"
            reason = f"{folder}: {type(error).__name__} {error}"
            raise InputError(rule, reason, "set another --pooling") from error

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, Seconds]:
        """`[n, dim] float32`, and seconds by stage (tokenise, encode)."""
        spec = self.spec
        return self._encode(texts, "queries", spec.query_prefix, self._queries, spec.max_length)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """`[n, dim] float32`."""
        spec = self.spec
        vectors, _ = self._encode(
            texts, "passages", spec.passage_prefix, self._passages, spec.passage_length
        )
        return vectors

    def _encode(
        self, texts: Sequence[str], side: str, prefix: str, tokenizer: Any, length: int
    ) -> tuple[Vectors, Seconds]:
        if self._side not in ("", side):
            rule = f"{side} are encoded by DPR's other model"
            raise InputError(rule, f"{self.spec.model} takes {self._side}", "name that folder")
        begun = time.perf_counter()
        encodings = tokenizer.encode_batch_fast([clean(prefix + text, length) for text in texts])
        tokenised = time.perf_counter()
        vectors = self._run(encodings)
        encoded = time.perf_counter()
        return vectors, {"tokenise": tokenised - begun, "encode": encoded - tokenised}

    def _run(self, encodings: Sequence[Any]) -> Vectors:
        vectors = np.zeros((len(encodings), self.dim), dtype=np.float32)
        with torch.inference_mode():
            for batch in self._forward.batches(encodings):
                pooled = self._pooled(batch).cpu().numpy()
                if not self.dim:  # the first text of all tells the width
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
    if spec.pooling == "decoder":
        rule = "pooling decoder needs a model with a decoder"
        hold(config.get("is_encoder_decoder"), rule, spec.model, "set another --pooling")
    elif config.get("model_type") in T5:
        return transformers.AutoModelForTextEncoding, ""
    return transformers.AutoModel, ""


class CrossEncoder:
    """The cross-encoder in `folder`, on one device. Safe in several threads. `batch`: pairs of a
    forward pass at most. `max_length`: tokens of a pair; the longer of its two texts is cut until
    both fit. A model with one output gives that (a logit); one with two gives the second minus the
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
        kind = transformers.AutoModelForSequenceClassification
        self._forward = Forward(Path(folder), kind, dtype, device)
        self._batch = batch
        self._length = max_length
        self._outputs = int(self._forward.model.config.num_labels)
        rule = "a cross-encoder has one output, or two of which the second is relevant"
        hold(self._outputs in (1, 2), rule, f"{folder}: {self._outputs} outputs", "use another")
        self._pairs = self._forward.tokenizer(max_length)

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """One score a document, higher is better, in the order of `documents`."""
        pairs = []
        for query, own in zip(queries, documents, strict=True):
            asked = clean(query, self._length)
            pairs += [(asked, clean(document.contents, self._length)) for document in own]
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

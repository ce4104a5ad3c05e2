"""Documents scored against their query by a model that reads both.

Owns the pairs and the cross-encoder's score. Promises that a pair has one score, alone or in any batch (1e-5 in float32),
and that a query meets its own documents only. Refuses models whose output is not one score a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import InputError


class CrossEncoder:
    """The cross-encoder in `folder`, on one device. Safe in several threads.

    `batch`: most pairs a forward pass; `max_length`: tokens of a pair. The document is cut to fit; a query keeps at most
    half of the tokens. A model with one output gives it as it is (a logit), one with two gives the second minus the first
    (log odds of relevant). InputError for another number of outputs, and for what `Forward` refuses.
    """

    def __init__(
        self, folder: Path, dtype: str = "float32", device: str = "cpu", batch: int = 32, max_length: int = 512
    ) -> None:
        from transformers import AutoModelForSequenceClassification

        from ssp.search.encoders.forward import Forward

        if batch < 1 or max_length < 16:
            found = f"batch {batch}, max_length {max_length}"
            raise InputError("a batch holds a pair or more, a pair 16 tokens or more", found, "set larger ones")
        self._forward = Forward(Path(folder), AutoModelForSequenceClassification, dtype, device)
        self._batch, self._length = batch, max_length
        self._outputs = int(self._forward.model.config.num_labels)
        if self._outputs not in (1, 2):
            found = f"{folder}: {self._outputs} outputs"
            raise InputError(
                "a cross-encoder has one output, or two of which the second is relevant", found, "use another"
            )
        self._pairs = self._forward.tokenizer(max_length, "only_second")
        self._words = self._forward.tokenizer(max_length)
        self._words.no_truncation()

    def scores(self, queries: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[list[float]]:
        """One score a document, higher is better, in the order of `documents`."""
        from ssp.search.encoders.forward import clean

        asked = self._cut([clean(query, self._length) for query in queries])
        pairs = [
            (query, clean(document.contents, self._length))
            for query, own in zip(asked, documents, strict=True)
            for document in own
        ]
        scores = iter(self._run(self._pairs.encode_batch_fast(pairs)))
        return [[next(scores) for _ in own] for own in documents]

    def _cut(self, queries: list[str]) -> list[str]:
        """Each query's text up to half of the length, in tokens."""
        half = self._length // 2
        encodings = self._words.encode_batch(queries, add_special_tokens=False)
        return [
            query if len(encoding.ids) <= half else query[: encoding.offsets[half - 1][1]]
            for query, encoding in zip(queries, encodings, strict=True)
        ]

    def _run(self, encodings: Sequence[Any]) -> list[float]:
        import torch

        scores = np.zeros(len(encodings), dtype=np.float32)
        with torch.inference_mode():
            for batch in self._forward.batches(encodings, self._batch):
                logits = self._forward(batch).logits.float()
                score = logits[:, 0] if self._outputs == 1 else logits[:, 1] - logits[:, 0]
                scores[batch.rows] = score.cpu().numpy()
        found: list[float] = scores.tolist()
        return found

"""Small index folders for tests: a corpus file, an encoder that counts its calls, the plan around them."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from ssp.search.encoders.families import EncoderSpec
from ssp.search.index.builder import IndexPlan

DIM = 16
SPEC = EncoderSpec("fake/encoder")


class Encode:
    """Texts → unit vectors that depend on the text alone."""

    dim = DIM

    def __init__(self):
        self.texts = 0

    def __call__(self, texts):
        self.texts += len(texts)
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") for text in texts]
        vectors = np.stack([np.random.default_rng(seed).standard_normal(DIM) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def corpus(path, rows):
    lines = [{"id": f"d{i}", "contents": f'"Title {i}"\nword{i % 7} town é{i % 13} row{i}'} for i in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def dense(factory="Flat", **settings):
    return IndexPlan(**{"kind": "hybrid", "encoder": SPEC, "factory": factory, "batch": 32, **settings})

"""The token log: what an episode's policy read and wrote, as ids, once (law 1).

Owns one append-only sequence of segments (prompt, model, observation, template).
Promises that ids are never re-tokenised, that model tokens carry the log-probability and the policy version they were
sampled with, and that `mask` is true on model tokens only.
Refuses to know text: encoding and decoding belong to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ssp.errors import InvariantError

BYTES_A_TOKEN = 32
"""Rough size of one logged token with its share of the transcript, for the queues' byte budget."""


class Kind(IntEnum):
    """Who wrote a token. Only `MODEL` tokens are ever trained."""

    PROMPT = 0
    MODEL = 1
    OBSERVATION = 2
    TEMPLATE = 3


@dataclass
class TokenLog:
    """Four parallel lists of length T: ids, kinds, behaviour log-probs (0 off the model), versions (-1 off the model)."""

    ids: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, kind: Kind, ids: Sequence[int]) -> None:
        """Add text that the policy did not write."""
        if kind is Kind.MODEL:
            raise InvariantError("model tokens need log-probs and a version: use append_model")
        n = len(ids)
        self.ids.extend(ids)
        self.kinds.extend([int(kind)] * n)
        self.logprobs.extend([0.0] * n)
        self.versions.extend([-1] * n)

    def append_model(self, ids: Sequence[int], logprobs: Sequence[float], version: int) -> None:
        """Add sampled tokens: ids as the engine drew them, their log-probs, the version that drew them."""
        if len(ids) != len(logprobs):
            raise InvariantError(f"{len(ids)} sampled ids but {len(logprobs)} log-probs")
        self.ids.extend(ids)
        self.kinds.extend([int(Kind.MODEL)] * len(ids))
        self.logprobs.extend(logprobs)
        self.versions.extend([version] * len(ids))

    @property
    def mask(self) -> np.ndarray:
        """bool [T], true on model tokens."""
        return np.asarray(self.kinds, dtype=np.int8) == int(Kind.MODEL)

    @property
    def version_min(self) -> int:
        """Version of the oldest model token, -1 when there is none."""
        return min((v for v in self.versions if v >= 0), default=-1)

    @property
    def version_max(self) -> int:
        """Version of the newest model token, -1 when there is none."""
        return max(self.versions, default=-1)

"""The token log: what an episode's policy read and wrote, as ids, once (law 1)."""

import re
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Any

import numpy as np

from ssp.base.errors import InvariantError

BYTES_A_TOKEN = 32
"""Rough size of a logged token with its share of the transcript, for the queues' byte budget."""


class Kind(IntEnum):
    """Who wrote a token. Only `MODEL` tokens are ever trained. A `RECALLED` one is information that
    the policy wrote itself where an observation would stand, so it is not trained."""

    PROMPT = 0
    MODEL = 1
    OBSERVATION = 2
    TEMPLATE = 3
    RECALLED = 4


_PACKED = {"ids": "i", "kinds": "b", "logprobs": "d", "versions": "i"}
"""List → its numbers' type, as `array` names it."""
_TURN = re.compile(b"[%c%c]+" % (Kind.MODEL, Kind.RECALLED))
"""A turn of the policy, among the packed kinds."""


@dataclass
class TokenLog:
    """Four parallel lists of length T: ids, kinds, behaviour log-probs (0 off the model), policy
    versions (-1 off the model).

    `drops`: (at, start, end), in order of `at`: tokens from position `at` on were sampled without
    [start, end). A log that is done can be packed as bytes, and is whenever it goes to another
    process. The bytes become lists again at the first look."""

    ids: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    drops: list[tuple[int, int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        if "_bytes" in self.__dict__:
            return len(self.packed()["kinds"])
        return len(self.ids)

    def packed(self) -> dict[str, bytes]:
        """The lists' numbers as they lie in memory: int32, int8, float64, int32. The log keeps them
        in this form."""
        if "_bytes" not in self.__dict__:
            # Every token of a run passes here: `struct` and `bytes` are faster than `array`.
            length = len(self)
            integers, floats = struct.Struct(f"{length}i"), struct.Struct(f"{length}d")
            numbers = {
                "ids": integers.pack(*self.ids),
                "kinds": bytes(self.kinds),
                "logprobs": floats.pack(*self.logprobs),
                "versions": integers.pack(*self.versions),
            }
            self.__dict__ = {"_bytes": numbers, "drops": self.drops}
        return self.__dict__["_bytes"]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        self.packed()
        return self.__dict__

    def __getattr__(self, name: str) -> Any:
        """One of the lists of a log that is packed, which it is no longer then."""
        if name not in _PACKED or "_bytes" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        numbers = self.__dict__.pop("_bytes")
        for key, kind in _PACKED.items():
            self.__dict__[key] = array(kind, numbers[key]).tolist()
        return self.__dict__[name]

    def append(self, kind: Kind, ids: Sequence[int]) -> None:
        """Add text that the policy did not write."""
        if kind is Kind.MODEL:
            raise InvariantError("model tokens need log-probs and a version: use append_model")
        n = len(ids)
        self.ids.extend(ids)
        self.kinds.extend([int(kind)] * n)
        self.logprobs.extend([0.0] * n)
        self.versions.extend([-1] * n)

    def append_model(
        self, ids: Sequence[int], logprobs: Sequence[float], version: int | Sequence[int]
    ) -> None:
        """Add sampled tokens: ids as the engine drew them, their log-probs, and the policy version
        that drew all of them, or the version of each."""
        versions = [version] * len(ids) if isinstance(version, int) else list(version)
        if not len(ids) == len(logprobs) == len(versions):
            others = f"{len(logprobs)} log-probs and {len(versions)} versions"
            raise InvariantError(f"{len(ids)} sampled ids but {others}")
        self.ids.extend(ids)
        self.kinds.extend([int(Kind.MODEL)] * len(ids))
        self.logprobs.extend(logprobs)
        self.versions.extend(versions)

    def recall(self, start: int, end: int) -> None:
        """Mark model tokens in [start, end) as information that the policy wrote itself."""
        for at in range(start, end):
            if self.kinds[at] == Kind.MODEL:
                self.kinds[at] = int(Kind.RECALLED)

    def drop(self, start: int, end: int) -> None:
        """Leave [start, end) out of the context of everything that is appended from now on."""
        others = set(self.kinds[start:end]) - {Kind.OBSERVATION}
        if others or not start < end:
            raise InvariantError(f"only observations leave the context, not [{start}, {end})")
        self.forget(start, end)

    def forget(self, start: int, end: int) -> None:
        """As `drop`, of any tokens: a chat template no longer shows them."""
        self.drops.append((len(self), start, end))

    def restart(self) -> None:
        """Leave all that there is out of the context of everything that is appended from now on."""
        self.forget(0, len(self))

    def context(self) -> list[int]:
        """Ids that the next token is sampled after."""
        return [self.ids[at] for at in self._visible(len(self))]

    def views(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The contexts in which tokens were sampled, of each (positions int64 [L], trained bool
        [L]); without drops there is one. Every model token is trained in exactly one view, the one
        whose earlier positions it was sampled after."""
        begins = [0, *dict.fromkeys(at for at, _, _ in self.drops)]
        ends = [*begins[1:], len(self)]
        mask, views = self.mask, []
        for begin, end in zip(begins, ends, strict=True):
            if end > begin:
                seen = [*self._visible(begin), *range(begin, end)]
                positions = np.asarray(seen, dtype=np.int64)
                trained = mask[positions] & (positions >= begin)
                views.append((positions, trained))
        return views

    def turns(self) -> np.ndarray:
        """int64 [T]: the policy's turn, from 0, that a token belongs to; of other tokens the last
        turn before them (-1: none)."""
        own = np.isin(self.kinds, (Kind.MODEL, Kind.RECALLED))
        begins = own & ~np.concatenate([[False], own[:-1]])
        return np.cumsum(begins) - 1  # type: ignore[no-any-return]

    @property
    def contexts(self) -> int:
        """In how many contexts the tokens were sampled: one where there are no drops."""
        return 1 + len({at for at, _, _ in self.drops if 0 < at < len(self)})

    def turn_tokens(self) -> tuple[int, ...]:
        """How many model tokens each of the policy's turns has, of a log that is done."""
        turns = _TURN.findall(self.packed()["kinds"])
        return tuple(turn.count(Kind.MODEL) for turn in turns)

    def _visible(self, before: int) -> list[int]:
        """Positions below `before` that a token at `before` sees."""
        gone: set[int] = set()
        for since, start, end in self.drops:
            if since <= before:
                gone.update(range(start, end))
        return [at for at in range(before) if at not in gone]

    def stretches(self) -> list[tuple[Kind, int, int]]:
        """Runs of tokens of one kind, in order: kind, start, end."""
        runs, at = [], 0
        for kind, run in groupby(self.kinds):
            length = len(list(run))
            runs.append((Kind(kind), at, at + length))
            at += length
        return runs

    @property
    def mask(self) -> np.ndarray:
        """bool [T], true on model tokens."""
        packed = self.__dict__.get("_bytes")
        kinds = packed["kinds"] if packed else bytes(self.kinds)
        return np.frombuffer(kinds, dtype=np.int8) == int(Kind.MODEL)

    def count(self, kind: Kind) -> int:
        """Tokens of one kind, of a log that is done."""
        return self.packed()["kinds"].count(kind)

    @property
    def version_span(self) -> tuple[int, int]:
        """Versions of the oldest and of the newest model token, -1 where there is none."""
        versions = {*self.versions} - {-1}
        return min(versions, default=-1), max(versions, default=-1)

"""The embedded torch engine: many slots, one KV cache, lock-step segments, exact log-probs.

Owns the slots: which row of the cache each has, its length, its random stream, the token that it sampled last.
Promises the engine interface on a CPU with log-probs equal to a full forward; a step's rows are a prefix of the cache,
so that the hot loop reads views, never copies; a row that finished leaves the decode batch as soon as moving it pays.
Refuses to know text. It uses the process's torch threads as they are: set one thread a process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp.engines.base import Generation, Sampling, StopWords, check_step
from ssp.engines.draws import draw, entropy, uniforms
from ssp.engines.qwen2 import Cache, Piece, Qwen2, Shape
from ssp.errors import Fault, InputError, InvariantError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PREFILL_TOKENS = 512  # tokens in one prefill call, about: large enough for the matrices, small enough for the cache
_PIECE = 128  # tokens of one row in one product: longer ones waste work on keys that come later
_COMPACT_SHARE = 0.25  # finished share of the decode batch from which moving rows pays


class TorchEngine:
    """Generates with a Qwen2 model. `model`: an HF folder, or its configuration as a mapping (then `load` comes first).

    Deterministic on one build and thread count. InputError for another architecture, or for a broken folder.
    """

    def __init__(self, model: str | Path | Mapping[str, Any], dtype: str = "float32", version: int = 0) -> None:
        if dtype not in _DTYPES:
            raise InputError(f"engine.dtype must be one of {', '.join(_DTYPES)}", dtype, "set engine.dtype=float32")
        self.version = version
        self._dtype = _DTYPES[dtype]
        self._next = 0
        config = model if isinstance(model, Mapping) else _read_config(Path(model))
        self.shape = Shape.of(config)
        self._model: Qwen2 | None = None
        self._cache = Cache(self.shape, self._dtype)
        self._forget()
        if not isinstance(model, Mapping):
            self.load(_read_weights(Path(model)), version)

    def _forget(self) -> None:
        """No slot is open any more. The cache keeps its memory: places beyond a row's length are never read."""
        self._row: dict[int, int] = {}  # slot → row
        # by row: slot (-1: free), positions filled, seed, numbers drawn, token sampled but not yet fed (-1: none)
        self._slot = np.zeros(0, np.int64)
        self._length = np.zeros(0, np.int64)
        self._seed = np.zeros(0, np.uint64)
        self._drawn = np.zeros(0, np.int64)
        self._owed = np.zeros(0, np.int64)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the weights and forget every slot. InputError when a parameter is missing or has another shape."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self._model = Qwen2(self.shape, weights, self._dtype)
        self.version = version
        self._forget()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed (any integer; taken modulo 2**64)."""
        slots = list(range(self._next, self._next + len(seeds)))
        self._next += len(seeds)
        free = np.flatnonzero(self._slot < 0)
        extra = len(seeds) - len(free)
        if extra > 0:
            free = np.concatenate([free, np.arange(len(self._slot), len(self._slot) + extra)])
            for name in ("_slot", "_length", "_seed", "_drawn", "_owed"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(extra, old.dtype)]))
        rows = free[: len(seeds)]
        self._slot[rows] = slots
        self._length[rows] = self._drawn[rows] = 0
        self._owed[rows] = -1
        self._seed[rows] = [seed % 2**64 for seed in seeds]
        self._row.update(zip(slots, rows.tolist(), strict=True))
        return slots

    def close(self, slots: list[int]) -> None:
        """Forget slots; closed or forgotten ones are fine."""
        for slot in slots:
            row = self._row.pop(slot, None)
            if row is not None:
                self._slot[row] = -1

    @torch.inference_mode()
    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """Feed `pending`, then sample. Fault `engine_nonfinite` when the model's output is not a number.

        A slot whose pending ids leave no room in the model's context gives an empty generation that is not stopped.
        """
        check_step(slots, pending, self._row)
        if self._model is None:
            raise InputError("the engine needs weights before its first step", "none", "call load(weights, version)")
        room = self._room(slots, pending, samplings.max_tokens)
        chosen = [i for i, (tokens, ids) in enumerate(zip(room, pending, strict=True)) if tokens > 0]
        generations = [Generation([], [], self.version, False) for _ in slots]
        if chosen:
            who = self._to_front([slots[i] for i in chosen])
            feeds = self._feeds([pending[chosen[i]] for i in who.tolist()])
            self._cache.reserve(
                len(self._slot), int(self._length[: len(who)].max()) + max(map(len, feeds)) + samplings.max_tokens
            )
            hidden = self._prefill(feeds)
            budget = np.array([room[chosen[i]] for i in who.tolist()])
            done = self._decode(hidden, who, budget, samplings)
            for i, generation in zip(chosen, done, strict=True):
                generations[i] = generation
        return generations

    def _room(self, slots: list[int], pending: list[list[int]], most: int) -> list[int]:
        """Tokens that each slot may sample; 0 where the context is full."""
        room = []
        for slot, ids in zip(slots, pending, strict=True):
            row = self._row[slot]
            fed = int(self._length[row]) + int(self._owed[row] >= 0) + len(ids)
            room.append(max(0, min(most, self.shape.context - fed)))
        return room

    def _to_front(self, slots: list[int]) -> np.ndarray:
        """Move the slots' rows to 0 .. n-1; returns which of `slots` is in each row, int64 [n]."""
        n = len(slots)
        rows = np.array([self._row[slot] for slot in slots])
        outside = rows[rows >= n]
        inside = np.setdiff1d(np.arange(n), rows[rows < n])
        self._swap(inside, outside, int(self._length.max()))
        index = {slot: i for i, slot in enumerate(slots)}
        return np.array([index[slot] for slot in self._slot[:n].tolist()])

    def _swap(self, here: np.ndarray, there: np.ndarray, length: int) -> None:
        """Exchange rows, cache (positions below `length`) and bookkeeping alike."""
        if not len(here):
            return
        both = np.concatenate([here, there])
        if length:
            self._cache.reserve(len(self._slot), length)
            self._cache.swap(torch.from_numpy(here), torch.from_numpy(there), length)
        for array in (self._slot, self._length, self._seed, self._drawn, self._owed):
            array[both] = array[np.concatenate([there, here])]
        for row in both.tolist():
            if self._slot[row] >= 0:
                self._row[int(self._slot[row])] = row

    def _feeds(self, pending: list[list[int]]) -> list[list[int]]:
        """Pending ids by row, with the token that the row sampled last in front: its keys are not in the cache yet."""
        feeds = []
        for row, ids in enumerate(pending):
            owed = int(self._owed[row])
            feeds.append([owed, *ids] if owed >= 0 else list(ids))
            if not feeds[-1]:
                raise InputError(
                    "a new slot needs at least one token before it can sample", "no tokens", "give a prompt"
                )
        return feeds

    def _prefill(self, feeds: list[list[int]]) -> Tensor:
        """Feed ragged ids to rows 0 .. n-1; returns the hidden state of each row's last one, [n, hidden]."""
        assert self._model is not None
        hidden: list[Tensor] = []
        call: list[Piece] = []
        for row, ids in enumerate(feeds):
            start = int(self._length[row])
            for at in range(0, len(ids), _PIECE):
                call.append(Piece(row, start + at, ids[at : at + _PIECE]))
                if sum(len(piece.ids) for piece in call) >= _PREFILL_TOKENS:
                    hidden.append(self._feed(call, feeds))
                    call = []
        if call:
            hidden.append(self._feed(call, feeds))
        self._length[: len(feeds)] += [len(ids) for ids in feeds]
        return torch.cat(hidden)

    def _feed(self, pieces: list[Piece], feeds: list[list[int]]) -> Tensor:
        """One packed call; hidden states of the pieces that complete their row's feed."""
        assert self._model is not None
        last = [piece.end == int(self._length[piece.row]) + len(feeds[piece.row]) for piece in pieces]
        return self._model.prefill(self._cache, pieces)[torch.tensor(last)]

    def _decode(self, hidden: Tensor, who: np.ndarray, budget: np.ndarray, samplings: Sampling) -> list[Generation]:
        """Sample rows 0 .. n-1 until each has stopped; results in the order of the indices in `who`.

        Column j of `ids`, `numbers`, ... belongs to the slot that starts in row j; `lane` follows it when rows move.
        """
        assert self._model is not None
        n, most = len(who), int(budget.max())
        slots = self._slot[:n].tolist()
        numbers = uniforms(self._seed[:n], self._drawn[:n], most)
        is_stop = torch.zeros(self.shape.vocab, dtype=torch.bool)
        is_stop[list(samplings.stop_ids)] = True
        ids, logprobs = torch.zeros(most, n, dtype=torch.int64), torch.zeros(most, n)
        entropies = torch.zeros(most, n) if samplings.entropy else None
        taken, stopped = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.bool)
        lane, limit, alive = torch.arange(n), torch.from_numpy(budget), torch.ones(n, dtype=torch.bool)
        positions = torch.from_numpy(self._length[:n].copy())
        for t in range(most):
            logits = self._model.logits(hidden)
            drawn, logprob = draw(logits, samplings.temperature, numbers[t].index_select(0, lane))
            ids[t].index_copy_(0, lane, drawn)
            logprobs[t].index_copy_(0, lane, logprob)
            if entropies is not None:
                entropies[t].index_copy_(0, lane, entropy(logits, samplings.temperature))
            ended = is_stop.index_select(0, drawn)
            if samplings.stop_words is not None:
                ended = ended | _said(samplings.stop_words, ids[: t + 1], lane, alive)
            finished = (ended | (limit.index_select(0, lane) <= t + 1)) & alive
            if finished.any():
                taken[lane[finished]], stopped[lane[finished]] = t + 1, ended[finished]
                alive = alive & ~finished
                left = int(alive.sum())
                if not left:
                    break
                if len(lane) - left >= _COMPACT_SHARE * len(lane):
                    order = self._compact(alive, left, int(positions.max()))
                    lane, positions, drawn = lane[order], positions[order], drawn[order]
                    alive = torch.ones(left, dtype=torch.bool)
            hidden = self._model.decode(self._cache, drawn, positions)
            positions = positions + alive
        if not bool(torch.isfinite(logprobs).all()):
            self._cache = Cache(self.shape, self._dtype)  # what is not a number would outlive its masking
            self._forget()
            raise Fault("engine_nonfinite", f"version {self.version} gives log-probs that are not numbers")
        generations = self._results(slots, who, ids.T.tolist(), logprobs.T.tolist(), taken.tolist(), stopped.tolist())
        if entropies is not None:
            by_index = dict(zip(who.tolist(), entropies.T.tolist(), strict=True))
            for index, generation in enumerate(generations):
                generation.entropies = by_index[index][: len(generation.ids)]
        return generations

    def _compact(self, alive: Tensor, left: int, length: int) -> Tensor:
        """Bring the rows that go on to 0 .. left-1; returns the old place of each, int64 [left]."""
        gaps = torch.nonzero(~alive[:left])[:, 0]
        movers = left + torch.nonzero(alive[left:])[:, 0]
        self._swap(gaps.numpy(), movers.numpy(), length)
        order = torch.arange(left)
        order[gaps] = movers
        return order

    def _results(
        self,
        slots: list[int],
        who: np.ndarray,
        ids: list[list[int]],
        logprobs: list[list[float]],
        taken: list[int],
        stopped: list[bool],
    ) -> list[Generation]:
        """Cut each column to what was taken, and book it: all but the last sampled token are in the cache."""
        generations: dict[int, Generation] = {}
        for column, (slot, index, count) in enumerate(zip(slots, who.tolist(), taken, strict=True)):
            row = self._row[slot]
            self._length[row] += count - 1
            self._drawn[row] += count
            self._owed[row] = ids[column][count - 1]
            generations[index] = Generation(
                ids[column][:count], logprobs[column][:count], self.version, stopped[column]
            )
        return [generations[index] for index in range(len(slots))]


def _said(words: StopWords, ids: Tensor, lane: Tensor, alive: Tensor) -> Tensor:
    """Which rows of the batch have just completed a stop string; ids int64 [t, n] by column, bool [rows]."""
    recent = ids[-words.window :]
    said = [
        bool(going) and words.hit(recent[:, column].tolist())
        for column, going in zip(lane.tolist(), alive.tolist(), strict=True)
    ]
    return torch.tensor(said, dtype=torch.bool)


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise InputError("a model folder holds config.json", f"none in {folder}", "give a Hugging Face model folder")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            "config.json of a model is JSON", f"{file}: {error}", "copy or save the model again"
        ) from error
    if not isinstance(config, dict):
        raise InputError("config.json of a model is a JSON object", file, "copy or save the model again")
    return config


def _read_weights(folder: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(
            "a model folder holds *.safetensors", f"none in {folder}", "save the model in safetensors form"
        )
    weights: dict[str, np.ndarray] = {}
    for file in files:
        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise InputError(
                f"{file} must be a readable safetensors file", error, "copy or save the model again"
            ) from error
        weights |= {name: tensor.float().numpy() for name, tensor in tensors.items()}
    return weights

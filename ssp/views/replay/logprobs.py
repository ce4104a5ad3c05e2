"""Log-probabilities of an episode's tokens, computed again from the weights of the versions that drew them.

Promises the temperature that the tokens were drawn at, and keys and values as they were in flight: those that a version
has read stay when the next one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ssp.base.tokenlog import TokenLog
from ssp.learning.forward import score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 32
"""Contexts in one forward."""

Models = Callable[[int], "PreTrainedModel"]
"""Version → its model."""


@dataclass(frozen=True)
class _View:
    """One context of log `owner`: `positions` int64 [L], and which of these were sampled in it, bool [L]."""

    owner: int
    log: TokenLog
    positions: np.ndarray
    sampled: np.ndarray

    @property
    def readers(self) -> list[int]:
        """For each place the version that read it: that of the next token to be sampled, since it is read for that."""
        versions = [self.log.versions[at] for at in self.positions]
        found: list[int] = []
        for place in range(len(versions) - 1, 0, -1):
            version = versions[place] if self.sampled[place] else found[-1] if found else -1
            found.append(version)
        return found[::-1]


def recompute(logs: Sequence[TokenLog], temperatures: Sequence[float], models: Models) -> list[np.ndarray]:
    """For each log float64 [T]: log-probs of the tokens that the policy wrote (those with a version), 0 elsewhere."""
    out = [np.zeros(len(log)) for log in logs]
    views = [view for owner, log in enumerate(logs) for view in _views(owner, log)]

    def order(view: _View) -> tuple[float, list[int]]:
        return temperatures[view.owner], sorted({version for version in view.readers if version >= 0})

    for (temperature, versions), alike in groupby(sorted(views, key=order), order):
        if len(versions) == 1:
            for view, values in _whole(list(alike), temperature, models(versions[0])):
                out[view.owner][view.positions[view.sampled]] = values
        else:
            for view in alike:
                out[view.owner][view.positions[view.sampled]] = _in_parts(view, temperature, models)
    return out


def _views(owner: int, log: TokenLog) -> Iterator[_View]:
    written = np.asarray(log.versions) >= 0  # what the policy recalled is not trained, and was sampled all the same
    begin = 0
    for positions, _ in log.views():
        sampled = written[positions] & (positions >= begin)
        begin = int(positions[-1]) + 1
        if sampled.any():
            yield _View(owner, log, positions, sampled)


@torch.no_grad()
def _whole(views: Sequence[_View], temperature: float, model: PreTrainedModel) -> Iterator[tuple[_View, np.ndarray]]:
    """Views of one version, several in a forward, those of like length together."""
    views = sorted(views, key=lambda view: len(view.positions))
    for start in range(0, len(views), ROWS):
        rows = views[start : start + ROWS]
        longest = max(len(view.positions) for view in rows)
        ids, mask = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), bool)
        for row, view in enumerate(rows):
            ids[row, : len(view.positions)] = np.asarray(view.log.ids)[view.positions]
            mask[row, : len(view.positions)] = view.sampled
        values = score(model, torch.from_numpy(ids), torch.from_numpy(mask), temperature).logprobs.double().numpy()
        ends = np.cumsum(mask.sum(axis=1))
        yield from zip(rows, np.split(values, ends[:-1]), strict=True)


@torch.no_grad()
def _in_parts(view: _View, temperature: float, models: Models) -> np.ndarray:
    """A view that several versions read, one stretch after the other, over the keys and values of those before."""
    ids, cache, at = np.asarray(view.log.ids)[view.positions], None, 0
    parts: list[torch.Tensor] = []
    for version, run in groupby(view.readers):
        end = at + len(list(run))
        if version < 0:  # what follows the last sampled token predicts none
            break
        read: Any = models(version)(torch.from_numpy(ids[None, at:end]), past_key_values=cache, use_cache=True)
        cache, logits = read.past_key_values, read.logits[0].float()
        if temperature not in (0.0, 1.0):
            logits = logits / temperature
        logprobs = torch.log_softmax(logits, dim=-1)
        drawn = torch.from_numpy(ids[at + 1 : end + 1])
        taken = torch.from_numpy(view.sampled[at + 1 : end + 1])
        parts.append(logprobs.gather(1, drawn[:, None])[:, 0][taken])
        at = end
    return torch.cat(parts).double().numpy()

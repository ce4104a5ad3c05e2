"""Episodes replayed along their records: every token forced, and everything that follows from the tokens done again.

Promises that what cannot be compared is said with its reason, never passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ssp.base.episode import PROPOSER, Outcome, State
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.selfplay.workers import build
from ssp.views.replay import priced
from ssp.views.replay.compared import BOUNDS, Compared, Measured, Result, Untold, lists
from ssp.views.replay.record import Found, Records
from ssp.views.replay.tape import along
from ssp.views.replay.verdicts import Verdicts
from ssp.views.replay.weights import Weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_KINDS = {int(kind): kind.name.lower() for kind in Kind}

SMALL = 200_000_000
"""Parameters of a model that is computed in float64."""

AT_ONCE = 256
"""Episodes whose log-probs are computed together, so that one model serves many."""


class Forced:
    """Replays of one run's episodes. `bound`: another one than `BOUNDS` has for the engine that drew a token."""

    def __init__(self, records: Records, bound: float | None = None) -> None:
        self._records, self._cfg, self._bound = records, records.cfg, bound
        self.weights = Weights(records.run, records.cfg, records.versions)
        self._verdicts = Verdicts(records, self.weights)
        self._renderers: dict[str, Renderer] = {}

    def missing(self, role: str, versions: Sequence[int]) -> list[int]:
        """Of these versions those whose weights are gone."""
        return [v for v in versions if self.weights.folder(role, v) is None]

    def refuse(self, found: Found, gone: Sequence[int]) -> InputError:
        """Says which checkpoints there are."""
        role = found.policy
        drawn = f"{found.episode.id} was drawn by the {role}'s {', '.join(f'v{v}' for v in gone)}"
        what = f"{drawn}; there are {self.weights.said(role)}"
        rule = "log-probs are computed from the checkpoint of their version, which save.keep decides how long to keep"
        return InputError(rule, what, self.weights.another(self._records.played(found.entry.get("role", role))))

    def check(self, episodes: Sequence[Found]) -> list[list[Result]]:
        """What is the same and what is not, an episode each, in order. InputError where weights are gone."""
        results: list[list[Result]] = []
        for start in range(0, len(episodes), AT_ONCE):
            some = episodes[start : start + AT_ONCE]
            for found, logprobs in zip(some, self._logprobs(some), strict=True):
                results.append([*self._again(found), *self._verdict(found), logprobs])
        return results

    def _again(self, found: Found) -> list[Result]:
        """Parse, reward, and the rollout along the record; of a void episode its text alone."""
        record, cfg, update = found.episode, self._cfg, found.update
        renderer = self.renderer(found.policy)
        compared: list[Result] = [
            *priced.check(record, cfg, renderer.tokenizer, found.entry, found.game, update),
        ]
        if record.outcome is Outcome.VOID:
            return [*compared, Untold("turns", f"the episode is void: {record.cause}")]
        settings = build.settings(cfg, found.policy, found.temperature(cfg), update)
        now = along(record, self._records.task(found), renderer, settings)
        return [
            *compared,
            lists("ids", record.log.ids, now.log.ids),
            lists("mask", _named(record.log.kinds), _named(now.log.kinds)),
            Compared("drops", record.log.drops, now.log.drops),
            Compared("searches", (record.queries, record.hits), (now.queries, now.hits)),
            Compared("stopped", record.stopped, now.stopped),
        ]

    def _verdict(self, found: Found) -> list[Result]:
        if found.policy != PROPOSER:
            return []
        state, verdict = found.entry.get("state"), found.game.get("verdict")
        if Outcome.VOID in (found.episode.outcome, found.entry.get("outcome")) or state == State.VOIDED:
            return [Untold("verdict", f"the proposal is void: {found.entry['cause']}")]  # its game may be another one's
        if verdict is None and state == State.GRADING:
            return [Untold("verdict", "it is not given yet")]
        if verdict not in ("valid", "rejected"):
            return [Compared("verdict", verdict, f"one of valid and rejected, as the proposal is {state}")]
        return [self._verdicts.of(found)]

    def _logprobs(self, episodes: Sequence[Found]) -> list[Result]:
        """The comparison of each episode's log-probs, those of one role together."""
        from ssp.views.replay.logprobs import recompute  # torch

        results: dict[int, Result] = {}
        for role in {found.policy for found in episodes}:
            mine = [place for place, found in enumerate(episodes) if found.policy == role]
            some = [episodes[place] for place in mine]
            for found in some:
                if gone := self.missing(role, found.versions):
                    raise self.refuse(found, gone)

            def model(version: int, role: str = role) -> PreTrainedModel:
                folder = self.weights.folder(role, version)
                assert folder is not None
                return _model(folder)

            heats = [found.temperature(self._cfg) for found in some]
            bound = BOUNDS[self._cfg.block(role).engine.dtype] if self._bound is None else self._bound
            computed = recompute([found.episode.log for found in some], heats, model)
            for place, found, now in zip(mine, some, computed, strict=True):
                results[place] = _measured(found, now, bound)
        return [results[place] for place in range(len(episodes))]

    def renderer(self, role: str) -> Renderer:
        """The protocol in the words of the role's start model, which all its versions share."""
        if role not in self._renderers:
            cfg, kept = self._cfg, self.weights.kept(role)
            folder = kept[max(kept)] if kept else build.model_dir(cfg, role)
            tokens = build.tokenizer(folder)
            self._renderers[role] = Renderer(protocols.get(cfg.protocol), tokens, cfg.block(role).template)
        return self._renderers[role]


def _named(kinds: Sequence[int]) -> list[str]:
    """Who wrote each token."""
    return [_KINDS.get(kind, str(kind)) for kind in kinds]


def _measured(found: Found, now: np.ndarray, bound: float) -> Measured:
    """Recorded beside computed log-probs of the tokens that the policy wrote."""
    log = found.episode.log
    written = np.asarray(log.versions) >= 0
    differences = np.where(written, np.abs(np.asarray(log.logprobs) - now), 0.0)
    differences[~np.isfinite(differences)] = np.inf
    beyond = np.flatnonzero(differences > bound)
    at = int(beyond[0] if len(beyond) else differences.argmax()) if len(differences) else 0
    return Measured("log-probs", int(written.sum()), float(differences.max(initial=0.0)), bound, at)


@lru_cache(maxsize=8)
def _model(folder: Path) -> PreTrainedModel:
    """The folder's model; a small one in float64, so that of two roundings only the engine's is left."""
    from ssp.learning.checkpoint import load_model

    model = load_model(folder)
    return model.double() if model.num_parameters() < SMALL else model  # type: ignore[no-any-return]

"""An episode played again: from its stored seed and checkpoint, or by another policy.

Owns both. Promises the rollout of training, and for a resampled episode the whole block that it was played in: which
sequences share a forward decides the last bits of a log-prob, so the embedded engine in lock step gives the block's
episodes bit for bit, and one of them alone only up to rounding. Refuses what weights of several versions drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssp import build, corpora
from ssp.config.schema import Config
from ssp.config.tables import ACTED
from ssp.episode import Episode, Outcome
from ssp.errors import InputError
from ssp.protocols.renderer import Renderer
from ssp.replay.compared import first
from ssp.replay.record import Found, Records
from ssp.replay.weights import Weights
from ssp.rollout import rollout

SHOWN = 24
"""Tokens of each continuation from where two episodes part."""


@dataclass(frozen=True)
class Resampled:
    """The record and what was sampled now, of a void up to where its record ends. `at`: the first token that is another
    one, None when all are the same; `largest`: difference of log-probs up to there; `others`: what else is not the same."""

    found: Found
    now: Episode
    at: int | None
    largest: float
    others: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every token is the same."""
        return self.at is None

    @property
    def exact(self) -> bool:
        """Whether everything is the same, bit for bit; a log-prob that is no number is not."""
        return self.same and not self.others and self.largest == 0.0

    def continuations(self, renderer: Renderer) -> tuple[str, str]:
        """What the record and the new episode say from where they part on."""
        if self.at is None:
            return "", ""
        parts = slice(self.at, self.at + SHOWN)
        return renderer.decode(self.found.episode.log.ids[parts]), renderer.decode(self.now.log.ids[parts])


def exact(cfg: Config, role: str) -> bool:
    """Whether the role's engine promises the same tokens for the same block (law 7)."""
    return cfg.block(role).engine.kind == "torch" and not cfg.block(role).engine.continuous


class Again:
    """Plays a run's episodes again. `policy`: by these weights instead of the version's own."""

    def __init__(self, records: Records, weights: Weights, policy: Path | None = None) -> None:
        self._records, self._cfg, self._weights, self._policy = records, records.cfg, weights, policy

    def resample(self, episodes: Sequence[Found]) -> list[Resampled]:
        """Each episode as its block comes out now, in order. InputError without a seed or the weights."""
        blocks: dict[Path, dict[str, Episode]] = {}
        results = []
        for found in episodes:
            if found.file not in blocks:
                blocks[found.file] = self._block(found)
            results.append(_compared(found, blocks[found.file][found.episode.id]))
        return results

    def _block(self, found: Found) -> dict[str, Episode]:
        """The episodes of a block, by id."""
        cfg, role = self._cfg, found.policy
        block = self._records.block(found.file)
        versions = sorted({version for other in block for version in other.versions})
        if len(versions) > 1:
            rule, said = "a resampled block was drawn by one version", ", ".join(f"v{version}" for version in versions)
            raise InputError(rule, f"{found.file.name}: {said}", "replay it --forced, each token by its own version")
        if not all(other.episode.seed for other in block):
            said = f"{found.file.name}, which was written before seeds were"
            raise InputError("a resampled episode has its seed on record", said, "replay it --forced")
        if cfg.block(role).engine.kind in ACTED:
            rule = "weights are sampled again, and a script has none"
            raise InputError(rule, f"engine.kind={cfg.block(role).engine.kind}", "replay an episode of a policy")
        folder = self._policy or (self._weights.folder(role, versions[0]) if versions else None)
        if folder is None:
            drawn = f"{found.episode.id} was drawn by the {role}'s v{versions[0] if versions else '?'}"
            said = f"{drawn}; there are {self._weights.said(role)}"
            what = self._weights.another(self._records.played(found.entry.get("role", role)))
            raise InputError("a resampled episode's checkpoint is there", said, what)
        tasks = [self._records.task(other) for other in block]
        search = corpora.search(cfg, sorted({task.corpus for task in tasks}))
        settings = build.settings(cfg, role, found.temperature(cfg), found.update())
        parts = build.engine(cfg.block(role), folder), build.renderer(cfg, role, folder), search
        return {episode.id: episode for episode in rollout(*parts, tasks, settings)[0]}


def live(records: Records, found: Found, cfg: Config, folder: Path) -> Episode:
    """The episode's task played by the policy in `folder` with the settings of `cfg`, in the corpus and at the temperature
    of the record."""
    task = records.task(found)
    if not task.seed:
        said = f"{found.file.name}, which was written before seeds were"
        raise InputError("an episode that is played again has its seed on record", said, "replay a newer run's")
    search = corpora.search(cfg, [task.corpus])
    build.check_words(build.tokenizer(folder), [task.fields.get("question") or task.fields["target"]])
    heat = found.temperature(records.cfg)
    return build.player(cfg, found.policy, folder, search, heat)([task])[0]


def _compared(found: Found, now: Episode) -> Resampled:
    before, after = found.episode.log, now.log
    at = first(before.ids, after.ids)
    both = slice(0, at)
    largest = np.abs(np.asarray(before.logprobs[both]) - np.asarray(after.logprobs[both], np.float32)).max(initial=0.0)
    void = found.episode.outcome is Outcome.VOID  # a fault ended it, and needs not come again
    whole = at == len(before) and (void or at == len(after))
    # Whether, not by whom: an engine of its own numbers its weights anew.
    drawn = ([version >= 0 for version in log.versions[both]] for log in (before, after))
    pairs = {"mask": (before.kinds[both], after.kinds[both]), "versions": tuple(drawn)}
    if whole and not void:
        pairs["final"] = found.episode.final, now.final
    others = tuple(name for name, (recorded, again) in pairs.items() if recorded != again)
    return Resampled(found, now, None if whole else at, float(largest), others)

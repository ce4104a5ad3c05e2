"""Which folder holds the weights that a version number stands for.

Owns the way from a version to a checkpoint, or to the folder of a member of the league: a publication at a start has the
weights of what was loaded, which lie under the number they were first published by, and a shared policy's lie under its
learner's. Promises to name no folder with other weights. Refuses to load them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ssp.base.episode import PROPOSER, SOLVER
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.record.ledger.rows import EpisodeRow
from ssp.record.runfolder import RunFolder
from ssp.selfplay.league.matchmaker import member
from ssp.selfplay.versions import ANCHORS
from ssp.selfplay.workers import build

KEEP = "of the next run keep more: save.keep=1000 save.every=1"
"""What to do where weights are gone."""

Given = Mapping[str, Mapping[int, tuple[int, int]]]
"""Role → version → (incarnation, step), as the ledger gave the numbers."""


class Weights:
    """Folders of a run's versions. `versions` as `Ledger.versions` has them."""

    def __init__(self, run: RunFolder, cfg: Config, versions: Given) -> None:
        self._run, self._cfg, self._versions = run, cfg, versions
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}

    def folder(self, role: str, version: int) -> Path | None:
        """Where the weights of the role's `version` are; None when they are gone (`save.keep`), or never were on disk
        (those of an anchor)."""
        known = self._versions.get(role, {}).get(version)
        if version >= ANCHORS or known is None:
            return None
        learner = self._learner[role]
        given = {published: number for number, published in self._versions.get(learner, {}).items()}
        own = {published: number for number, published in self._versions[role].items()}
        at: tuple[int, int] | None = known
        while at is not None and at in given:
            for path in (self._run.checkpoint(learner, given[at]), member(self._run, role, own.get(at, -1))):
                if path.is_dir():
                    return path
            if at[1] == 0 and self._began(given, at):
                return self._starts[learner]
            at = self._loaded(given, at)
        return None

    def kept(self, role: str) -> dict[int, Path]:
        """Of the role's versions those whose weights are still there, in order."""
        found = {version: self.folder(role, version) for version in sorted(self._versions.get(role, {}))}
        return {version: path for version, path in found.items() if path is not None}

    def there(self, rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
        """Of these rows of the ledger those of whose versions, from the oldest to the newest, all weights are there."""
        kept = {role: self.kept(role) for role in self._learner}

        def there(row: EpisodeRow) -> bool:
            versions = range(row["policy_version_min"] or 0, (row["policy_version_max"] or 0) + 1)
            return all(version in kept[PROPOSER if row["role"] == PROPOSER else SOLVER] for version in versions)

        return [row for row in rows if there(row)]

    def another(self, rows: Sequence[EpisodeRow]) -> str:
        """What to type where an episode's weights are gone; with the last of `rows` whose weights are not."""
        there = self.there([row for row in rows if (row["policy_version_min"] or -1) > 0])
        return f"replay one of these, such as {there[-1]['id']}, or all of them with --all" if there else KEEP

    def said(self, role: str) -> str:
        """The role's versions whose weights are there, with their folders."""
        return ", ".join(f"v{version} ({path})" for version, path in self.kept(role).items()) or "none"

    def step(self, role: str, version: int) -> int | None:
        """The update whose result this version is."""
        known = self._versions.get(role, {}).get(version)
        return None if known is None else known[1]

    def _began(self, given: Mapping[tuple[int, int], int], at: tuple[int, int]) -> bool:
        """Whether this is the first publication of its incarnation, which is of what was loaded."""
        return at[1] == min(step for incarnation, step in given if incarnation == at[0])

    def _loaded(self, given: Mapping[tuple[int, int], int], at: tuple[int, int]) -> tuple[int, int] | None:
        """The publication whose weights were loaded for this one; None when these were learned."""
        if not self._began(given, at):
            return None
        before = [(step, incarnation) for incarnation, step in given if incarnation < at[0] and step <= at[1]]
        return max(before)[::-1] if before else None

    @cached_property
    def _starts(self) -> dict[str, Path]:
        """What each learner started from."""
        return {name: build.model_dir(self._cfg, name) for name in set(self._learner.values())}

"""A proposal's verdict, given again.

Owns the block that a proposal was verified in: noise is drawn from what the others of it found, and the verifier answers
them in one batch. Promises the referee, the verifier and the judge of training, on the corpus' own documents. Refuses to
ask an endpoint: where one decided, the documents are elsewhere, or it is not certain which solver verified, only the rules
are applied again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ssp.base.episode import ATTEMPT, SOLVER, Document, Verdict
from ssp.base.errors import InputError
from ssp.data.readers import stream_corpus
from ssp.game import corpora, protocols
from ssp.game.referee.rules import broken_rule
from ssp.selfplay.workers import build
from ssp.selfplay.workers.judge import Judge
from ssp.views.replay.compared import Compared, Result, Untold
from ssp.views.replay.record import Found, Records
from ssp.views.replay.weights import Weights


class Verdicts:
    """Verdicts of one run's proposals."""

    def __init__(self, records: Records, weights: Weights) -> None:
        self._records, self._cfg, self._weights = records, records.cfg, weights
        self._judges: dict[Path, Judge] = {}
        self._documents: dict[str, Document] = {}
        self._last: tuple[Path, dict[str, Verdict]] | None = None

    def of(self, found: Found) -> Result:
        """The verdict on record beside the one now."""
        game = found.game
        recorded = (game["verdict"], game["rule"])
        broken = broken_rule(found.episode, game["target"], self._cfg.referee, protocols.get(self._cfg.protocol))
        if broken:
            return Compared("verdict", recorded, ("rejected", broken))
        judge, why = self._judge(found)
        if judge is not None:
            if self._last is None or self._last[0] != found.file:
                self._last = (found.file, self._verified(found.file, judge))
            verdict = self._last[1][found.episode.id]
            return Compared("verdict", recorded, ("valid" if verdict.valid else "rejected", verdict.rule or None))
        rules = ("malformed", *self._cfg.referee.rules)
        if game["rule"] in rules:
            return Compared("verdict", recorded, "no rule is broken")
        return Untold("verdict", f"every rule is kept, as on record; {why}")

    def _judge(self, found: Found) -> tuple[Judge | None, str]:
        """Who verifies, or why nobody can."""
        cfg = self._cfg
        if cfg.judge.kind != "exact" or cfg.referee.verifier == "judge":
            return None, "the rest was an endpoint's or another model's word"
        if corpora.elsewhere(cfg, corpora.TRAIN) and cfg.referee.verifier != "none":
            return None, "the documents that the verifier read are at a server"
        folder: Path | None = None
        if cfg.referee.verifier != "solver":
            folder = build.model_dir(cfg, SOLVER)
        else:
            live = self._live[found.entry["round"], found.entry["incarnation"]]
            if len(live) != 1:
                return None, "which version of the solver verified it is not on record"
            folder = self._weights.folder(SOLVER, *live)
        if folder is None:
            return None, "the weights of the solver that verified it are gone"
        if folder not in self._judges:
            self._judges = {folder: Judge(cfg, folder)}
        return self._judges[folder], ""

    @cached_property
    def _live(self) -> defaultdict[tuple[int, int], set[int]]:
        """Round and incarnation → the versions that answered there: of a solver of its own round, the one that verified.
        Past versions in a league did not, and in flight an answer may be of newer weights than the verdict."""
        found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for row in [] if self._cfg.schedule.in_flight else self._records.played(SOLVER):
            if row["kind"] == ATTEMPT and not row["past"] and (version := row["policy_version_max"] or -1) >= 0:
                found[row["round"], row["incarnation"]].add(version)
        return found

    def _verified(self, file: Path, judge: Judge) -> dict[str, Verdict]:
        """Verdicts of a whole block, by episode."""
        block = self._records.block(file)
        self._read({document.id for found in block for document in found.episode.documents})
        episodes = [
            replace(found.episode, documents=[self._documents[document.id] for document in found.episode.documents])
            for found in block
        ]
        verdicts, _ = judge.verify(episodes, [str(found.game.get("target")) for found in block])
        return {episode.id: verdict for episode, verdict in zip(episodes, verdicts, strict=True)}

    def _read(self, ids: set[str]) -> None:
        """What the documents say, from the corpus. InputError for one that it does not have."""
        left = ids - set(self._documents)
        if not left:
            return
        path = corpora.named(self._cfg, [corpora.TRAIN])[corpora.TRAIN]
        if path.is_dir():
            from ssp.search.index.store import DOCUMENTS

            path = path / DOCUMENTS
        for passage in stream_corpus(path):
            if passage.document.id in left:
                self._documents[passage.document.id] = passage.document
                left.discard(passage.document.id)
                if not left:
                    return
        raise InputError("a run's corpus has the documents that it found", min(left), f"restore {path}")

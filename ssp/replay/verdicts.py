"""A proposal's verdict, given again.

Owns the block that a proposal was verified in: noise is drawn from what the others of it found, and the verifier answers
them in one batch. Promises the referee, the verifier and the judge of training, on the corpus' own documents. Refuses to
ask an endpoint: where one decided, or the documents are elsewhere, only the rules are applied again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssp import build, corpora, protocols
from ssp.data.readers import stream_corpus
from ssp.episode import SOLVER, Document, Verdict
from ssp.errors import InputError
from ssp.referee.rules import broken_rule
from ssp.replay.compared import Compared, Result, Untold
from ssp.replay.record import Found, Records
from ssp.replay.weights import Weights
from ssp.workers.judge import Judge


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
        if game["verdict"] == "void":
            return Untold("verdict", f"it is void: {game['rule']}")
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
        if not found.episode.seed:
            return None, "the seed that its noise documents were drawn with is not on record"
        if corpora.elsewhere(cfg, corpora.TRAIN) and cfg.referee.verifier != "none":
            return None, "the documents that the verifier read are at a server"
        folder: Path | None = None
        if cfg.referee.verifier != "solver":
            folder = build.model_dir(cfg, SOLVER)
        else:
            graders = [other.entry.get("opponent_version_max") for other in self._records.block(found.file)]
            version = next((version for version in graders if version is not None), None)
            folder = None if version is None else self._weights.folder(SOLVER, version)
        if folder is None:
            return None, "the weights of the solver that verified it are gone"
        if folder not in self._judges:
            self._judges = {folder: Judge(cfg, folder)}
        return self._judges[folder], ""

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
            from ssp.index.store import DOCUMENTS

            path = path / DOCUMENTS
        for passage in stream_corpus(path):
            if passage.document.id in left:
                self._documents[passage.document.id] = passage.document
                left.discard(passage.document.id)
                if not left:
                    return
        raise InputError("a run's corpus has the documents that it found", min(left), f"restore {path}")

"""Episodes replayed along their records: every token is forced, and all that follows from the
tokens is done again. What cannot be compared is named, with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ssp.base.episode import Document, Episode, Outcome, State, Verdict
from ssp.base.errors import InputError, hold
from ssp.base.tokenlog import Kind, TokenLog
from ssp.data.readers import stream_corpus
from ssp.game import corpora, protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.rules import broken_rule
from ssp.search.index.store import DOCUMENTS
from ssp.selfplay.workers import build
from ssp.selfplay.workers.judge import Judge
from ssp.views.replay import priced
from ssp.views.replay.compared import BOUNDS, Result, compared, lists, untold
from ssp.views.replay.record import KEEP, RecordedEpisode, Records, Weights
from ssp.views.replay.tape import along

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_KINDS = {int(kind): kind.name.lower() for kind in Kind}

SMALL = 200_000_000
"""Parameters of a model that is computed in float64."""

Models = Callable[[int], "PreTrainedModel"]
"""Version → its model."""


class Forced:
    """Replays of one run's episodes. `bound`: by how much a log-prob may differ; None: what
    `BOUNDS` has for the engine."""

    def __init__(self, records: Records, bound: float | None = None) -> None:
        self._records = records
        self._cfg = records.cfg
        self._bound = bound
        self._weights = Weights(records.run, records.cfg, records.versions)
        self._verdicts = Verdicts(records, self._weights)
        self._renderers: dict[str, Renderer] = {}

    def check(self, episodes: Sequence[RecordedEpisode]) -> list[list[Result]]:
        """What is the same and what is not, an episode each, in order. InputError where weights are
        gone."""
        return [
            [*self._again(played), *self._verdict(played), self._logprobs(played)]
            for played in episodes
        ]

    def _again(self, played: RecordedEpisode) -> list[Result]:
        """Compare parse, reward, and the rollout along the record; of a void episode its text."""
        record = played.episode
        cfg = self._cfg
        renderer = self._renderer(played.policy)
        results = priced.check(record, cfg, renderer.tokenizer, played.entry, played.game)
        if record.outcome is Outcome.VOID:
            return [*results, untold("turns", f"the episode is void: {record.cause}")]
        if cfg.block(played.policy).agent:
            return [*results, untold("turns", "an agent's code played them")]

        temperature = played.temperature(cfg)
        round_ = played.entry.get("round")
        settings = build.settings(cfg, played.policy, temperature, round_)
        now = along(record, self._records.task(played), renderer, settings)
        return [
            *results,
            lists("ids", record.log.ids, now.log.ids),
            lists("mask", _kinds(record.log), _kinds(now.log)),
            compared("drops", record.log.drops, now.log.drops),
            compared("searches", (record.queries, record.hits), (now.queries, now.hits)),
            compared("stopped", record.stopped, now.stopped),
        ]

    def _verdict(self, played: RecordedEpisode) -> list[Result]:
        """The verdict on a proposal; nothing for an episode of who answers."""
        if played.policy != self._cfg.spec.asker:
            return []
        entry = played.entry
        verdict = played.game.get("verdict")
        state = entry.get("state")
        outcomes = (played.episode.outcome, entry.get("outcome"))
        if Outcome.VOID in outcomes or state == State.VOIDED:
            # its game may be another one's
            return [untold("verdict", f"the proposal is void: {entry['cause']}")]
        if verdict is None and state == State.GRADING:
            return [untold("verdict", "it is not given yet")]
        if verdict not in ("valid", "rejected"):
            due = f"one of valid and rejected, as the proposal is {state}"
            return [compared("verdict", verdict, due)]
        return [self._verdicts.of(played)]

    def _logprobs(self, played: RecordedEpisode) -> Result:
        """Recorded beside computed log-probs of the tokens that the policy wrote."""
        log = played.episode.log
        role = played.policy
        folders = {}
        gone = []
        for version in played.versions:
            folder = self._weights.folder(role, version)
            if folder is None:
                gone.append(f"v{version}")
            else:
                folders[version] = folder
        hold(
            not gone,
            "log-probs are computed from the checkpoint of their version; save.keep decides how"
            " long one is kept",
            f"{played.episode.id} was drawn by the {role}'s {', '.join(gone)}, which is gone",
            f"{KEEP}; --all replays those whose checkpoints are there",
        )
        now = recompute(
            log, played.temperature(self._cfg), lambda version: _model(folders[version])
        )

        written = np.asarray(log.versions) >= 0
        differences = np.where(written, np.abs(np.asarray(log.logprobs) - now), 0.0)
        differences[~np.isfinite(differences)] = np.inf
        largest = float(differences.max(initial=0.0))
        count = int(written.sum())

        bound = self._bound
        if bound is None:
            bound = BOUNDS[self._cfg.block(role).engine.dtype]
        beyond = np.flatnonzero(differences > bound)
        at = int(beyond[0]) if len(beyond) else None
        said = "same" if at is None else f"DIFFERS at token {at}"
        said += f", those of {count} drawn tokens differ by {largest:.2g} at most (bound {bound:g})"
        return Result("log-probs", at is None, said, at, count=count, largest=largest)

    def _renderer(self, role: str) -> Renderer:
        """The protocol in the words of the role's start model, which all its versions share."""
        if role not in self._renderers:
            cfg = self._cfg
            kept = self._weights.kept(role)
            folder = kept[max(kept)] if kept else build.model_dir(cfg, role, self._records.run)
            protocol = build.protocol(cfg, role)
            template = cfg.block(role).template
            self._renderers[role] = Renderer(protocol, build.tokenizer(folder), template)
        return self._renderers[role]


def _kinds(log: TokenLog) -> list[str]:
    """The tokens' kinds by name; a number that is no kind stays one."""
    return [_KINDS.get(kind, str(kind)) for kind in log.kinds]


@lru_cache(maxsize=8)
def _model(folder: Path) -> PreTrainedModel:
    """The folder's model; a small one in float64, so that only the engine's rounding is left."""
    from ssp.learning.checkpoint import load_model

    model = load_model(folder)
    return model.double() if model.num_parameters() < SMALL else model  # type: ignore[no-any-return]


def recompute(log: TokenLog, temperature: float, models: Models) -> np.ndarray:
    """Float64 [T]: log-probs of the tokens that the policy wrote (those with a version), 0
    elsewhere."""
    out = np.zeros(len(log))
    ids = np.asarray(log.ids)
    versions = np.asarray(log.versions)
    begin = 0
    for positions, _ in log.views():
        # What the policy recalled is not trained, and was sampled all the same.
        sampled = (versions[positions] >= 0) & (positions >= begin)
        begin = int(positions[-1]) + 1
        drawn_by = np.where(sampled, versions[positions], -1).tolist()
        if sampled.any():
            out[positions[sampled]] = _context(ids[positions], drawn_by, temperature, models)
    return out


@torch.no_grad()
def _context(
    ids: np.ndarray, drawn_by: list[int], temperature: float, models: Models
) -> np.ndarray:
    """Log-probs of the tokens that were sampled in one context. `drawn_by`: each token's version,
    -1 where it was not sampled. Every version reads its stretch over the keys and values of those
    before it: the version that draws a token has read the token before."""
    readers = [-1]
    for version in reversed(drawn_by[1:]):
        readers.append(version if version >= 0 else readers[-1])
    cache, at = None, 0
    parts = []
    for version, stretch in groupby(readers[:0:-1]):
        end = at + len(list(stretch))
        if version < 0:  # what follows the last sampled token predicts none
            break
        following = torch.from_numpy(ids[at + 1 : end + 1])
        kept = torch.tensor([place for place in range(end - at) if drawn_by[at + place + 1] >= 0])
        read: Any = models(version)(
            torch.from_numpy(ids[None, at:end]),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=kept,
        )
        cache = read.past_key_values
        logits = read.logits[0].to(torch.promote_types(read.logits.dtype, torch.float32))
        if temperature not in (0.0, 1.0):
            logits = logits / temperature
        logprobs = torch.log_softmax(logits, dim=-1)
        parts.append(logprobs.gather(1, following[kept, None])[:, 0])
        at = end
    return torch.cat(parts).double().numpy()


class Verdicts:
    """Verdicts of one run's proposals, given again with their whole blocks, since a question's
    noise is drawn from what the others found. No endpoint is asked. Only the rules are applied
    where an endpoint decided, where the documents are elsewhere, or where it is not certain which
    solver verified."""

    def __init__(self, records: Records, weights: Weights) -> None:
        self._records = records
        self._cfg = records.cfg
        self._weights = weights
        self._judges: dict[Path, Judge] = {}
        self._documents: dict[str, Document] = {}
        self._last: tuple[str, dict[str, Verdict]] = ("", {})

    def of(self, played: RecordedEpisode) -> Result:
        """The verdict on record beside the one now."""
        cfg = self._cfg
        game = played.game
        recorded = (game["verdict"], game["rule"])
        if not cfg.spec.refereed:
            return untold("verdict", "the game's own check gave it")
        protocol = protocols.get(cfg.protocol)
        broken = broken_rule(played.episode, game["target"], cfg.referee, protocol)
        if broken:
            return compared("verdict", recorded, ("rejected", broken))
        judge, why = self._judge(played)
        if judge is not None:
            if self._last[0] != played.file:
                self._last = (played.file, self._verified(played.file, judge))
            verdict = self._last[1][played.episode.id]
            now = ("valid" if verdict.valid else "rejected", verdict.rule or None)
            return compared("verdict", recorded, now)
        if game["rule"] in ("malformed", *cfg.referee.rules):
            return compared("verdict", recorded, "no rule is broken")
        return untold("verdict", f"every rule is kept, as on record; {why}")

    def _judge(self, played: RecordedEpisode) -> tuple[Judge | None, str]:
        """Who verifies, or why nobody can."""
        cfg = self._cfg
        verifier = self._cfg.referee.verifier
        if cfg.judge.kind != "exact" or verifier == "judge":
            return None, "the rest was an endpoint's or another model's word"
        if len(cfg.asking.tools) > 1 and verifier != "none":
            return None, "what tools gave, which the verifier read, is not on record"
        if corpora.elsewhere(cfg, corpora.TRAIN) and verifier != "none":
            return None, "the documents that the verifier read are at a server"

        folder: Path | None = None
        if verifier != "solver":
            folder = build.model_dir(cfg, cfg.spec.answerer, self._records.run)
        else:
            live = self._live[played.entry["round"], played.entry["incarnation"]]
            if len(live) == 1:
                folder = self._weights.folder(cfg.spec.answerer, *live)
        if folder is None:
            return None, "which solver verified it is not on record, or its weights are gone"
        if folder not in self._judges:  # without a guide, which changes no verdict
            asker = cfg.spec.asker
            block = replace(cfg.block(asker), reward_options={})
            self._judges = {folder: Judge(replace(cfg, blocks=cfg.blocks | {asker: block}), folder)}
        return self._judges[folder], ""

    @cached_property
    def _live(self) -> defaultdict[tuple[int, int], set[int]]:
        """Round and incarnation → the versions that answered there. The solver that verified is of
        its round's own version. A league's past versions verify nothing, and in flight an answer
        may be of newer weights than the verdict."""
        live: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        if self._cfg.schedule.in_flight:
            return live
        for row in self._records.played(self._cfg.spec.answerer):
            version = row["policy_version_max"] or -1
            answers = row["kind"] == self._cfg.spec.answers
            if answers and not row["past"] and version >= 0:
                live[row["round"], row["incarnation"]].add(version)
        return live

    def _verified(self, file: str, judge: Judge) -> dict[str, Verdict]:
        """Verdicts of a whole block, by episode."""
        block = self._records.block(file)
        episodes = [played.episode for played in block]
        if self._cfg.referee.verifier != "none":  # else nobody reads what they say
            episodes = self._with_texts(episodes)
        verdicts, _ = judge.verify(episodes, [self._records.asked(played) for played in block])
        return {episode.id: verdict for episode, verdict in zip(episodes, verdicts, strict=True)}

    def _with_texts(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with what their documents say, of which transcripts have the ids alone."""
        self._read({document.id for episode in episodes for document in episode.documents})
        filled = []
        for episode in episodes:
            documents = [self._documents[document.id] for document in episode.documents]
            filled.append(replace(episode, documents=documents))
        return filled

    def _read(self, ids: set[str]) -> None:
        """Read what the documents say from the corpus. InputError for one that it does not have."""
        left = ids - set(self._documents)
        if not left:
            return
        path = corpora.named(self._cfg, [corpora.TRAIN])[corpora.TRAIN]
        for passage in stream_corpus(path / DOCUMENTS if path.is_dir() else path):
            if passage.document.id in left:
                self._documents[passage.document.id] = passage.document
                left.discard(passage.document.id)
            if not left:
                return
        raise InputError(
            "a run's corpus has the documents that it found", min(left), f"restore {path}"
        )

"""The referee: one verdict for each proposed question.

Owns the order of checking (rules, then one verifier pass over the survivors, then its evidence), the counts by rule, and
what the verifier gets to read: the proposer's own documents among noise, and the question. Promises that a check that
cannot run never passes (law 6), that a fault gives a void verdict and never a valid or a rejected one (law 2), that any
other exception goes up, and that the material depends on the seeds, the episode's documents and the pool only (law 7).
Refuses to know rewards, solvers, or true answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ssp.base.episode import Document, Episode, Outcome, Verdict
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.base.seeds import derive, generator
from ssp.config.schema import RefereeConfig
from ssp.game.judge import AnswerJudge, Item
from ssp.game.protocols import Protocol
from ssp.game.referee.evidence import EVIDENCE
from ssp.game.referee.rules import broken_rule
from ssp.game.referee.verifier import Verifier

T = TypeVar("T")
Blocks = list[list[Document]]


def own_documents(episode: Episode) -> list[Document]:
    """The proposer's documents, each id once, in the order found."""
    return list({document.id: document for document in episode.documents}.values())


def pick_noise(episode: Episode, pool: Sequence[Document], k: int, seed: int) -> Blocks:
    """`k` documents of `pool` that the episode has not found (all of them when there are fewer), a block each."""
    return _draw(episode, [[document] for document in _others(episode, pool)], k, seed)


def pick_trajectories(episode: Episode, proposals: Sequence[Episode], k: int, seed: int) -> Blocks:
    """The whole material of `k` other proposals (SSP's noise), less what the episode has found; a block each.

    The draw does not depend on the order of `proposals`. Void ones are left out: what they found is a matter of luck.
    """
    others = [other for other in proposals if other is not episode and other.outcome is not Outcome.VOID]
    others.sort(key=lambda other: (other.seed, other.id))
    blocks = [_others(episode, other.documents) for other in others]
    return _draw(episode, [block for block in blocks if block], k, seed)


def fit(
    episode: Episode, noise: Blocks, seed: int, together: bool, write: Callable[[list[Document]], T | None]
) -> T | None:
    """What `write` makes of the shuffled material; None when it takes not even one own document.

    `write` gives None for material that is too long: then noise goes first, a block at a time, and after it the oldest
    own documents. `together`: the own documents are one block too.
    """
    own, others = own_documents(episode), list(noise)
    while own:
        blocks = [own] if together else [[document] for document in own]
        blocks += others
        order = generator(seed, "referee", "order", episode.seed).permutation(len(blocks))
        written = write([document for i in order for document in blocks[i]])
        if written is not None:
            return written
        if others:
            others.pop()
        else:
            own.pop(0)
    return None


def _others(episode: Episode, pool: Sequence[Document]) -> list[Document]:
    own = {document.id for document in episode.documents}
    return list({document.id: document for document in pool if document.id not in own}.values())


def _draw(episode: Episode, blocks: Blocks, k: int, seed: int) -> Blocks:
    chosen = generator(seed, "referee", "noise", episode.seed).permutation(len(blocks))[:k]
    return [blocks[i] for i in chosen]


Noise = Callable[[Episode], list[Document]]

CHECKS = ("not_answerable", "unquoted_evidence", "unlinked_evidence")
"""What the verifier's output can fail, in order: it is not the target; no own document says so; not of this question."""


class Referee:
    """Checks proposals in batches. `counts`: verdicts so far by rule id, `valid`, and `void/<cause>`.

    `verifier` is there exactly when `cfg.verifier` names one; `judge` decides whether its answer is the target.
    """

    def __init__(
        self, cfg: RefereeConfig, protocol: Protocol, verifier: Verifier | None, judge: AnswerJudge, seed: int = 0
    ) -> None:
        if (cfg.verifier == "none") != (verifier is None):
            raise InvariantError(f"referee.verifier={cfg.verifier}, but the verifier given is {verifier}")
        if verifier is None and cfg.evidence != "none":
            raise InputError(
                f"referee.evidence={cfg.evidence} checks the verifier's quotes, so it needs a verifier",
                "referee.verifier=none",
                "set referee.evidence=none too, or referee.verifier=frozen",
            )
        self._cfg, self._protocol, self._verifier, self._judge = cfg, protocol, verifier, judge
        self._seed = seed
        self.counts: Counter[str] = Counter()

    def check(self, episodes: Sequence[Episode], targets: Sequence[str], noise: Noise) -> list[Verdict]:
        """One verdict an episode, in order. `noise` gives the documents from which an episode's noise is drawn."""
        if len(episodes) != len(targets):
            raise InvariantError(f"{len(episodes)} episodes but {len(targets)} targets")
        verdicts = [self._by_rules(episode, target) for episode, target in zip(episodes, targets, strict=True)]
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if self._verifier is not None and left:
            judged = self._by_verifier(self._verifier, episodes, left, targets, noise)
            for i, verdict in zip(left, judged, strict=True):
                verdicts[i] = verdict
        self.counts.update(
            f"void/{verdict.void_cause}" if verdict.void_cause else verdict.rule or "valid" for verdict in verdicts
        )
        return verdicts

    def _by_rules(self, episode: Episode, target: str) -> Verdict:
        if episode.outcome is Outcome.VOID:
            return Verdict(valid=False, void_cause=episode.cause)
        rule = broken_rule(episode, target, self._cfg, self._protocol)
        return Verdict(valid=not rule, rule=rule)

    def _by_verifier(
        self, verifier: Verifier, block: Sequence[Episode], rows: Sequence[int], targets: Sequence[str], noise: Noise
    ) -> list[Verdict]:
        """A verdict for each of `rows`; one whose evidence does not fit into a prompt gets no output, and fails."""
        prompts = {i: self._prompt(verifier, block[i], block, noise) for i in rows}
        shown = [i for i in rows if prompts[i] is not None]
        seeds = [derive(self._seed, "referee", block[i].seed) for i in shown]
        outputs: dict[int, str | Fault] = dict.fromkeys(rows, "")
        outputs.update(zip(shown, verifier.answers([prompts[i] for i in shown], seeds), strict=True))
        texts = {i: output for i, output in outputs.items() if isinstance(output, str)}
        finals = {i: verifier.form.final(verifier.role, text) for i, text in texts.items()}
        items = [Item(block[i].final or "", [targets[i]], final) for i, final in finals.items()]
        decisions = dict(zip(finals, self._judge.decide(items), strict=True))
        verdicts = []
        for i in rows:
            output = outputs[i]
            if isinstance(output, Fault):
                verdicts.append(Verdict(valid=False, void_cause=output.cause))
            elif decisions[i].right is None:
                verdicts.append(Verdict(valid=False, void_cause=decisions[i].void_cause))
            else:
                rule = self._broken_check(block[i], targets[i], verifier.form, output, bool(decisions[i].right))
                verdicts.append(Verdict(valid=not rule, rule=rule))
        return verdicts

    def _broken_check(self, episode: Episode, target: str, form: Protocol, output: str, right: bool) -> str:
        """Id of the first of `CHECKS` that the verifier's output fails, "" when it passes all."""
        evidence = EVIDENCE[self._cfg.evidence]
        passed = (
            lambda: right,
            lambda: evidence.stands(episode, target, form, output),
            lambda: evidence.leads(episode, target, form, output),
        )
        return next((id for id, check in zip(CHECKS, passed, strict=True) if not check()), "")

    def _prompt(self, verifier: Verifier, episode: Episode, block: Sequence[Episode], noise: Noise) -> Any | None:
        """The verifier's prompt about `episode`; None when not one of its own documents fits."""
        k = self._cfg.noise_trajectories
        if k:
            blocks = pick_trajectories(episode, block, k, self._seed)
        else:
            blocks = pick_noise(episode, noise(episode), self._cfg.noise_documents, self._seed)
        question = episode.final or ""
        return fit(episode, blocks, self._seed, bool(k), lambda documents: verifier.write(documents, question))

"""The referee: one verdict for each proposed question.

Owns the order of checking (rules, then one greedy verifier pass over the survivors) and the counts by rule.
Promises that a check that cannot run never passes (law 6), that a fault gives a void verdict and never a valid or a
rejected one (law 2), and that any other exception goes up. Refuses to know rewards, solvers, or true answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ssp.config.schema import RefereeConfig
from ssp.engines import Engine, Sampling
from ssp.episode import Document, Episode, Outcome, Verdict
from ssp.errors import Fault, InputError, InvariantError
from ssp.protocols import Protocol
from ssp.referee.evidence import pick_noise, prompt_ids
from ssp.referee.rules import VERIFIER, broken_check, broken_rule
from ssp.seeds import derive

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Noise = Callable[[Episode], list[Document]]


class Referee:
    """Checks proposals in batches. `counts`: verdicts so far by rule id, `valid`, and `void/<cause>`.

    `prompt_tokens` bounds the verifier's prompt, `answer_tokens` its output; both in tokens.
    """

    def __init__(
        self,
        cfg: RefereeConfig,
        protocol: Protocol,
        tokenizer: PreTrainedTokenizerBase,
        engine: Engine | None,
        seed: int = 0,
        prompt_tokens: int = 768,
        answer_tokens: int = 64,
    ) -> None:
        self._verifies = cfg.verifier != "none"
        if not self._verifies and cfg.evidence != "none":
            raise InputError(
                f"referee.evidence={cfg.evidence} checks the verifier's quotes, so it needs a verifier",
                "referee.verifier=none",
                "set referee.evidence=none too, or referee.verifier=frozen",
            )
        if self._verifies and engine is None:
            raise InputError("a verifier needs an engine", "none was given", "set referee.verifier=none or give one")
        self._cfg, self._protocol, self._tokenizer, self._engine = cfg, protocol, tokenizer, engine
        self._seed, self._prompt_tokens, self._answer_tokens = seed, prompt_tokens, answer_tokens
        self.counts: Counter[str] = Counter()

    def check(self, episodes: Sequence[Episode], targets: Sequence[str], noise: Noise) -> list[Verdict]:
        """One verdict an episode, in order. `noise` gives the documents from which an episode's noise is drawn."""
        if len(episodes) != len(targets):
            raise InvariantError(f"{len(episodes)} episodes but {len(targets)} targets")
        verdicts = [self._by_rules(episode, target) for episode, target in zip(episodes, targets, strict=True)]
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if self._verifies and left:
            judged = self._by_verifier([episodes[i] for i in left], [targets[i] for i in left], noise)
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

    def _by_verifier(self, episodes: Sequence[Episode], targets: Sequence[str], noise: Noise) -> list[Verdict]:
        """Verdicts from one greedy pass; an episode whose evidence does not fit gets no output and fails the checks."""
        prompts = [self._prompt(episode, noise) for episode in episodes]
        shown = [i for i, prompt in enumerate(prompts) if prompt is not None]
        try:
            texts = self._answers([prompts[i] or [] for i in shown], [episodes[i] for i in shown])
        except Fault as fault:
            return [Verdict(valid=False, void_cause=fault.cause) for _ in episodes]
        outputs = dict(zip(shown, texts, strict=True))
        rules = [
            broken_check(episode, target, self._cfg, self._protocol, outputs.get(i, ""))
            for i, (episode, target) in enumerate(zip(episodes, targets, strict=True))
        ]
        return [Verdict(valid=not rule, rule=rule) for rule in rules]

    def _prompt(self, episode: Episode, noise: Noise) -> list[int] | None:
        others = pick_noise(episode, noise(episode), self._cfg.noise_documents, self._seed)
        return prompt_ids(episode, others, self._protocol, self._encode, self._prompt_tokens, self._seed)

    def _answers(self, prompts: list[list[int]], episodes: Sequence[Episode]) -> list[str]:
        """The verifier's texts, greedy, all prompts in one batch."""
        if not prompts:
            return []
        if self._engine is None:
            raise InvariantError("a verifier without an engine was built")
        stops = tuple(self._encode(stop)[0] for stop in self._protocol.stops(VERIFIER))
        sampling = Sampling(temperature=0.0, max_tokens=self._answer_tokens, stop_ids=stops)
        slots = self._engine.open([derive(self._seed, "referee", episode.seed) for episode in episodes])
        try:
            generations = self._engine.step(slots, prompts, sampling)
        finally:
            self._engine.close(slots)
        # spaces are never cleaned up: " ." must stay what the verifier wrote
        return [
            str(self._tokenizer.decode(generation.ids, clean_up_tokenization_spaces=False))
            for generation in generations
        ]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))
